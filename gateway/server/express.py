"""The express lane: the few hot operations answered before Flask dispatch, by the same handlers."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from gateway.ids import new_hex
from gateway.server.heads import Handler, RequestHead
from gateway.surfaces.cors import Browsers
from gateway.surfaces.hosts import Hosts
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.proxies import Proxies
from gateway.surfaces.wsgi import FREE_BODY, MAX_BODY, NO_PROXIES, REFUSAL, StartResponse, read_inbound, start

Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

# A request with one of these takes the long way, where it is dealt with once for all operations.
ODD = ("HTTP_CONTENT_ENCODING", "HTTP_TRANSFER_ENCODING", "HTTP_EXPECT", "HTTP_UPGRADE")
NO_PARAMS: dict[str, str] = {}


class ExpressLane:
    """A WSGI application around another: `table` holds handlers by exact (method, path), the rest goes through.
    `settle` gives the exact path of one that is spelled otherwise; `pages` are let in where a request has an Origin.

    The gateway's own worker asks `find` and `answer` and saves the way through an environ. The handlers map errors to
    replies themselves and leave framing to the server; `on_crash` logs an unexpected exception of one and makes its
    reply.
    """

    def __init__(
        self,
        application: Application,
        table: Mapping[tuple[str, str], Handler],
        on_crash: Callable[[Inbound, Exception], Outbound],
        settle: Callable[[str], str] = str,
        pages: Browsers | None = None,
        *,
        max_body: int = MAX_BODY,
        proxies: Proxies = NO_PROXIES,
        hosts: Hosts | None = None,
        public_url: str = "",
    ) -> None:
        self._application = application
        self._table = dict(table)
        self._paged = {key: let_in(handler, pages) for key, handler in table.items()} if pages else self._table
        self._settle = settle
        self._on_crash = on_crash
        self._max_body = max_body
        self._free_body = min(FREE_BODY, max_body)
        self._proxies = proxies
        self._proxied = proxies.named
        self._hosts = hosts or Hosts()
        self._public_url = public_url.rstrip("/")

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        handler = self.find(environ)
        if handler is None or REFUSAL in environ or not self._has_fair_length(environ):
            return self._application(environ, start_response)
        inbound = read_inbound(
            environ,
            max_body=self._max_body,
            proxies=self._proxies,
            public_url=self._public_url,
        )
        try:
            outbound = handler(inbound)
        except Exception as error:
            outbound = self._on_crash(inbound, error)
        return start(outbound, start_response)

    def find(self, environ: MutableMapping[str, Any]) -> Handler | None:
        """The handler of a plain request for a hot operation, whatever its length; its path is then put right."""
        path = self._settle(environ.get("PATH_INFO", ""))
        table = self._paged if "HTTP_ORIGIN" in environ else self._table
        handler = table.get((environ["REQUEST_METHOD"], path))
        if handler is None or any(key in environ for key in ODD):
            return None
        if not self._hosts.allows(environ.get("HTTP_HOST", ""), path):
            return None
        environ["PATH_INFO"] = path
        return handler

    def answer(self, handler: Handler, head: RequestHead, body: bytes, base: Mapping[str, Any]) -> Outbound:
        """The answer of `handler` to a request that the worker read itself; `base` is the environ of its connection."""
        headers, peer = head.headers, base["REMOTE_ADDR"]
        if self._proxied:
            peer = self._proxies.caller(peer, headers)
        base_url = self._public_url or f"{head.scheme(base)}://{head.host}"
        inbound = Inbound(
            head.method, head.path, headers, body, head.query, peer, base_url, NO_PARAMS, new_hex(), head.sender
        )
        try:
            return handler(inbound)
        except Exception as error:
            return self._on_crash(inbound, error)

    def _has_fair_length(self, environ: Mapping[str, Any]) -> bool:
        """Whether a GET comes without a body, anything else with one that anyone may send."""
        length = environ.get("CONTENT_LENGTH") or ""
        if environ["REQUEST_METHOD"] == "GET":
            return not length
        return length.isascii() and length.isdigit() and len(length) < 10 and 0 < int(length) <= self._free_body


def let_in(handler: Handler, pages: Browsers) -> Handler:
    """`handler` whose answers a page of another origin may read."""

    def handle(inbound: Inbound) -> Outbound:
        outbound = handler(inbound)
        outbound.headers = [*outbound.headers, *pages.headers(inbound.header("origin"))]
        return outbound

    return handle
