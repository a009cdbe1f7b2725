"""`/orgs/…/teams`: teams, their members, and what the members of each may spend together."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.accounts import teams
from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import find_organization
from gateway.accounts.teams import TeamInfo
from gateway.admin.held_limits import TeamHold
from gateway.errors import Forbidden
from gateway.limits.budgets import Status
from gateway.surfaces.management.access_groups import in_organization, in_part, of_team, of_team_member
from gateway.surfaces.management.answers import TeamAnswer, limits_of
from gateway.surfaces.management.limit_routes import LimitChange, hold_subject, limit_commands, read_limits
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, TextField
from gateway.surfaces.web.http import Operation

TAG = "Teams"


class TeamName(Body):
    name = TextField(1, 255, required=True)


class NewTeam(Creating, TeamName):
    pass


def list_teams(call: ManagedCall[str]) -> list[TeamAnswer]:
    """List teams with the ids of their members and with their limits; the lead of a team sees that team."""
    reach = call.visitor.reach(call.subject, "teams:read")
    if reach.whole:
        infos = call.page.read(partial(teams.list_teams, call.database, call.subject))
    else:
        listed = teams.list_teams(call.database, call.subject)
        infos = call.page.cut([team for team in listed if team.id in reach.teams])
    statuses = call.management.budgets.statuses([team.id for team in infos])
    return [show_team(team, statuses[team.id]) for team in infos]


def create(call: ManagedCall[str]) -> TeamAnswer:
    """Create an empty group of members, who share its access rules and spending limits."""
    name = call.fields["name"]
    return _show(call, teams.create_team(*call.stores, call.subject, name, actor=call.actor, claim=call.claim))


def _show_existing(call: ManagedCall[str], team_id: str) -> TeamAnswer:
    return _show(call, teams.find_team(call.database, call.subject, team_id))


def find(call: ManagedCall[TeamInfo]) -> TeamAnswer:
    """A team with its limits and what was spent against them."""
    return _show(call, call.subject)


def rename(call: ManagedCall[TeamInfo]) -> TeamAnswer:
    """Members, rules and limits stay."""
    team = call.subject
    name = call.fields["name"]
    return _show(call, teams.rename_team(*call.stores, team.organization_id, team.id, name, actor=call.actor))


def delete(call: ManagedCall[TeamInfo]) -> None:
    """Delete a team with its access rules and limits, unless limits of a higher role would end."""
    team = call.subject
    teams.delete_team(*call.stores, team.organization_id, team.id, actor=call.actor, check=_check_end(call, team))


def set_limits(call: ManagedCall[TeamInfo]) -> TeamAnswer:
    """Change the given limits on the spending of all members; another period resets the period's usage. Usage is
    counted while a limit exists."""
    call.management.set_team_limits(call.subject, partial(read_limits, call.fields), actor=call.actor)
    return _show(call, call.subject)


def join(call: ManagedCall[MemberInfo]) -> None:
    """Add a member to a team: its access rules and limits apply to the member's keys. Leads do it if the organization
    allows it (`leadsAddMembers`)."""
    member = call.subject
    hold = _hold(call, _find_team(call))
    if not call.visitor.reach(member.organization_id, "teams:members").whole:
        organization = find_organization(call.database, member.organization_id)
        if not organization.leads_add_members:
            raise Forbidden("Owners and admins add members to teams. They can allow it to the leads of teams.")
    _set(call, True, lambda: hold.check_join(member.id))


def leave(call: ManagedCall[MemberInfo]) -> None:
    """The team's rules and limits no longer apply to the member. A person cannot end the limits of a higher
    role in this way, and leads cannot end access rules and managed settings."""
    _set(call, False, _check_end(call, _find_team(call)))


def _set(call: ManagedCall[MemberInfo], belongs: bool, check: Callable[[], None]) -> None:
    team_id = call.params["team_id"]
    teams.set_team_member(*call.stores, team_id, call.subject.id, belongs, actor=call.actor, check=check)


def _find_team(call: ManagedCall[MemberInfo]) -> TeamInfo:
    return teams.find_team(call.database, call.subject.organization_id, call.params["team_id"])


def _hold(call: ManagedCall[Any], team: TeamInfo) -> TeamHold:
    is_manager = call.visitor.reach(team.organization_id, "teams:members").whole
    return TeamHold(call.database, call.management.budgets, team, call.actor, is_manager)


def _check_end(call: ManagedCall[Any], team: TeamInfo) -> Callable[[], None]:
    """Return what checks that no limit of a higher role ends with the team, or with a membership in it."""
    hold = _hold(call, team)
    check_named = hold_subject(call, team.organization_id, ("team",), team.id)

    def check() -> None:
        hold.check_end()
        check_named()

    return check


def show_team(info: TeamInfo, status: Status) -> TeamAnswer:
    return TeamAnswer.of(info, **limits_of(status))


def _show(call: ManagedCall[Any], team: TeamInfo) -> TeamAnswer:
    return show_team(team, call.management.budgets.status(team.id))


ORG = "/orgs/<organization_id>/teams"
TEAM = f"{ORG}/<team_id>"
IN_TEAM = f"{TEAM}/members/<member_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ORG, list_teams, "List teams", tag=TAG,
            who=in_part("teams:read"), scope="teams:read", query=ListPageQuery, inside="teams",
            commands=("teams list",)),
    managed("POST", ORG, create, "Create a team", tag=TAG,
            who=in_organization("teams:write"), scope="teams:write", request=NewTeam,
            inside="team", success=201, audit="team.create",
            creates=Creation("team", _show_existing),
            commands=("teams create <organization_id> <name> -> id",)),
    managed("GET", TEAM, find, "Show a team", tag=TAG,
            who=of_team("teams:read"), scope="teams:read", inside="team",
            commands=("teams show <team_id>",)),
    managed("PATCH", TEAM, rename, "Rename a team", tag=TAG,
            who=of_team("teams:write"), scope="teams:write", request=TeamName,
            inside="team", audit="team.rename", commands=("teams rename <team_id> <name>",)),
    managed("DELETE", TEAM, delete, "Delete a team", tag=TAG,
            who=of_team("teams:write"), scope="teams:write", message="Team deleted.",
            audit="team.delete", commands=("teams delete <team_id>",)),
    managed("PATCH", f"{TEAM}/limit", set_limits, "Set a team's spending limits", tag=TAG,
            who=of_team("teams:limit"), scope="teams:write",
            request=LimitChange, inside="team", audit="team.update_limit",
            commands=limit_commands("team_id")),
    managed("PUT", IN_TEAM, join, "Add a member to a team", tag=TAG,
            who=of_team_member("teams:members"), scope="teams:write", message="Team updated.",
            audit="team.update", commands=("teams add <team_id> <member_id>",)),
    managed("DELETE", IN_TEAM, leave, "Remove a member from a team", tag=TAG,
            who=of_team_member("teams:members"), scope="teams:write",
            message="Team updated.", audit="team.update", commands=("teams remove <team_id> <member_id>",)),
)  # fmt: skip
