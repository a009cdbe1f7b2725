"""Close codes and errors of WebSockets, for code that does not need the implementation, and a socket as
their channel."""

import socket
from collections.abc import Iterator
from typing import Any

import gevent

NORMAL = 1000
GOING_AWAY = 1001
NO_TEXT = 1003
NO_CODE = 1005
LOST = 1006
POLICY = 1008
TOO_LARGE = 1009
FAULT = 1011
TRY_LATER = 1013
SUBPROTOCOL = "realtime"  # that callers may offer and servers accept


class SocketClosed(Exception):
    """The connection is closed for sending."""


class HandshakeRefused(Exception):
    """The server refused the handshake with a regular response, which has a `status`."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the handshake was answered with {status}")
        self.status = status
        self.headers = headers
        self._body = body

    def read_all(self) -> bytes:
        """Return the body, at most the first 64 KB."""
        return self._body

    def chunks(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Do nothing: the connection is already closed."""


# A socket as the channel of a WebSocket, to an upstream or to a caller under another server.

RECEIVE_BYTES = 65_536
# A peer that reads nothing for this long counts as lost.
STALL_TIMEOUT_S = 30.0


class SocketChannel:
    """Sends and receives bytes over a connected socket, with or without TLS; OSError when the peer disconnected."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)

    def receive(self, size: int = RECEIVE_BYTES) -> bytes:
        """Wait for data and return it, b"" at the end. Other greenlets run even when data is already there."""
        data: bytes = self._sock.recv(size)
        gevent.sleep(0)
        return data

    def send(self, data: bytes) -> None:
        """Send all of `data`; TimeoutError for a peer that reads nothing for STALL_TIMEOUT_S."""
        with gevent.Timeout(STALL_TIMEOUT_S, TimeoutError):
            self._sock.sendall(data)

    def linger(self) -> None:
        """Do nothing: a close frame to an upstream needs no further wait."""

    def hold(self, size: int) -> None:
        """Do nothing: messages of an upstream have no budget."""

    def close(self) -> None:
        """Close the socket; a greenlet that receives finds it closed."""
        try:
            self._sock._sock.shutdown(socket.SHUT_RDWR)  # TLS's own shutdown drops its state while a reader waits
        except OSError:
            pass
        self._sock.close()
