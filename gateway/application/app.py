"""The application: builds the services, mounts the surfaces and sets up logging."""

import gc
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.accounts.view_subscriptions import ViewSubscription
from gateway.configuration import settings as configuration
from gateway.errors import GatewayError
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import compute
from gateway.server import logging_setup
from gateway.server.express import ExpressLane
from gateway.server.metrics_port import open_metrics_port
from gateway.server.middleware import reporter_of
from gateway.surfaces import batch_port, model_surfaces, request_port
from gateway.surfaces.early_auth import EarlyAuth
from gateway.surfaces.metrics import expose
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Inbound, Outbound, Surface
from gateway.surfaces.web.operation_guard import guard_among
from gateway.surfaces.web.origins import Browsers, Hosts, make_proxies
from gateway.surfaces.web.request_targets import Addresses
from gateway.telemetry.gauges import JobHealth
from gateway.telemetry.weekly_views import ComposedView
from gateway.worker import extensions
from gateway.worker.recurring_jobs import Background, make_background
from gateway.worker.services import Services
from gateway.worker.wiring import build

# The Flask application is imported and built by the first request that the express lane does not serve.
if TYPE_CHECKING:
    from flask import Flask

    from gateway.application import flask_application
    from gateway.application.flask_application import FlaskApplication
    from gateway.surfaces.console import view_mails
else:
    flask_application = LazyImport("gateway.application.flask_application")
    view_mails = LazyImport("gateway.surfaces.console.view_mails")


class OnDemandApplication:
    """A WSGI application that builds the Flask application when it is first needed, with these surfaces and its own.

    Flask, the management API and the console take 13 MB of a worker, and many workers only ever serve model calls.
    """

    def __init__(self, services: Services, surfaces: Iterable[Surface]) -> None:
        self._services = services
        self._surfaces = surfaces
        self._built: FlaskApplication | None = None
        self._calls: SharedCalls[str, FlaskApplication] = SharedCalls()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self.get().wsgi(environ, start_response)

    def get(self) -> "FlaskApplication":
        """Return the Flask application; concurrent first calls wait for the same one."""
        return self._built or self._calls.run("flask", self._build)

    def _build(self) -> "FlaskApplication":
        addresses = compute(_prepare, self._surfaces)
        self._built = flask_application.FlaskApplication(self._services, addresses)
        return self._built


def _prepare(surfaces: Iterable[Surface]) -> Addresses:
    """Import the application, which takes half a second, and compile its rules."""
    if not gc.isenabled() or not gc.get_freeze_count():  # the count examines all frozen objects
        return flask_application.prepare(surfaces)
    # A worker excludes all loaded objects from garbage collection (gunicorn.conf.py); a collection of the new ones
    # would hold the event loop for 30 ms.
    gc.disable()
    try:
        return flask_application.prepare(surfaces)
    finally:
        gc.freeze()
        gc.enable()


class Application:
    """The WSGI callable, with the attributes that the server needs (see `gateway/server`)."""

    def __init__(
        self,
        wsgi: Callable[..., Iterable[bytes]],
        on_demand: OnDemandApplication,
        services: Services,
        background: Background,
    ) -> None:
        self._wsgi = wsgi
        self._on_demand = on_demand
        self.express = wsgi if isinstance(wsgi, ExpressLane) else None
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

    @property
    def flask(self) -> "Flask":
        """The Flask application, with every operation."""
        return self._on_demand.get().flask

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
    surfaces = model_surfaces.with_extensions(
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
    batch_port.attach(wired, surfaces)
    request_port.attach(wired, surfaces)
    on_demand = OnDemandApplication(wired, surfaces)

    def compose_view(subscription: ViewSubscription) -> ComposedView:
        on_demand.get()  # imports the pages beside the event loop
        return view_mails.compose(wired, subscription)

    wired.telemetry.weekly_views.compose = compose_view
    background.start()
    if chosen.server.extensions or not chosen.server.express_lane:
        on_demand.get()  # at once, so that an extension that cannot be mounted ends the start
    wsgi: Callable[..., Iterable[bytes]] = on_demand
    if chosen.server.express_lane:
        wsgi = _express(on_demand, wired, surfaces)
    return Application(wsgi, on_demand, wired, background)


def _express(application: OnDemandApplication, services: Services, surfaces: tuple[Surface, ...]) -> ExpressLane:
    server = services.settings.server
    operations = [operation for surface in surfaces for operation in surface.operations]
    choices = [operation for operation in operations if operation.chosen is not None]
    hot = {
        (operation.method, operation.path): guard_among(services, operation, choices)
        for operation in operations
        if operation.hot
    }
    return ExpressLane(
        application,
        hot,
        partial(_crashed, surfaces),
        Addresses.of(surfaces),
        Browsers(services.settings.security.cors_origins),
        max_body=server.max_body_mb << 20,
        proxies=make_proxies(server),
        hosts=Hosts(server.allowed_hosts, server.public_url),
        public_url=server.public_url,
    )


def _crashed(surfaces: tuple[Surface, ...], inbound: Inbound, error: Exception) -> Outbound:
    errors = http_responses_module.errors_at(surfaces, inbound.path)
    if isinstance(error, GatewayError):
        return http_responses_module.error_reply(error, errors, inbound.shown_id)
    return http_responses_module.crash_reply(inbound, error, errors, inbound.shown_id)
