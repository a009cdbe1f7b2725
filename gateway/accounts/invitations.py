"""Invitations: the only way for a person without an account to join."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import peewee
from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import MAX_INVITATIONS, OPERATOR, check_quota, commit
from gateway.accounts.members import MemberInfo, check_role, insert_member, read_email, revive_member
from gateway.accounts.scoped_roles import check_parts
from gateway.callers import tokens as tokens_module
from gateway.callers.models import Invitation, Member, Organization, ServiceAccount, Team, User
from gateway.callers.permissions import ROLES, Role, reach_of, roles_within
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import Conflict, Forbidden, NotFound
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

PREFIX = "llmginv_"
LIFETIME_S = 7 * 86_400
# The scope with which a service account may invite.
MEMBER_SCOPE = "members:write"


class InvitationInfo(Struct, frozen=True):
    """An invitation as it may be shown. `status` is the effective one: pending, accepted, revoked or expired. `inviter`
    is the name or e-mail address of the person who invited, "" for the operator. `has_account` is true if the address
    already has an account."""

    id: str
    organization_id: str
    organization_name: str
    email: str
    role: Role
    status: str
    created_at_us: int
    expires_at_us: int
    inviter: str = ""
    has_account: bool = False
    team_id: str = ""
    team_name: str = ""
    limits: dict[str, Any] = {}
    part_ids: tuple[str, ...] = ()


class InvitationGrant(Struct, frozen=True):
    """A team ("" for none) and spending limits (as a group rule stores them) for the person who accepts an
    invitation; `part_ids` are the teams and projects in which the person has a role."""

    team_id: str = ""
    limits: dict[str, Any] = {}
    part_ids: tuple[str, ...] = ()


# Gives a new member what the invitation says, within the transaction that accepts it. `setter` is the inviter.
GiveGrant = Callable[[MemberInfo, InvitationGrant, str, int], None]


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """An invitation and its token, which the inviter passes on; it is not shown again."""

    info: InvitationInfo
    token: str = field(repr=False)


class Invitations:
    def __init__(self, database: Database, control: Control, secrets: Secrets, give: GiveGrant) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._give = give

    def invite(
        self,
        organization_id: str,
        email: str,
        role: Role,
        grant: InvitationGrant = InvitationGrant(),
        *,
        actor: str,
    ) -> NewInvitation:
        """Invite an address for a week; an earlier pending invitation of it is revoked.

        InvalidRequest (address, role), NotFound (organization, team), Conflict (an active member has the address).
        """
        email = read_email(email)
        check_role(role)
        invitation_id = ids.new("inv")
        token = ids.token(PREFIX)

        def work(now: int) -> InvitationInfo:
            if not Organization.select().where(Organization.id == organization_id).exists():
                raise NotFound(f"There is no organization {organization_id}.")
            _check_new(organization_id, email)
            _check_team(organization_id, grant.team_id)
            check_parts(organization_id, grant.part_ids)
            invitations = Invitation.select().where(Invitation.organization == organization_id)
            check_quota(invitations, MAX_INVITATIONS, "invitations, those of the last months among them")
            _revoke_pending(organization_id, email)
            Invitation.insert(
                id=invitation_id,
                organization=organization_id,
                email=email,
                role=role,
                token_hash=tokens_module.hash_token(token, self._hash_keys[0]),
                invited_by=actor,
                created_at=now,
                expires_at=now + LIFETIME_S * SECOND_US,
                team_id=grant.team_id,
                parts=json.dumps(list(grant.part_ids)),
                limits=json.dumps(dict(grant.limits), sort_keys=True),
            ).execute()
            detail: dict[str, object] = {"email": email, "role": role}
            if grant.team_id:
                detail["team"] = grant.team_id
            if grant.part_ids:
                detail["parts"] = list(grant.part_ids)
            if grant.limits:
                detail["limits"] = dict(grant.limits)
            _audit("invitation.create", invitation_id, organization_id, detail, actor, now)
            return _info(_load(invitation_id), now)

        return NewInvitation(commit(self._database, self._control, work, confirm=False), token)

    def list_invitations(self, organization_id: str) -> list[InvitationInfo]:
        """The organization's pending invitations, oldest first."""
        now = self._database.now_us()
        query = (
            _select()
            .where(
                Invitation.organization == organization_id, Invitation.status == "pending", Invitation.expires_at > now
            )
            .order_by(Invitation.id)
        )
        invitations = self._database.read(lambda: [_info(row, now) for row in query])
        return [invitation for invitation in invitations if invitation.status == "pending"]

    def revoke(self, organization_id: str, invitation_id: str, *, actor: str) -> None:
        """Take a pending invitation back. NotFound."""

        def work(now: int) -> None:
            row = _load(invitation_id)
            if row is None or row.organization_id != organization_id or row.status != "pending":
                raise NotFound(f"There is no pending invitation {invitation_id} in this organization.")
            Invitation.update(status="revoked").where(Invitation.id == invitation_id).execute()
            _audit("invitation.revoke", invitation_id, organization_id, {"email": row.email}, actor, now)

        commit(self._database, self._control, work, confirm=False)

    def find(self, token: str) -> InvitationInfo:
        """The pending invitation of a token. NotFound: unknown, used, revoked or expired."""
        now = self._database.now_us()
        return self._database.read(lambda: _info(self._pending(token, now), now))

    def open(self, token: str) -> InvitationInfo:
        """The invitation of a token in whichever status, for who holds it. NotFound: there never was one."""
        now = self._database.now_us()

        def read() -> InvitationInfo:
            row = self._row(token)
            if row is None:
                raise NotFound("There is no invitation with this token.", code="invitation_unknown")
            return _info(row, now)

        return self._database.read(read)

    def accept_as(self, token: str, user_id: str) -> MemberInfo:
        """A signed-in user joins. NotFound; Forbidden when the invitation is for another address; Conflict."""
        new_ids = (ids.new("member"), ids.new("user"))

        def work(now: int) -> MemberInfo:
            row = self._pending(token, now)
            if User.get_by_id(user_id).email != row.email:
                raise Forbidden("This invitation is for another e-mail address.")
            return self._join(row, new_ids, "", "", user_id, now)

        return commit(self._database, self._control, work)

    def sign_up(self, token: str, name: str, password_hash: str) -> MemberInfo:
        """A new person joins. NotFound; Conflict (code user_exists) when the address has an account: its owner
        signs in and accepts, since who sent the invitation knows its token."""
        new_ids = (ids.new("member"), ids.new("user"))

        def work(now: int) -> MemberInfo:
            row = self._pending(token, now)
            if User.select().where(User.email == row.email).exists():
                raise Conflict(
                    "This address already has an account. Sign in and accept the invitation.", code="user_exists"
                )
            return self._join(row, new_ids, name.strip()[:255], password_hash, new_ids[1], now)

        return commit(self._database, self._control, work)

    def _join(
        self, row: Invitation, new_ids: tuple[str, str], name: str, password_hash: str, actor: str, now: int
    ) -> MemberInfo:
        organization_id = row.organization_id
        Invitation.update(status="accepted").where(Invitation.id == row.id).execute()
        _audit("invitation.accept", row.id, organization_id, {"email": row.email}, actor, now)
        member = revive_member(organization_id, row.email, row.role, actor=actor, now=now)
        if member is None:
            place = (new_ids, organization_id, row.email, row.role)
            member = insert_member(*place, name=name, password_hash=password_hash, actor=actor, now=now)
        grant = InvitationGrant(row.team_id, json.loads(row.limits), tuple(json.loads(row.parts)))
        if grant != InvitationGrant():
            self._give(member, grant, row.invited_by, now)
        return member

    def _pending(self, token: str, now: int) -> Invitation:
        row = self._row(token)
        if row is None or _status(row, now) != "pending":
            raise NotFound("This invitation is unknown, used or expired. Ask for a new one.", code="invitation_unknown")
        return row

    def _row(self, token: str) -> Invitation | None:
        hashes = tokens_module.candidates(token, self._hash_keys)
        invitation: Invitation | None = _select().where(Invitation.token_hash.in_(hashes)).first()
        return invitation


def _check_new(organization_id: str, email: str) -> None:
    known = (
        Member.select()
        .join(User)
        .where(Member.organization == organization_id, Member.status == "active", User.email == email)
    )
    if known.exists():
        raise Conflict(f"{email} is already a member of this organization.", code="member_exists")


def _check_team(organization_id: str, team_id: str) -> None:
    same = (Team.id == team_id) & (Team.organization == organization_id)
    if team_id and not Team.select().where(same).exists():
        raise NotFound(f"There is no team {team_id} in this organization.")


def _revoke_pending(organization_id: str, email: str) -> None:
    same = (Invitation.organization == organization_id) & (Invitation.email == email)
    Invitation.update(status="revoked").where(same, Invitation.status == "pending").execute()


def _audit(action: str, subject: str, organization_id: str, detail: Mapping[str, object], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)


def _select() -> "peewee.ModelSelect[Any]":
    inviter = User.alias()
    invited = User.alias()
    return (
        Invitation.select(
            *(Invitation, Organization.name.alias("organization_name"), invited.id.alias("account")),
            *(inviter.name.alias("inviter_name"), inviter.email.alias("inviter_email")),
            Team.name.alias("team_name"),
        )
        .join(Organization)
        .switch(Invitation)
        .join(inviter, peewee.JOIN.LEFT_OUTER, on=Invitation.invited_by == inviter.id)
        .switch(Invitation)
        .join(invited, peewee.JOIN.LEFT_OUTER, on=Invitation.email == invited.email)
        .switch(Invitation)
        .join(Team, peewee.JOIN.LEFT_OUTER, on=Invitation.team_id == Team.id)
        .objects()
    )


def _load(invitation_id: str) -> Any:
    """A row of `_select`, or None."""
    return _select().where(Invitation.id == invitation_id).first()


def _status(row: Invitation, now: int) -> str:
    """The effective status: an invitation is worth what its inviter may do now."""
    if row.status != "pending":
        return row.status
    if row.expires_at <= now:
        return "expired"
    if _may_invite(row):
        return "pending"
    return "revoked"


def _may_invite(row: Invitation) -> bool:
    """Return whether the inviter may still invite people here, and may give the role of the invitation."""
    if row.invited_by == OPERATOR:
        return True
    roles = [role for role in ROLES if reach_of(role, "invitations:write") and row.role in roles_within(role)]
    membership = (Member.organization == row.organization_id) & (Member.user == row.invited_by)
    active = (Member.status == "active") & Member.role.in_(roles) & (User.status == "active")
    return Member.select().join(User).where(membership & active).exists() or _may_account_invite(row)


def _may_account_invite(row: Invitation) -> bool:
    """Return whether a service account that manages members sent the invitation. It invites developers only."""
    account = ServiceAccount.get_or_none(
        ServiceAccount.id == row.invited_by,
        ServiceAccount.organization == row.organization_id,
        ServiceAccount.status == "active",
    )
    return account is not None and row.role == "developer" and MEMBER_SCOPE in account.scopes.split()


def _info(row: Any, now: int) -> InvitationInfo:
    return InvitationInfo(
        row.id,
        row.organization_id,
        row.organization_name,
        row.email,
        row.role,
        _status(row, now),
        row.created_at,
        row.expires_at,
        row.inviter_name or row.inviter_email or "",
        row.account is not None,
        row.team_id if row.team_name else "",
        row.team_name or "",
        json.loads(row.limits),
        tuple(json.loads(row.parts)),
    )
