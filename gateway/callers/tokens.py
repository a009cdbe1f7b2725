"""Secret tokens: their making, their mask, and the keyed hash that is all the store ever sees, with its renewal."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Literal

import peewee

from gateway import ids
from gateway.errors import GatewayError
from gateway.store.database import Database

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


# Renewal of stored token hashes after a rotation of the hash secret, so that the old secret can be removed.


def renew_hash(database: Database, column: peewee.Field, hashes: Sequence[str]) -> None:
    """Store the hash of a token that was just used under the newest secret in `column`. `hashes` as of
    tokens.candidates.

    Every node that runs knows the newest secret (store/installation_identity.py). While the store takes no writes, the
    old hash stays until the next use.
    """
    if len(hashes) < 2:
        return
    table = column.model
    old = column.in_(list(hashes[1:]))
    try:
        # A read first: a list of secrets may stay for years, and writers wait for each other.
        if database.read(table.select().where(old).exists):
            database.write(table.update({column: hashes[0]}).where(old).execute)
    except GatewayError:
        return
