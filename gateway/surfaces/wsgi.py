"""Between WSGI (PEP 3333) and the surfaces: an environ to an Inbound, an Outbound to start_response and a body."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import zstandard

from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.surfaces.exchange import Inbound, Outbound

MAX_BODY = 32 * 1024 * 1024
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus} | {
    499: "499 Client Closed Request",
    529: "529 Overloaded",
}
# zlib's wbits: 47 tells gzip from zlib by itself; "deflate" without the zlib wrapper is -15 (RFC 9110, 8.4.1.2).
GZIP_OR_ZLIB, BARE_DEFLATE = 47, -15
PLAIN_CODINGS = ("", "identity")
ZLIB_CODINGS = ("gzip", "x-gzip", "deflate")
ZSTD = "zstd"
# The environ's key for the id that an answer carries which no handler has made.
REQUEST_ID = "gateway.request_id"

Environ = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


def read_inbound(
    environ: Environ,
    params: dict[str, str] | None = None,
    *,
    max_body: int = MAX_BODY,
    ip_header: str = "",
    public_url: str = "",
) -> Inbound:
    """The request with its whole body, a gzip, deflate or zstd coding undone and its header taken away.

    `max_body` (bytes) holds before and after decoding: RequestTooLarge; another coding: UnsupportedMediaType; a
    broken one: InvalidRequest. `ip_header` (lower case, "" = none) is believed, `public_url` beats the Host.
    """
    headers = read_headers(environ)
    body = read_body(environ, max_body)
    coding = headers.get("content-encoding")
    if coding is not None:
        body = decode_body(body, coding, max_body)
        del headers["content-encoding"]
        headers["content-length"] = str(len(body))
    return Inbound(
        method=environ["REQUEST_METHOD"],
        path=read_path(environ),
        headers=headers,
        body=body,
        query=environ.get("QUERY_STRING", ""),
        peer=read_peer(environ.get("REMOTE_ADDR", ""), headers, ip_header),
        base_url=public_url.rstrip("/") or read_base_url(environ),
        params={} if params is None else params,
    )


def start(outbound: Outbound, start_response: StartResponse, head_only: bool = False) -> Iterable[bytes]:
    """Begin the answer and give its body: bytes as a list of one, an iterator as it is (the server closes it).

    With `head_only` (a HEAD request) an iterator is closed here and nothing follows the headers.
    """
    body = outbound.body
    headers = outbound.headers
    if isinstance(body, bytes):
        if outbound.status not in (204, 304) and not any(name.lower() == "content-length" for name, _ in headers):
            headers = [*headers, ("Content-Length", str(len(body)))]
        start_response(write_status(outbound.status), headers)
        return [] if head_only else [body]
    start_response(write_status(outbound.status), headers)
    if head_only:
        close = getattr(body, "close", None)
        if close is not None:
            close()
        return []
    return body


def write_status(status: int) -> str:
    """The status with its phrase, as WSGI wants it."""
    return STATUS_LINES.get(status) or f"{status} Unknown"


@lru_cache(maxsize=1024)
def header_name(key: str) -> str:
    """The lower-case header name of a WSGI key; "" for a key that is none."""
    if key.startswith("HTTP_"):
        return key[5:].replace("_", "-").lower()
    return key.replace("_", "-").lower() if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else ""


def read_headers(environ: Environ) -> dict[str, str]:
    """All request headers by lower-case name."""
    headers = {}
    for key, value in environ.items():
        name = header_name(key)
        if name and value:
            headers[name] = value
    return headers


def read_body(environ: Environ, max_body: int) -> bytes:
    """The body as sent. Without a length it is read to its end where the server marks one, else there is none."""
    text = environ.get("CONTENT_LENGTH") or ""
    if text and not (text.isascii() and text.isdigit()):
        raise InvalidRequest("Content-Length is not a number.", code="malformed_request")
    length = int(text) if text else None
    if length is None and not environ.get("wsgi.input_terminated"):
        return b""
    if length is not None and length > max_body:
        raise too_large(max_body)
    body = environ["wsgi.input"].read(max_body + 1 if length is None else length)
    if len(body) > max_body:
        raise too_large(max_body)
    if length is not None and len(body) < length:
        raise InvalidRequest("The request body is shorter than its Content-Length.", code="malformed_request")
    return body


def decode_body(body: bytes, coding: str, max_body: int) -> bytes:
    """Undo Content-Encoding `coding`; never more than `max_body` bytes are made."""
    name = coding.strip().lower()
    if name in PLAIN_CODINGS:
        return body
    if name == ZSTD:
        return _unpack_zstd(body, max_body)
    if name not in ZLIB_CODINGS:
        raise UnsupportedMediaType("The request body may be encoded as gzip, deflate or zstd only.")
    bare = name == "deflate" and not _is_zlib(body)
    try:
        return _inflate(body, BARE_DEFLATE if bare else GZIP_OR_ZLIB, max_body)
    except zlib.error:
        raise InvalidRequest(f"The request body is not valid {name}.", code="malformed_request") from None


def _unpack_zstd(body: bytes, max_body: int) -> bytes:
    """All frames of `body` (RFC 8878); never more than `max_body` bytes are made.

    The reader stops at the cap but takes a cut frame for whole; so it measures, and what fits is unpacked with a check.
    """
    engine = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    try:
        if len(engine.stream_reader(body, read_across_frames=True).read(max_body + 1)) > max_body:
            raise too_large(max_body)
        while body:
            frame = engine.decompressobj()
            parts.append(frame.decompress(body))
            if not frame.eof:
                raise zstandard.ZstdError("cut")
            body = frame.unused_data
    except zstandard.ZstdError:
        raise InvalidRequest("The request body is not valid zstd.", code="malformed_request") from None
    return b"".join(parts)


def _is_zlib(body: bytes) -> bool:
    """Whether the two header bytes of zlib stand there (RFC 1950, 2.2)."""
    return len(body) >= 2 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0


def _inflate(body: bytes, wbits: int, max_body: int) -> bytes:
    """All members of `body`; zlib.error when it is broken or cut."""
    parts: list[bytes] = []
    left = max_body
    while body:
        engine = zlib.decompressobj(wbits)
        part = engine.decompress(body, left + 1)
        left -= len(part)
        if left < 0:
            raise too_large(max_body)
        if not engine.eof:
            raise zlib.error("cut")
        parts.append(part)
        body = engine.unused_data
    return b"".join(parts)


def read_path(environ: Environ) -> str:
    """PATH_INFO as text: WSGI carries UTF-8 in Latin-1 clothes."""
    path: str = environ.get("PATH_INFO", "") or "/"
    return path if path.isascii() else path.encode("latin-1").decode("utf-8", "replace")


def read_peer(address: str, headers: Mapping[str, str], ip_header: str) -> str:
    """The caller's address: the first entry of the configured header, else `address`, the socket's."""
    if ip_header:
        named = headers.get(ip_header, "").partition(",")[0].strip()
        if named:
            return named
    return address


def read_base_url(environ: Environ) -> str:
    """Scheme, host and mount point as the caller wrote them, without a slash at the end."""
    host = environ.get("HTTP_HOST") or f"{environ.get('SERVER_NAME', '')}:{environ.get('SERVER_PORT', '')}"
    return f"{environ.get('wsgi.url_scheme', 'http')}://{host}{environ.get('SCRIPT_NAME', '')}".rstrip("/")


def too_large(max_body: int) -> RequestTooLarge:
    """The error of a body over `max_body` bytes."""
    return RequestTooLarge(f"The request body is larger than {max_body} bytes.")
