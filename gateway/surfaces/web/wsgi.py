"""Adapter between WSGI (PEP 3333) and the surfaces: an environ to an Inbound, an Outbound to start_response and a
body."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from gateway.errors import InvalidRequest
from gateway.runtime.large_files import PIECE_BYTES, StoredFile, copy
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.http_responses import write_status
from gateway.surfaces.web.origins import Proxies
from gateway.surfaces.web.request_decompression import Run, decode_body, is_coded, too_large

MAX_BODY = 32 * 1024 * 1024
# A plain body up to this size is read from any caller; a longer or encoded one only after its headers were
# authenticated.
FREE_BODY = 16 * 1024
# The environ's key for the request id of a response that no handler created.
REQUEST_ID = "gateway.request_id"
# The environ's keys for a server's rejection, to be written in the dialect of the path, and for the counter of bytes
# that the request holds.
REFUSAL = "gateway.refusal"
HELD_KEY = "gateway.held"
# The environ's key for the connection of a protocol upgrade request (Inbound.channel).
CHANNEL = "gateway.channel"
# The environ's key for a form that the server has stored already.
UPLOAD = "gateway.upload"

NO_PROXIES = Proxies()

Environ = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


def read_inbound(
    environ: Environ,
    params: dict[str, str] | None = None,
    *,
    max_body: int = MAX_BODY,
    proxies: Proxies = NO_PROXIES,
    public_url: str = "",
    admit: Callable[[Mapping[str, str]], object] | None = None,
    run: Run | None = None,
    max_form: int = MAX_BODY,
    spool_dir: str = "",
) -> Inbound:
    """Return the request with its whole body, decompressed (gzip, deflate or zstd) and without Content-Encoding. The
    body of a multipart form, at most `max_form` bytes, is in `upload`; a large one is stored in `spool_dir`.

    `max_body` (bytes) applies before and after decompression: RequestTooLarge; another encoding: UnsupportedMediaType;
    a corrupt one: InvalidRequest. `proxies` determine the caller's address, `public_url` takes precedence over Host.
    `admit` is called with the headers before a long or encoded body is read, and raises; `run` moves long work off the
    event loop.
    """
    headers = read_headers(environ)
    coding = headers.get("content-encoding")
    if admit is not None and (is_coded(coding) or not _is_short(environ)):
        admit(headers)
    upload: StoredFile | None = None
    if is_form(headers) and not is_coded(coding):
        upload = environ.get(UPLOAD) or store_body(environ, max_form, spool_dir)
        body = b""
    else:
        body = read_body(environ, max_body)
    if coding is not None:
        held = environ.get(HELD_KEY)
        body = decode_body(body, coding, max_body, run, held.grow if held is not None else int)
        del headers["content-encoding"]
        headers["content-length"] = str(len(body))
        if upload is None and is_form(headers):
            upload = StoredFile.of(body)
            body = b""
    return Inbound(
        method=environ["REQUEST_METHOD"],
        path=read_path(environ),
        headers=headers,
        body=body,
        query=environ.get("QUERY_STRING", ""),
        peer=proxies.caller(environ.get("REMOTE_ADDR", ""), headers),
        base_url=public_url.rstrip("/") or read_base_url(environ),
        params={} if params is None else params,
        upload=upload,
        channel=environ.get(CHANNEL),
    )


def _is_short(environ: Environ) -> bool:
    """Return whether there is no body, or one of a declared length that any caller may send."""
    text = environ.get("CONTENT_LENGTH") or ""
    if not text:
        return "HTTP_TRANSFER_ENCODING" not in environ
    return len(text) < 10 and text.isascii() and text.isdigit() and int(text) <= FREE_BODY


def start(outbound: Outbound, start_response: StartResponse, head_only: bool = False) -> Iterable[bytes]:
    """Start the response and return its body: bytes as a list of one item, an iterator unchanged (the server closes
    it).

    With `head_only` (a HEAD request) an iterator is closed here and nothing follows the headers.
    """
    body = outbound.body
    headers = outbound.headers
    if isinstance(body, bytes):
        if outbound.status not in (204, 304) and not any(name.lower() == "content-length" for name, _ in headers):
            headers = [*headers, ("Content-Length", str(len(body)))]
        start_response(write_status(outbound.status), headers)
        if head_only:
            return []
        return [body]
    start_response(write_status(outbound.status), headers)
    if head_only:
        close = getattr(body, "close", None)
        if close is not None:
            close()
        return []
    return body


@lru_cache(maxsize=1024)
def header_name(key: str) -> str:
    """Return the lower-case header name of a WSGI key; "" for any other key."""
    if key.startswith("HTTP_"):
        return key[5:].replace("_", "-").lower()
    if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        return key.replace("_", "-").lower()
    return ""


def read_headers(environ: Environ) -> dict[str, str]:
    """Return all request headers by lower-case name."""
    headers = {}
    for key, value in environ.items():
        name = header_name(key)
        if name and value:
            headers[name] = value
    return headers


def read_body(environ: Environ, max_body: int) -> bytes:
    """Return the body as sent. Without a Content-Length it is read to its end if the server marks one, else it is
    empty."""
    text = environ.get("CONTENT_LENGTH") or ""
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidRequest("Content-Length is not a number.", code="malformed_request")
    length = int(text) if text else None
    if length is None and not environ.get("wsgi.input_terminated"):
        return b""
    if length is not None and length > max_body:
        raise too_large(max_body)
    body: bytes = environ["wsgi.input"].read(max_body + 1 if length is None else length)
    if len(body) > max_body:
        raise too_large(max_body)
    if length is not None and len(body) < length:
        raise InvalidRequest("The request body is shorter than its Content-Length.", code="malformed_request")
    return body


def is_form(headers: Mapping[str, str]) -> bool:
    """Return whether the body is a multipart form (RFC 7578)."""
    return headers.get("content-type", "").lstrip().lower().startswith("multipart/form-data")


def store_body(environ: Environ, maximum: int, folder: str) -> StoredFile:
    """Return the body as sent, on the disk where it is large. Raises RequestTooLarge beyond `maximum` bytes."""
    text = environ.get("CONTENT_LENGTH") or ""
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if length > maximum:
        raise too_large(maximum)
    file = StoredFile(folder)
    left = length
    source = environ["wsgi.input"]
    if length < 0:
        if environ.get("wsgi.input_terminated"):
            copy(source.read, file, maximum, lambda: too_large(maximum))
        return file
    while left and (data := source.read(min(PIECE_BYTES, left))):
        file.write(data)
        left -= len(data)
    if left:
        raise InvalidRequest("The request body is shorter than its Content-Length.", code="malformed_request")
    return file


def read_path(environ: Environ) -> str:
    """Return PATH_INFO as text: WSGI passes UTF-8 bytes decoded as Latin-1."""
    path: str = environ.get("PATH_INFO", "") or "/"
    if path.isascii():
        return path
    return path.encode("latin-1").decode("utf-8", "replace")


def read_base_url(environ: Environ) -> str:
    """Return scheme, host and mount point as the caller wrote them, without a slash at the end."""
    host = environ.get("HTTP_HOST") or f"{environ.get('SERVER_NAME', '')}:{environ.get('SERVER_PORT', '')}"
    return f"{environ.get('wsgi.url_scheme', 'http')}://{host}{environ.get('SCRIPT_NAME', '')}".rstrip("/")
