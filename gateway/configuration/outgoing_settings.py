"""Settings of outgoing connections: forward proxies, names that are reached without one, further authorities,
e-mail."""

from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from gateway.configuration.setting_checks import url_problem
from gateway.configuration.value_parsing import NumberRange

SCHEME = "http://"
DEFAULT_PORT = 3128
DIRECT = "direct"  # as the proxy of a provider: none


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """A check for the address of a forward proxy; "" means none."""

    def check(self, value: str) -> None:
        if value and (problem := proxy_problem(value)):
            raise ValueError(problem)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """`http_proxy` and `https_proxy` are chosen by the scheme of the destination."""

    https_proxy: Annotated[str, ProxyAddress()] = field(repr=False)
    http_proxy: Annotated[str, ProxyAddress()] = field(repr=False)
    no_proxy: tuple[str, ...]
    check_names: bool
    ca_file: str


def proxy_problem(value: str) -> str:
    """Return why a proxy cannot be used, without quoting a part of its address; "" if it can."""
    scheme, separator, _ = value.partition("://")
    if separator and scheme.lower() != "http":
        return "only proxies with an http:// address are supported, which tunnel TLS by CONNECT"
    if not separator and "@" in value:
        return "write http:// before the user of a proxy"
    problem = url_problem(_with_scheme(value), ("http",))
    if not problem and split_proxy(value).path.strip("/"):
        return "the address of a proxy has no path"
    return problem


def split_proxy(value: str) -> SplitResult:
    """Return the parts of a valid proxy address, which may lack its scheme."""
    return urlsplit(_with_scheme(value))


def proxy_credentials(value: str) -> tuple[str, str] | None:
    """Return user and password of a proxy address; None without them."""
    parts = split_proxy(value)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _with_scheme(value: str) -> str:
    if "://" in value:
        return value
    return SCHEME + value


# The settings of e-mail.

MAIL_PASSWORD = "GATEWAY_MAIL_PASSWORD"  # the secret of `username`


@dataclass(frozen=True, slots=True)
class MailSettings:
    """Settings of the SMTP server. `host` "": no e-mail is sent."""

    host: str
    port: Annotated[int, NumberRange(1, 65535)]
    security: Literal["starttls", "tls", "none"]
    username: str
    sender: str
    ca_file: str
