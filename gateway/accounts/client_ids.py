"""Ids that clients choose for the objects that they create, so that a repeated request finds the first object.

Such an id is unique for a kind of object in an organization. The row is written in the transaction that creates the
object, so that of two simultaneous requests one creates it and the other is refused.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.accounts.changes import MAX_CLIENT_IDS, check_quota
from gateway.accounts.models import ClientId
from gateway.callers import tokens as tokens_module
from gateway.errors import Conflict
from gateway.store.database import Database


class ClientIdClaim(Struct, frozen=True):
    """An id that a request wants for what it creates. `digests` are the keyed hashes of the request's content, newest
    hash key first; `replaces` is the object that had the id before and exists no longer."""

    organization_id: str
    kind: str
    client_id: str
    digests: tuple[str, ...]
    replaces: str = ""


class ClaimedObject(Struct, frozen=True):
    """The object that has a chosen id already. `same`: the request that created it had the same content."""

    object_id: str
    same: bool

    def check(self, claim: ClientIdClaim) -> None:
        """Raise Conflict (code client_id_conflict) if the object was created with other content."""
        if not self.same:
            raise Conflict(
                f"The clientId {claim.client_id} belongs to {self.object_id}, which was created with other content.",
                code="client_id_conflict",
            )


class ClientIdTaken(Exception):
    """Another request created an object with the id at the same time."""


def make_claim(
    organization_id: str, kind: str, client_id: str, content: Mapping[str, Any], hash_keys: Sequence[bytes]
) -> ClientIdClaim:
    """Return the claim of a request with this content, which may contain secrets."""
    text = json.dumps(content, sort_keys=True, default=str)
    return ClientIdClaim(organization_id, kind, client_id, tuple(tokens_module.candidates(text, hash_keys)))


def find(database: Database, claim: ClientIdClaim) -> ClaimedObject | None:
    """Return the object that has the id of a claim; None without."""
    row = database.read(partial(_row_of, claim))
    if row is None:
        return None
    return ClaimedObject(row.object_id, row.digest in claim.digests)


def insert(claim: ClientIdClaim | None, object_id: str, now: int) -> None:
    """Store the id of a new object, within the transaction that creates it. Raises ClientIdTaken."""
    if claim is None:
        return
    row = _row_of(claim)
    if row is not None and row.object_id != claim.replaces:
        raise ClientIdTaken
    ClientId.delete().where(_is(claim)).execute()
    same_kind = ClientId.select().where(ClientId.organization == claim.organization_id, ClientId.kind == claim.kind)
    check_quota(same_kind, MAX_CLIENT_IDS, "values of clientId for one kind of object", "leave it out")
    ClientId.insert(
        organization=claim.organization_id,
        kind=claim.kind,
        client_id=claim.client_id,
        object_id=object_id,
        digest=claim.digests[0],
        created_at=now,
    ).execute()


def _row_of(claim: ClientIdClaim) -> ClientId | None:
    row: ClientId | None = ClientId.get_or_none(_is(claim))
    return row


def _is(claim: ClientIdClaim) -> Any:
    return (
        (ClientId.organization == claim.organization_id)
        & (ClientId.kind == claim.kind)
        & (ClientId.client_id == claim.client_id)
    )
