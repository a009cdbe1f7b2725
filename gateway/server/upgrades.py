"""A caller's connection after an upgrade from HTTP: bytes in both directions."""

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.runtime.byte_budget import UNATTRIBUTED, ByteBudget
from gateway.server.connection import CallerConnection
from gateway.server.worker_state import ClientGone

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake, WebSocket


class CallerChannel:
    """The channel of a WebSocket (transport/websockets.py) over a caller's connection. The worker closes it.

    Long messages count as bodies of the worker and of the `owner`, an organization, until they are processed.
    """

    def __init__(self, connection: CallerConnection, bodies: ByteBudget) -> None:
        self._connection = connection
        self._bodies = bodies
        self.owner = UNATTRIBUTED
        self._charged = ""
        self._held = 0

    def open(self, handshake: "Handshake", subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> "WebSocket":
        """Answer the caller's handshake. SocketClosed."""
        return handshake.accept(self, subprotocol, headers)

    def receive(self) -> bytes:
        """Wait for bytes of the caller and return them, b"" at the end."""
        return self._connection.take_some()

    def send(self, data: bytes) -> None:
        """Send all of `data`, as fast as the caller reads. BrokenPipeError when the caller disconnected."""
        try:
            self._connection.send(data)
        except ClientGone:
            raise BrokenPipeError from None

    def linger(self) -> None:
        """Give the caller time to read the last message."""
        if not self._connection.state.leaving:
            self._connection.linger()

    def hold(self, size: int) -> None:
        """Set the number of bytes that a message holds. Overloaded, without a change, when that is too much."""
        charged = self._charged if self._held else self.owner
        self._bodies.grow(charged, size - self._held)
        self._charged = charged
        self._held = size

    def close(self) -> None:
        """Close the connection in both directions, which also ends a waiting receive or send."""
        self.hold(0)
        self._connection.expire()
        self._connection.shut(socket.SHUT_RDWR)
