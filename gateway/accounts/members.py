"""People: users and their membership in organizations."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import peewee
from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, changes
from gateway.accounts.changes import commit
from gateway.accounts.passwords import Passwords
from gateway.callers.models import (
    ApiKey,
    DeviceCode,
    Member,
    MemberStatus,
    Organization,
    ScopedRole,
    Session,
    User,
    UserKind,
    is_suspended,
)
from gateway.callers.permissions import ROLES, Role
from gateway.control.version import Control
from gateway.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unauthenticated
from gateway.store.database import WHOLE, Database, ListSlice


class UserInfo(Struct, frozen=True):
    """A person. `confirmed`: the address is the person's own choice, or the person confirmed it."""

    id: str
    email: str
    name: str
    status: MemberStatus
    created_at_us: int
    confirmed: bool = True


class MemberInfo(Struct, frozen=True):
    """A user in an organization; `role` decides what the management surfaces let them do. `suspended`: the identity
    provider that the organization requires refuses the person."""

    id: str
    organization_id: str
    user_id: str
    email: str
    name: str
    role: Role
    status: MemberStatus
    suspended: bool = False


def sign_in(
    database: Database, passwords: Passwords, email: str, password: str, *, owner: str = "", known: bool = True
) -> UserInfo:
    """The user with this password; `owner` and `known` as for `Passwords`. Unauthenticated alike for a wrong password
    and an unknown address; Forbidden (code account_deactivated) for the right password of a deactivated account;
    PasswordsBusy."""
    row = database.read(lambda: User.get_or_none(User.email == email.strip().lower()))
    stored = row.password_hash if row else ""
    if not passwords.check(password, stored, owner, known=known) or row is None:
        raise Unauthenticated("The e-mail address or the password is wrong.", code="invalid_credentials")
    if row.status != "active":
        raise Forbidden("This account was deactivated.", code="account_deactivated")
    return _user(row)


def find_user(database: Database, user_id: str) -> UserInfo:
    """One user. NotFound."""
    row = database.read(partial(User.get_or_none, User.id == user_id))
    if row is None:
        raise NotFound(f"There is no user {user_id}.")
    return _user(row)


def set_password(
    database: Database,
    control: Control,
    passwords: Passwords,
    user_id: str,
    password: str,
    *,
    actor: str,
    current_session: str = "",
) -> None:
    """Replace the password; every session but `current_session` and every device that was approved and is not signed in
    yet ends with it. NotFound, InvalidRequest (12 to 1024 characters)."""
    hashed = passwords.hash(password, user_id)

    def work(now: int) -> None:
        count = User.update(password_hash=hashed, updated_at=now).where(User.id == user_id).execute()
        if not count:
            raise NotFound(f"There is no user {user_id}.")
        end_sign_ins(user_id, current_session)
        audit.append("user.update_password", user_id, actor=actor, at_us=now)

    commit(database, control, work)


def confirm_email(user_id: str, email: str, *, actor: str, now: int) -> bool:
    """Record that the address of an account is its person's; False if the person had set it. Within a transaction."""
    changed = (User.id == user_id) & (User.email == email) & (User.email_set_by != "")
    confirmed = User.update(email_set_by="", updated_at=now).where(changed).execute()
    if confirmed:
        audit.append("user.confirm_email", user_id, actor=actor, at_us=now)
    return bool(confirmed)


def check_quota(user_id: str, maximum: int) -> None:
    """InvalidRequest when a user owns `maximum` organizations (0 = no cap). Within a transaction."""
    owned = Member.select().where(Member.user == user_id, Member.role == "owner", Member.status == "active")
    if maximum and owned.count() >= maximum:
        raise InvalidRequest(
            f"You own {maximum} organizations, which is the limit here.", code="organization_cap_reached"
        )


def find_first_owner(database: Database, organization_id: str) -> str:
    """Return the user id of the active owner who has been in the organization the longest, "" if there is none."""
    owners = (
        Member.select(Member.user)
        .where(Member.organization == organization_id, Member.role == "owner", Member.status == "active")
        .order_by(Member.created_at, Member.id)
    )
    return database.read(lambda: next((row.user_id for row in owners.limit(1)), ""))


def end_sign_ins(user_id: str, current_session: str = "") -> int:
    """Sign a user out but in `current_session`, devices included that only wait for their session; how many sessions
    ended. Within a transaction."""
    DeviceCode.delete().where(DeviceCode.user == user_id).execute()
    deleted: int = Session.delete().where(Session.user == user_id, Session.id != current_session).execute()
    return deleted


def add_member(
    database: Database,
    control: Control,
    organization_id: str,
    email: str,
    role: Role = "developer",
    *,
    name: str = "",
    password_hash: str = "",
    actor: str,
) -> MemberInfo:
    """Add a person to an organization; the user is made when the address is new (`name` and `password_hash` are
    for that case only). InvalidRequest (address, role), NotFound (organization), Conflict (already a member)."""
    email = read_email(email)
    check_role(role)
    new_ids = (ids.new("member"), ids.new("user"))
    return commit(
        database,
        control,
        lambda now: insert_member(
            new_ids, organization_id, email, role, name=name, password_hash=password_hash, actor=actor, now=now
        ),
        confirm=False,
    )


def insert_member(
    new_ids: tuple[str, str],
    organization_id: str,
    email: str,
    role: Role,
    *,
    name: str,
    password_hash: str,
    actor: str,
    now: int,
    kind: UserKind = "person",
) -> MemberInfo:
    """The part of `add_member` that runs within a transaction; `new_ids` are for the member and a new user."""
    if not Organization.select().where(Organization.id == organization_id).exists():
        raise NotFound(f"There is no organization {organization_id}.")
    member_id, user_id = new_ids
    user = User.get_or_none(User.email == email)
    if user is None:
        User.insert(
            id=user_id, email=email, name=name, password_hash=password_hash, kind=kind, created_at=now, updated_at=now
        ).execute()
    else:
        user_id = user.id
    if Member.select().where(Member.organization == organization_id, Member.user == user_id).exists():
        raise Conflict(f"{email} is already a member of this organization.", code="member_exists")
    members = Member.select().where(Member.organization == organization_id)
    changes.check_quota(members, changes.MAX_MEMBERS, "members, inactive ones among them", changes.SPLIT_ADVICE)
    Member.insert(
        id=member_id, organization=organization_id, user=user_id, role=role, created_at=now, updated_at=now
    ).execute()
    _audit("member.create", member_id, organization_id, {"email": email, "role": role}, actor, now)
    return _load(member_id)


def revive_member(organization_id: str, email: str, role: Role, *, actor: str, now: int) -> MemberInfo | None:
    """Let a member who was switched off in again, in this role; None when there is none. Within a transaction."""
    row = (
        _select().where(Member.organization == organization_id, User.email == email, Member.status != "active").first()
    )
    if row is None:
        return None
    Member.update(role=role, status="active", updated_at=now).where(Member.id == row.id).execute()
    ScopedRole.delete().where(ScopedRole.member == row.id).execute()
    _audit("member.update", row.id, organization_id, {"role": role, "status": "active"}, actor, now)
    return _load(row.id)


def find_member(database: Database, organization_id: str, user_id: str) -> MemberInfo:
    """The membership of a user. NotFound."""

    def read() -> MemberInfo:
        row = _select().where(Member.organization == organization_id, Member.user == user_id).first()
        if row is None:
            raise NotFound(f"User {user_id} is not a member of this organization.")
        return _info(row)

    return database.read(read)


def find_in_organization(database: Database, organization_id: str, member_id: str) -> MemberInfo:
    """Return a person of an organization, active or not. Raises NotFound, also for a service account."""

    def read() -> MemberInfo:
        chosen = _select().where(Member.id == member_id, Member.organization == organization_id, User.kind == "person")
        row = chosen.first()
        if row is None:
            raise NotFound(f"There is no member {member_id} in this organization.")
        return _info(row)

    return database.read(read)


def list_owners(database: Database) -> list[MemberInfo]:
    """Return the active owners of all organizations, oldest first."""
    query = _select().where(Member.role == "owner", Member.status == "active").order_by(Member.id)
    return database.read(lambda: [_info(row) for row in query])


def list_members(
    database: Database,
    organization_id: str = "",
    part: ListSlice = WHOLE,
    *,
    user_id: str = "",
    service_accounts: bool = False,
) -> list[MemberInfo]:
    """Members of an organization, or the memberships of a user; inactive ones too, oldest first. Service accounts are
    listed only if `service_accounts` is set: they own keys, but are managed separately."""

    def read() -> list[MemberInfo]:
        query = _select().order_by(Member.id)
        if organization_id:
            query = query.where(Member.organization == organization_id)
        if user_id:
            query = query.where(Member.user == user_id)
        elif not service_accounts:
            query = query.where(User.kind == "person")
        return [_info(row) for row in part.narrow(query, Member.id)]

    return database.read(read)


def load_members(member_ids: Sequence[str]) -> list[MemberInfo]:
    """Return members by their ids, oldest first. Within a read or write."""
    return [_info(row) for row in _select().where(Member.id.in_(list(member_ids))).order_by(Member.id)]


def update_member(
    database: Database,
    control: Control,
    organization_id: str,
    member_id: str,
    *,
    role: Role | None = None,
    active: bool | None = None,
    actor: str,
) -> MemberInfo:
    """Change a member's role, or switch the member and all their keys off or on; in force when this returns.

    NotFound; Conflict (code last_owner) when no active owner would be left.
    """
    if role is not None:
        check_role(role)

    def work(now: int) -> MemberInfo:
        return change_member(organization_id, member_id, role=role, active=active, actor=actor, now=now)

    return commit(database, control, work)


def change_member(
    organization_id: str, member_id: str, *, role: Role | None = None, active: bool | None = None, actor: str, now: int
) -> MemberInfo:
    """The part of `update_member` that runs within a transaction."""
    before = _load(member_id)
    if before.organization_id != organization_id:
        raise NotFound(f"There is no member {member_id} in this organization.")
    status = before.status
    if active is not None:
        status = "active" if active else "inactive"
    values = {"role": role or before.role, "status": status}
    _check_break_glass(before, values)
    Member.update(updated_at=now, **values).where(Member.id == member_id).execute()
    if status != "active":  # access tokens of their keys do not come back with them
        ApiKey.update(generation=ApiKey.generation + 1).where(ApiKey.member == member_id).execute()
    _check_owner_left(organization_id)
    _audit("member.update", member_id, organization_id, values, actor, now)
    return _load(member_id)


def _becomes_ascii(letter: str) -> bool:
    """Return whether the lower case of another letter is an ASCII letter: that of the Kelvin sign is k."""
    return not letter.isascii() and letter.lower()[0].isascii()


def read_email(text: str) -> str:
    """An e-mail address in lower case. InvalidRequest unless it has the form name@host, without characters that are
    invisible or become other letters: it would look like, or be, the address of another person."""
    written = text.strip()
    email = written.lower()
    name, _, host = email.partition("@")
    spaced = any(c.isspace() or not c.isprintable() for c in email)
    if not name or not host or "@" in host or spaced or len(email) > 255 or any(map(_becomes_ascii, written)):
        raise InvalidRequest(f"Not an e-mail address: {text!r}.", param="email")
    return email


def check_role(role: str) -> None:
    """InvalidRequest unless it is a role of an organization."""
    if role not in ROLES:
        raise InvalidRequest(f"role must be one of {', '.join(ROLES)}.", param="role")


def _check_break_glass(member: MemberInfo, values: Mapping[str, str]) -> None:
    """Raise Conflict if the break-glass account of required single sign-on would no longer be an active owner."""
    organization = Organization.get_by_id(member.organization_id)
    is_kept = values["role"] == "owner" and values["status"] == "active"
    if organization.sso_required and organization.break_glass == member.id and not is_kept:
        text = "This is the break-glass account of required single sign-on. Choose another one first."
        raise Conflict(text, code="break_glass_account")


def _check_owner_left(organization_id: str) -> None:
    owners = Member.select().where(
        Member.organization == organization_id, Member.role == "owner", Member.status == "active"
    )
    if not owners.exists():
        raise Conflict("An organization keeps at least one active owner.", code="last_owner")


def _audit(action: str, subject: str, organization_id: str, detail: Mapping[str, object], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)


def _select() -> "peewee.ModelSelect[Any]":
    return (
        Member.select(Member, User.email, User.name, is_suspended().alias("suspended"))
        .join(User)
        .switch(Member)
        .join(Organization)
        .objects()
    )


def _load(member_id: str) -> MemberInfo:
    row = _select().where(Member.id == member_id).first()
    if row is None:
        raise NotFound(f"There is no member {member_id}.")
    return _info(row)


def _info(row: Any) -> MemberInfo:
    """Convert a row of `_select` to a member with the displayed fields of the user."""
    return MemberInfo(
        row.id, row.organization_id, row.user_id, row.email, row.name, row.role, row.status, bool(row.suspended)
    )


def _user(row: User) -> UserInfo:
    return UserInfo(row.id, row.email, row.name, row.status, row.created_at, not row.email_set_by)


# Members of an organization that are no people: they own the API keys of service accounts and workload identities.
#
# Each has a user that never signs in. As members they are developers, so that their keys read no more than their own
# usage.

# A reserved domain (RFC 2606): its addresses cannot be registered and receive no mail.
EMAIL_HOST = "service-account.invalid"


def insert(new_ids: tuple[str, str], organization_id: str, name: str, *, actor: str, now: int) -> None:
    """Insert a member and its user, which get the ids `new_ids`. Within a transaction."""
    insert_member(
        new_ids,
        organization_id,
        f"{new_ids[1]}@{EMAIL_HOST}",
        "developer",
        name=name,
        password_hash="",
        actor=actor,
        now=now,
        kind="service",
    )


def rename(user_id: str, name: str, now: int) -> None:
    """Change the displayed name. Within a transaction."""
    User.update(name=name, updated_at=now).where(User.id == user_id).execute()


def end(member_id: str, user_id: str, now: int) -> None:
    """Deactivate the member with its keys, which stay for the history; remove it if it has none. Within a
    transaction."""
    keys = ApiKey.member == member_id
    if not ApiKey.select().where(keys).exists():
        Member.delete().where(Member.id == member_id).execute()
        User.delete().where(User.id == user_id).execute()
        return
    Member.update(status="inactive", updated_at=now).where(Member.id == member_id).execute()
    User.update(status="inactive", updated_at=now).where(User.id == user_id).execute()
    ApiKey.update(generation=ApiKey.generation + 1).where(keys).execute()
