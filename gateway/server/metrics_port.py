"""A separate port for metrics, out of callers' reach: every worker listens on it, and any of them may answer."""

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any

from gevent.pywsgi import WSGIServer

PATHS = ("/metrics", "/")
BACKLOG = 16

log = logging.getLogger("gateway.server")


class MetricsPort:
    """Serves `expose()` at /metrics of `host`:`port` until `close`; `port` 0 is a free one."""

    def __init__(self, host: str, port: int, expose: Callable[[], tuple[str, bytes]]) -> None:
        """OSError when another program uses the port."""
        self._expose = expose
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._server = WSGIServer(listener, self._answer, log=None, error_log=log)
        self._server.start()

    def close(self) -> None:
        """Release the port."""
        self._server.stop(timeout=0.1)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET" or environ.get("PATH_INFO") not in PATHS:
            start_response("404 Not Found", [("Content-Length", "0")])
            return [b""]
        kind, text = self._expose()
        start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(text)))])
        return [text]


def open_metrics_port(host: str, port: int, expose: Callable[[], tuple[str, bytes]]) -> MetricsPort | None:
    """Open the port; None, after logging an error, when it cannot be bound: metrics are no reason not to serve."""
    try:
        return MetricsPort(host, port, expose)
    except OSError as error:
        more = {"event": "metrics.port_taken", "remedy": "free it, or set another GATEWAY_METRICS_PORT"}
        log.error("cannot listen on %s:%d for metrics: %s", host, port, error.strerror or error, extra=more)
        return None
