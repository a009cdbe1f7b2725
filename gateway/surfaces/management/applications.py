"""Applications with access tokens: for the visitor's own keys, for one key, and ending their access."""

from typing import Any

from gateway.clock import to_iso
from gateway.oauth.grant_values import GrantInfo
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.visitor import Visitor

TAG = "Applications"


def list_own(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Applications that you authorized to act for you, newest first."""
    return _show_all(visitor.services.accounts.oauth.grants.list_grants(user_id=visitor.user_id))


def list_of_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Applications that hold tokens of a key that you can see."""
    key = visitor.key(inbound.params["key_id"])
    return _show_all(visitor.services.accounts.oauth.grants.list_grants(key_id=key.id))


def end(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """End an application's access: its tokens are refused everywhere when this returns."""
    grants = visitor.services.accounts.oauth.grants
    grant = grants.find(inbound.params["application_id"])
    visitor.key(grant.key_id)  # raises unless the visitor may manage the key
    grants.end(grant.id, "revoked", actor=visitor.user_id)
    return {"message": "The application has no access any more."}


def _show_all(found: list[GrantInfo]) -> dict[str, Any]:
    return {"applications": [show_grant(one) for one in found]}


def show_grant(grant: GrantInfo) -> dict[str, Any]:
    return {
        "id": grant.id,
        "name": grant.client_name,
        "clientId": grant.client,
        "redirectHost": grant.redirect_host,
        "scopes": list(grant.scopes),
        "apiKeyId": grant.key_id,
        "apiKeyDescription": grant.key_name,
        "userId": grant.user_id,
        "createdAt": to_iso(grant.created_at_us),
        "lastUsedAt": to_iso(grant.used_at_us),
        "expiresAt": to_iso(grant.expires_at_us),
    }


APPLICATION = shapes.named(
    "Application", id="string", name="string", clientId="string", redirectHost="string", scopes=["string"],
    apiKeyId="string", apiKeyDescription="string", userId="string", createdAt="string", lastUsedAt="string",
    expiresAt="string",
)  # fmt: skip
LIST = shapes.shape(applications=[APPLICATION])

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/auth/applications", list_own, "List applications with access by your keys", tag=TAG, answer=LIST),
    managed("DELETE", "/auth/applications/<application_id>", end, "End an application's access", tag=TAG,
            answer=shapes.DONE),
    managed("GET", "/keys/api/<key_id>/applications", list_of_key, "List applications with access by a key", tag=TAG,
            answer=LIST),
)  # fmt: skip
