"""The people who may call a management operation: each check finds what the path names, or refuses the visitor. The
scopes of service accounts.

Each group asks a row of the table of permissions (`gateway/callers/permissions.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, TypeVar, get_args

from gateway.accounts import members, teams
from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import MemberInfo
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.teams import TeamInfo
from gateway.callers.permissions import ROLES, TABLE, Permission
from gateway.errors import Forbidden
from gateway.surfaces.visitors.visitor import Visitor

T = TypeVar("T")
# Variables of the path and fields of the request, by name.
Values = Mapping[str, Any]
PLURALS = {"owner": "owners", "admin": "admins", "billing": "billing", "developer": "developers", "viewer": "viewers"}


@dataclass(frozen=True, slots=True)
class AccessGroup(Generic[T]):
    """The people with a permission, and the check whether a visitor is one of them. `find` returns what the operation
    works on and raises NotFound or Forbidden."""

    permission: Permission
    text: str
    find: Callable[[Visitor, Values], T]


def describe(permission: Permission) -> str:
    """Return a sentence that says which roles have a permission."""
    row = TABLE[permission]
    if row.roles == ROLES:
        return "For members of the organization."
    *first, last = (PLURALS[role] for role in row.roles)
    parts = [f"{', '.join(first)} and {last}" if first else last]
    if row.own:
        parts.append("the creator of the key or request")
    if row.lead:
        parts.append("the leads of the team")
    if row.project_admin:
        parts.append("the admins of the project")
    *first, last = parts
    return f"For {', '.join(first) + ', and for ' if first else ''}{last}."


@cache
def in_organization(permission: Permission) -> AccessGroup[str]:
    """Return the group for the organization that the request names; it finds the id."""

    def find(visitor: Visitor, values: Values) -> str:
        organization_id: str = values.get("organization_id") or values["organizationId"]
        visitor.permitted(organization_id, permission)
        return organization_id

    return AccessGroup(permission, describe(permission), find)


@cache
def in_part(permission: Permission) -> AccessGroup[str]:
    """Return the group for lists of an organization which people with a role in a part of it see in part."""

    def find(visitor: Visitor, values: Values) -> str:
        organization_id: str = values["organization_id"]
        visitor.check(organization_id, permission, bool(visitor.reach(organization_id, permission)))
        return organization_id

    return AccessGroup(permission, describe(permission), find)


@cache
def in_project(permission: Permission) -> AccessGroup[ProjectInfo]:
    """Return the group for the project that the request names."""

    def find(visitor: Visitor, values: Values) -> ProjectInfo:
        return visitor.project(values.get("project_id") or values["projectId"], permission)

    return AccessGroup(permission, describe(permission), find)


@cache
def of_key(permission: Permission) -> AccessGroup[KeyInfo]:
    """Return the group for an API key."""

    def find(visitor: Visitor, values: Values) -> KeyInfo:
        return visitor.key(values["key_id"], permission)

    return AccessGroup(permission, describe(permission), find)


@cache
def of_provider_key(permission: Permission) -> AccessGroup[str]:
    """Return the group for a provider key; it finds the id of the organization."""

    def find(visitor: Visitor, values: Values) -> str:
        organization_id = visitor.services.management.provider_keys.organization_of(values["key_id"])
        visitor.permitted(organization_id, permission)
        return organization_id

    return AccessGroup(permission, describe(permission), find)


@cache
def of_member(permission: Permission) -> AccessGroup[MemberInfo]:
    """Return the group for another member with a role that allows nothing beyond the visitor's role."""

    def find(visitor: Visitor, values: Values) -> MemberInfo:
        return visitor.other_member(values["organization_id"], values["member_id"], permission)

    return AccessGroup(permission, f"{describe(permission)} Only an owner changes an owner.", find)


@cache
def of_listed_member(permission: Permission) -> AccessGroup[MemberInfo]:
    """Return the group for a member that the visitor sees: of the organization, or of a team."""

    def find(visitor: Visitor, values: Values) -> MemberInfo:
        organization_id, member_id = values["organization_id"], values["member_id"]
        visitor.check(organization_id, permission, visitor.covers_member(organization_id, member_id, permission))
        return members.find_in_organization(visitor.services.store.database, organization_id, member_id)

    return AccessGroup(permission, describe(permission), find)


@cache
def of_team_member(permission: Permission) -> AccessGroup[MemberInfo]:
    """Return the group for a member who joins or leaves the team of the path; see `of_member`."""

    def find(visitor: Visitor, values: Values) -> MemberInfo:
        organization_id = values["organization_id"]
        reach = visitor.reach(organization_id, permission)
        visitor.check(organization_id, permission, reach.whole or values["team_id"] in reach.teams)
        member = members.find_in_organization(visitor.services.store.database, organization_id, values["member_id"])
        visitor.authority_for(organization_id, permission).check(member.role)
        return member

    return AccessGroup(permission, f"{describe(permission)} Only an owner changes an owner.", find)


@cache
def of_team(permission: Permission) -> AccessGroup[TeamInfo]:
    """Return the group for a team."""

    def find(visitor: Visitor, values: Values) -> TeamInfo:
        organization_id, team_id = values["organization_id"], values["team_id"]
        reach = visitor.reach(organization_id, permission)
        visitor.check(organization_id, permission, reach.whole or team_id in reach.teams)
        return teams.find_team(visitor.services.store.database, organization_id, team_id)

    return AccessGroup(permission, describe(permission), find)


@cache
def anywhere(permission: Permission) -> AccessGroup[None]:
    """Return the group for lists over all organizations of the visitor; people without a membership see empty ones."""

    return AccessGroup(permission, describe(permission), lambda visitor, values: check_anywhere(visitor, permission))


def check_anywhere(visitor: Visitor, permission: Permission) -> None:
    """Raise Forbidden for a visitor who has a permission in no organization at all."""
    if visitor.memberships and not visitor.may(permission):
        raise Forbidden(f"Your role does not allow this. {describe(permission)}")


def _find_none(visitor: Visitor, values: Values) -> None:
    return None


def _find_for_operator(visitor: Visitor, values: Values) -> str:
    if not visitor.is_operator():
        raise Forbidden("Only the owners of this installation's first organization may do this.")
    organization_id: str = values.get("organization_id", "")
    return organization_id


SIGNED_IN = AccessGroup("account:use", "For every signed-in person.", _find_none)
OPERATOR = AccessGroup(
    "installation:operate",
    "For the operators: the owners of the installation's first organization.",
    _find_for_operator,
)


# The scopes of service accounts: the type of the column `scope` in the management table, which says what each allows.

# "" is the value of operations for people only.
ManagementScope = Literal[
    "",
    "audit:read",
    "keys:read",
    "keys:write",
    "limits:read",
    "limits:write",
    "logs:read",
    "logs:write",
    "members:read",
    "members:write",
    "projects:read",
    "projects:write",
    "providers:read",
    "providers:write",
    "rules:read",
    "rules:write",
    "service_accounts:read",
    "settings:read",
    "settings:write",
    "teams:read",
    "teams:write",
    "usage:read",
]
SCOPES: tuple[str, ...] = tuple(scope for scope in get_args(ManagementScope) if scope)
