"""Close codes and errors of WebSockets, for code that does not need the implementation."""

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
