"""A caller's connection once it is no HTTP any more: bytes both ways for whoever took it over."""

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.runtime.byte_budget import ANYONE, ByteBudget
from gateway.server.connection import CallerConnection
from gateway.server.worker_state import ClientGone

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake, WebSocket


class CallerChannel:
    """The channel of a WebSocket (transport/websockets.py) over a caller's connection. The worker closes it.

    Long messages count among the bodies of the worker and of the `owner`, an organization, until they are done with."""

    def __init__(self, connection: CallerConnection, bodies: ByteBudget) -> None:
        self._connection = connection
        self._bodies = bodies
        self.owner = ANYONE
        self._charged = ""
        self._held = 0

    def open(self, handshake: "Handshake", subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> "WebSocket":
        """Answer the caller's handshake. SocketClosed."""
        return handshake.accept(self, subprotocol, headers)

    def receive(self) -> bytes:
        """What the caller sent, waited for; b"" at the end."""
        return self._connection.take_some()

    def send(self, data: bytes) -> None:
        """All of it, as fast as the caller reads. BrokenPipeError when they are gone."""
        try:
            self._connection.send(data)
        except ClientGone:
            raise BrokenPipeError from None

    def linger(self) -> None:
        """Let the caller read what was sent last."""
        if not self._connection.state.leaving:
            self._connection.linger()

    def hold(self, size: int) -> None:
        """So many bytes of a message are held now. Overloaded when that is too much; then nothing changes."""
        if self._held:
            charged = self._charged
        else:
            charged = self.owner
        self._bodies.grow(charged, size - self._held)
        self._charged = charged
        self._held = size

    def close(self) -> None:
        """The end for the caller, and for who receives from them or waits until they read."""
        self.hold(0)
        self._connection.expire()
        self._connection.shut(socket.SHUT_RDWR)
