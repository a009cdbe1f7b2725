"""WebSockets by Flask-Sock, for servers other than the gateway's own."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from flask import Response, current_app
from flask_sock import Sock
from simple_websocket import Server
from simple_websocket.errors import SimpleWebsocketError

from gateway.transport.sock_sockets import OPTIONS, PacedSocket, SockSocket
from gateway.transport.websocket_channels import SocketClosed
from gateway.transport.websockets import Handshake

# Environ keys in which servers that simple-websocket supports keep the socket of a request.
SOCKETS = ("gunicorn.socket", "werkzeug.socket")
CONFIG = "SOCK_SERVER_OPTIONS"


class SockChannel:
    """The connection of a WebSocket upgrade request (Inbound.channel). `owner` identifies the caller."""

    def __init__(self, environ: MutableMapping[str, Any], place: str) -> None:
        self.owner = ""
        self._environ = environ
        self._place = place
        self._opened: SockSocket | None = None

    def open(self, handshake: Handshake, subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> SockSocket:
        """Return the caller's socket after Flask-Sock completed its handshake. Raises SocketClosed if it failed."""
        if self._opened is None:
            raise SocketClosed
        return self._opened

    def serve(self, work: Callable[[], None]) -> Response:
        """Complete the handshake and run `work`, which opens the socket. The response then signals the end of the
        connection to the server."""
        current_app.config[CONFIG] = OPTIONS
        try:
            # Not earlier: the connection of a rejected handshake stays unchanged.
            self._environ[self._place] = PacedSocket(self._environ[self._place])
            response: Response = _VIEWS.open(self, work)
        except (OSError, SimpleWebsocketError):
            if self._opened is None:  # the caller disconnected: `work` releases its resources
                work()
            return Response(status=400)
        return response

    def begin(self, server: Server) -> None:
        """Record that the handshake was completed."""
        self._opened = SockSocket(server, self._environ[self._place])


def channel_of(environ: MutableMapping[str, Any]) -> SockChannel | None:
    """Return the connection of a WebSocket upgrade request, None if its server does not expose it."""
    if "HTTP_UPGRADE" not in environ:
        return None
    place = next((name for name in SOCKETS if name in environ), None)
    if place is None:
        return None
    return SockChannel(environ, place)


class _Views:
    """Replaces the blueprint with which Flask-Sock registers a route: its view is called after the gateway's own
    checks, before the handshake is completed."""

    open: Callable[[SockChannel, Callable[[], None]], Response]

    def __init__(self) -> None:
        Sock().route("/", bp=self)(_serve)

    def route(self, path: str, **options: Any) -> Callable[[Callable[..., Response]], None]:
        def keep(view: Callable[..., Response]) -> None:
            self.open = view

        return keep


def _serve(server: Server, channel: SockChannel, work: Callable[[], None]) -> None:
    channel.begin(server)
    work()


_VIEWS = _Views()
