"""Renewal of stored token hashes after a rotation of the hash secret, so that the old secret can be removed."""

from collections.abc import Sequence

from gateway.accounts.provisioning.models import ScimToken
from gateway.callers.models import ApiKey, ServiceAccount
from gateway.errors import GatewayError
from gateway.store.database import Database


def renew_hash(
    database: Database, table: type[ApiKey] | type[ServiceAccount] | type[ScimToken], hashes: Sequence[str]
) -> None:
    """Store the hash of a token that was just used under the newest secret. `hashes` as of tokens.candidates.

    Every node that runs knows the newest secret (store/installation_identity.py). While the store takes no writes, the
    old hash stays until the next use.
    """
    if len(hashes) < 2:
        return
    old = table.token_hash.in_(list(hashes[1:]))
    try:
        # A read first: a list of secrets may stay for years, and writers wait for each other.
        if database.read(table.select().where(old).exists):
            database.write(table.update(token_hash=hashes[0]).where(old).execute)
    except GatewayError:
        return
