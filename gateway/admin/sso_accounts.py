"""The account of a person who signs in with an identity provider: found by issuer and subject, connected, or created.

An e-mail address alone never opens an account. It connects one only if the provider states that it is verified, the
provider may speak for its domain, and the account has no other identity, no second factor and no owner's role.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import cast

from gateway import ids
from gateway.accounts import audit, group_rules, identities, member_attributes, members
from gateway.accounts.authority import of_identity_provider
from gateway.accounts.changes import commit
from gateway.accounts.group_rules import StatedGroup
from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.models import ScimUser
from gateway.accounts.provisioning.provisioned_users import has_outside_sign_in, is_provisioned, maker_of_account
from gateway.accounts.second_factor import SecondFactors
from gateway.accounts.sso_requirement import SsoSuspensions
from gateway.admin.group_grants import GroupGrants
from gateway.callers.models import Member, Organization, User
from gateway.callers.permissions import Role
from gateway.control.version import Control
from gateway.errors import Conflict, Forbidden
from gateway.sso.provider_identity import ProviderIdentity
from gateway.store.database import Database

NOT_VERIFIED = (
    "The identity provider states no verified e-mail address of an allowed domain, so no account can be found for you. "
    "Sign in another way and connect the identity provider on your account page, or ask an administrator."
)
CONNECT = (
    "There is already an account with this e-mail address. Sign in to it as before, and connect this identity provider "
    "on your account page."
)
NO_ACCOUNT = "There is no account for you yet. Ask an owner of your organization for an invitation."


def actor_of(provider: IdentityProvider) -> str:
    """Return the actor of changes that a sign-in makes, for the audit log."""
    return f"sso:{provider.id}"


class SsoAccounts:
    """Finds, connects and creates accounts, and applies group rules at each sign-in."""

    def __init__(self, database: Database, control: Control, factors: SecondFactors, grants: GroupGrants) -> None:
        self._database = database
        self._control = control
        self._factors = factors
        self._grants = grants
        self.suspensions = SsoSuspensions(database, control)

    def sign_in(self, provider: IdentityProvider, identity: ProviderIdentity) -> str:
        """Return the id of the person's user. Raises Forbidden (code sso_failed or account_deactivated) or Conflict
        (code sso_conflict)."""
        known = self._database.read(partial(self._find, provider, identity))
        if known is not None and self._database.read(partial(_is_complete, provider, identity, known.user_id)):
            now = self._database.now_us()
            self._database.write(partial(_note_use, provider, identity, known, now))
            user_id = known.user_id
        else:
            user_id = self._settle(provider, identity)
        self.confirm(provider, user_id, identity.groups, identity.attributes)
        return user_id

    def connect(self, provider: IdentityProvider, identity: ProviderIdentity, user_id: str) -> None:
        """Connect an identity to the signed-in person who asked for it. Raises Conflict or InvalidRequest."""

        def work(now: int) -> None:
            known = identities.find_identity(provider.organization_id, identity.issuer, identity.subject)
            if known is not None and known.user_id == user_id:
                return
            _check_authority(provider, user_id)
            self._link(provider, identity, user_id, now)

        commit(self._database, self._control, work, confirm=False)
        self.apply_groups(provider, user_id, identity.groups)
        self.store_attributes(provider, user_id, identity.attributes)

    def confirm(
        self, provider: IdentityProvider, user_id: str, groups: tuple[str, ...] | None, attributes: Mapping[str, str]
    ) -> None:
        """Record that the provider accepts a person: suspended memberships are restored, group rules applied, and
        attributes stored."""
        self.suspensions.restore(provider, user_id, actor=actor_of(provider))
        self.apply_groups(provider, user_id, groups)
        self.store_attributes(provider, user_id, attributes)

    def apply_groups(self, provider: IdentityProvider, user_id: str, groups: tuple[str, ...] | None) -> None:
        """Apply the group rules of the organizations of a provider; None: the groups are unknown and stay."""
        if groups is None:
            return
        for organization_id in provider.organizations:
            row = self._database.read(partial(_member, organization_id, user_id))
            if row is not None and row.status == "active":
                stated = dict.fromkeys(groups, provider.for_owners)
                self._grants.set_groups(organization_id, row.id, provider.id, stated, actor=actor_of(provider))

    def store_attributes(self, provider: IdentityProvider, user_id: str, attributes: Mapping[str, str]) -> None:
        """Store the attributes of a person in the organizations of a provider. Those that provisioning states stay."""
        if not attributes:
            return
        for organization_id in provider.organizations:
            row = self._database.read(partial(_member, organization_id, user_id))
            if row is not None and row.status == "active":
                work = partial(_store_attributes, self._database, row.id, attributes, actor_of(provider))
                if self._database.read(partial(_list_changes, row.id, attributes)):
                    self._database.write(work)

    def _settle(self, provider: IdentityProvider, identity: ProviderIdentity) -> str:
        """Connect or create the account, or add memberships, in one transaction."""
        new_user_id = ids.new("user")

        def work(now: int) -> str:
            known = self._find(provider, identity)
            if known is not None:
                user_id = known.user_id
                _note_use(provider, identity, known, now)
            else:
                _check_email(provider, identity)
                user = User.get_or_none(User.email == identity.email)
                if user is not None:
                    self._check_may_connect(provider, user)
                    user_id = user.id
                    if not provider.organization_id:
                        self._end_other_sign_ins(provider, user_id, now)
                else:
                    user_id = self._create(provider, identity, new_user_id, now)
                self._link(provider, identity, user_id, now)
            self._join(provider, identity, user_id, now)
            return user_id

        return commit(self._database, self._control, work, confirm=False)

    def _find(self, provider: IdentityProvider, identity: ProviderIdentity) -> identities.LinkedIdentity | None:
        """Return the known identity. Raises Forbidden if its account was deactivated."""
        known = identities.find_identity(provider.organization_id, identity.issuer, identity.subject)
        if known is None:
            return None
        user = User.get_or_none(User.id == known.user_id)
        if user is None or user.status != "active":
            raise Forbidden("This account was deactivated.", code="account_deactivated")
        if provider.organization_id:
            member = _member(provider.organization_id, user.id)
            if member is not None and member.status != "active":
                raise Forbidden("Your membership was deactivated.", code="account_deactivated")
            _check_authority(provider, user.id)
        return known

    def _check_may_connect(self, provider: IdentityProvider, user: User) -> None:
        """Raise unless the verified e-mail address may connect an existing account."""
        if user.status != "active":
            raise Forbidden("This account was deactivated.", code="account_deactivated")
        is_provisioned_here = self._is_provisioned(provider, user)
        # An identity that another organization connected to an account of this one does not shut out its people.
        others = ("", provider.organization_id) if is_provisioned_here else None
        if identities.has_identity(user.id, others):
            raise Conflict(
                "This e-mail address belongs to a person who signs in with another identity provider.",
                code="sso_conflict",
            )
        if self._factors.find(user.id).active:
            raise Conflict(CONNECT, code="sso_conflict")
        if not provider.link_by_email and not is_provisioned_here:
            raise Conflict(CONNECT, code="sso_conflict")
        if provider.organization_id:
            member = _member(provider.organization_id, user.id)
            if member is None or member.status != "active" or member.role == "owner":
                raise Conflict(CONNECT, code="sso_conflict")
        elif _owns_any(user.id):
            raise Conflict(CONNECT, code="sso_conflict")

    def _is_provisioned(self, provider: IdentityProvider, user: User) -> bool:
        """Return whether provisioning of an organization of the provider made the account, or provisions its person and
        nothing outside of the organization opens the account."""
        if maker_of_account(user.id) in provider.organizations:
            return True
        organization_id = provider.organization_id
        return is_provisioned(user.id, organization_id) and not has_outside_sign_in(
            self._database, user, organization_id
        )

    def _end_other_sign_ins(self, provider: IdentityProvider, user_id: str, now: int) -> None:
        """End the password, passkeys and sessions of an account that is connected by its address.

        The address is verified now, but was not when the account was created: an inviter can accept an invitation in
        place of the invited person.
        """
        ended = members.end_sign_ins(user_id)
        User.update(password_hash="", updated_at=now).where(User.id == user_id).execute()
        passkeys = self._database.execute("DELETE FROM passkey WHERE user_id = ?", (user_id,)).rowcount
        detail = {"sessions": ended, "passkeys": passkeys}
        audit.append("session.delete_others", user_id, actor=actor_of(provider), at_us=now, detail=detail)

    def _create(self, provider: IdentityProvider, identity: ProviderIdentity, user_id: str, now: int) -> str:
        """Insert the user. The organizations follow in `_join`, which must find at least one."""
        if not provider.create_people or not _to_join(provider, identity, user_id):
            raise Forbidden(NO_ACCOUNT, code="sso_failed")
        User.insert(
            id=user_id, email=identity.email, name=identity.name, password_hash="", created_at=now, updated_at=now
        ).execute()
        return user_id

    def _join(self, provider: IdentityProvider, identity: ProviderIdentity, user_id: str, now: int) -> None:
        """Add the memberships that the provider's settings give. Raises Forbidden if an organization's own provider
        signs in a person who is not a member."""
        if provider.create_people:
            user = User.get_by_id(user_id)
            for organization_id in _to_join(provider, identity, user_id):
                role = cast("Role", provider.role or "developer")
                members.insert_member(
                    (ids.new("member"), user_id),
                    organization_id,
                    user.email,
                    role,
                    name="",
                    password_hash="",
                    actor=actor_of(provider),
                    now=now,
                )
        if provider.organization_id and _member(provider.organization_id, user_id) is None:
            raise Forbidden(NO_ACCOUNT, code="sso_failed")

    def _link(self, provider: IdentityProvider, identity: ProviderIdentity, user_id: str, now: int) -> None:
        identities.insert_identity(
            provider.organization_id,
            provider.id,
            identity.issuer,
            identity.subject,
            user_id,
            identity.email,
            actor=user_id,
            now=now,
        )


def _stated_elsewhere(member_id: str) -> dict[str, str]:
    """Return the attributes that provisioning states for a member. Within a read or write."""
    row = ScimUser.get_or_none(ScimUser.member == member_id)
    return {} if row is None else member_attributes.of_enterprise_user(json.loads(row.attributes))


def _list_changes(member_id: str, attributes: Mapping[str, str]) -> list[str]:
    known = _stated_elsewhere(member_id)
    return member_attributes.list_changes(member_id, {name: attributes[name] for name in attributes.keys() - known})


def _store_attributes(database: Database, member_id: str, attributes: Mapping[str, str], actor: str) -> None:
    changed = {name: attributes[name] for name in _list_changes(member_id, attributes)}
    member_attributes.write_attributes(member_id, changed, actor=actor, now=database.now_us())


def _note_use(
    provider: IdentityProvider, identity: ProviderIdentity, known: identities.LinkedIdentity, now: int
) -> None:
    """Record a sign-in. An address that another changed is confirmed where a provider for owners states it too."""
    identities.note_use(known.id, provider.id, identity.email, now)
    if provider.for_owners and _speaks_for(provider, identity):
        members.confirm_email(known.user_id, identity.email, actor=actor_of(provider), now=now)


def _check_email(provider: IdentityProvider, identity: ProviderIdentity) -> None:
    """Raise Forbidden unless the e-mail address is verified and the provider may speak for its domain."""
    if not _speaks_for(provider, identity):
        raise Forbidden(NOT_VERIFIED, code="sso_failed")


def _speaks_for(provider: IdentityProvider, identity: ProviderIdentity) -> bool:
    is_limited = bool(provider.organization_id or provider.domains)
    return bool(identity.email) and (not is_limited or identity.domain in provider.domains)


def _check_authority(provider: IdentityProvider, user_id: str) -> None:
    """Raise Forbidden for an owner and an organization's provider that no owner allowed for owners."""
    member = _member(provider.organization_id, user_id)
    if member is not None:
        of_identity_provider(provider.for_owners).check(member.role)


def _is_complete(provider: IdentityProvider, identity: ProviderIdentity, user_id: str) -> bool:
    """Return whether no membership is to be added at a sign-in."""
    if provider.organization_id:
        return _member(provider.organization_id, user_id) is not None
    return not provider.create_people or not _to_join(provider, identity, user_id)


def _to_join(provider: IdentityProvider, identity: ProviderIdentity, user_id: str) -> list[str]:
    """Return the organizations of the provider that the person may join and has not joined: with a role for everybody,
    or by a group rule."""
    chosen = []
    for organization_id in provider.organizations:
        if _member(organization_id, user_id) is not None:
            continue
        if not Organization.select().where(Organization.id == organization_id).exists():
            continue
        groups = identity.groups or ()
        rules = group_rules.load_rules(organization_id, groups)
        stated = [StatedGroup(name, provider.id, provider.for_owners) for name in groups]
        if provider.role or group_rules.entitle(rules, stated).matched:
            chosen.append(organization_id)
    return chosen


def _owns_any(user_id: str) -> bool:
    owner = (Member.user == user_id) & (Member.role == "owner") & (Member.status == "active")
    return Member.select().where(owner).exists()


def _member(organization_id: str, user_id: str) -> Member | None:
    return Member.get_or_none(Member.organization == organization_id, Member.user == user_id)
