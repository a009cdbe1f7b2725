"""Renewal of stored token hashes after a rotation of the hash secret, so that the old secret can be removed."""

from collections.abc import Sequence

import peewee

from gateway.errors import GatewayError
from gateway.store.database import Database


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
