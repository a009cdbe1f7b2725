"""The people who may call a management operation: each check finds what the path names, or refuses the visitor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gateway.accounts import teams
from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import MemberInfo
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.roles import MANAGERS
from gateway.accounts.teams import TeamInfo
from gateway.errors import Forbidden
from gateway.surfaces.visitor import Visitor

T = TypeVar("T")
# Variables of the path and fields of the request, by name.
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AccessGroup(Generic[T]):
    """A group of people, and the check whether a visitor is one of them. `find` returns what the operation works on and
    raises NotFound or Forbidden."""

    text: str
    find: Callable[[Visitor, Values], T]


def _find_organization(*roles: str) -> Callable[[Visitor, Values], str]:
    def find(visitor: Visitor, values: Values) -> str:
        organization_id: str = values.get("organization_id") or values["organizationId"]
        visitor.member(organization_id, *roles)
        return organization_id

    return find


def _find_project(*roles: str) -> Callable[[Visitor, Values], ProjectInfo]:
    def find(visitor: Visitor, values: Values) -> ProjectInfo:
        return visitor.project(values.get("project_id") or values["projectId"], *roles)

    return find


def _find_none(visitor: Visitor, values: Values) -> None:
    return None


def _find_for_operator(visitor: Visitor, values: Values) -> str:
    if not visitor.is_operator():
        raise Forbidden("Only the owners of this installation's first organization may do this.")
    return values.get("organization_id", "")


def _find_key(visitor: Visitor, values: Values) -> KeyInfo:
    return visitor.key(values["key_id"])


def _find_managed_key(visitor: Visitor, values: Values) -> KeyInfo:
    key = visitor.key(values["key_id"])
    visitor.manager(key.organization_id)
    return key


def _find_provider_key(visitor: Visitor, values: Values) -> str:
    organization_id = visitor.services.management.provider_keys.organization_of(values["key_id"])
    visitor.manager(organization_id)
    return organization_id


def _find_other_member(visitor: Visitor, values: Values) -> MemberInfo:
    return visitor.other_member(values["organization_id"], values["member_id"])


def _find_team(visitor: Visitor, values: Values) -> TeamInfo:
    organization_id = values["organization_id"]
    visitor.manager(organization_id)
    return teams.find_team(visitor.services.store.database, organization_id, values["team_id"])


SIGNED_IN = AccessGroup("For every signed-in person.", _find_none)
OPERATOR = AccessGroup("For the operators: the owners of the installation's first organization.", _find_for_operator)
# These return the id of the organization.
MEMBER = AccessGroup("For members of the organization.", _find_organization())
MANAGER = AccessGroup("For owners and admins.", _find_organization(*MANAGERS))
OWNER = AccessGroup("For owners.", _find_organization("owner"))
PROVIDER_KEY_MANAGER = AccessGroup("For owners and admins.", _find_provider_key)

PROJECT_MEMBER = AccessGroup("For members of the project's organization.", _find_project())
PROJECT_MANAGER = AccessGroup("For owners and admins.", _find_project(*MANAGERS))
KEY_USER = AccessGroup("For owners and admins, and for the key's creator.", _find_key)
KEY_MANAGER = AccessGroup("For owners and admins.", _find_managed_key)
MEMBER_MANAGER = AccessGroup("For owners and admins; only an owner changes an owner.", _find_other_member)
TEAM_MANAGER = AccessGroup("For owners and admins.", _find_team)
