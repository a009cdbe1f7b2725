"""Outgoing requests: the parts of a URL and the bytes of a request."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.errors import UpstreamUnreachable

PORTS = {"http": 80, "https": 443}
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
PRODUCT = "llmgateway"
LOOP_HEADER = "cdn-loop"  # RFC 8586
URL_LIMIT = 8192
# Set by this client alone: a second length or a transfer coding would allow request smuggling.
FRAMING = frozenset(
    {"content-length", "transfer-encoding", "connection", "expect", "te", "trailer", "upgrade", "proxy-authorization"}
)


JOIN_BYTES = 65_536  # the largest body that is copied behind its head, so that both are sent at once
SLICE_BYTES = 1 << 18


class Origin(NamedTuple):
    """The destination of connections. `trusted` and `named` (by a caller, in a request) are part of it, so that a
    guarded call never uses a connection that was opened without the guard."""

    scheme: str
    host: str
    port: int
    trusted: bool
    named: bool = False


class UpstreamAddress(Struct, frozen=True):
    """A parsed URL. `host` is the Host header, `target` the path and query of the request line.

    For a proxy that forwards the request, `target` is the whole URL, and `proxy_authorization` the header for it.
    """

    origin: Origin
    host: str
    target: str
    proxy_authorization: str = ""

    def through_proxy(self, authorization: str) -> "UpstreamAddress":
        """Return the address as a request to a proxy names it (RFC 9112, section 3.2.2)."""
        target = f"{self.origin.scheme}://{self.host}{self.target}"
        return UpstreamAddress(self.origin, self.host, target, authorization)


def read_url(url: str, trusted: bool, named: bool = False) -> UpstreamAddress:
    """Parse an absolute http or https URL. UpstreamUnreachable (code invalid_address) for anything else.

    The error never contains the URL, because its query may be a credential.
    """
    if len(url) > URL_LIMIT:
        raise _invalid(f"The provider's address is longer than {URL_LIMIT} characters.")
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        host = _ascii_host(parts.hostname or "")
        url.encode("ascii")
    except (ValueError, KeyError):
        raise _invalid("The provider's address is not a valid http or https URL.") from None
    if "@" in parts.netloc:
        raise _invalid("The provider's address must not contain a user name or password.")
    if any(c <= " " or c == "\x7f" for c in url):
        raise _invalid("The provider's address contains a space or control character.")
    shown = f"[{host}]" if ":" in host else host
    header = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return UpstreamAddress(Origin(parts.scheme, host, port, trusted, named), header, target)


class CallHead(Struct, frozen=True):
    """A request without length and body: identical for all calls of a URL with the same headers.

    `bodied`: its length is sent even without a body. `bodiless`: its response has no body. `repeatable`: it may be sent
    again when it is unknown whether it arrived.
    """

    origin: Origin
    opening: bytes
    bodied: bool
    bodiless: bool
    repeatable: bool

    def with_body(self, body: bytes) -> bytes:
        """Return the whole message (RFC 9112)."""
        if body or self.bodied:
            return self.opening + b"content-length: %d\r\n\r\n" % len(body) + body
        return self.opening + b"\r\n"

    def with_length(self, length: int) -> bytes:
        """Return the head of a message with a body of `length` bytes."""
        return self.opening + b"content-length: %d\r\n\r\n" % length

    def __repr__(self) -> str:
        return f"Head({self.origin})"  # the headers contain a credential


def slices(body: bytes) -> Iterator[memoryview]:
    """Return views of a long body in parts, without copying."""
    view = memoryview(body)
    return (view[start : start + SLICE_BYTES] for start in range(0, len(view), SLICE_BYTES))


def write_head(method: str, place: UpstreamAddress, headers: Mapping[str, str]) -> CallHead:
    """Return the head of a request. UpstreamUnreachable for a header with a line break."""
    lines = [f"{method} {place.target} HTTP/1.1", f"host: {place.host}"]
    names = set()
    for name, value in headers.items():
        lowered = name.lower()
        names.add(lowered)
        if lowered != "host" and lowered not in FRAMING:
            lines.append(f"{lowered}: {value}")
    if "accept-encoding" not in names:
        lines.append("accept-encoding: identity")
    if "user-agent" not in names:
        lines.append(f"user-agent: {PRODUCT}")
    if place.proxy_authorization:
        lines.append(f"proxy-authorization: {place.proxy_authorization}")
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise _invalid("A header for the provider contains a line break; check the configured key.")
    try:
        opening = head.encode("latin-1") + b"\r\n"
    except UnicodeEncodeError:
        raise _invalid("A header for the provider contains a character outside Latin-1; check the key.") from None
    repeatable = method == "GET"  # RFC 9110, section 9.2.2
    return CallHead(place.origin, opening, method in BODY_METHODS, method == "HEAD", repeatable)


def _ascii_host(host: str) -> str:
    if not host or "%" in host:
        raise ValueError("no host")
    if host.isascii():
        return host
    return host.encode("idna").decode("ascii").lower()


def _invalid(message: str) -> UpstreamUnreachable:
    return UpstreamUnreachable(message, code="invalid_address")
