"""Required single sign-on: whether an organization accepts only sessions of its identity provider.

One owner, the break-glass account, may still use a password: otherwise a broken provider would lock out all owners.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.authority import of_identity_provider
from gateway.accounts.changes import commit
from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.members import MemberInfo, list_members
from gateway.accounts.models import IdentityProviderRow, has_own_provider
from gateway.accounts.sessions import SessionInfo
from gateway.callers.models import Member, Organization, User
from gateway.control.version import Control
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.store.database import Database

# Suspended memberships: the identity provider that an organization requires no longer signs the member in.
#
# The member's API keys, and the access tokens of applications for these keys, are refused while the organization
# requires single sign-on, until the provider signs the person in again. The break-glass account is never suspended.


class SsoSuspensions:
    """Suspends and restores memberships. Changes are in force on every worker on return, and audited."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control

    def suspend(self, provider: IdentityProvider, user_id: str, *, actor: str) -> list[str]:
        """Suspend a person that `provider` rejected, in the organizations that require the provider. Return the ids
        of these organizations, including those in which the person was already suspended."""

        def work(now: int) -> list[str]:
            rows = _required(provider, user_id)
            new = [row for row in rows if row.suspended_at is None]
            Member.update(suspended_at=now).where(Member.id.in_([row.id for row in new])).execute()
            for row in new:
                _audit("member.suspend", row, provider, actor, now)
            return [row.organization_id for row in rows]

        if not self._database.read(partial(_required, provider, user_id)):
            return []
        return commit(self._database, self._control, work)

    def restore(self, provider: IdentityProvider, user_id: str, *, actor: str) -> None:
        """Restore the memberships of a person after a sign-in with `provider`."""

        def work(now: int) -> None:
            for row in _suspended(provider, user_id):
                Member.update(suspended_at=None).where(Member.id == row.id).execute()
                _audit("member.restore", row, provider, actor, now)

        if self._database.read(partial(_suspended, provider, user_id)):
            commit(self._database, self._control, work)


def _required(provider: IdentityProvider, user_id: str) -> list[Member]:
    """Return the memberships of a person in organizations that require single sign-on with this provider."""
    is_required = (Organization.sso_required == True) & (Organization.break_glass != Member.id)  # noqa: E712
    authority = of_identity_provider(provider.for_owners)
    return [row for row in _memberships(provider, user_id, is_required) if authority.covers(row.role)]


def _suspended(provider: IdentityProvider, user_id: str) -> list[Member]:
    """Return the suspended memberships of a person, also where single sign-on is not required at the moment: it may be
    required again."""
    return _memberships(provider, user_id, Member.suspended_at.is_null(False))


def _memberships(provider: IdentityProvider, user_id: str, condition: Any) -> list[Member]:
    """Return a person's active memberships in the organizations that use this provider."""
    query = Member.select(Member).join(Organization).where(Member.user == user_id, Member.status == "active", condition)
    if provider.organization_id:
        return list(query.where(Member.organization == provider.organization_id))
    return [row for row in query if not has_own_provider(row.organization_id)]


def _audit(action: str, member: Member, provider: IdentityProvider, actor: str, now: int) -> None:
    detail: dict[str, Any] = {"user": member.user_id, "provider": provider.id}
    audit.append(action, member.id, actor=actor, at_us=now, organization_id=member.organization_id, detail=detail)


REFUSAL = "Your organization requires single sign-on. Sign in with your identity provider."


class SsoRequirement(Struct, frozen=True):
    """Whether single sign-on is required, and the member who may still use a password ("": none)."""

    required: bool
    break_glass_member_id: str


def find_requirement(database: Database, organization_id: str) -> SsoRequirement:
    """Raises NotFound."""

    def read() -> SsoRequirement:
        row = Organization.get_or_none(Organization.id == organization_id)
        if row is None:
            raise NotFound(f"There is no organization {organization_id}.")
        return SsoRequirement(bool(row.sso_required), row.break_glass)

    return database.read(read)


def set_requirement(
    database: Database,
    control: Control,
    organization_id: str,
    requirement: SsoRequirement,
    *,
    any_configured: bool,
    actor: str,
) -> SsoRequirement:
    """Set the requirement; it applies to the next request of every session.

    `any_configured`: the installation has an identity provider. Raises NotFound, and InvalidRequest without an identity
    provider or a suitable break-glass account: an active owner with a password.
    """

    def work(now: int) -> SsoRequirement:
        if requirement.required:
            if not any_configured and not has_own_provider(organization_id):
                raise InvalidRequest("Add an identity provider before you require single sign-on.", param="required")
            _check_break_glass(organization_id, requirement.break_glass_member_id)
        values = {"sso_required": requirement.required, "break_glass": requirement.break_glass_member_id}
        changed = Organization.update(updated_at=now, **values).where(Organization.id == organization_id).execute()
        if not changed:
            raise NotFound(f"There is no organization {organization_id}.")
        audit.append(
            "organization.update_sso",
            organization_id,
            actor=actor,
            at_us=now,
            organization_id=organization_id,
            detail=values,
        )
        return requirement

    return commit(database, control, work)


def reachable(database: Database, session: SessionInfo, memberships: Mapping[str, MemberInfo]) -> dict[str, MemberInfo]:
    """Return the memberships that a session reaches.

    A session of an organization's provider reaches that organization only: others did not choose this provider; an
    owner needs one that an owner allowed for owners. Where
    single sign-on is required, sessions of the organization's own providers count, or, if it has none, those of the
    installation; and sessions of the break-glass account.
    """
    if session.organization_id:
        member = memberships.get(session.organization_id)
        if member is None or (member.role == "owner" and not database.read(partial(_is_for_owners, session))):
            return {}
        return {session.organization_id: member}
    if not memberships:
        return {}
    shut = database.read(partial(_shut, list(memberships), bool(session.sso_login)))
    return {
        organization_id: member
        for organization_id, member in memberships.items()
        if organization_id not in shut or shut[organization_id] == member.id
    }


def check_password_sign_in(database: Database, user_id: str) -> None:
    """Raise Forbidden (code sso_required) if every organization of a user requires single sign-on."""
    active = {
        member.organization_id: member
        for member in list_members(database, user_id=user_id)
        if member.status == "active"
    }
    if not active:
        return
    shut = database.read(partial(_shut, list(active), False))
    if all(
        organization_id in shut and shut[organization_id] != active[organization_id].id for organization_id in active
    ):
        raise Forbidden(REFUSAL, code="sso_required")


def _is_for_owners(session: SessionInfo) -> bool:
    row = IdentityProviderRow.get_or_none(IdentityProviderRow.id == session.provider_id)
    return row is not None and bool(json.loads(row.settings).get("for_owners"))


def _shut(organization_ids: list[str], by_installation: bool) -> dict[str, str]:
    """Return the organizations that a password, or a provider of the installation, does not open, each with its
    break-glass member."""
    rows = Organization.select(Organization.id, Organization.break_glass).where(
        Organization.id.in_(organization_ids),
        Organization.sso_required == True,  # noqa: E712
    )
    required = {row.id: row.break_glass for row in rows}
    if not by_installation:
        return required
    return {
        organization_id: member for organization_id, member in required.items() if has_own_provider(organization_id)
    }


def _check_break_glass(organization_id: str, member_id: str) -> None:
    row = (
        Member.select(Member.id, User.password_hash)
        .join(User)
        .where(
            Member.id == member_id,
            Member.organization == organization_id,
            Member.role == "owner",
            Member.status == "active",
            User.status == "active",
        )
        .objects()
        .first()
    )
    if row is None or not row.password_hash:
        raise InvalidRequest(
            "The break-glass account must be an active owner who has a password.", param="breakGlassMemberId"
        )
