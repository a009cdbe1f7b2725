"""The application: builds the services, mounts the surfaces and sets up logging."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.application.on_demand import OnDemandApplication
from gateway.configuration import settings as configuration
from gateway.errors import GatewayError
from gateway.runtime.state_changes import StateLog
from gateway.server import logging_setup
from gateway.server.express import ExpressLane
from gateway.server.metrics_port import open_metrics_port
from gateway.server.refusal_reports import reporter_of
from gateway.surfaces import http_responses, model_surfaces
from gateway.surfaces.allowed_hosts import Hosts
from gateway.surfaces.cors import Browsers
from gateway.surfaces.early_auth import EarlyAuth
from gateway.surfaces.http import Inbound, Outbound, Surface
from gateway.surfaces.metrics import expose
from gateway.surfaces.operation_guard import guard_among
from gateway.surfaces.path_spelling import Addresses
from gateway.surfaces.proxies import make_proxies
from gateway.telemetry.gauges import JobHealth
from gateway.worker import extensions
from gateway.worker.recurring_jobs import Background, make_background
from gateway.worker.services import Services
from gateway.worker.wiring import build

if TYPE_CHECKING:
    from flask import Flask


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
    background.start()
    on_demand = OnDemandApplication(wired, surfaces)
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
    errors = http_responses.errors_at(surfaces, inbound.path)
    if isinstance(error, GatewayError):
        return http_responses.error_reply(error, errors, inbound.shown_id)
    return http_responses.crash_reply(inbound, error, errors, inbound.shown_id)
