"""Secret tokens: their making, their mask and the keyed hash that is all the store ever sees."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Literal

from gateway import ids

Kind = Literal["user", "customer"]

# The prefix of service accounts, which call the management API and no models.
SERVICE_ACCOUNT = "llmgsa_"
PREFIXES: dict[Kind, str] = {"user": "llmgtwy_", "customer": "llmgcus_"}

MIN_LENGTH = 8
MAX_LENGTH = 256


def make(kind: Kind) -> str:
    """A new token: prefix and 40 URL-safe characters."""
    return ids.token(PREFIXES[kind])


def well_formed(token: str) -> bool:
    """Return whether `token` can be a token at all: 8 to 256 visible ASCII characters.

    Not stricter, because an operator may bring the first key's token along.
    """
    return MIN_LENGTH <= len(token) <= MAX_LENGTH and token.isascii() and token.isprintable() and " " not in token


def hash_token(token: str, hash_key: bytes) -> str:
    """HMAC-SHA-256 of the token under an installation's key, as 64 hex digits."""
    return hmac.new(hash_key, token.encode(), hashlib.sha256).hexdigest()


def candidates(token: str, hash_keys: Sequence[bytes]) -> list[str]:
    """The hash under each key, newest key first: what a look-up searches for."""
    return [hash_token(token, key) for key in hash_keys]
