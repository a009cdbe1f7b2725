"""`/console/teams`: the teams of an organization, with their members, limits, access rules and managed settings."""

from typing import Any

from gateway.accounts.organizations import find_organization
from gateway.callers.permissions import Permission
from gateway.surfaces.console.limit_forms import TEAM as SETTINGS_OF_TEAM
from gateway.surfaces.console.limit_forms import (
    ManagedSettingsForm,
    RulePlace,
    list_rules,
    read_limit_change,
    rule_actions,
    rule_fields,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations, show_instead
from gateway.surfaces.console.subject_figures import FIGURES, TABS, UsageSubject, chosen_tab, read_figures
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Teams"
PATH = "/console/teams"
TEAM = f"{PATH}/<organization_id>/<team_id>"
COLUMNS = (
    Column("Team", "name"),
    Column("Members", "size", numeric=True),
    Column("Spent", "spent", numeric=True),
)
MEMBER_COLUMNS = (Column("Person", "person"), Column("Role", "role"), Column("Actions"))
LIST = ManagementCall("GET /orgs/<organization_id>/teams")
CREATE = ManagementCall("POST /orgs/<organization_id>/teams")
FIND = ManagementCall("GET /orgs/<organization_id>/teams/<team_id>")
RENAME = ManagementCall("PATCH /orgs/<organization_id>/teams/<team_id>")
DELETE = ManagementCall("DELETE /orgs/<organization_id>/teams/<team_id>")
SET_LIMITS = ManagementCall("PATCH /orgs/<organization_id>/teams/<team_id>/limit")
JOIN = ManagementCall("PUT /orgs/<organization_id>/teams/<team_id>/members/<member_id>")
LEAVE = ManagementCall("DELETE /orgs/<organization_id>/teams/<team_id>/members/<member_id>")
LEADS = ManagementCall("GET /orgs/<organization_id>/teams/<team_id>/leads")
ADD_LEAD = ManagementCall("PUT /orgs/<organization_id>/teams/<team_id>/leads/<member_id>")
REMOVE_LEAD = ManagementCall("DELETE /orgs/<organization_id>/teams/<team_id>/leads/<member_id>")
MEMBERS = ManagementCall("GET /orgs/<organization_id>/members")


def show_list(call: PageCall) -> Outbound:
    """Show the teams with their sizes and spending."""
    choice = choose_organization(call, "teams:read")
    rows = [_show_row(team) for team in call.run(LIST, organization_id=choice.id)]
    shown = arrange(rows, COLUMNS, call.arguments, searched=("name",), sort="name")
    manages = call.visitor.manages("teams:write", choice.id)
    return call.page("teams/teams.html", TITLE, teams=shown, choice=choice, path=PATH, manages=manages)


def show_team(call: PageCall) -> Outbound:
    """Show a team with its members, limits, access rules and managed settings."""
    place = _place_of(call)
    team = _show_row(call.run(FIND, **_path(call)))
    visitor = call.visitor
    manages = visitor.manages("teams:write", place.organization_id)
    authority = visitor.authority_for(place.organization_id, "teams:members")
    moves = covers_team(visitor, place, "teams:members")
    people = [
        {
            **member,
            "person": member["name"] or member["email"],
            "changeable": moves and authority.covers(member["role"]),
        }
        for member in call.run(MEMBERS, organization_id=place.organization_id)
    ]
    members = [member for member in people if member["id"] in team["memberIds"]]
    adds = manages or (
        moves and find_organization(call.services.store.database, place.organization_id).leads_add_members
    )
    tab = chosen_tab(call)
    own = frozenset(team["memberIds"])
    subject = UsageSubject("user", {}, place.organization_id, "team", team["id"], own)
    others = [member for member in people if adds and member["changeable"] and member["id"] not in team["memberIds"]]
    return call.page(
        "teams/team.html",
        team["name"],
        team=team,
        members=arrange(members, MEMBER_COLUMNS, call.arguments, searched=("person", "email", "role"), sort="person"),
        manages=manages,
        limited=covers_team(visitor, place, "teams:limit"),
        others=others,
        leads={lead["id"] for lead in call.run(LEADS, **_path(call))},
        rules=list_rules(call, place) if manages else [],
        organization_id=place.organization_id,
        managed_settings=MANAGED_SETTINGS.text(call) if manages else "",
        path=PATH,
        tabs=TABS,
        tab=tab,
        figures=read_figures(call, subject) if tab == FIGURES else None,
        **rule_fields(call),
    )


def covers_team(visitor: Visitor, place: RulePlace, permission: Permission) -> bool:
    """Return whether a permission of the visitor covers a team."""
    reach = visitor.reach(place.organization_id, permission)
    return reach.whole or place.scope_id in reach.teams


def _create(call: PageCall) -> str:
    choice = choose_organization(call)
    team = call.run(CREATE, {"name": call.form.get("name", "").strip()}, organization_id=choice.id)
    return f"The team {team['name']} was created. Open it to add members and limits."


def _rename(call: PageCall) -> str:
    call.run(RENAME, {"name": call.form.get("name", "").strip()}, **_path(call))
    return "The team was renamed."


def _set_limits(call: PageCall) -> str:
    call.run(SET_LIMITS, read_limit_change(call.form), **_path(call))
    return "The limits were saved."


def _join(call: PageCall) -> str:
    call.run(JOIN, member_id=call.form.get("member", ""), **_path(call))
    return "The member was added."


def _leave(call: PageCall) -> str:
    call.run(LEAVE, member_id=call.form.get("member", ""), **_path(call))
    return "The member was removed."


def _add_lead(call: PageCall) -> str:
    call.run(ADD_LEAD, member_id=call.form.get("member", ""), **_path(call))
    return "The member is a lead of the team."


def _remove_lead(call: PageCall) -> str:
    call.run(REMOVE_LEAD, member_id=call.form.get("member", ""), **_path(call))
    return "The member is no lead of the team any more."


def _delete(call: PageCall) -> Outbound:
    call.run(DELETE, **_path(call))
    return show_instead(call, PATH, show_list, "The team was deleted.")


def _path(call: PageCall) -> dict[str, Any]:
    return {"organization_id": call.params["organization_id"], "team_id": call.params["team_id"]}


def _place_of(call: PageCall) -> RulePlace:
    return RulePlace(call.params["organization_id"], "team", call.params["team_id"])


def _show_row(team: dict[str, Any]) -> dict[str, Any]:
    return {**team, "size": len(team["memberIds"]), "spent": float(team["usage"])}


MANAGED_SETTINGS = ManagedSettingsForm(SETTINGS_OF_TEAM, _path)
OF_TEAM: dict[str, PageAction] = {
    **MANAGED_SETTINGS.actions,
    "rename": _rename,
    "limits": _set_limits,
    "join": _join,
    "leave": _leave,
    "add-lead": _add_lead,
    "remove-lead": _remove_lead,
    "delete": _delete,
    **rule_actions(_place_of),
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"create": _create}),
    *page_operations(TEAM, show_team, OF_TEAM),
)
