"""Parsed request heads, cached: a client sends the same head repeatedly, with only the body's length changed."""

from collections.abc import Callable, Mapping, MutableMapping
from io import BytesIO
from typing import Any

from gateway.runtime.large_files import FileReader, StoredFile
from gateway.server.connection import CallerConnection
from gateway.server.http1 import CHUNKED, MAX_DIGITS, read_head
from gateway.surfaces.web.http import Inbound, Outbound, Sender
from gateway.surfaces.web.request_decompression import is_coded
from gateway.surfaces.web.request_targets import hide_credentials
from gateway.surfaces.web.wsgi import UPLOAD, is_form, read_headers

Handler = Callable[[Inbound], Outbound]
# The usual spelling of Content-Length; a head with another spelling is parsed each time.
LENGTHS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
LENGTH_SIZE = len(LENGTHS[0])
CACHE_SIZE = 512
REMEMBERED_BYTES = 4096


class RequestHead:
    """A parsed request head without the body's length. Shared by all requests with this head, so it is never modified.

    `environ` are its WSGI keys, `headers` the same by lower-case name. `handler` is the express lane's handler, None
    when the request goes through Flask. `secure`: a trusted proxy says that the caller used TLS. `before` and `after`
    are the bytes on both sides of the length, b"" where it cannot be cached. `sender` is what the surfaces derived from
    `headers`. `coded`: the body has a content coding; `odd`: the body needs special handling whatever its length;
    `form`: it is a multipart form; `bare`: the response has no body; `filled`: whether the express lane requires a
    body, or, for a GET, no body.
    """

    __slots__ = (
        "method",
        "path",
        "query",
        "environ",
        "headers",
        "host",
        "secure",
        "modern",
        "keep_alive",
        *("expects", "coded", "odd", "form", "handler", "bare", "filled", "before", "after", "sender"),
    )

    def __init__(
        self, environ: dict[str, Any], modern: bool, keep_alive: bool, expects: bool, handler: Handler | None
    ) -> None:
        self.environ = environ
        self.modern = modern
        self.keep_alive = keep_alive
        self.expects = expects
        self.method = environ["REQUEST_METHOD"]
        self.path = environ["PATH_INFO"]
        self.query = environ["QUERY_STRING"]
        self.headers: Mapping[str, str] = read_headers(environ)
        self.host = environ.get("HTTP_HOST", "")
        # With several proxies, the first entry describes the caller.
        self.secure = self.headers.get("x-forwarded-proto", "").lower().startswith("https")
        self.coded = is_coded(self.headers.get("content-encoding"))
        self.odd = expects or self.coded
        self.form = is_form(self.headers)
        self.handler = handler if self.host else None
        self.bare = self.method == "HEAD"
        self.filled = self.method != "GET"
        self.before = self.after = b""
        self.sender = Sender()

    def environ_for(self, base: Mapping[str, Any], body: bytes | StoredFile, length: int) -> dict[str, Any]:
        """Return a new environ with the whole body, as if its length had been declared."""
        environ = {**base, **self.environ}
        if isinstance(body, bytes):
            environ["wsgi.input"] = BytesIO(body)
        else:
            environ["wsgi.input"] = FileReader(body)
            environ[UPLOAD] = body
        if length == CHUNKED:
            del environ["HTTP_TRANSFER_ENCODING"]
        if length or body:
            environ["CONTENT_LENGTH"] = str(len(body))
        environ["wsgi.url_scheme"] = self.scheme(base)
        return environ

    def scheme(self, base: Mapping[str, Any]) -> str:
        """Return the caller's scheme: the connection's, or https where a trusted proxy says so."""
        if self.secure and base["gateway.trusted_peer"]:
            return "https"
        scheme: str = base["wsgi.url_scheme"]
        return scheme


class HeadCache:
    """The most recently parsed heads. `find(environ)` returns the express lane's handler of a request, or None."""

    def __init__(self, find: Callable[[MutableMapping[str, Any]], Handler | None]) -> None:
        self._find = find
        self._known: dict[bytes, RequestHead] = {}

    def take(self, connection: CallerConnection) -> tuple[RequestHead, int] | None:
        """Return the next request's head and the length of its body or CHUNKED, None when the caller disconnected.
        GatewayError."""
        last: RequestHead | None = connection.head
        if last is not None:
            length = connection.take_repeated(last.before, last.after)
            if length >= 0:
                return last, length
        data = connection.take_head()
        if data is None:
            return None
        head, length = self.read(data)
        connection.head = head if head.before else None
        return head, length

    def read(self, data: bytes) -> tuple[RequestHead, int]:
        """Parse a head including its blank line; returns the head, and the length of its body or CHUNKED. GatewayError
        if malformed."""
        at = data.find(LENGTHS[0])
        if at < 0:
            at = data.find(LENGTHS[1])
        if at < 0:
            rest = data
            digits = b"0"
        else:
            end = data.find(b"\r\n", at + LENGTH_SIZE)
            rest = data[:at] + data[end:]
            digits = data[at + LENGTH_SIZE : end]
        head = self._known.get(rest)
        if head is not None and digits.isdigit() and len(digits) <= MAX_DIGITS:
            if at >= 0 and not head.before:
                head.before = data[: at + LENGTH_SIZE]
                head.after = data[end:]
            return head, int(digits)
        return self._read(data, rest, digits)

    def _read(self, data: bytes, rest: bytes, digits: bytes) -> tuple[RequestHead, int]:
        environ: dict[str, Any] = {}
        framing = read_head(data, environ)
        declared = environ.pop("CONTENT_LENGTH", "0")
        hide_credentials(environ)
        handler = self._find(environ)  # which also corrects the path's spelling
        head = RequestHead(environ, framing.modern, framing.keep_alive, framing.expects, handler)
        if framing.length != CHUNKED and declared.encode() == digits and _is_plain(data, rest):
            self._keep(rest, head)
        return head, framing.length

    def _keep(self, rest: bytes, head: RequestHead) -> None:
        if len(rest) > REMEMBERED_BYTES:
            return
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        self._known[rest] = head


def _is_plain(data: bytes, rest: bytes) -> bool:
    """Return whether exactly the length was cut out: a folded line could belong to it, and the rest could contain a
    second length in another spelling, which a cached head would hide."""
    return b"\r\n " not in data and b"\t" not in data and b"content-length" not in rest.lower()
