"""The express lane: the few hot operations answered before Flask dispatch, by the same handlers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.surfaces.exchange import Inbound, Outbound
from gateway.surfaces.wsgi import MAX_BODY, StartResponse, read_inbound, start

Handler = Callable[[Inbound], Outbound]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

# A request with one of these takes the long way, where it is dealt with once for all operations.
ODD = ("HTTP_CONTENT_ENCODING", "HTTP_TRANSFER_ENCODING", "HTTP_EXPECT", "HTTP_UPGRADE")


class ExpressLane:
    """A WSGI application around another: `table` holds handlers by exact (method, path), the rest goes through.

    The handlers map errors to replies themselves; `on_crash` logs an unexpected exception of one and makes its reply.
    """

    def __init__(
        self,
        application: Application,
        table: Mapping[tuple[str, str], Handler],
        on_crash: Callable[[Inbound, Exception], Outbound],
        *,
        max_body: int = MAX_BODY,
        ip_header: str = "",
        public_url: str = "",
    ) -> None:
        self._application = application
        self._table = dict(table)
        self._on_crash = on_crash
        self._max_body = max_body
        self._ip_header = ip_header
        self._public_url = public_url

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        handler = self._table.get((environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")))
        if handler is None or self._is_odd(environ):
            return self._application(environ, start_response)
        inbound = read_inbound(
            environ,
            max_body=self._max_body,
            ip_header=self._ip_header,
            public_url=self._public_url,
        )
        try:
            outbound = handler(inbound)
        except Exception as error:
            outbound = self._on_crash(inbound, error)
        return start(outbound, start_response)

    def _is_odd(self, environ: Mapping[str, Any]) -> bool:
        """Whether anything but a plain request with a body of fair length stands there."""
        for key in ODD:
            if key in environ:
                return True
        if environ["REQUEST_METHOD"] == "GET":
            return bool(environ.get("CONTENT_LENGTH"))
        length = environ.get("CONTENT_LENGTH") or ""
        return not (length.isascii() and length.isdigit() and 0 < int(length) <= self._max_body)
