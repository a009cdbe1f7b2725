"""`/orgs/…/members` and `invitations`: who belongs to an organization, and what each may spend."""

from functools import partial
from typing import Any

from msgspec.structs import asdict

from gateway.accounts import members, teams
from gateway.accounts.invitations import InvitationGrant, InvitationInfo
from gateway.accounts.member_attributes import read_current
from gateway.accounts.members import MemberInfo
from gateway.accounts.scoped_roles import list_roles
from gateway.admin.group_grants import read_limits as stored_limits
from gateway.admin.group_grants import store_limits
from gateway.callers.permissions import ROLES
from gateway.errors import Forbidden
from gateway.limits.budgets import Limits, Status
from gateway.store.database import Database
from gateway.surfaces.management.access_groups import in_organization, in_part, of_listed_member, of_member
from gateway.surfaces.management.answers import (
    InvitationAnswer,
    MemberAnswer,
    NewInvitationAnswer,
    OwnMembershipAnswer,
    OwnTeamAnswer,
    limits_of,
)
from gateway.surfaces.management.limit_routes import FIELDS, LimitChange, LimitFields, limit_commands, read_limits
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, NameList, OneOf, StatusField, StrictBody, TextField
from gateway.surfaces.web.http import Operation

TAG = "Members"
PAGE = "/console/invitation"
MAX_PARTS = 50
TEAMS_SCOPE = "teams:write"


class MemberChange(Body):
    role = OneOf(ROLES, about="The member's role.")
    status = StatusField()


class NewInvitation(LimitFields, StrictBody):
    email = TextField(3, required=True)
    role = OneOf(ROLES, load_default="developer", about="The member's role.")
    teamId = TextField(1, 80, about="The team that the person joins.")
    roleIn = NameList(
        MAX_PARTS, 40, about="Ids of teams that the person leads, and of projects of which the person is an admin."
    )


def list_members(call: ManagedCall[str]) -> list[MemberAnswer]:
    """List members with roles, limits and the spending that counts against them; the lead of a team sees its
    members."""
    reach = call.visitor.reach(call.subject, "members:read")
    if reach.whole:
        infos = call.page.read(partial(members.list_members, call.database, call.subject))
    else:
        listed = teams.list_teams(call.database, call.subject)
        seen = {member_id for team in listed if team.id in reach.teams for member_id in team.member_ids}
        infos = call.page.cut([info for info in members.list_members(call.database, call.subject) if info.id in seen])
    member_ids = [member.id for member in infos]
    statuses = call.management.budgets.statuses(member_ids)
    attributes = read_current(call.database, member_ids)
    roles = list_roles(call.database, member_ids)
    return [
        MemberAnswer.of(
            member,
            role_in=roles[member.id],
            attributes=attributes[member.id],
            **limits_of(statuses[member.id]),
        )
        for member in infos
    ]


def find(call: ManagedCall[MemberInfo]) -> MemberAnswer:
    """Return a member with limits and the spending that counts against them."""
    return _show(call, call.subject)


def update(call: ManagedCall[MemberInfo]) -> MemberAnswer:
    """Change a role, or switch a member with all their keys off or on. One active owner always stays."""
    fields = call.fields
    _check_role(call, call.subject.organization_id, fields.get("role", ""))
    active = fields["status"] == "active" if "status" in fields else None
    return _show(call, _update(call, role=fields.get("role"), active=active))


def remove(call: ManagedCall[MemberInfo]) -> None:
    """Deactivate a member and all their keys; their history stays. An invitation activates them again."""
    _update(call, active=False)


def set_limits(call: ManagedCall[MemberInfo]) -> MemberAnswer:
    """Set the total and periodic spending limits that a member's keys share; null removes a limit."""
    call.management.set_member_limits(call.subject, partial(read_limits, call.fields), actor=call.actor)
    return _show(call, call.subject)


def show_own(call: ManagedCall[str]) -> OwnMembershipAnswer:
    """Return your own membership: your role, your spending limits with what you spent, and your teams with theirs."""
    member = call.visitor.member(call.subject)
    own = teams.list_teams(call.database, call.subject, member_id=member.id)
    statuses = call.management.budgets.statuses([member.id, *(team.id for team in own)])
    return OwnMembershipAnswer(
        show_member(call.database, member, statuses[member.id]),
        [OwnTeamAnswer.of(team, **show_limits(statuses[team.id].limits)) for team in own],
    )


def invite(call: ManagedCall[str]) -> NewInvitationAnswer:
    """Invite an address for a week. Pass the link on to the person: link and token are shown here only. `emailed` is
    true if it was sent to the address.

    Who accepts becomes a member of the team and has the spending limits from the first request on. A service account
    needs the scope `teams:write` for `teamId`.
    """
    organization_id = call.subject
    fields = call.fields
    _check_role(call, organization_id, fields["role"])
    account = call.visitor.account
    if account is not None and "teamId" in fields and TEAMS_SCOPE not in account.scopes:
        raise Forbidden(f"teamId requires the scope {TEAMS_SCOPE} of the service account.", code="scope_missing")
    if fields.get("roleIn"):
        call.visitor.check_person("A service account gives no roles in teams and projects.")
    limits = read_limits({name: fields[name] for name in FIELDS if name in fields}).checked()
    management = call.management
    grant = InvitationGrant(fields.get("teamId", ""), store_limits(limits), tuple(fields.get("roleIn", ())))
    invitation = management.invitations.invite(
        organization_id, fields["email"], fields["role"], grant, actor=call.actor
    )
    path = f"{PAGE}?token={invitation.token}"
    emailed = management.letters.send_invitation(invitation.info, path)
    return NewInvitationAnswer(
        **asdict(show_invitation(invitation.info)),
        token=invitation.token,
        link=call.inbound.base_url + path,
        emailed=emailed,
    )


def list_invitations(call: ManagedCall[str]) -> list[InvitationAnswer]:
    """Invitations that are neither used nor revoked. Tokens are shown only on creation."""
    invitations = call.page.cut(call.management.invitations.list_invitations(call.subject))
    return [show_invitation(info) for info in invitations]


def revoke_invitation(call: ManagedCall[str]) -> None:
    """The link of the invitation becomes invalid."""
    call.management.invitations.revoke(call.subject, call.params["invitation_id"], actor=call.actor)


def show_member(database: Database, info: MemberInfo, status: Status) -> MemberAnswer:
    attributes = read_current(database, [info.id])[info.id]
    roles = list_roles(database, [info.id])[info.id]
    return MemberAnswer.of(info, role_in=roles, attributes=attributes, **limits_of(status))


def show_invitation(info: InvitationInfo) -> InvitationAnswer:
    return InvitationAnswer.of(
        info,
        invited_by=info.inviter or None,
        team_id=info.team_id or None,
        team_name=info.team_name or None,
        role_in=list(info.part_ids),
        **show_limits(stored_limits(info.limits)),
    )


def show_limits(limits: Limits) -> dict[str, Any]:
    """Return the members of an answer that has limits without counters."""
    period = limits.period
    return {
        "usage_limit": limits.total_nusd,
        "period_usage_limit": limits.period_nusd,
        "period_usage_duration_value": period.amount if period else None,
        "period_usage_duration_unit": period.unit if period else None,
        "period_timezone": (period.zone or None) if period else None,
    }


def _check_role(call: ManagedCall[Any], organization_id: str, role: str) -> None:
    if role:
        call.visitor.authority(call.visitor.member(organization_id)).check(role)


def _update(call: ManagedCall[MemberInfo], **change: Any) -> MemberInfo:
    member = call.subject
    return members.update_member(*call.stores, member.organization_id, member.id, actor=call.actor, **change)


def _show(call: ManagedCall[Any], member: MemberInfo) -> MemberAnswer:
    return show_member(call.database, member, call.management.budgets.status(member.id))


ORG = "/orgs/<organization_id>"
MEMBER = f"{ORG}/members/<member_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{ORG}/members", list_members, "List members", tag=TAG,
            who=in_part("members:read"), scope="members:read",
            query=ListPageQuery, inside="members", commands=("members list",)),
    managed("GET", MEMBER, find, "Show a member", tag=TAG,
            who=of_listed_member("members:read"), scope="members:read", inside="member",
            commands=("members show <member_id>",)),
    managed("PATCH", MEMBER, update, "Change a member's role or status", tag=TAG,
            who=of_member("members:write"), scope="members:write",
            request=MemberChange, inside="member", audit="member.update",
            commands=("members set-role <member_id> <role>", "members activate <member_id> status=active",
                      "members deactivate <member_id> status=inactive")),
    managed("DELETE", MEMBER, remove, "Remove a member", tag=TAG,
            who=of_member("members:write"), scope="members:write", message="Member removed.",
            audit="member.update"),
    managed("PATCH", f"{MEMBER}/limit", set_limits, "Set a member's spending limits", tag=TAG,
            who=of_member("members:limit"), scope="members:write",
            request=LimitChange, inside="member", audit="member.update_limit",
            commands=limit_commands("member_id")),
    managed("GET", f"{ORG}/membership", show_own, "Show your own membership", tag=TAG,
            who=in_organization("organization:read"),
            inside="membership"),
    managed("GET", f"{ORG}/invitations", list_invitations, "List pending invitations", tag=TAG,
            who=in_organization("invitations:read"), scope="members:read",
            query=ListPageQuery, inside="invitations"),
    managed("POST", f"{ORG}/invitations", invite, "Invite a person", tag=TAG,
            who=in_organization("invitations:write"), scope="members:write", request=NewInvitation,
            inside="invitation", success=201, audit="invitation.create",
            commands=("members invite <organization_id> <email> ... -> link",)),
    managed("DELETE", f"{ORG}/invitations/<invitation_id>", revoke_invitation, "Revoke an invitation", tag=TAG,
            who=in_organization("invitations:write"), scope="members:write", message="Invitation revoked.",
            audit="invitation.revoke"),
)  # fmt: skip
