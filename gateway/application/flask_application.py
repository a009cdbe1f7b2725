"""The Flask application: every operation of the product, behind the middleware."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from gateway.errors import GatewayError, Internal, InvalidRequest, MethodNotAllowed, NotFound
from gateway.server.middleware import Middleware, reporter_of
from gateway.surfaces import surface_table
from gateway.surfaces.blueprints import compile_rules, mount, respond
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Outbound, Surface
from gateway.surfaces.web.origins import Browsers, Hosts
from gateway.surfaces.web.request_targets import Addresses
from gateway.surfaces.web.wsgi import REQUEST_ID
from gateway.worker.services import Services

AUXILIARY = ("HEAD", "OPTIONS")  # methods that an error message does not recommend
NO_RULE = (400, 404, 405)  # Werkzeug matches no HTTP rule for an upgrade request


class FlaskApplication:
    """The WSGI application, and the Flask object in it."""

    def __init__(self, services: Services, addresses: Addresses) -> None:
        server = services.settings.server
        report = reporter_of(server, services.telemetry.requests)
        self.flask = _mount(services, addresses, report)
        pages = Browsers(services.settings.security.cors_origins)
        hosts = Hosts(server.allowed_hosts, server.public_url)
        self.wsgi = Middleware(self.flask.wsgi_app, addresses, pages, surface_table.errors_at, hosts, report)


def prepare(surfaces: Iterable[Surface]) -> Addresses:
    """Compile the rules of all operations, with those of `surfaces`, and return their addresses."""
    surface_table.add(surfaces)
    compile_rules(surface_table.SURFACES)
    return surface_table.addresses()


def _mount(
    services: Services, addresses: Addresses, report: Callable[[GatewayError, str, Mapping[str, Any]], None]
) -> Flask:
    flask = Flask("gateway", static_folder=None)
    mount(flask, services, surface_table.SURFACES)

    def answer_error(error: HTTPException) -> Response:
        return _http_error(error, report, addresses)

    flask.register_error_handler(HTTPException, answer_error)
    return flask


def _is_absent(method: str, path: str) -> bool:
    """Return whether a path does not exist, although one of another method of HTTP looks like it."""
    return surface_table.is_absent(path) or (method == "POST" and surface_table.is_unknown_method(path))


def _http_error(
    error: HTTPException, report: Callable[[GatewayError, str, Mapping[str, Any]], None], addresses: Addresses
) -> Response:
    """Convert Werkzeug's own errors (unknown path or method) to the error format of the path's surface; answer
    OPTIONS.
    """
    gateway_error: GatewayError
    if request.headers.get("Upgrade", "").lower() == "websocket" and error.code in NO_RULE:
        # Clients try a WebSocket first and fall back to HTTP at once only after a clear rejection.
        hint = surface_table.instead_of(request.path) or "use HTTP."
        gateway_error = InvalidRequest(
            f"There is no WebSocket at {request.path}; {hint}", status=426, code="websocket_not_supported"
        )
    elif error.code == 405 and not _is_absent(request.method, request.path):
        methods = sorted({*(getattr(error, "valid_methods", None) or ()), "OPTIONS"})
        allowed = ", ".join(methods)
        if request.method == "OPTIONS":
            return respond(Outbound(204, [("Allow", allowed)]))
        useful = ", ".join(method for method in methods if method not in AUXILIARY) or allowed
        text = f"{request.method} is not possible at {request.path}; use {useful}."
        gateway_error = MethodNotAllowed(text, headers=(("Allow", allowed),))
    elif error.code in (404, 405):
        hint = surface_table.instead_of(request.path) or ""
        meant = addresses.nearest(request.path)
        if not hint and meant:
            hint = f"did you mean {meant}?"
        elif not hint:
            hint = "/docs lists all paths."
        gateway_error = NotFound(f"There is nothing at {request.path}; {hint}")
    else:
        gateway_error = Internal(error.description or "The request failed.", status=error.code)
    report(gateway_error, request.environ.get(REQUEST_ID, ""), request.environ)
    return respond(
        http_responses_module.error_reply(
            gateway_error, surface_table.errors_at(request.path), request.environ.get(REQUEST_ID, "")
        )
    )
