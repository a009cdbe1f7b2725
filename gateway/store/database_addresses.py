"""Checks DATABASE_URL and the replica's address, so that no error of the driver has to quote a part of them."""

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.setting_checks import BAD_PERCENT, BLANK, SCHEME, is_host, is_port, suggest_similar
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import psycopg
    import psycopg.conninfo
    import psycopg.pq
else:
    psycopg = LazyImport("psycopg")  # SQLite needs none

NAME = "DATABASE_URL"
REPLICA = "GATEWAY_DATABASE_REPLICA_URL"
SCHEMES = ("sqlite", "postgresql")
KNOWN_URLS = "sqlite:///path or postgresql://user:password@host/database"
ESCAPES = "write /, ?, #, @ and % in a user or password as %2F, %3F, %23, %40 and %25"
# Options with fixed values (libpq, "Parameter Key Words"); a wrong one is an error at the first connection only.
CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "channel_binding": ("disable", "prefer", "require"),
    "gssencmode": ("disable", "prefer", "require"),
    "load_balance_hosts": ("disable", "random"),
    "sslnegotiation": ("postgres", "direct"),
    "sslcertmode": ("disable", "allow", "require"),
}
NUMBERS = frozenset(
    (
        *("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "sslsni", "sslcompression"),
    )
)
MAX_NUMBER = 2**31 - 1


def check_scheme(config: settings.DatabaseSettings) -> None:
    """SettingsError for an address that cannot be one, without quoting any part that may be a password."""
    if config.scheme not in SCHEMES or (config.url and "://" not in config.url):
        named, separator, _ = config.url.partition("://")
        known = "this address" if not separator or not SCHEME.fullmatch(named) else f"{named}://"
        raise SettingsError(f"{NAME}: {known} is not known; use {KNOWN_URLS}")
    if config.scheme == "postgresql":
        _check_postgresql(NAME, config.url)
    if not config.replica_url:
        return
    if config.scheme != "postgresql" or settings.scheme_of(config.replica_url) != "postgresql":
        raise SettingsError(f"{REPLICA}: a replica and its primary must both be postgresql://…")
    _check_postgresql(REPLICA, config.replica_url)


def _check_postgresql(name: str, url: str) -> None:
    problem = postgresql_problem(url)
    if problem:
        raise SettingsError(f"{name}: {problem}")


def postgresql_problem(url: str) -> str:
    """Return why the address of a PostgreSQL server is invalid, without quoting any part that may be a password; ""
    for a valid one."""
    _, separator, rest = url.partition("://")
    if not separator:
        return f"use {KNOWN_URLS}"
    if BLANK.search(url):
        return "an address has no blanks; write one in a password as %20"
    if rest.count("@") > 1:
        return "write an @ in the user or password as %40"
    if "@" in rest.partition("/")[2]:
        return f"the user and the password stand before the host; {ESCAPES}"
    if BAD_PERCENT.search(rest):
        return "write a % in the user or password as %25"
    options = {keyword.keyword.decode() for keyword in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    query = rest.rpartition("@")[2].partition("?")[2]
    for option, _ in parse_qsl(query, keep_blank_values=True):
        if option not in options:
            return f"the address has an option that is not known{suggest_similar(option, options)}"
    try:
        known = psycopg.conninfo.conninfo_to_dict("postgresql://" + rest)
    except (psycopg.Error, ValueError):
        return f"this address cannot be read; {ESCAPES}"
    texts = {option: str(value) for option, value in known.items()}
    return _place_problem(texts) or _option_problem(texts)


def _place_problem(known: dict[str, str]) -> str:
    hosts = known.get("host", "").split(",") if known.get("host") else []
    if not all(host.startswith(("/", "@")) or is_host(host) for host in hosts):
        return f"the host of this address cannot be one; {ESCAPES}"
    ports = known.get("port", "").split(",") if known.get("port") else []
    if not all(not port or is_port(port) for port in ports):
        return f"the port of this address cannot be one; {ESCAPES}"
    if len(ports) > 1 and len(ports) != len(hosts):
        return "the address needs a port for each host, or one for all"
    return ""


def _option_problem(known: dict[str, str]) -> str:
    for option, choices in CHOICES.items():
        if option in known and known[option] not in choices:
            return f"{option} is one of {', '.join(choices)}"
    for option in NUMBERS & known.keys():
        text = known[option].removeprefix("-")
        if not (text.isascii() and text.isdigit() and int(text[:12]) <= MAX_NUMBER):
            return f"{option} is a whole number"
    return ""
