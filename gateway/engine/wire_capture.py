"""Captures the exchange with a provider, byte for byte but without secrets, for x-debug and retained payloads."""

from typing import Any
from urllib.parse import urlsplit

from gateway.accounts.credential_sources import OWN_SOURCE
from gateway.providers.identities.upstream_identity import secret_of
from gateway.providers.protocol import Call, Target
from gateway.runtime.large_files import MessageBody

REDACTED = b"[secret]"
MIN_SECRET_LENGTH = 20  # of an AWS access key: its id


class WireCapture:
    """Listens to one upstream call and keeps at most `room` bytes of its two bodies together.

    Headers and the query of a URL contain credentials, so they are never kept. The credential is also removed from the
    bodies, because some providers repeat it in error messages. For calls with the platform's credential the URL is not
    kept, because the addresses of an operator's upstreams are private.
    """

    def __init__(self, target: Target, room: int) -> None:
        self._target = target
        self._room = max(0, room)
        self._method = self._url = ""
        self._status = 0
        self._sent = b""
        self._received: list[bytes] = []
        self._secrets: set[str] = set()
        self.size = 0
        self.cut = False

    def sending(self, call: Call) -> None:
        """Note the secrets of the call, which is left unchanged. A workload identity may have others at its end."""
        self._note_secrets()

    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None:
        """Keep the method, URL and body; a body in pieces contains the caller's uploads and is not kept."""
        self._method = method
        if self._target.credential.source == OWN_SOURCE:
            parts = urlsplit(url)
            self._url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._sent = self._take(body) if isinstance(body, bytes) else b""

    def answered(self, status: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        if data:
            self._received.append(self._take(data))

    def show(self) -> dict[str, Any]:
        """Return the exchange as JSON; bytes that are not UTF-8 are replaced."""
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
        taken = data[: self._room - self.size]
        self.size += len(taken)
        self.cut = self.cut or len(taken) < len(data)
        return taken

    def _note_secrets(self) -> None:
        self._secrets.update(_parts_of(secret_of(self._target.credential)))

    def _clean(self, data: bytes) -> str:
        self._note_secrets()
        for secret in sorted(self._secrets, key=len, reverse=True):
            data = data.replace(secret.encode(), REDACTED)
            if self.cut:
                data = _drop_beginning(data, secret.encode())
        return data.decode("utf-8", "replace")


def _parts_of(secret: str) -> list[str]:
    """Return the texts to remove: the credential, and the parts of a signing key, of which AWS quotes the token of the
    session in errors about signatures."""
    if not secret:
        return []
    parts = [part for part in secret.split(":") if len(part) >= MIN_SECRET_LENGTH]
    if secret.startswith("{"):
        parts = []
    return [secret, *parts]


def _drop_beginning(data: bytes, secret: bytes) -> bytes:
    """Return `data` without a beginning of the secret that truncation left at its end."""
    for size in range(min(len(secret) - 1, len(data)), 3, -1):
        if data.endswith(secret[:size]):
            return data[:-size] + REDACTED
    return data
