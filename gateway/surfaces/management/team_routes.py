"""`/orgs/…/teams`: teams, their members, and what the members of each may spend together."""

from functools import partial
from typing import Any

from gateway.accounts import teams
from gateway.accounts.teams import TeamInfo
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.limit_routes import LimitChange, read_limits
from gateway.surfaces.management.presenters import show_team
from gateway.surfaces.validation_schemas import Body, TextField, read_body
from gateway.surfaces.visitor import Visitor

TAG = "Teams"


class TeamName(Body):
    name = TextField(1, 255, required=True)


def list_teams(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """With the ids of their members, and their limits."""
    organization_id = visitor.managed_organization(inbound)
    found = teams.list_teams(visitor.services.store.database, organization_id)
    statuses = visitor.services.management.budgets.statuses([one.id for one in found])
    return {"teams": [show_team(one, statuses[one.id]) for one in found]}


def create(visitor: Visitor, inbound: Inbound) -> Outbound:
    """A group of members with access rules and spending limits in common; it begins empty."""
    name = read_body(TeamName, inbound)["name"]
    organization_id = visitor.managed_organization(inbound)
    services = visitor.services
    made = teams.create_team(
        services.store.database, services.store.control, organization_id, name, actor=visitor.user_id
    )
    return json_reply(_show(visitor, made), inbound.shown_id, 201)


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A team with its limits and what was spent against them."""
    return _show(visitor, _find(visitor, inbound))


def rename(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Members, rules and limits stay."""
    name = read_body(TeamName, inbound)["name"]
    team = _find(visitor, inbound)
    services = visitor.services
    changed = teams.rename_team(
        services.store.database, services.store.control, team.organization_id, team.id, name, actor=visitor.user_id
    )
    return _show(visitor, changed)


def delete(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Delete a team: its access rules go, its limits count no more."""
    team = _find(visitor, inbound)
    services = visitor.services
    teams.delete_team(
        services.store.database, services.store.control, team.organization_id, team.id, actor=visitor.user_id
    )
    return {"message": "Team deleted."}


def set_limits(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Merge limits on what all members spend together; another period begins the period's usage anew. Usage counts
    while there is a limit."""
    given = require_some(read_body(LimitChange, inbound))
    team = _find(visitor, inbound)
    management = visitor.services.management
    management.set_team_limits(team, partial(read_limits, given), actor=visitor.user_id)
    return _show(visitor, team)


def join(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Put a member into a team: its access rules and limits hold for their keys."""
    return _set(visitor, inbound, True)


def leave(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Its rules and limits count for the member no more."""
    return _set(visitor, inbound, False)


def _set(visitor: Visitor, inbound: Inbound, belongs: bool) -> dict[str, Any]:
    member = visitor.other_member(inbound.params["organization_id"], inbound.params["member_id"])
    team = _find(visitor, inbound)
    services = visitor.services
    teams.set_team_member(
        services.store.database, services.store.control, team.id, member.id, belongs, actor=visitor.user_id
    )
    return {"message": "Team updated."}


def _find(visitor: Visitor, inbound: Inbound) -> TeamInfo:
    """The team of the path, which the visitor manages. NotFound, Forbidden."""
    organization_id = visitor.managed_organization(inbound)
    return teams.find_team(visitor.services.store.database, organization_id, inbound.params["team_id"])


def _show(visitor: Visitor, team: TeamInfo) -> dict[str, Any]:
    return {"team": show_team(team, visitor.services.management.budgets.status(team.id))}


ONE = shapes.shape(team=shapes.TEAM)
ORG = "/orgs/<organization_id>/teams"
TEAM = f"{ORG}/<team_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ORG, list_teams, "List teams", tag=TAG, answer=shapes.shape(teams=[shapes.TEAM])),
    managed("POST", ORG, create, "Make a team", tag=TAG, request=TeamName, answer=ONE, success=201),
    managed("GET", TEAM, find, "Show a team", tag=TAG, answer=ONE),
    managed("PATCH", TEAM, rename, "Rename a team", tag=TAG, request=TeamName, answer=ONE),
    managed("DELETE", TEAM, delete, "Delete a team", tag=TAG, answer=shapes.DONE),
    managed("PATCH", f"{TEAM}/limit", set_limits, "Set a team's spending limits", tag=TAG, request=LimitChange,
            answer=ONE),
    managed("PUT", f"{TEAM}/members/<member_id>", join, "Put a member into a team", tag=TAG, answer=shapes.DONE),
    managed("DELETE", f"{TEAM}/members/<member_id>", leave, "Take a member out of a team", tag=TAG,
            answer=shapes.DONE),
)  # fmt: skip
