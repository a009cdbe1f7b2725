"""A separate port for metrics, not reachable by callers: every worker listens on it, and any of them may answer."""

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from gateway.runtime.call_merging import SharedCalls

PATHS = ("/metrics", "/")
BACKLOG = 16
# Each connection uses a descriptor and processor time of a worker that serves callers.
CONNECTIONS = 16
MAX_REQUEST_S = 10.0

log = logging.getLogger("gateway.server")


class _Handler(WSGIHandler):
    """Closes a connection that takes too long to send its request or read the response."""

    def handle(self) -> None:
        with gevent.Timeout(MAX_REQUEST_S, False):
            super().handle()

    def handle_error(self, kind: Any, value: Any, trace: Any) -> None:
        if isinstance(value, gevent.Timeout):
            self.close_connection = True  # the timeout expired while the response was written
        else:
            super().handle_error(kind, value, trace)


class MetricsPort:
    """Serves `expose()` at /metrics of `host`:`port` until `close`; `port` 0 is a free one. Simultaneous scrapers share
    one response."""

    def __init__(self, host: str, port: int, expose: Callable[[], tuple[str, bytes]]) -> None:
        """OSError when another program uses the port."""
        self._expose = expose
        self._running: SharedCalls[str, tuple[str, bytes]] = SharedCalls()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._server = WSGIServer(
            listener, self._answer, log=None, error_log=log, handler_class=_Handler, spawn=Pool(CONNECTIONS)
        )
        self._server.start()

    def close(self) -> None:
        """Release the port."""
        self._server.stop(timeout=0.1)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET" or environ.get("PATH_INFO") not in PATHS:
            start_response("404 Not Found", [("Content-Length", "0")])
            return [b""]
        kind, text = self._running.run("", self._expose)
        headers = [("Content-Type", kind), ("Content-Length", str(len(text))), ("Connection", "close")]
        start_response("200 OK", headers)
        return [text]


def open_metrics_port(host: str, port: int, expose: Callable[[], tuple[str, bytes]]) -> MetricsPort | None:
    """Open the port; None, after logging an error, when it cannot be bound, since serving matters more than metrics."""
    try:
        return MetricsPort(host, port, expose)
    except OSError as error:
        more = {"event": "metrics.port_taken", "remedy": "free it, or set another GATEWAY_METRICS_PORT"}
        log.error("cannot listen on %s:%d for metrics: %s", host, port, error.strerror or error, extra=more)
        return None
