"""Parses HTTP/1.1 requests: heads with the C parser, bodies by length or in chunks (RFC 9112)."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import gevent
import httptools
from msgspec import Struct

from gateway.errors import GatewayError, InvalidRequest
from gateway.surfaces.web.request_decompression import too_large

CHUNKED = -1
MAX_DIGITS = 18  # the most digits of a length that need no further check
CHUNK_LINE_BYTES = 1024
TRAILER_LINES = 64
# A body in tiny chunks costs time rather than bytes: this many chunks are free, beyond them each must have this many
# bytes.
FREE_CHUNKS = 512
MIN_CHUNK_BYTES = 16
CHUNKS_PER_TURN = 256
# RFC 9112, 7.1.1 and 5: what may follow a chunk's size, and a trailer line. Another server would read a bare line end
# or a null in it as the end of the line.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
CHUNK_LINE = re.compile(
    rb"([0-9a-fA-F]{1,15})(?:[ \t]*+;[ \t]*+%b(?:[ \t]*+=[ \t]*+(?:%b|%b))?)*+[ \t]*" % (_TOKEN, _TOKEN, _QUOTED)
)
REQUEST_LINE = re.compile(rb"%b [!-~\x80-\xff]++ HTTP/[0-9]\.[0-9]\r\n" % _TOKEN)
HOST = re.compile(r"[\w.~%!$&'()*+,;=-]*(?::[0-9]{0,5})?", re.ASCII)
BRACKETED = re.compile(r"\[([0-9a-fA-F:.]+)\](?::[0-9]{0,5})?")
TRAILER = re.compile(rb"(%b):[\t -~\x80-\xff]*" % _TOKEN)
# RFC 9110, 6.5.1: fields about framing or routing are not allowed as trailers, since a reader that applied them would
# read another message.
NO_TRAILERS = frozenset({b"content-length", b"transfer-encoding", b"host"})
# The C parser refuses a repeated length or transfer coding itself.
ONCE = frozenset({"CONTENT_TYPE", "HTTP_HOST", "HTTP_AUTHORIZATION"})
PLAIN_KEYS = {
    b"content-type": "CONTENT_TYPE",
    b"content-length": "CONTENT_LENGTH",
    # Some coding clients send these with an underscore.
    b"session_id": "HTTP_SESSION_ID",
    b"conversation_id": "HTTP_CONVERSATION_ID",
}


class ByteSource(Protocol):
    """The source of bodies; both methods raise ConnectionError when the caller disconnects in the middle."""

    def take(self, size: int) -> bytes: ...

    def take_to(self, write: Callable[[bytes], object], size: int) -> None: ...

    def take_line(self, limit: int) -> bytes: ...


class Framing(Struct):
    """The framing of a request: `length` is the body's bytes or CHUNKED; `expects`: the caller waits for 100 Continue
    before it sends the body."""

    modern: bool
    keep_alive: bool
    length: int
    expects: bool


class _HeadParser:
    """Collects one head into a WSGI environ; its methods are callbacks of the C parser."""

    __slots__ = ("complete", "environ", "problem", "target")

    def __init__(self, environ: dict[str, Any]) -> None:
        self.environ = environ
        self.target = b""
        self.complete = False
        self.problem = ""

    def on_url(self, url: bytes) -> None:
        if self.complete:
            self.problem = "The request head ends early."
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name_key(name)
        if key is None:
            return
        text = value.decode("latin-1").strip(" \t")
        known = self.environ.get(key)
        if known is None:
            self.environ[key] = text
        elif key in ONCE:
            self.problem = f"The header {name.decode('latin-1')} is given twice."
        else:
            self.environ[key] = f"{known}{'; ' if key == 'HTTP_COOKIE' else ','}{text}"

    def on_headers_complete(self) -> None:
        self.complete = True


@lru_cache(maxsize=1024)
def name_key(name: bytes) -> str | None:
    """Return the WSGI key of a header, None for a header to drop.

    A name with an underscore would be confused with the same name with a dash; `Proxy` would become HTTP_PROXY, which
    programs read as a setting.
    """
    plain = PLAIN_KEYS.get(name.lower())
    if plain is not None:
        return plain
    if b"_" in name or name.lower() == b"proxy":
        return None
    return "HTTP_" + name.decode("latin-1").upper().replace("-", "_")


def read_head(data: bytes, environ: dict[str, Any]) -> Framing:
    """Fill `environ` (without HTTP_ keys) from one head including its blank line. GatewayError if malformed."""
    if not REQUEST_LINE.match(data):
        # The C parser accepts a lone line end before the method and several spaces; other servers do not.
        raise malformed("The request line is not a method, a target and a version, with one space between them.")
    collected = _HeadParser(environ)
    parser = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise malformed(f"The request head cannot be read: {error}.") from None
    if collected.problem or not collected.complete:
        raise malformed(collected.problem or "The request head is incomplete.")
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise InvalidRequest("Only HTTP/1.1 and HTTP/1.0 are served.", code="http_version_not_supported", status=505)
    method = parser.get_method().decode("ascii")
    environ["REQUEST_METHOD"] = method
    environ["SERVER_PROTOCOL"] = f"HTTP/{version}"
    _read_target(collected.target, method, environ)
    return _read_framing(version == "1.1", environ)


def timeout_error() -> InvalidRequest:
    """Return the error of a request that stopped arriving."""
    return InvalidRequest("The request did not arrive in time.", code="request_timeout", status=408)


def malformed(message: str) -> GatewayError:
    """Return the error of a request that violates the protocol; its connection is closed."""
    return InvalidRequest(message, code="malformed_request")


def _read_target(target: bytes, method: str, environ: dict[str, Any]) -> None:
    """Read the origin form, absolute form or `*` (RFC 9112, 3.2); CONNECT is not supported."""
    if method == "CONNECT":
        raise InvalidRequest("CONNECT is not served.", code="method_not_allowed", status=405)
    environ["RAW_URI"] = target.decode("latin-1")
    if not target.startswith((b"/", b"*")):
        target = _strip_authority(target)
    path, _, query = target.partition(b"#")[0].partition(b"?")
    environ["QUERY_STRING"] = query.decode("latin-1")
    environ["PATH_INFO"] = (unquote_to_bytes(path) if b"%" in path else path).decode("latin-1")


def _strip_authority(target: bytes) -> bytes:
    scheme, mark, rest = target.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        raise malformed("The request target is neither a path nor an http address.")
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    left = rest[len(authority) :]
    if left.startswith(b"/"):
        return left
    return b"/" + left


def _read_framing(modern: bool, environ: Mapping[str, str]) -> Framing:
    """Return how the body is delimited (RFC 9112, 6.3). Anything that two parsers could read differently is refused."""
    get = environ.get
    host = get("HTTP_HOST")
    if host is None and modern:
        raise malformed("The header Host is missing.")
    if host and not _is_host(host):
        raise malformed("The header Host is not the name or address of a host.")
    expect = get("HTTP_EXPECT", "").lower()
    if expect not in ("", "100-continue"):
        raise InvalidRequest("Only Expect: 100-continue is served.", code="expectation_failed", status=417)
    connection = get("HTTP_CONNECTION")
    if connection is None:
        keep_alive = modern
    else:
        words = connection.lower()
        keep_alive = "close" not in words and (modern or "keep-alive" in words)
    return Framing(modern, keep_alive, _read_length(modern, environ), bool(expect) and modern)


def _is_host(text: str) -> bool:
    """Return whether it is a host with or without a port, as in Host (RFC 9110, 7.2; RFC 3986, 3.2.2)."""
    if HOST.fullmatch(text):
        return True
    match = BRACKETED.fullmatch(text)
    try:
        return match is not None and bool(IPv6Address(match[1]).packed)
    except ValueError:
        return False


def _read_length(modern: bool, environ: Mapping[str, str]) -> int:
    length = environ.get("CONTENT_LENGTH")
    coding = environ.get("HTTP_TRANSFER_ENCODING")
    if coding is not None:
        if length is not None or not modern:
            raise malformed("Transfer-Encoding is sent with Content-Length or in HTTP/1.0.")
        if coding.lower() != "chunked":
            raise InvalidRequest("Only the transfer coding chunked is served.", code="not_implemented", status=501)
        return CHUNKED
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise malformed("Content-Length is not a number.")
    return int(length)


def read_chunked(source: ByteSource, cap: int, grow: Callable[[int], object] = int) -> bytes:
    """Read a chunked body; see `take_chunks`."""
    body = bytearray()
    take_chunks(source, cap, body.extend, grow)
    return bytes(body)


def take_chunks(
    source: ByteSource, cap: int, write: Callable[[bytes], object], grow: Callable[[int], object] = int
) -> None:
    """Pass a chunked body (RFC 9112, 7.1) to `write`, without extensions and trailers; `grow` is called with each
    chunk's size before it is read. RequestTooLarge over `cap` bytes."""
    taken = count = 0
    while size := _read_chunk_size(source.take_line(CHUNK_LINE_BYTES)):
        taken += size
        if taken > cap:
            raise too_large(cap)
        grow(size)
        source.take_to(write, size)
        if source.take(2) != b"\r\n":
            raise malformed("A chunk is longer than its size.")
        count += 1
        if count % CHUNKS_PER_TURN == 0:
            if count > FREE_CHUNKS + taken // MIN_CHUNK_BYTES:
                raise malformed("The chunked body has too many small chunks.")
            gevent.sleep(0)
    for _ in range(TRAILER_LINES):
        line = source.take_line(CHUNK_LINE_BYTES)
        if not line:
            return
        match = TRAILER.fullmatch(line)
        if match is None or match[1].lower() in NO_TRAILERS:
            raise malformed("A trailer of the chunked body is not a header line.")
    raise malformed("The chunked body has too many trailers.")


def _read_chunk_size(line: bytes) -> int:
    match = CHUNK_LINE.fullmatch(line)
    if match is None:
        raise malformed("A chunk does not begin with its size as a hexadecimal number.")
    return int(match[1], 16)
