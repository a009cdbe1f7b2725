"""What users of WebSockets need to know of them before there is one: why they end, or never open."""

from collections.abc import Iterator

NORMAL = 1000
GOING_AWAY = 1001
NO_TEXT = 1003
NO_CODE = 1005
LOST = 1006
POLICY = 1008
TOO_LARGE = 1009
FAULT = 1011
TRY_LATER = 1013
SUBPROTOCOL = "realtime"  # that callers may offer, and servers take


class SocketClosed(Exception):
    """The connection takes nothing any more."""


class HandshakeRefused(Exception):
    """The server answered the handshake with something else: an answer like any other, with its `status`."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the handshake was answered with {status}")
        self.status = status
        self.headers = headers
        self._body = body

    def read_all(self) -> bytes:
        """Its body, at most the first 64 KB."""
        return self._body

    def chunks(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Nothing is open."""
