"""Members of an organization as provisioning sees them: queries, values and versions."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import peewee
from msgspec import Struct, field

from gateway.accounts.authority import Authority, of_scim_token
from gateway.accounts.group_rules import GroupNames
from gateway.accounts.models import ScimGroup, ScimGroupMember, ScimUser
from gateway.callers.models import Member, User
from gateway.errors import Conflict

# Values that all changes of provisioning share: the client that makes them, and conflicts of versions.

# Stores the names of a member's provisioned groups and applies the group rules to the member, within a transaction:
# (organization id, member id, names, actor, now in microseconds).
GroupEffect = Callable[[str, str, GroupNames, str, int], None]


class ProvisioningClient(Struct, frozen=True):
    """The SCIM token that a change is made with: its organization and its id, which is the actor of audit entries.
    `by_owner`: an owner stands behind the token, so that it may change owners."""

    organization_id: str
    actor: str
    by_owner: bool

    @property
    def authority(self) -> Authority:
        return of_scim_token(self.by_owner)


class StaleVersion(Conflict):
    """The resource changed after its version was read."""

    status = 412
    code = "precondition_failed"

    def __init__(self, message: str = "The resource was changed meanwhile. Read it again.") -> None:
        super().__init__(message)


class ProvisionedUser(Struct, frozen=True):
    """A member. `managed`: an identity provider has stored values for the member; without them the name and the e-mail
    address are those of the account. `groups` are (id, name) of the provisioned groups. `version` changes with every
    change of the member."""

    id: str
    organization_id: str
    user_id: str
    role: str
    active: bool
    managed: bool
    user_name: str
    external_id: str
    email: str
    account_email: str
    account_name: str
    attributes: Mapping[str, Any]
    version: str
    created_at_us: int
    updated_at_us: int
    groups: tuple[tuple[str, str], ...] = ()


class UserValues(Struct, frozen=True):
    """The values that an identity provider states for a person. `name` is shown in the console; `attributes` are stored
    as JSON and returned unchanged."""

    user_name: str
    email: str
    active: bool = True
    external_id: str = ""
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


class UserLookup(Struct, frozen=True):
    """A condition that an index answers. An empty value is no condition."""

    id: str = ""
    user_name: str = ""
    external_id: str = ""
    email: str = ""


def select_users(organization_id: str) -> "peewee.ModelSelect[Any]":
    """Select the members that provisioning sees, oldest first. Service accounts are hidden, and so are inactive members
    without stored values: the identity provider deleted them, or never knew them."""
    visible = (Member.status == "active") | ScimUser.member.is_null(False)
    return select_members(organization_id).where(visible).order_by(Member.id)


def select_members(organization_id: str) -> "peewee.ModelSelect[Any]":
    """Select all people in an organization."""
    return _select().where(Member.organization == organization_id, User.kind == "person")


def narrow(query: "peewee.ModelSelect[Any]", lookup: UserLookup) -> "peewee.ModelSelect[Any]":
    """Add the conditions of a lookup to a query of `select_users`."""
    unmanaged = ScimUser.member.is_null()
    if lookup.id:
        query = query.where(Member.id == lookup.id)
    if lookup.user_name:
        key = lookup.user_name.lower()
        query = query.where((ScimUser.user_name_key == key) | (unmanaged & (User.email == key)))
    if lookup.external_id:
        query = query.where(ScimUser.external_id == lookup.external_id)
    if lookup.email:
        key = lookup.email.lower()
        query = query.where((ScimUser.email == key) | (unmanaged & (User.email == key)))
    return query


def read_users(rows: Sequence[Any], groups: Mapping[str, tuple[tuple[str, str], ...]]) -> list[ProvisionedUser]:
    """Return the members of selected rows with their groups."""
    return [_info(row, groups.get(row["id"], ())) for row in rows]


def groups_of(member_ids: Sequence[str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return (id, name) of the provisioned groups of each member that has some. Within a read or write."""
    links: Any = (
        ScimGroupMember.select(ScimGroupMember.member, ScimGroup.id, ScimGroup.display_name)
        .join(ScimGroup)
        .where(ScimGroupMember.member.in_(list(member_ids)))
        .order_by(ScimGroup.id)
        .tuples()
    )
    groups: dict[str, tuple[tuple[str, str], ...]] = {}
    for member_id, group_id, name in links:
        groups[member_id] = (*groups.get(member_id, ()), (group_id, name))
    return groups


def _select() -> "peewee.ModelSelect[Any]":
    return (
        Member.select(
            Member.id,
            Member.organization.alias("organization_id"),
            Member.user.alias("user_id"),
            Member.role,
            Member.status,
            Member.created_at.alias("member_created_at"),
            Member.updated_at.alias("member_updated_at"),
            User.email.alias("account_email"),
            User.name.alias("account_name"),
            User.updated_at.alias("account_updated_at"),
            ScimUser.user_name,
            ScimUser.external_id,
            ScimUser.email.alias("scim_email"),
            ScimUser.attributes,
            ScimUser.version,
            ScimUser.created_at.alias("scim_created_at"),
            ScimUser.updated_at.alias("scim_updated_at"),
        )
        .join(User)
        .switch(Member)
        .join(ScimUser, peewee.JOIN.LEFT_OUTER, on=ScimUser.member == Member.id)
        .dicts()
    )


def _info(row: Mapping[str, Any], groups: tuple[tuple[str, str], ...]) -> ProvisionedUser:
    managed = row["version"] is not None
    changes = (row["version"] or 0, row["member_updated_at"], row["account_updated_at"])
    version = hashlib.sha256(json.dumps([row["id"], *changes]).encode()).hexdigest()[:20]
    return ProvisionedUser(
        id=row["id"],
        organization_id=row["organization_id"],
        user_id=row["user_id"],
        role=row["role"],
        active=row["status"] == "active",
        managed=managed,
        user_name=row["user_name"] if managed else row["account_email"],
        external_id=row["external_id"] or "",
        email=row["scim_email"] if managed else row["account_email"],
        account_email=row["account_email"],
        account_name=row["account_name"],
        attributes=json.loads(row["attributes"] or "{}"),
        version=version,
        created_at_us=row["scim_created_at"] or row["member_created_at"],
        updated_at_us=max(row["scim_updated_at"] or 0, row["member_updated_at"]),
        groups=groups,
    )
