"""A socket as the channel of a WebSocket, to an upstream or to a caller under another server."""

import socket
from typing import Any

import gevent

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
