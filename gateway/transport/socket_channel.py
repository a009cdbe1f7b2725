"""A socket as a WebSocket reads and writes it: to an upstream, or a caller's under a server of others."""

import socket
from typing import Any

import gevent

RECEIVE_BYTES = 65_536
# A peer that takes nothing for so long is lost.
STALL_S = 30.0


class SocketChannel:
    """Bytes both ways over a connected socket, under TLS or not; OSError when the peer is gone."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(None)

    def receive(self, size: int = RECEIVE_BYTES) -> bytes:
        """What came, waited for; b"" at the end. Others get their turn where more is there at once."""
        data: bytes = self._sock.recv(size)
        gevent.sleep(0)
        return data

    def send(self, data: bytes) -> None:
        """All of it; TimeoutError for a peer that takes nothing for STALL_S."""
        with gevent.Timeout(STALL_S, TimeoutError):
            self._sock.sendall(data)

    def linger(self) -> None:
        """Nothing is waited for: an upstream is told, no more."""

    def hold(self, size: int) -> None:
        """An upstream's messages have no budget."""

    def close(self) -> None:
        """End it; who receives finds it ended."""
        try:
            self._sock._sock.shutdown(socket.SHUT_RDWR)  # TLS would drop its state while a reader waits
        except OSError:
            pass
        self._sock.close()
