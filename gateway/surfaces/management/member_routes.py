"""`/orgs/…/members` and `invitations`: who belongs to an organization, and what each may spend."""

from functools import partial
from typing import Any

from gateway.accounts import members
from gateway.accounts.members import ROLES, MemberInfo
from gateway.errors import Forbidden, NotFound
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.limit_routes import LimitChange, read_limits
from gateway.surfaces.management.presenters import show_invitation, show_member
from gateway.surfaces.validation_schemas import Body, OneOf, TextField, read_body
from gateway.surfaces.visitor import Visitor

TAG = "Members"
PAGE = "/connect/invitation"


class MemberChange(Body):
    role = OneOf(ROLES)
    status = OneOf(("active", "inactive"))


class NewInvitation(Body):
    email = TextField(3, required=True)
    role = OneOf(ROLES, load_default="developer")


def list_members(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """With roles, limits and what was spent against them; for owners and admins."""
    organization_id = visitor.managed_organization(inbound)
    found = members.list_members(visitor.services.store.database, organization_id)
    statuses = visitor.services.management.budgets.statuses([one.id for one in found])
    return {"members": [show_member(one, statuses[one.id]) for one in found]}


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A member with their limits and what was spent against them."""
    organization_id = visitor.managed_organization(inbound)
    member_id = inbound.params["member_id"]
    for one in members.list_members(visitor.services.store.database, organization_id):
        if one.id == member_id:
            return {"member": _show(visitor, one)}
    raise NotFound(f"There is no member {member_id} in this organization.")


def update(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Change a role, or switch a member with all their keys off or on. One active owner always stays."""
    given = require_some(read_body(MemberChange, inbound))
    member = _other(visitor, inbound)
    _check_role(visitor, member.organization_id, given.get("role", ""))
    if "status" in given:
        active = given["status"] == "active"
    else:
        active = None
    return {"member": _update(visitor, member, role=given.get("role"), active=active)}


def remove(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Switch a member and all their keys off; their history stays. An invitation lets them in again."""
    _update(visitor, _other(visitor, inbound), active=False)
    return {"message": "Member removed."}


def set_limits(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Set the total and periodic spending limits that a member's keys share; null removes a limit."""
    given = require_some(read_body(LimitChange, inbound))
    member = _other(visitor, inbound)
    management = visitor.services.management
    management.set_member_limits(member, partial(read_limits, given), actor=visitor.user_id)
    return {"member": _show(visitor, member)}


def invite(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Invite an address for a week. Pass the link on to the person: link and token are shown here only. `emailed` is
    true if it was sent to the address."""
    given = read_body(NewInvitation, inbound)
    organization_id = visitor.managed_organization(inbound)
    _check_role(visitor, organization_id, given["role"])
    made = visitor.services.management.invitations.invite(
        organization_id, given["email"], given["role"], actor=visitor.user_id
    )
    path = f"{PAGE}?token={made.token}"
    emailed = visitor.services.management.letters.send_invitation(made.info, path)
    more = {"token": made.token, "link": inbound.base_url + path, "emailed": emailed}
    body = {"invitation": {**show_invitation(made.info), **more}}
    return json_reply(body, inbound.shown_id, 201)


def list_invitations(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Invitations that are neither used nor revoked. Tokens are shown only on creation."""
    organization_id = visitor.managed_organization(inbound)
    found = visitor.services.management.invitations.list_invitations(organization_id)
    return {"invitations": [show_invitation(one) for one in found]}


def revoke_invitation(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Its link becomes invalid."""
    organization_id = visitor.managed_organization(inbound)
    visitor.services.management.invitations.revoke(
        organization_id, inbound.params["invitation_id"], actor=visitor.user_id
    )
    return {"message": "Invitation revoked."}


def _other(visitor: Visitor, inbound: Inbound) -> MemberInfo:
    return visitor.other_member(inbound.params["organization_id"], inbound.params["member_id"])


def _check_role(visitor: Visitor, organization_id: str, role: str) -> None:
    if role == "owner" and visitor.member(organization_id).role != "owner":
        raise Forbidden("Only an owner may make an owner.")


def _update(visitor: Visitor, member: MemberInfo, **change: Any) -> dict[str, Any]:
    services = visitor.services
    changed = members.update_member(
        services.store.database,
        services.store.control,
        member.organization_id,
        member.id,
        actor=visitor.user_id,
        **change,
    )
    return _show(visitor, changed)


def _show(visitor: Visitor, member: MemberInfo) -> dict[str, Any]:
    return show_member(member, visitor.services.management.budgets.status(member.id))


ONE = shapes.shape(member=shapes.MEMBER)
WITH_TOKEN = {"allOf": [shapes.INVITATION, shapes.shape(token="string", link="string", emailed="boolean")]}
ORG = "/orgs/<organization_id>"
MEMBER = f"{ORG}/members/<member_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{ORG}/members", list_members, "List members", tag=TAG,
            answer=shapes.shape(members=[shapes.MEMBER])),
    managed("GET", MEMBER, find, "Show a member", tag=TAG, answer=ONE),
    managed("PATCH", MEMBER, update, "Change a member's role or status", tag=TAG, request=MemberChange, answer=ONE),
    managed("DELETE", MEMBER, remove, "Remove a member", tag=TAG, answer=shapes.DONE),
    managed("PATCH", f"{MEMBER}/limit", set_limits, "Set a member's spending limits", tag=TAG, request=LimitChange,
            answer=ONE),
    managed("GET", f"{ORG}/invitations", list_invitations, "List pending invitations", tag=TAG,
            answer=shapes.shape(invitations=[shapes.INVITATION])),
    managed("POST", f"{ORG}/invitations", invite, "Invite a person", tag=TAG, request=NewInvitation,
            answer=shapes.shape(invitation=WITH_TOKEN), success=201),
    managed("DELETE", f"{ORG}/invitations/<invitation_id>", revoke_invitation, "Revoke an invitation", tag=TAG,
            answer=shapes.DONE),
)  # fmt: skip
