"""A relay with nothing between: the gateway's worker and transport without a gateway, so the floor of both."""

import time
from collections.abc import Callable, Iterable

from gateway.configuration import settings
from gateway.transport import Transport

Application = Callable[[dict, Callable], Iterable[bytes]]
SECONDS = 60.0


def create_app(upstream: str) -> Application:
    """A WSGI application that passes every POST to `upstream` and its answer back, unread. No errors are mapped."""
    loaded = settings.load()
    transport = Transport(loaded.timeouts, loaded.security)

    def app(environ: dict, start_response: Callable) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            start_response("200 OK", [("Content-Length", "0")])
            return [b""]
        body = environ["wsgi.input"].read()
        stream = b'"stream":true' in body
        deadline = time.monotonic() + SECONDS
        url = upstream + environ["PATH_INFO"]
        headers = {"content-type": "application/json"}
        reply = transport.open("POST", url, headers, body, stream=stream, deadline=deadline, trusted=True)
        kind = ("Content-Type", reply.headers.get("content-type", "application/json"))
        if stream:
            start_response(f"{reply.status} OK", [kind])
            return reply.chunks()
        data = reply.read_all()
        start_response(f"{reply.status} OK", [kind, ("Content-Length", str(len(data)))])
        return [data]

    return app
