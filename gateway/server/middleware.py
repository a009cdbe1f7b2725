"""WSGI middleware before Flask: corrects paths, handles CORS, checks the host, adds a request id to the response, and
reports requests that were rejected before they reached an operation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway import ids
from gateway.configuration.settings import Server
from gateway.errors import GatewayError
from gateway.surfaces.web import origins as cors_module
from gateway.surfaces.web import wsgi as wsgi_module
from gateway.surfaces.web.http import LABEL_LENGTH, ErrorFormat, Outbound
from gateway.surfaces.web.http_responses import error_reply
from gateway.surfaces.web.origins import Browsers, Hosts, make_proxies, refuse_host
from gateway.surfaces.web.request_targets import PATH_MODEL, Addresses, hide_credentials
from gateway.surfaces.web.wsgi import read_headers
from gateway.telemetry.request_observers import RequestObservers

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

ID_HEADER = "x-request-id"
ALL_ORIGINS = Browsers(("*",))


def _nothing(error: GatewayError, shown_id: str, environ: Mapping[str, Any]) -> None:
    return


class Middleware:
    """A WSGI application around another. `errors_at` returns the error format of a path; `on_refusal` is called for
    each request refused here, with the error, the id that the caller sees and the environ."""

    def __init__(
        self,
        application: Application,
        addresses: Addresses,
        pages: Browsers,
        errors_at: Callable[[str], ErrorFormat],
        hosts: Hosts,
        on_refusal: Callable[[GatewayError, str, Mapping[str, Any]], None] = _nothing,
    ) -> None:
        self._application = application
        self._errors_at = errors_at
        self._hosts = hosts
        self._on_refusal = on_refusal
        self._addresses = addresses
        self._pages = pages

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        hide_credentials(environ)
        asked = environ.get("PATH_INFO") or "/"
        path = self._addresses.settle(asked)
        if path != asked:
            environ[PATH_MODEL] = self._addresses.model_of(wsgi_module.read_path(environ))
        environ["PATH_INFO"] = path
        shown_id = environ.get("HTTP_X_REQUEST_ID", "").strip()[:LABEL_LENGTH] or ids.new_hex()
        environ[wsgi_module.REQUEST_ID] = shown_id
        more: cors_module.Headers = []
        if "HTTP_ORIGIN" in environ and cors_module.takes_keys(path):
            request_headers = wsgi_module.read_headers(environ)
            pages = ALL_ORIGINS if cors_module.is_document(path) else self._pages
            if cors_module.is_preflight(environ["REQUEST_METHOD"], request_headers):
                headers = [(ID_HEADER, shown_id), *pages.preflight(request_headers)]
                return wsgi_module.start(Outbound(204, headers), start_response)
            more = pages.headers(environ["HTTP_ORIGIN"])

        def begin(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            if not any(name.lower() == ID_HEADER for name, _ in headers):
                headers = [*headers, (ID_HEADER, shown_id)]
            return start_response(status, [*headers, *more], exc_info)

        refusal = environ.get(wsgi_module.REFUSAL)
        if not self._hosts.allows(environ.get("HTTP_HOST", ""), path):
            refusal = refuse_host()
        if refusal is not None:
            self._on_refusal(refusal, shown_id, environ)
            return wsgi_module.start(error_reply(refusal, self._errors_at(path), shown_id), begin)
        return self._application(environ, begin)


def reporter_of(server: Server, requests: RequestObservers) -> Callable[[GatewayError, str, Mapping[str, Any]], None]:
    """Return a function that reports requests that were rejected before they reached an operation."""
    proxies = make_proxies(server)

    def report(error: GatewayError, shown_id: str, environ: Mapping[str, Any]) -> None:
        peer = proxies.caller(environ.get("REMOTE_ADDR", ""), read_headers(environ))
        requests.refused(error, shown_id, peer)

    return report
