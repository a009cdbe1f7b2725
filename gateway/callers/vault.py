"""Secrets at rest: encrypted under the newest key, readable under every listed one."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from gateway.errors import Unavailable
from gateway.runtime.lazy_import import LazyImport

fernet = LazyImport("cryptography.fernet")
VERSION = b"\x80"  # of a token (Fernet specification, token format)


class Vault:
    """Fernet (AES-128-CBC with HMAC-SHA-256) under `keys`, newest first: long random texts of any form."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)

    def seal(self, secret: str) -> str:
        """The encrypted form, safe to store; "" stays ""."""
        if secret:
            sealed: str = self._cipher.encrypt(secret.encode()).decode()
            return sealed
        return ""

    def seal_bytes(self, data: bytes) -> bytes:
        """The encrypted form of anything, a token of Fernet without its base64."""
        return base64.urlsafe_b64decode(self._cipher.encrypt(data))

    def open_bytes(self, sealed: bytes) -> bytes:
        """Return the bytes that `seal_bytes` encrypted. Raises Unavailable, as `open` does."""
        try:
            opened: bytes = self._cipher.decrypt(base64.urlsafe_b64encode(sealed))
            return opened
        except fernet.InvalidToken:
            raise Unavailable("Stored data cannot be read with the configured encryption key.") from None

    def open(self, sealed: str) -> str:
        """The secret. Unavailable when none of the keys fits: it is the installation that is wrong, not the caller."""
        if not sealed:
            return ""
        try:
            secret: str = self._cipher.decrypt(sealed.encode()).decode()
            return secret
        except fernet.InvalidToken:
            raise Unavailable("A stored secret cannot be read with the configured encryption key.") from None

    @cached_property
    def _cipher(self) -> Any:
        """Created on first use: many installations have no secrets to encrypt."""
        return fernet.MultiFernet([fernet.Fernet(_derive(key)) for key in self._keys])


def is_sealed(value: bytes) -> bool:
    """Return whether bytes come from `seal_bytes` and are not JSON or deflated data: by the version byte of Fernet."""
    return value[:1] == VERSION


def _derive(key: str) -> bytes:
    # Fernet wants 32 bytes in base64; an operator's random text may have any length, and a hash makes it fit.
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())
