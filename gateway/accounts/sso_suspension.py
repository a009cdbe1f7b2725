"""Suspended memberships: the identity provider that an organization requires no longer signs the member in.

The member's API keys, and the access tokens of applications for these keys, are refused while the organization requires
single sign-on, until the provider signs the person in again. The break-glass account is never suspended.
"""

from functools import partial
from typing import Any

from gateway.accounts import audit
from gateway.accounts.authority import of_identity_provider
from gateway.accounts.changes import commit
from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.models import Member, Organization
from gateway.accounts.sso_models import has_own_provider
from gateway.control.version import Control
from gateway.store.database import Database


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
