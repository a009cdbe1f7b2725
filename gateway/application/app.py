"""The application: builds the services, mounts the surfaces and sets up logging."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from gateway.configuration import settings as configuration
from gateway.errors import GatewayError, Internal, InvalidRequest, MethodNotAllowed, NotFound
from gateway.runtime.state_changes import StateLog
from gateway.server import logging_setup
from gateway.server.express import ExpressLane
from gateway.server.metrics_port import open_metrics_port
from gateway.server.middleware import Middleware
from gateway.surfaces import http_responses, surface_table
from gateway.surfaces.allowed_hosts import Hosts
from gateway.surfaces.blueprints import guard, make_proxies, mount, respond
from gateway.surfaces.cors import Browsers
from gateway.surfaces.early_auth import EarlyAuth
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.metrics import expose
from gateway.surfaces.path_spelling import Addresses
from gateway.surfaces.wsgi import REQUEST_ID, read_headers
from gateway.telemetry.gauges import JobHealth
from gateway.telemetry.request_observers import RequestObservers
from gateway.worker import extensions
from gateway.worker.recurring_jobs import Background, make_background
from gateway.worker.services import Services
from gateway.worker.wiring import build

AUXILIARY = ("HEAD", "OPTIONS")  # methods that an error message does not recommend
NO_RULE = (400, 404, 405)  # Werkzeug matches no HTTP rule for an upgrade request


class Application:
    """The WSGI callable, with the attributes that the server needs (see `gateway/server`)."""

    def __init__(
        self, wsgi: Callable[..., Iterable[bytes]], flask: Flask, services: Services, background: Background
    ) -> None:
        self._wsgi = wsgi
        self.express = wsgi if isinstance(wsgi, ExpressLane) else None
        self.flask = flask
        self.services = services
        self.max_body = services.settings.server.max_body_mb << 20
        self.max_form = services.settings.server.max_form_mb << 20
        self.spool_dir = services.settings.spool_dir
        self.limits = services.settings.server
        self.bodies = services.background.bodies
        self.owner_of = EarlyAuth(services).owner
        self.draining = services.drain
        self.busy = services.is_busy
        self.refused = reporter_of(services.settings.server, services.telemetry.requests)
        self.watch = services.watch
        self.background = background
        metrics = services.settings.metrics
        self._metrics_port = None
        if metrics.port:
            self._metrics_port = open_metrics_port(metrics.host, metrics.port, partial(expose, services))
        self._lines = logging_setup.request_lines(services.settings.log)
        if self._lines is not None:
            services.telemetry.requests.observe(self._lines)

    def close(self) -> None:
        """Stop the recurring jobs, then close everything else. Called last in a worker."""
        self.background.stop()
        self.services.close()
        if self._metrics_port is not None:
            self._metrics_port.close()
        if self._lines is not None:
            self._lines.flush()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self._wsgi(environ, start_response)


def create_app(
    settings: configuration.Settings | None = None, services: Services | None = None, before: StateLog | None = None
) -> Application:
    """Build the whole application; tests pass their own settings or services.

    `before` is the state log of an earlier attempt.
    """
    chosen = settings or (services.settings if services else configuration.load())
    logging_setup.set_up(chosen.log)
    surface_table.add(
        surface for extension in extensions.load(chosen.server.extensions) for surface in extension.surfaces
    )
    wired = services or build(chosen, before)
    try:
        wired.start()
    except BaseException:
        wired.close()
        raise
    background = make_background(wired)

    def job_health() -> list[JobHealth]:
        return [JobHealth(report.name, report.at_us, report.error, report.good_us) for report in background.reports()]

    wired.telemetry.jobs = job_health
    background.start()
    addresses = surface_table.addresses()
    flask = _mount(wired, addresses)
    pages = Browsers(chosen.security.cors_origins)
    hosts = Hosts(chosen.server.allowed_hosts, chosen.server.public_url)
    report = reporter_of(chosen.server, wired.telemetry.requests)
    middleware = Middleware(flask.wsgi_app, addresses, pages, surface_table.errors_at, hosts, report)
    if chosen.server.express_lane:
        wsgi: Callable[..., Iterable[bytes]] = _express(middleware, wired, addresses, pages, hosts)
    else:
        wsgi = middleware
    return Application(wsgi, flask, wired, background)


def _mount(services: Services, addresses: Addresses) -> Flask:
    flask = Flask("gateway", static_folder=None)
    mount(flask, services, surface_table.SURFACES)
    report = reporter_of(services.settings.server, services.telemetry.requests)

    def answer_error(error: HTTPException) -> Response:
        return _http_error(error, report, addresses)

    flask.register_error_handler(HTTPException, answer_error)
    return flask


def reporter_of(
    server: configuration.Server, requests: RequestObservers
) -> Callable[[GatewayError, str, Mapping[str, Any]], None]:
    """Return a function that reports requests that were rejected before they reached an operation."""
    proxies = make_proxies(server)

    def report(error: GatewayError, shown_id: str, environ: Mapping[str, Any]) -> None:
        peer = proxies.caller(environ.get("REMOTE_ADDR", ""), read_headers(environ))
        requests.refused(error, shown_id, peer)

    return report


def _express(
    middleware: Middleware, services: Services, addresses: Addresses, pages: Browsers, hosts: Hosts
) -> ExpressLane:
    server = services.settings.server
    hot = {
        (operation.method, operation.path): guard(services, operation)
        for operation in surface_table.operations()
        if operation.hot
    }
    return ExpressLane(
        middleware,
        hot,
        _crashed,
        addresses.settle,
        pages,
        max_body=server.max_body_mb << 20,
        proxies=make_proxies(server),
        hosts=hosts,
        public_url=server.public_url,
    )


def _crashed(inbound: Inbound, error: Exception) -> Outbound:
    if isinstance(error, GatewayError):
        return http_responses.error_reply(error, surface_table.errors_at(inbound.path), inbound.shown_id)
    return http_responses.crash_reply(inbound, error, surface_table.errors_at(inbound.path), inbound.shown_id)


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
    elif error.code == 405 and not surface_table.is_absent(request.path):
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
        http_responses.error_reply(
            gateway_error, surface_table.errors_at(request.path), request.environ.get(REQUEST_ID, "")
        )
    )
