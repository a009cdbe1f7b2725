"""The Flask application, imported and built by the first request that the express lane does not serve."""

import gc
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces.http import Surface
from gateway.surfaces.path_spelling import Addresses
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.application import flask_application
    from gateway.application.flask_application import FlaskApplication
else:
    flask_application = LazyImport("gateway.application.flask_application")


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
