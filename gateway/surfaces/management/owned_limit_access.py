"""Access to limits that belong to a key, member, team, provider key or project. A visitor who may change the owner's
limit at the owner's operations may change and raise it here; one whom it limits may see it and ask for more."""

from typing import Any

from gateway.accounts.teams import find_team, list_teams
from gateway.admin.owned_limit_changes import OwnedLimitHold, OwnedLimits
from gateway.callers.permissions import Permission
from gateway.errors import Forbidden, NotFound
from gateway.limits.models import KEY, MEMBER, PROVIDER_KEY, TEAM
from gateway.limits.owned_rows import PER_SESSION, PROJECT, OwnedName
from gateway.surfaces.management.managed_operation import ManagedCall
from gateway.surfaces.visitors.visitor import Visitor

# Kind of an owner → the permission that shows its limits.
SEEN_WITH: dict[str, Permission] = {
    KEY: "keys:read",
    MEMBER: "members:read",
    TEAM: "teams:read",
    PROVIDER_KEY: "providers:read",
    PROJECT: "projects:read",
}
# Kind of an owner, and whether the limit is that of its sessions → the permission that changes it, and the operation.
CHANGED_WITH: dict[tuple[str, bool], tuple[Permission, str]] = {
    (KEY, False): ("keys:write", "/keys/api/limit/{id}"),
    (KEY, True): ("keys:restrict", "/keys/api/{id}/session-budget"),
    (MEMBER, False): ("members:limit", "/orgs/{organization}/members/{id}/limit"),
    (TEAM, False): ("teams:limit", "/orgs/{organization}/teams/{id}/limit"),
    (PROVIDER_KEY, False): ("providers:write", "/keys/provider/{id}"),
    (PROJECT, True): ("projects:budget", "/projects/{id}/session-budget"),
}


def list_seen_kinds(visitor: Visitor, organization_id: str) -> set[str]:
    """Return the kinds of owners for which a visitor sees the limits of a whole organization."""
    return {kind for kind, permission in SEEN_WITH.items() if visitor.manages(permission, organization_id)}


def changed_with(name: OwnedName, organization_id: str) -> str:
    """Return the path of the operation that changes a limit with its owner."""
    return CHANGED_WITH[_place(name)][1].format(organization=organization_id, id=name.owner)


def manages_owned(visitor: Visitor, organization_id: str, name: OwnedName) -> bool:
    """Return whether a visitor changes such limits in the whole organization."""
    return visitor.manages(CHANGED_WITH[_place(name)][0], organization_id)


def hold_owned(call: ManagedCall[Any], name: OwnedName, organization_id: str) -> OwnedLimitHold:
    """Return the check of raises by the caller."""
    return OwnedLimitHold(call.database, manages_owned(call.visitor, organization_id, name))


def owned_limits(call: ManagedCall[Any], name: OwnedName, organization_id: str) -> OwnedLimits:
    """Return what changes limits for the caller."""
    return OwnedLimits(*call.stores, manages_owned(call.visitor, organization_id, name))


def check_change(visitor: Visitor, organization_id: str, name: OwnedName) -> None:
    """Raise Forbidden or NotFound for a visitor who may not change a limit with its owner."""
    permission, _ = CHANGED_WITH[_place(name)]
    if name.kind == KEY:
        _check_same(visitor.key(name.owner, permission).organization_id, organization_id, name)
    elif name.kind == MEMBER:
        visitor.other_member(organization_id, name.owner, permission)
    elif name.kind == TEAM:
        reach = visitor.reach(organization_id, permission)
        visitor.check(organization_id, permission, reach.whole or name.owner in reach.teams)
        find_team(visitor.services.store.database, organization_id, name.owner)
    elif name.kind == PROVIDER_KEY:
        visitor.permitted(organization_id, permission)
        known = visitor.services.management.provider_keys.organization_of(name.owner)
        _check_same(known, organization_id, name)
    else:
        _check_same(visitor.project(name.owner, permission).organization_id, organization_id, name)


def check_read(visitor: Visitor, organization_id: str, name: OwnedName) -> None:
    """Raise Forbidden or NotFound for a visitor who neither sees a limit with its owner nor is limited by it."""
    permission = SEEN_WITH[name.kind]
    if name.kind == KEY:
        _check_same(visitor.key(name.owner, permission).organization_id, organization_id, name)
    elif name.kind == MEMBER:
        own = visitor.member(organization_id).id == name.owner
        visitor.check(
            organization_id, permission, own or visitor.covers_member(organization_id, name.owner, permission)
        )
    elif name.kind == TEAM:
        visitor.check(organization_id, permission, _sees_team(visitor, organization_id, name.owner))
    elif name.kind == PROVIDER_KEY:
        visitor.permitted(organization_id, permission)
    else:
        _check_same(visitor.project(name.owner, permission).organization_id, organization_id, name)


def check_simulate(visitor: Visitor, organization_id: str, name: OwnedName) -> None:
    """Raise Forbidden or NotFound for a visitor who may not see the people with requests that a limit would refuse:
    members of a team or project see the requests of others nowhere else."""
    if visitor.manages("limits:read", organization_id):
        check_read(visitor, organization_id, name)
    elif name.kind == TEAM:
        reach = visitor.reach(organization_id, "teams:read")
        visitor.check(organization_id, "teams:read", name.owner in reach.teams)
    elif name.kind == PROJECT:
        check_change(visitor, organization_id, name)
    else:
        check_read(visitor, organization_id, name)


def may_simulate_owned(visitor: Visitor, organization_id: str, name: OwnedName) -> bool:
    """Return whether check_simulate passes."""
    try:
        check_simulate(visitor, organization_id, name)
    except (Forbidden, NotFound):
        return False
    return True


def may_change_owned(visitor: Visitor, organization_id: str, name: OwnedName) -> bool:
    """Return whether check_change passes."""
    try:
        check_change(visitor, organization_id, name)
    except (Forbidden, NotFound):
        return False
    return True


def _sees_team(visitor: Visitor, organization_id: str, team_id: str) -> bool:
    reach = visitor.reach(organization_id, "teams:read")
    if reach.whole or team_id in reach.teams:
        return True
    member_id = visitor.member(organization_id).id
    own = list_teams(visitor.services.store.database, organization_id, member_id=member_id)
    return any(team.id == team_id for team in own)


def _place(name: OwnedName) -> tuple[str, bool]:
    return name.kind, name.part in PER_SESSION


def _check_same(known: str, organization_id: str, name: OwnedName) -> None:
    if known != organization_id:
        raise NotFound(f"There is no limit {name} in this organization.")
