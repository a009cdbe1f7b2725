"""The express lane: answers the few hot operations before Flask dispatch, with the same handlers."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from gateway.ids import new_hex
from gateway.server.request_heads import Handler, RequestHead
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.origins import Browsers, Hosts, Proxies, takes_keys
from gateway.surfaces.web.request_targets import PATH_MODEL, Addresses, hide_credentials, use_path_model
from gateway.surfaces.web.wsgi import (
    FREE_BODY,
    MAX_BODY,
    NO_PROXIES,
    REFUSAL,
    StartResponse,
    read_inbound,
    read_path,
    start,
)

Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

# A request with one of these headers goes through Flask, where it is handled once for all operations.
FLASK_HEADERS = ("HTTP_CONTENT_ENCODING", "HTTP_TRANSFER_ENCODING", "HTTP_EXPECT", "HTTP_UPGRADE")
NO_PARAMS: dict[str, str] = {}
NO_ADDRESSES = Addresses(())


class ExpressLane:
    """A WSGI application around another: `table` maps exact (method, path) to handlers; other requests go to the inner
    application.

    `addresses` correct the spelling of a path; `pages` are the allowed browser origins. The gateway's own worker calls
    `find` and `answer` directly, without an environ. Handlers turn errors into responses and leave framing to the
    server; `on_crash` logs a handler's unexpected exception and returns its response.
    """

    def __init__(
        self,
        application: Application,
        table: Mapping[tuple[str, str], Handler],
        on_crash: Callable[[Inbound, Exception], Outbound],
        addresses: Addresses = NO_ADDRESSES,
        pages: Browsers | None = None,
        *,
        max_body: int = MAX_BODY,
        proxies: Proxies = NO_PROXIES,
        hosts: Hosts | None = None,
        public_url: str = "",
    ) -> None:
        self._application = application
        self._table = dict(table)
        self._paged = self._table
        if pages:
            self._paged = self._table | {
                key: allow_origins(handler, pages) for key, handler in table.items() if takes_keys(key[1])
            }
        self._addresses = addresses
        self._on_crash = on_crash
        self._max_body = max_body
        self._free_body = min(FREE_BODY, max_body)
        self._proxies = proxies
        self._proxied = proxies.named
        self._hosts = hosts or Hosts()
        self._public_url = public_url.rstrip("/")

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        hide_credentials(environ)
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
        """Return the handler of a plain request to a hot operation, whatever its length; corrects the path."""
        asked = environ.get("PATH_INFO", "")
        path = self._addresses.settle(asked)
        table = self._paged if "HTTP_ORIGIN" in environ else self._table
        handler = table.get((environ["REQUEST_METHOD"], path))
        if handler is None or any(key in environ for key in FLASK_HEADERS):
            return None
        if not self._hosts.allows(environ.get("HTTP_HOST", ""), path):
            return None
        if path == asked:
            return handler
        model = environ[PATH_MODEL] = self._addresses.model_of(read_path(environ))
        environ["PATH_INFO"] = path
        return use_path_model(handler, model) if model else handler

    def answer(self, handler: Handler, head: RequestHead, body: bytes, base: Mapping[str, Any]) -> Outbound:
        """Return the response of `handler` to a request that the worker read; `base` is the environ of its
        connection."""
        headers = head.headers
        peer = base["REMOTE_ADDR"]
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
        """Return whether a GET has no body, and any other request has one of permitted size."""
        length = environ.get("CONTENT_LENGTH") or ""
        if environ["REQUEST_METHOD"] == "GET":
            return not length
        return length.isascii() and length.isdigit() and len(length) < 10 and 0 < int(length) <= self._free_body


def allow_origins(handler: Handler, pages: Browsers) -> Handler:
    """Wrap `handler` so that pages of other origins may read its responses."""

    def handle(inbound: Inbound) -> Outbound:
        outbound = handler(inbound)
        outbound.headers = [*outbound.headers, *pages.headers(inbound.header("origin"))]
        return outbound

    return handle
