"""Applications with access tokens: for the visitor's own keys, for one key, and ending their access."""

from functools import partial
from typing import Any

from gateway.accounts.keys import KeyInfo
from gateway.oauth.grant_values import GrantInfo
from gateway.surfaces.management.access_groups import SIGNED_IN, AccessGroup, Values, of_key
from gateway.surfaces.management.answers import ApplicationAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation

TAG = "Applications"


def _find_grant(visitor: Visitor, values: Values) -> GrantInfo:
    grant = visitor.services.accounts.oauth.grants.find(values["application_id"])
    visitor.key(grant.key_id, "keys:write")
    return grant


GRANT_USER = AccessGroup("keys:write", "For everyone who may change the key.", _find_grant)


def list_own(call: ManagedCall[None]) -> list[ApplicationAnswer]:
    """Applications that you authorized to act for you, newest first."""
    return _show_all(call, user_id=call.actor, organization_ids=list(call.visitor.memberships))


def list_of_key(call: ManagedCall[KeyInfo]) -> list[ApplicationAnswer]:
    """Applications that hold tokens of a key that you can see."""
    return _show_all(call, key_id=call.subject.id)


def end(call: ManagedCall[GrantInfo]) -> None:
    """End an application's access: its tokens are refused everywhere when this returns."""
    call.services.accounts.oauth.grants.end(call.subject.id, "revoked", actor=call.actor)


def _show_all(call: ManagedCall[Any], **owner: Any) -> list[ApplicationAnswer]:
    grants = call.page.read(partial(call.services.accounts.oauth.grants.list_grants, **owner))
    return [show_grant(grant) for grant in grants]


def show_grant(grant: GrantInfo) -> ApplicationAnswer:
    return ApplicationAnswer.of(
        grant,
        name=grant.client_name,
        client_id=grant.client,
        api_key_id=grant.key_id,
        api_key_description=grant.key_name,
        last_used_at=grant.used_at_us,
    )


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/auth/applications", list_own, "List applications with access by your keys", tag=TAG,
            who=SIGNED_IN, query=ListPageQuery, inside="applications"),
    managed("DELETE", "/auth/applications/<application_id>", end, "End an application's access", tag=TAG,
            who=GRANT_USER, message="The application has no access any more.", audit="oauth.revoke"),
    managed("GET", "/keys/api/<key_id>/applications", list_of_key, "List applications with access by a key", tag=TAG,
            who=of_key("keys:read"), scope="keys:read", query=ListPageQuery, inside="applications"),
)  # fmt: skip
