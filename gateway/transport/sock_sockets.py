"""Callers' WebSockets under other servers than the gateway's own: simple-websocket, as opened by Flask-Sock.

simple-websocket reads ahead in a thread into an unbounded list, and calls `send` of a socket that may take only a part
of the data. The socket that it gets here reads only while no message waits, and sends whole frames.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gevent.event import Event
from gevent.lock import BoundedSemaphore
from simple_websocket import ConnectionClosed, Server
from wsproto.events import Event as SocketEvent
from wsproto.utilities import LocalProtocolError

from gateway.runtime.threads import compute_if
from gateway.transport.websocket_channels import NO_TEXT, SUBPROTOCOL, SocketChannel, SocketClosed
from gateway.transport.websockets import MAX_MESSAGE_BYTES, SendingSocket

LINGER_TIMEOUT_S = 1.0
CLOSED = (ConnectionClosed, LocalProtocolError, OSError)
OPTIONS = {"max_message_size": MAX_MESSAGE_BYTES, "subprotocols": [SUBPROTOCOL]}


class PacedSocket:
    """A server's socket for simple-websocket. While one of `messages` waits it receives nothing, so the peer must wait.
    `received_count` counts the receives."""

    def __init__(self, sock: Any) -> None:
        self._channel = SocketChannel(sock)
        self._sending = BoundedSemaphore(1)
        self._taken = Event()
        self._ended = False
        self.messages: Sequence[object] = ()
        self.received_count = 0

    def recv(self, size: int) -> bytes:
        while self.messages and not self._ended:
            self._taken.clear()
            self._taken.wait()
        data = b"" if self._ended else self._channel.receive(size)
        self.received_count += 1
        return data

    def send(self, data: bytes) -> int:
        with self._sending:
            self._channel.send(data)
        return len(data)

    def taken(self) -> None:
        """Continue to receive, since a message was taken."""
        self._taken.set()

    def close(self) -> None:
        """Close the socket; a greenlet that receives finds it closed."""
        self._ended = True
        self._taken.set()
        self._channel.close()


class SockSocket(SendingSocket):
    """The caller's end of a session (`CallerSocket` of engine/realtime/session.py) over a `Server` and its socket."""

    def __init__(self, server: Server, sock: PacedSocket) -> None:
        super().__init__()
        self._server = server
        self._sock = sock
        sock.messages = server.input_buffer
        self.code = int(server.close_reason)
        self.reason = ""

    @property
    def received_count(self) -> int:
        """How many receives there were, including answers to pings."""
        return self._sock.received_count

    def receive(self) -> str | None:
        """Return the next message, None at the end."""
        try:
            message = self._server.receive()
        except ConnectionClosed:
            self.code = int(self._server.close_reason)
            self.reason = self._server.close_message or ""
            self.closed = True
            return None
        self._sock.taken()
        if isinstance(message, str):
            return message
        self.close(NO_TEXT, "Messages are JSON as text.")
        return None

    def linger(self) -> None:
        """Let the peer read the last message for a moment."""
        self._sock.taken()
        self._server.thread.join(LINGER_TIMEOUT_S)

    def abort(self) -> None:
        """End the connection at once; a greenlet that receives finds it closed."""
        self.closed = True
        self._sock.close()

    def _send(self, event: SocketEvent, large: bool = False) -> None:
        if self.closed or not self._server.connected:
            raise SocketClosed
        try:
            # Like Server.send, except that a large message is compressed in a thread.
            self._sock.send(compute_if(large, self._server.ws.send, event))
        except CLOSED:
            self.closed = True
            raise SocketClosed from None

    def _send_close(self, number: int, reason: str) -> None:
        with suppress(*CLOSED):
            self._server.close(number, reason)
