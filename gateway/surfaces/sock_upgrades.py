"""WebSockets by Flask-Sock, where another server than the gateway's own serves the application."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from flask import Response, current_app
from flask_sock import Sock
from simple_websocket import Server
from simple_websocket.errors import SimpleWebsocketError

from gateway.transport.handshakes import SocketClosed
from gateway.transport.sock_sockets import OPTIONS, PacedSocket, SockSocket
from gateway.transport.websockets import Handshake

# Where servers that simple-websocket knows leave the socket of a request.
SOCKETS = ("gunicorn.socket", "werkzeug.socket")
CONFIG = "SOCK_SERVER_OPTIONS"


class SockChannel:
    """The connection of a request that asks for a WebSocket (Inbound.channel). `owner` is whose it is."""

    def __init__(self, environ: MutableMapping[str, Any], place: str) -> None:
        self.owner = ""
        self._environ = environ
        self._place = place
        self._opened: SockSocket | None = None

    def open(self, handshake: Handshake, subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> SockSocket:
        """The caller's socket, whose handshake Flask-Sock has answered; SocketClosed where it could not."""
        if self._opened is None:
            raise SocketClosed
        return self._opened

    def serve(self, work: Callable[[], None]) -> Response:
        """Answer the handshake and do `work`, which opens the socket; the response then tells the server that the
        connection is over."""
        current_app.config[CONFIG] = OPTIONS
        try:
            # Not before: the connection of a handshake that is refused stays as its server has it.
            self._environ[self._place] = PacedSocket(self._environ[self._place])
            response: Response = _VIEWS.open(self, work)
        except (OSError, SimpleWebsocketError):
            if self._opened is None:  # the caller left: `work` gives back what it holds
                work()
            return Response(status=400)
        return response

    def begin(self, server: Server) -> None:
        """The handshake was answered."""
        self._opened = SockSocket(server, self._environ[self._place])


def channel_of(environ: MutableMapping[str, Any]) -> SockChannel | None:
    """The connection of a request that asks for a WebSocket; None where its server hands out none."""
    if "HTTP_UPGRADE" not in environ:
        return None
    place = next((name for name in SOCKETS if name in environ), None)
    if place is None:
        return None
    return SockChannel(environ, place)


class _Views:
    """Stands in for the blueprint with which Flask-Sock registers a route: its view is called after the gateway's own
    checks, which come before the handshake is answered."""

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
