"""What users of WebSockets need to know of them before there is one: why they end, or never open."""

from collections.abc import Iterator

NORMAL, GOING_AWAY, NO_TEXT, NO_CODE, LOST, POLICY, TOO_LARGE, FAULT = 1000, 1001, 1003, 1005, 1006, 1008, 1009, 1011
TRY_LATER = 1013
SUBPROTOCOL = "realtime"  # that callers may offer, and servers take


class SocketClosed(Exception):
    """The connection takes nothing any more."""


class HandshakeRefused(Exception):
    """The server answered the handshake with something else: an answer like any other, with its `status`."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the handshake was answered with {status}")
        self.status, self.headers, self._body = status, headers, body

    def read_all(self) -> bytes:
        """Its body, at most the first 64 KB."""
        return self._body

    def chunks(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Nothing is open."""
