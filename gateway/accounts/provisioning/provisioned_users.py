"""Users of provisioning: an identity provider creates, changes, deactivates and deletes members of an organization."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gateway import ids
from gateway.accounts import audit, members
from gateway.accounts.changes import commit
from gateway.accounts.member_attributes import write_provisioned
from gateway.accounts.members import change_member, end_sign_ins, insert_member
from gateway.accounts.models import ScimGroupMember, ScimUser, UserIdentity
from gateway.accounts.provisioning import user_rows
from gateway.accounts.provisioning.user_rows import (
    GroupEffect,
    ProvisionedUser,
    ProvisioningClient,
    StaleVersion,
    UserLookup,
    UserValues,
)
from gateway.callers.models import ApiKey, Member, User
from gateway.control.version import Control
from gateway.errors import Conflict, NotFound
from gateway.store.database import Database

# The accounts that provisioning may change, and those that it may add to an organization.


def maker_of_account(user_id: str) -> str:
    """Return the organization that provisioned an account without a password, "" for any other account: an identity
    provider of the organization may open it. Within a read or write."""
    user = User.get_or_none(User.id == user_id)
    if user is None or user.password_hash:
        return ""
    return user.made_by or _made_by_former_release(user_id)


def _made_by_former_release(user_id: str) -> str:
    """Return the maker of an account that a worker of the former release made during an upgrade."""
    made = ScimUser.select(ScimUser.organization).join(Member, on=ScimUser.member == Member.id)
    row = made.where(Member.user == user_id, ScimUser.made_account == True).first()  # noqa: E712
    return row.organization if row is not None else ""


def organization_of_account(user_id: str) -> str:
    """Return the organization that an account belongs to alone, "" for any other account. Within a read or write.

    Provisioning of the organization created the account, it has no password, its person has no other membership, and
    only identity providers of the organization are connected to it. The organization then decides about the account.
    """
    organization_id = maker_of_account(user_id)
    elsewhere = Member.select().where(Member.user == user_id, Member.organization != organization_id)
    foreign = UserIdentity.select().where(UserIdentity.user_id == user_id, UserIdentity.organization != organization_id)
    if elsewhere.exists() or foreign.exists():
        return ""
    return organization_id


def is_provisioned(user_id: str, organization_id: str) -> bool:
    """Return whether an organization provisions a person. Within a read or write."""
    links = ScimUser.select().join(Member, on=ScimUser.member == Member.id)
    return links.where(Member.user == user_id, Member.organization == organization_id).exists()


def has_outside_sign_in(database: Database, user: User, organization_id: str) -> bool:
    """Return whether an account can be signed in to in a way that proves nothing about its e-mail address: with a
    password, a passkey, or an identity at a provider of another organization. Within a read or write.

    The gateway does not verify the address of an invited person, because the inviter knows the token. The account may
    therefore belong to another person than the one whom an identity provider names.
    """
    if user.password_hash or database.fetch("SELECT 1 FROM passkey WHERE user_id = ? LIMIT 1", (user.id,)):
        return True
    trusted = UserIdentity.organization.in_(("", organization_id)) & (UserIdentity.email == user.email)
    return UserIdentity.select().where(UserIdentity.user_id == user.id, ~trusted).exists()


SCAN_ROWS = 500


class ProvisionedUsers:
    """Reads and changes the members of an organization. Changes are audited. A person who loses access is refused by
    every worker when the change returns."""

    def __init__(self, database: Database, control: Control, effect: GroupEffect) -> None:
        self._database = database
        self._control = control
        self._effect = effect

    def find(self, organization_id: str, member_id: str) -> ProvisionedUser:
        """Return one user. Raises NotFound."""
        return self._database.read(partial(_find, organization_id, member_id))

    def page(self, organization_id: str, lookup: UserLookup, offset: int, limit: int) -> tuple[int, list[Any]]:
        """Return the number of users that match a lookup, and at most `limit` of them after the first `offset`."""
        query = user_rows.narrow(user_rows.select_users(organization_id), lookup)

        def read() -> tuple[int, list[Any]]:
            return query.count(), _load(query.offset(offset).limit(limit)) if limit else []

        return self._database.report(read)

    def scan(self, organization_id: str, lookup: UserLookup) -> Iterator[list[ProvisionedUser]]:
        """Return all users that match a lookup in pieces, oldest first."""
        last = ""
        while True:
            query = user_rows.narrow(user_rows.select_users(organization_id), lookup)
            piece = self._database.report(partial(_load, query.where(Member.id > last).limit(SCAN_ROWS)))
            if piece:
                yield piece
            if len(piece) < SCAN_ROWS:
                return
            last = piece[-1].id

    def create(self, client: ProvisioningClient, values: UserValues) -> ProvisionedUser:
        """Create a user: a new member, or one who has no values of provisioning yet. A person without an account gets
        one without a password. Raises InvalidRequest (address), Conflict (code user_exists) or Forbidden."""
        email = members.read_email(values.email)
        new_ids = (ids.new("member"), ids.new("user"))

        def work(now: int) -> ProvisionedUser:
            organization_id = client.organization_id
            rows = user_rows.select_members(organization_id).where(User.email == email)
            known = next(iter(_load(rows)), None)
            _check_name_free(organization_id, values.user_name, known.id if known is not None else "")
            account = User.get_or_none(User.email == email)
            if account is not None and account.kind != "person":
                raise Conflict(f"There is already an account with the address {email}.", code="user_exists")
            if known is None:
                self._check_may_add(client.organization_id, account)
                member_id = self._add(client, new_ids, email, values, now)
            else:
                member_id = self._adopt(client, known, values, now)
            if account is None:
                User.update(made_by=organization_id).where(User.email == email).execute()
            _insert(organization_id, member_id, values, account is None, now)
            detail = {"user_name": values.user_name, "external_id": values.external_id, "active": values.active}
            _audit("scim_user.create", member_id, client, detail, now)
            write_provisioned(member_id, {}, values.attributes, actor=client.actor, now=now)
            return _find(organization_id, member_id)

        user = commit(self._database, self._control, work, confirm=not values.active)
        return user

    def update(self, client: ProvisioningClient, before: ProvisionedUser, values: UserValues) -> ProvisionedUser:
        """Replace the values of a user that was read as `before`. A deactivated person loses access on every worker
        before this returns. Raises StaleVersion, NotFound, Conflict (user_exists, last_owner) or Forbidden."""
        members.read_email(values.email)

        def work(now: int) -> ProvisionedUser:
            current = _find(client.organization_id, before.id)
            if current.version != before.version:
                raise StaleVersion
            _check_name_free(client.organization_id, values.user_name, before.id)
            if current.active != values.active:
                self._switch(client, current, values.active, now)
            if current.managed:
                _update(current, values, now)
            else:
                _insert(client.organization_id, current.id, values, False, now)
            self._update_account(client, current, values, now)
            detail = {"user_name": values.user_name, "external_id": values.external_id, "active": values.active}
            _audit("scim_user.update", current.id, client, detail, now)
            write_provisioned(current.id, current.attributes, values.attributes, actor=client.actor, now=now)
            return _find(client.organization_id, current.id)

        return commit(self._database, self._control, work, confirm=before.active != values.active)

    def delete(
        self,
        client: ProvisioningClient,
        member_id: str,
        version: str = "",
        then: Callable[[ProvisionedUser, int], object] | None = None,
    ) -> None:
        """Remove a user: the membership becomes inactive, and the person's API keys of the organization are revoked for
        good. `then` is called in the same transaction with the removed user and the time. Raises NotFound, StaleVersion
        (another version than `version`), Conflict (last_owner) or Forbidden."""

        def work(now: int) -> None:
            current = _find(client.organization_id, member_id)
            if version and current.version != version:
                raise StaleVersion
            self._switch(client, current, False, now)
            ScimGroupMember.delete().where(ScimGroupMember.member == member_id).execute()
            self._effect(client.organization_id, member_id, {}, client.actor, now)
            ScimUser.delete().where(ScimUser.member == member_id).execute()
            live = (ApiKey.member == member_id) & ApiKey.status.in_(("active", "inactive"))
            revoked = ApiKey.update(status="revoked", updated_at=now).where(live).execute()
            detail = {"user_name": current.user_name, "revoked_keys": revoked}
            _audit("scim_user.delete", member_id, client, detail, now)
            if then is not None:
                then(current, now)

        commit(self._database, self._control, work)

    def _check_may_add(self, organization_id: str, account: User | None) -> None:
        """Raise Conflict if the account of a new member may belong to another person."""
        if account is not None and has_outside_sign_in(self._database, account, organization_id):
            raise Conflict(
                f"There is already an account with the address {account.email}, outside of this organization. "
                "Invite its person; the user can be provisioned once the invitation is accepted.",
                code="user_exists",
            )

    def _add(
        self, client: ProvisioningClient, new_ids: tuple[str, str], email: str, values: UserValues, now: int
    ) -> str:
        member = insert_member(
            new_ids,
            client.organization_id,
            email,
            "developer",
            name=values.name,
            password_hash="",
            actor=client.actor,
            now=now,
        )
        if not values.active:
            change_member(client.organization_id, member.id, active=False, actor=client.actor, now=now)
        return member.id

    def _adopt(self, client: ProvisioningClient, known: ProvisionedUser, values: UserValues, now: int) -> str:
        """Take over a member without values of provisioning. A member who was deactivated returns as a developer."""
        if known.managed:
            raise Conflict(f"There is already a user with the address {known.account_email}.", code="user_exists")
        if not known.active:
            client.authority.check(known.role, "developer")
            actor = client.actor
            change_member(
                client.organization_id, known.id, role="developer", active=values.active, actor=actor, now=now
            )
        elif not values.active:
            self._switch(client, known, False, now)
        return known.id

    def _switch(self, client: ProvisioningClient, user: ProvisionedUser, active: bool, now: int) -> None:
        """Activate or deactivate a member. The sign-ins of a person without another active membership end."""
        client.authority.check(user.role)
        change_member(client.organization_id, user.id, active=active, actor=client.actor, now=now)
        if active:
            return
        elsewhere = Member.select().where(Member.user == user.user_id, Member.status == "active")
        if not elsewhere.exists():
            ended = end_sign_ins(user.user_id)
            _audit("session.delete_others", user.user_id, client, {"sessions": ended}, now)

    def _update_account(self, client: ProvisioningClient, user: ProvisionedUser, values: UserValues, now: int) -> None:
        """Change the name and address of an account that belongs to the organization alone. Its person has to confirm
        the address before a password can be reset with it. Raises Conflict or Forbidden."""
        email = members.read_email(values.email)
        name = values.name or user.account_name
        if (email, name) == (user.account_email, user.account_name):
            return
        if organization_of_account(user.user_id) != user.organization_id:
            return
        client.authority.check(user.role)
        changed = {"name": name[:255]}
        if email != user.account_email:
            if User.select().where(User.email == email).exists():
                raise Conflict("Another account has this e-mail address.", code="user_exists")
            changed |= {"email": email, "email_set_by": client.actor}
        User.update(updated_at=now, **changed).where(User.id == user.user_id).execute()
        detail = {"member": user.id, "changed": sorted(changed.keys() - {"email_set_by"})}
        _audit("user.update", user.user_id, client, detail, now)


def _find(organization_id: str, member_id: str) -> ProvisionedUser:
    found = _load(user_rows.select_users(organization_id).where(Member.id == member_id))
    if not found:
        raise NotFound(f"There is no user {member_id[:80]} in this organization.")
    return found[0]


def _load(query: Any) -> list[ProvisionedUser]:
    rows = list(query)
    return user_rows.read_users(rows, user_rows.groups_of([row["id"] for row in rows]))


def _check_name_free(organization_id: str, user_name: str, member_id: str) -> None:
    """Raise Conflict if another user has the name, or another member without a name has it as e-mail address."""
    lookup = UserLookup(user_name=user_name)
    same = user_rows.narrow(user_rows.select_users(organization_id), lookup).where(Member.id != member_id)
    if same.first() is not None:
        raise Conflict(f"There is already a user with the userName {user_name}.", code="user_exists")


def _insert(organization_id: str, member_id: str, values: UserValues, made_account: bool, now: int) -> None:
    ScimUser.insert(
        member=member_id, organization=organization_id, made_account=made_account, created_at=now, **_row(values, now)
    ).execute()


def _update(user: ProvisionedUser, values: UserValues, now: int) -> None:
    row = _row(values, now)
    ScimUser.update(version=ScimUser.version + 1, **row).where(ScimUser.member == user.id).execute()


def _row(values: UserValues, now: int) -> dict[str, Any]:
    return {
        "user_name": values.user_name,
        "user_name_key": values.user_name.lower(),
        "external_id": values.external_id,
        "email": members.read_email(values.email),
        "attributes": json.dumps(dict(values.attributes), separators=(",", ":")),
        "updated_at": now,
    }


def _audit(action: str, subject: str, client: ProvisioningClient, detail: Mapping[str, object], now: int) -> None:
    audit.append(action, subject, actor=client.actor, at_us=now, organization_id=client.organization_id, detail=detail)
