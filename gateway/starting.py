"""The application of a worker that cannot serve yet: it answers probes, refuses the rest, and tries again by itself."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from gateway import __version__, accepted, logs, settings
from gateway.app import Application, create_app
from gateway.errors import GatewayError, Unavailable
from gateway.operator.installation import opened
from gateway.settings import Settings
from gateway.store import migrations
from gateway.surfaces import health, replies, table
from gateway.surfaces.blueprints import respond
from gateway.surfaces.http import Outbound
from gateway.threads import pause, spawn

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 2.0
REFUSED = "This server is starting and cannot reach what it needs yet; try again."


class StartingApplication:
    """Stands in for `Application` until `make` gives one. `reason` is why it does not, in words for probes."""

    express = None

    def __init__(self, chosen: Settings, make: Callable[[], Application], error: Exception) -> None:
        self.limits = chosen.server
        self.max_body = chosen.server.max_body_mb << 20
        self._chosen, self._make = chosen, make
        self._leaving = False
        self.reason = ""
        self._note(error)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return respond(self._answer(environ["PATH_INFO"]))(environ, start_response)

    def draining(self, leaving: bool = True) -> None:
        self._leaving = leaving

    def close(self) -> None:
        self._leaving = True

    def follow(self, replace: Callable[[Application], None]) -> None:
        """Try again until there is an application, and hand it to `replace`."""
        spawn(self._try_on, replace)

    def _try_on(self, replace: Callable[[Application], None]) -> None:
        rest_s = FIRST_PAUSE_S
        while not self._leaving:
            pause(rest_s)
            rest_s = min(LONGEST_PAUSE_S, rest_s * 2)
            try:
                application = self._make()
            except Exception as error:  # Whatever it is, the next try may do better, and nobody else would try.
                self._note(error)
                continue
            log.info("the worker is ready now")
            replace(application)
            return

    def _note(self, error: Exception) -> None:
        """Log each reason once, with its cause where it is not one of the known."""
        known = isinstance(error, (GatewayError, settings.SettingsError))
        reason = str(error).strip() if known else f"{type(error).__name__} while starting; see the log"
        if reason != self.reason:
            cause = "" if error.__cause__ is None else f" ({str(error.__cause__).strip()})"
            log.error("the worker is not ready and tries again: %s%s", reason, cause, exc_info=None if known else error)
        self.reason = reason

    def _answer(self, path: str) -> Outbound:
        if path in health.LIVENESS:
            return health.write_alive()
        if path in health.READINESS:
            return health.write_unready([*(["draining"] if self._leaving else []), self.reason])
        if path == "/":
            version = self._chosen.server.version or __version__
            return health.write_report(version, health.unasked(self._chosen.redis.url), health.DATABASE_AWAY)
        return replies.error_reply(Unavailable(REFUSED, retry_after=2.0), table.errors_at(path))


def start() -> Application | StartingApplication:
    """The application of a worker: ready, or waiting for what it needs."""
    inherited = accepted.current()
    chosen = inherited.settings if inherited else settings.load()

    def make() -> Application:
        if chosen.environment.get(settings.MIGRATE_LATE):
            with opened() as installation:
                migrations.migrate(installation.raw_database)
        return create_app(chosen)

    try:
        return make()
    except Exception as error:
        logs.set_up(chosen.log)
        return StartingApplication(chosen, make, error)
