"""The application of a worker that cannot serve yet: it answers probes, rejects other requests and retries the
start.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.application.app import Application, create_app
from gateway.build_stamp import full_version
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import Settings
from gateway.errors import GatewayError, Unavailable
from gateway.metering.counters import Counters
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import pause, spawn
from gateway.server import logging_setup
from gateway.server.middleware import Middleware
from gateway.store import migrations
from gateway.store.migrations import SchemaMismatch
from gateway.surfaces import health
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Outbound
from gateway.surfaces.web.operation_guard import name_of
from gateway.surfaces.web.origins import Browsers, Hosts, make_proxies
from gateway.surfaces.web.wsgi import REQUEST_ID, read_headers
from gateway.surfaces.web.wsgi import start as send
from gateway.telemetry.request_observers import LIVENESS, READINESS, UNMATCHED, RequestObservers
from gateway.worker import accepted_configuration

if TYPE_CHECKING:
    from gateway.operator import installation_commands
    from gateway.surfaces import surface_table
else:
    installation_commands = LazyImport("gateway.operator.installation_commands")
    surface_table = LazyImport("gateway.surfaces.surface_table")

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
MAX_RETRY_S = 2.0
HOLD_S = 5.0  # how long a request waits for the start
MAX_HELD = 256  # requests that wait at once
PROBES = frozenset((*LIVENESS, *READINESS, "/"))
AWAY = "its database cannot be reached"
MISMATCH = "the schema of its database does not match this version; the operator has to run the migrations"
OTHER_CAUSE = "a dependency or a setting is not usable yet"


class StartingApplication:
    """Replaces `Application` until `make` succeeds; afterwards it passes every request to the made application.

    `reason` says in plain words why the start failed, for probes. Rejected requests are logged like all others and get
    the usual id and headers. The gateway's own server takes the made application from `follow`; any other WSGI server
    keeps this object.
    """

    express = None

    def __init__(self, chosen: Settings, make: Callable[[], Application], error: Exception) -> None:
        self.limits = chosen.server
        self.max_body = chosen.server.max_body_mb << 20
        self._chosen = chosen
        self._make = make
        self._leaving = False
        self._made: Application | None = None
        self._held = 0
        self._changed = threading.Event()  # set when it is ready, or ends
        self._replace: Callable[[Application], None] | None = None
        self.reason = ""
        server = chosen.server
        self._proxies = make_proxies(server)
        self._operations = {
            (operation.method, operation.path): name_of(operation) for operation in surface_table.operations()
        }
        # These counters are never published, because the worker cannot serve yet.
        self._requests = RequestObservers(Counters(Path(chosen.database.data_dir) / "metrics"), Clock())
        self._lines = logging_setup.request_lines(chosen.log)
        if self._lines is not None:
            self._requests.observe(self._lines)
        addresses = surface_table.addresses()
        pages = Browsers(chosen.security.cors_origins)
        hosts = Hosts(server.allowed_hosts, server.public_url)
        self._middleware = Middleware(self._serve, addresses, pages, surface_table.errors_at, hosts, self.refused)
        self._note(error)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._made is None and environ.get("PATH_INFO") not in PROBES:
            self._await_start()
        if self._made is not None:
            return self._made(environ, start_response)
        return self._middleware(environ, start_response)

    def _await_start(self) -> None:
        """Wait for the start, a few seconds at most. A refusal at once would make this node the one with the fewest
        connections, and a balancer that goes by them would send it most requests, which other nodes can serve."""
        if self._held >= MAX_HELD:
            return
        self._held += 1
        try:
            self._changed.wait(HOLD_S)
        finally:
            self._held -= 1

    def refused(self, error: GatewayError, shown_id: str, environ: Mapping[str, Any]) -> None:
        """Report a request that is answered with `error`."""
        peer = self._proxies.caller(environ.get("REMOTE_ADDR", ""), read_headers(environ))
        request = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        self._requests.refused(error, shown_id, peer, self._operations.get(request, UNMATCHED))

    def draining(self, leaving: bool = True) -> None:
        self._leaving = leaving
        if leaving:
            self._changed.set()

    def close(self) -> None:
        self._leaving = True
        self._changed.set()
        self._flush()
        if self._made is not None and self._replace is None:
            self._made.close()

    def retry(self) -> "StartingApplication":
        """Try again in the background until the application is ready, and return this object."""
        spawn(self._retry)
        return self

    def follow(self, replace: Callable[[Application], None]) -> None:
        """Pass the application to `replace` when it is ready."""
        self._replace = replace
        if self._made is not None:
            spawn(replace, self._made)

    def _retry(self) -> None:
        pause_s = FIRST_RETRY_S
        while not self._leaving:
            pause(pause_s)
            pause_s = min(MAX_RETRY_S, pause_s * 2)
            try:
                application = self._make()
            except Exception as error:  # any error may be temporary, and nothing else would retry
                self._note(error)
                continue
            log.info("the worker is ready now")
            self._flush()
            self._made = application
            self._changed.set()
            if self._replace is not None:
                self._replace(application)
            return

    def _note(self, error: Exception) -> None:
        """Log each new reason once; an unexpected error is logged with its traceback."""
        known = isinstance(error, (GatewayError, SettingsError))
        reason = str(error).strip() if known else f"{type(error).__name__} while starting; see the log"
        if reason != self.reason:
            cause = "" if error.__cause__ is None else f" ({str(error.__cause__).strip()})"
            log.error("the worker is not ready and tries again: %s%s", reason, cause, exc_info=None if known else error)
        self.reason = reason
        self._database, self._cause = _explain(error, reason)

    def _flush(self) -> None:
        if self._lines is not None:
            self._lines.flush()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return send(self._answer(environ), start_response, environ.get("REQUEST_METHOD") == "HEAD")

    def _reasons(self) -> list[str]:
        if self._leaving:
            return ["draining", self.reason]
        return [self.reason]

    def _answer(self, environ: dict[str, Any]) -> Outbound:
        path = environ["PATH_INFO"]
        shown_id = environ[REQUEST_ID]
        if path in LIVENESS:
            return health.write_alive(shown_id)
        if path in READINESS:
            return health.write_unready(self._reasons(), shown_id)
        if path == "/":
            version = self._chosen.server.version or full_version()
            redis = health.unchecked_redis(self._chosen.redis.url)
            return health.write_report(version, redis, self._database, shown_id)
        refusal = Unavailable(f"This server is starting: {self._cause}. Try again.", retry_after=2.0)
        self.refused(refusal, shown_id, environ)
        return http_responses_module.error_reply(refusal, surface_table.errors_at(path), shown_id)


def _explain(error: Exception, reason: str) -> tuple[health.HealthCheck, str]:
    """Return what the health report says of the database, and why requests are refused in words for any caller."""
    if isinstance(error, SchemaMismatch):
        return {"connected": True, "error": reason}, MISMATCH
    if isinstance(error, Unavailable):
        return health.DATABASE_AWAY, AWAY
    return {"connected": True, "error": f"The worker cannot start: {reason}"}, OTHER_CAUSE


def start() -> Application | StartingApplication:
    """Return the worker's application: ready, or one that waits for its dependencies."""
    inherited = accepted_configuration.current()
    chosen = inherited.settings if inherited else settings.load()
    logging_setup.set_up(chosen.log)
    state_log = StateLog()  # shared by all attempts

    def make() -> Application:
        if chosen.environment.get(settings.MIGRATE_LATE):
            with installation_commands.opened(states=state_log) as installation:
                migrations.migrate(installation.raw_database)
        return create_app(chosen, before=state_log)

    try:
        return make()
    except Exception as error:
        return StartingApplication(chosen, make, error).retry()
