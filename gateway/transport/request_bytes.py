"""What goes out: the parts of a URL and the bytes of a request."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.errors import UpstreamUnreachable

PORTS = {"http": 80, "https": 443}
BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
REPEATABLE_METHODS = frozenset({"GET", "HEAD"})  # RFC 9110, section 9.2.2: harmless to ask twice
PRODUCT = "llmgateway"
LOOP_HEADER = "cdn-loop"  # RFC 8586
URL_LIMIT = 8192
# Ours alone: a second length or a transfer coding beside it would let one request be read as two.
FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "expect", "te", "trailer", "upgrade"})


JOIN_BYTES = 65_536  # of a body that is copied behind its head, so that both leave at once
SLICE_BYTES = 1 << 18


class Origin(NamedTuple):
    """Where connections go. `trusted`, and `named` (by a caller, in a request), are part of it: a call under a guard
    never meets a socket that went past it."""

    scheme: str
    host: str
    port: int
    trusted: bool
    named: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """A URL taken apart. `host` is the Host header, `target` path and query as they stand in the request line."""

    origin: Origin
    host: str
    target: str


def read_url(url: str, trusted: bool, named: bool = False) -> UpstreamAddress:
    """Take an absolute http or https URL apart. UpstreamUnreachable (code invalid_address) for anything else.

    The text of the error never holds the URL: its query may be a credential.
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
        raise _invalid("The provider's address must not hold a user name or password.")
    if any(c <= " " or c == "\x7f" for c in url):
        raise _invalid("The provider's address holds a space or control character.")
    shown = f"[{host}]" if ":" in host else host
    if port == PORTS[parts.scheme]:
        header = shown
    else:
        header = f"{shown}:{port}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return UpstreamAddress(Origin(parts.scheme, host, port, trusted, named), header, target)


class CallHead(Struct, frozen=True):
    """A request but for its length and body: the same bytes for every call of a URL with the same headers.

    `bodied`: its length is told even when there is no body. `bodiless`: its answer has no body. `repeatable`: it may
    be sent again when nobody knows whether it arrived.
    """

    origin: Origin
    opening: bytes
    bodied: bool
    bodiless: bool
    repeatable: bool

    def with_body(self, body: bytes) -> bytes:
        """The whole message (RFC 9112)."""
        if body or self.bodied:
            return self.opening + b"content-length: %d\r\n\r\n" % len(body) + body
        return self.opening + b"\r\n"

    def with_length(self, length: int) -> bytes:
        """The head of a message whose body of `length` bytes is sent after it."""
        return self.opening + b"content-length: %d\r\n\r\n" % length

    def __repr__(self) -> str:
        return f"Head({self.origin})"  # its headers hold a credential


def slices(body: bytes) -> Iterator[memoryview]:
    """A long body in parts that are no copies."""
    view = memoryview(body)
    return (view[start : start + SLICE_BYTES] for start in range(0, len(view), SLICE_BYTES))


def write_head(method: str, place: UpstreamAddress, headers: Mapping[str, str]) -> CallHead:
    """The head of a request. UpstreamUnreachable when a header could break out of its line."""
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
    head = "\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise _invalid("A header for the provider holds a line break; check the configured key.")
    try:
        opening = head.encode("latin-1") + b"\r\n"
    except UnicodeEncodeError:
        raise _invalid("A header for the provider holds a character outside Latin-1; check the key.") from None
    return CallHead(place.origin, opening, method in BODY_METHODS, method == "HEAD", method in REPEATABLE_METHODS)


def _ascii_host(host: str) -> str:
    if not host or "%" in host:
        raise ValueError("no host")
    if host.isascii():
        return host
    return host.encode("idna").decode("ascii").lower()


def _invalid(message: str) -> UpstreamUnreachable:
    return UpstreamUnreachable(message, code="invalid_address")
