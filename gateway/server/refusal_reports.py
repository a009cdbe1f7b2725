"""Reports of requests that were rejected before they reached an operation."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.configuration.settings import Server
from gateway.errors import GatewayError
from gateway.surfaces.web.origins import make_proxies
from gateway.surfaces.web.wsgi import read_headers
from gateway.telemetry.request_observers import RequestObservers


def reporter_of(server: Server, requests: RequestObservers) -> Callable[[GatewayError, str, Mapping[str, Any]], None]:
    """Return a function that reports requests that were rejected before they reached an operation."""
    proxies = make_proxies(server)

    def report(error: GatewayError, shown_id: str, environ: Mapping[str, Any]) -> None:
        peer = proxies.caller(environ.get("REMOTE_ADDR", ""), read_headers(environ))
        requests.refused(error, shown_id, peer)

    return report
