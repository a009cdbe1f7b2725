"""Captures the exchange with a provider, byte for byte and without secrets, for x-debug and retained payloads."""

from typing import Any
from urllib.parse import urlsplit

from gateway.providers.protocol import Call, Target
from gateway.runtime.large_files import MessageBody

BYOK = "byok"
HIDDEN = b"[secret]"


class WireCapture:
    """Listens to one upstream call and keeps at most `room` bytes of its two bodies together.

    Headers are never kept, nor is the query of a URL: they contain credentials. The credential itself is removed from
    the bodies, because some providers repeat it in their error messages. For calls with the platform's credential the
    URL is not kept at all: where an operator's upstreams are is private.
    """

    def __init__(self, target: Target, room: int) -> None:
        self._target = target
        self._room = max(0, room)
        self._method = self._url = ""
        self._status = 0
        self._sent = b""
        self._received: list[bytes] = []
        self.size = 0
        self.cut = False

    def sending(self, call: Call) -> None:
        """The call is sent unchanged."""

    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None:
        """A body in pieces contains the caller's uploads: nothing of that is kept."""
        self._method = method
        if self._target.credential.source == BYOK:
            parts = urlsplit(url)
            self._url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        if isinstance(body, bytes):
            self._sent = self._take(body)
        else:
            self._sent = b""

    def answered(self, status: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        if data:
            self._received.append(self._take(data))

    def show(self) -> dict[str, Any]:
        """The exchange as JSON; bytes that are not UTF-8 are replaced."""
        return {
            "provider": self._target.provider.id,
            "model": self._target.mapping.external_id,
            "method": self._method,
            "url": self._url,
            "request": self._clean(self._sent),
            "status": self._status,
            "response": self._clean(b"".join(self._received)),
            "truncated": self.cut,
        }

    def _take(self, data: bytes) -> bytes:
        kept = data[: self._room - self.size]
        self.size += len(kept)
        self.cut = self.cut or len(kept) < len(data)
        return kept

    def _clean(self, data: bytes) -> str:
        secret = self._target.credential.secret.encode()
        if secret:
            data = data.replace(secret, HIDDEN)
            if self.cut:
                data = _drop_beginning(data, secret)
        return data.decode("utf-8", "replace")


def _drop_beginning(data: bytes, secret: bytes) -> bytes:
    """Without the first part of the secret that truncation left at the end."""
    for size in range(min(len(secret) - 1, len(data)), 3, -1):
        if data.endswith(secret[:size]):
            return data[:-size] + HIDDEN
    return data
