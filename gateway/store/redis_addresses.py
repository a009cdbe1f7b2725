"""Reads REDIS_URL: one server, the Sentinels of a service, or nodes of a cluster."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.configuration import settings
from gateway.configuration.address_checks import BAD_PERCENT, BLANK, is_host
from gateway.configuration.file import SettingsError
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import redis
    import redis.cluster
    import redis.sentinel
else:
    redis = LazyImport("redis")

CONNECTIONS = 8
SENTINEL_PORT = 26379
PORT = 6379
ADDRESS_FORMS = (
    "use redis://host:6379/0, rediss://… or unix://path, redis+sentinel://host1:26379,host2/service/0, "
    "redis+cluster://host1:6379,host2, or leave it unset"
)

AUTHORITY_END = re.compile(r"[/?#]")
MAX_HOSTS = 1000


class AddressError(ValueError):
    """A mistake in an address, in words that quote no part of it."""


# Returns a client; that of a cluster connects when it is created, others on first use.
Connect = Callable[[], Any]


def connector(config: settings.RedisSettings) -> Connect:
    """Return the function that creates the client for the settings' URL. SettingsError for a bad URL."""
    try:
        _check_text(config.url)
        parts = urlsplit(config.url)
        scheme, _, kind = parts.scheme.partition("+")
        if not kind and scheme in ("redis", "rediss", "unix"):
            return _single(config, parts)
        if scheme not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
            raise AddressError("the scheme is unknown")
        options: dict[str, Any] = {"ssl": scheme == "rediss", **_timeouts(config)}
        credentials: dict[str, Any] = {"username": _decode(parts.username), "password": _decode(parts.password)}
        if kind == "sentinel":
            return _sentinel(parts, options, credentials)
        return _cluster(parts, options | credentials)
    except AddressError as error:
        raise SettingsError(f"REDIS_URL: {error}; {ADDRESS_FORMS}") from None
    except ValueError:  # its text quotes the address
        raise SettingsError(f"REDIS_URL: this address cannot be read; {ADDRESS_FORMS}") from None


def _check_text(url: str) -> None:
    """AddressError for an address in which a part of the password would be read as something else."""
    rest = url.partition("://")[2]
    boundary = AUTHORITY_END.search(rest)
    if BLANK.search(url):
        raise AddressError("an address has no blanks; write one in a password as %20")
    if rest.count("@") > 1 or (boundary and "@" in rest[boundary.start() :]):
        raise AddressError("write /, ?, #, @ and % in a user or password as %2F, %3F, %23, %40 and %25")
    if BAD_PERCENT.search(rest):
        raise AddressError("write a % in the user or password as %25")


def _single(config: settings.RedisSettings, parts: SplitResult) -> Connect:
    if parts.scheme != "unix":
        if parts.netloc.rpartition("@")[2]:
            _hosts(parts, PORT, 1)
        if parts.path.strip("/"):
            _number_of(parts.path.strip("/"))
    pool = redis.BlockingConnectionPool.from_url(
        config.url, max_connections=CONNECTIONS, timeout=config.timeout_s, **_timeouts(config)
    )
    try:
        pool.connection_class(**pool.connection_kwargs)  # does not connect
    except (TypeError, redis.RedisError):
        raise AddressError("an option of this address is unknown or has a bad value") from None
    return partial(redis.Redis, connection_pool=pool)


def _sentinel(parts: SplitResult, options: dict[str, Any], credentials: dict[str, Any]) -> Connect:
    """Return a client that asks the Sentinels for the master on each new connection. The user and password are for
    Redis; the query has those of the Sentinels."""
    service, _, number = parts.path.strip("/").partition("/")
    if not service:
        raise AddressError("the path must name the service")
    query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    if not query.keys() <= {"sentinel_username", "sentinel_password"}:
        raise AddressError("the query may contain sentinel_username and sentinel_password only")
    access = {name.removeprefix("sentinel_"): value for name, value in query.items()}
    sentinel = redis.sentinel.Sentinel(_hosts(parts, SENTINEL_PORT), sentinel_kwargs=options | access)
    return partial(sentinel.master_for, service, db=_number_of(number or "0"), **options, **credentials)


def _cluster(parts: SplitResult, options: dict[str, Any]) -> Connect:
    if parts.path not in ("", "/", "/0") or parts.query:
        raise AddressError("a cluster has database 0 only, and no options")
    hosts = _hosts(parts, PORT)

    def connect() -> "redis.RedisCluster":
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in hosts]
        return redis.RedisCluster(startup_nodes=nodes, **options)

    return connect


def _hosts(parts: SplitResult, default_port: int, most: int = MAX_HOSTS) -> list[tuple[str, int]]:
    addresses = [urlsplit(f"//{text}") for text in parts.netloc.rpartition("@")[2].split(",")]
    try:
        hosts = [(address.hostname or "", address.port or default_port) for address in addresses]
    except ValueError:
        raise AddressError("a port of this address cannot be one") from None
    if len(hosts) > most:
        raise AddressError("this address names several hosts")
    if not all(host for host, _ in hosts):
        raise AddressError("a host is empty")
    if not all(map(is_host, (host for host, _ in hosts))):
        raise AddressError("a host of this address cannot be one")
    return hosts


def _number_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise AddressError("the number of the database must be a whole number")
    return int(text)


def _timeouts(config: settings.RedisSettings) -> dict[str, float]:
    return {"socket_timeout": config.timeout_s, "socket_connect_timeout": config.timeout_s}


def _decode(text: str | None) -> str | None:
    if text is None:
        return None
    return unquote(text)
