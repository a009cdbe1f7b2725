"""`/console/people`: the members and invitations of an organization, and what each member may do and spend."""

from collections.abc import Mapping
from typing import Any

from gateway.callers.permissions import Permission
from gateway.surfaces.console.limit_forms import (
    RulePlace,
    list_rules,
    name_parts,
    read_limit_change,
    read_limit_fields,
    read_role_in,
    rule_actions,
    rule_fields,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.console.shown_figures import ATTRIBUTE_LABELS
from gateway.surfaces.console.subject_figures import FIGURES, TABS, UsageSubject, chosen_tab, read_figures
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "People"
PATH = "/console/people"
MEMBER = f"{PATH}/<organization_id>/<member_id>"
COLUMNS = (
    Column("Person", "person"),
    Column("Role", "role"),
    Column("Teams", "team_names"),
    Column("Spent", "spent", numeric=True),
    Column("Status", "status"),
)
WITH_DEPARTMENT = (*COLUMNS[:3], Column("Department", "place"), *COLUMNS[3:])
SEARCHED = ("person", "email", "role", "parts", "team_names", "place")
SHORT = ("department", "costCenter")  # attributes in the list
INVITATION_COLUMNS = (
    Column("E-mail address", "email"),
    Column("Role", "role"),
    Column("Team", "teamName"),
    Column("Limits"),
    Column("Valid until", "expiresAt"),
    Column("Actions"),
)
ROLES = (
    ("viewer", "Viewer", "see usage, models, teams and people of the whole organization, and change nothing"),
    ("billing", "Billing", "see spending and credits, and set spending limits, without keys and requests"),
    ("developer", "Developer", "create keys, and see their own requests and spending"),
    ("admin", "Admin", "create and manage keys, people, teams, projects, providers and limits"),
    ("owner", "Owner", "do everything, also appoint owners"),
)
LIST = ManagementCall("GET /orgs/<organization_id>/members")
FIND = ManagementCall("GET /orgs/<organization_id>/members/<member_id>")
UPDATE = ManagementCall("PATCH /orgs/<organization_id>/members/<member_id>")
ERASE = ManagementCall("POST /orgs/<organization_id>/members/<member_id>/erase")
SET_LIMITS = ManagementCall("PATCH /orgs/<organization_id>/members/<member_id>/limit")
INVITATIONS = ManagementCall("GET /orgs/<organization_id>/invitations")
INVITE = ManagementCall("POST /orgs/<organization_id>/invitations")
REVOKE = ManagementCall("DELETE /orgs/<organization_id>/invitations/<invitation_id>")
TEAMS = ManagementCall("GET /orgs/<organization_id>/teams")
JOIN = ManagementCall("PUT /orgs/<organization_id>/teams/<team_id>/members/<member_id>")
LEAVE = ManagementCall("DELETE /orgs/<organization_id>/teams/<team_id>/members/<member_id>")
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")
KEYS = ManagementCall("GET /keys/api")


def show_list(call: PageCall, link: str = "") -> Outbound:
    """Show the members with roles, teams and spending, and the open invitations."""
    choice = choose_organization(call, "members:read")
    teams = call.run(TEAMS, organization_id=choice.id)
    names = _names_of_teams(teams)
    manages = call.visitor.manages("invitations:write", choice.id)
    projects = call.run(PROJECTS, organization_id=choice.id) if call.visitor.may("projects:read") else []
    rows = [
        {**_show_row(member, names), "parts": name_parts(member["roleIn"], teams, projects)}
        for member in call.run(LIST, organization_id=choice.id)
    ]
    has_attributes = any(row["place"] for row in rows)
    columns = WITH_DEPARTMENT if has_attributes else COLUMNS
    shown = arrange(rows, columns, call.arguments, searched=SEARCHED, sort="person")
    invited = call.run(INVITATIONS, organization_id=choice.id) if manages else []
    invitations = arrange(
        [{**one, "parts": name_parts(one["roleIn"], teams, projects)} for one in invited],
        INVITATION_COLUMNS,
        call.arguments,
        searched=("email", "role", "teamName"),
        sort="email",
        page_name="invitations-page",
    )
    values = {
        "has_attributes": has_attributes,
        "invitations": invitations,
        "manages": manages,
        "teams": [(team["id"], team["name"]) for team in teams],
        "projects": [(project["id"], project["name"]) for project in projects],
        "roles": ROLES,
        "may_make_owners": _is_owner(call, choice.id),
        "link": link,
    }
    return call.page("people/people.html", TITLE, people=shown, choice=choice, path=PATH, **values)


def show_member(call: PageCall) -> Outbound:
    """Show a member with role, limits, teams, access rules and keys."""
    place = _place_of(call)
    organization_id = place.organization_id
    teams = call.run(TEAMS, organization_id=organization_id)
    found = call.run(FIND, organization_id=organization_id, member_id=place.scope_id)
    member = _show_row(found, _names_of_teams(teams))
    projects = call.run(PROJECTS, organization_id=organization_id) if call.visitor.may("projects:read") else []
    visitor = call.visitor
    is_owner = _is_owner(call, organization_id)
    keys = call.run(KEYS, {"memberId": place.scope_id})["apiKeys"] if visitor.may("keys:read") else []
    has_rules = visitor.manages("rules:read", organization_id)
    tab = chosen_tab(call)
    subject = UsageSubject("model", {"userId": found["userId"]}, organization_id, "member", place.scope_id)
    return call.page(
        "people/person.html",
        member["person"],
        member=member,
        scoped_roles=name_parts(member["roleIn"], teams, projects),
        attributes=[(ATTRIBUTE_LABELS[name], value) for name, value in member["attributes"].items()],
        teams=[team for team in teams if place.scope_id in team["memberIds"]],
        other_teams=[team for team in teams if place.scope_id not in team["memberIds"]],
        keys=keys,
        roles=ROLES,
        may_make_owners=is_owner,
        changeable=_covers(call, place, "members:write", member["role"]),
        limited=_covers(call, place, "members:limit", member["role"]),
        movable=visitor.manages("teams:members", organization_id) and (is_owner or member["role"] != "owner"),
        sees_keys=visitor.may("keys:read"),
        has_rules=has_rules,
        rules=list_rules(call, place) if has_rules else [],
        organization_id=organization_id,
        path=PATH,
        tabs=TABS,
        tab=tab,
        figures=read_figures(call, subject) if tab == FIGURES else None,
        **rule_fields(call),
    )


def _invite(call: PageCall) -> Outbound:
    choice = choose_organization(call)
    made = call.run(INVITE, read_invitation(call.form), organization_id=choice.id)
    message = f"Send the link to {made['email']}; it is shown only now and works for a week."
    if made["emailed"]:
        message = f"The invitation was sent to {made['email']}. It works for a week."
    return show_list(PageCall(call.visitor, call.inbound, message=message), made["link"])


def read_invitation(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of an invitation from its form."""
    fields: dict[str, Any] = {"email": form.get("email", "").strip(), "role": form.get("role", "")}
    role_in = read_role_in(form)
    if role_in:
        fields["roleIn"] = role_in
    if form.get("team"):
        fields["teamId"] = form["team"]
    return fields | {name: value for name, value in read_limit_fields(form).items() if value is not None}


def _revoke(call: PageCall) -> str:
    organization_id = choose_organization(call).id
    call.run(REVOKE, organization_id=organization_id, invitation_id=call.form.get("invitation", ""))
    return "The invitation was revoked: its link no longer works."


def _change(call: PageCall, fields: dict[str, Any]) -> None:
    place = _place_of(call)
    call.run(UPDATE, fields, organization_id=place.organization_id, member_id=place.scope_id)


def _set_role(call: PageCall) -> str:
    role = call.form.get("role", "")
    _change(call, {"role": role})
    return f"The role is now {role}."


def _activate(call: PageCall) -> str:
    _change(call, {"status": "active"})
    return "The member is active, and so are the member's keys."


def _deactivate(call: PageCall) -> str:
    _change(call, {"status": "inactive"})
    return "The member is deactivated: sign-in and all keys are refused."


def _erase(call: PageCall) -> Outbound:
    place = _place_of(call)
    made = call.run(ERASE, organization_id=place.organization_id, member_id=place.scope_id)
    account = "The account was deleted." if made["accountDeleted"] else "The account stays for other organizations."
    message = f"The personal data were deleted, and {made['keys']} API keys are refused. {account}"
    return show_list(PageCall(call.visitor, call.inbound, message=message))


def _set_limits(call: PageCall) -> str:
    place = _place_of(call)
    fields = read_limit_change(call.form)
    call.run(SET_LIMITS, fields, organization_id=place.organization_id, member_id=place.scope_id)
    return "The limits were saved."


def _join(call: PageCall) -> str:
    _move(call, JOIN)
    return "The member was added to the team."


def _leave(call: PageCall) -> str:
    _move(call, LEAVE)
    return "The member was removed from the team."


def _move(call: PageCall, change: ManagementCall) -> None:
    place = _place_of(call)
    team_id = call.form.get("team", "")
    call.run(change, organization_id=place.organization_id, team_id=team_id, member_id=place.scope_id)


def _place_of(call: PageCall) -> RulePlace:
    return RulePlace(call.params["organization_id"], "member", call.params["member_id"])


def _covers(call: PageCall, place: RulePlace, permission: Permission, role: str) -> bool:
    """Return whether a permission of the visitor covers the member of a page, who has this role."""
    visitor = call.visitor
    organization_id = place.organization_id
    if not visitor.covers_member(organization_id, place.scope_id, permission):
        return False
    return visitor.authority_for(organization_id, permission).covers(role)


def _is_owner(call: PageCall, organization_id: str) -> bool:
    return call.visitor.member(organization_id).role == "owner"


def _names_of_teams(teams: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the names of each member's teams, by the member's id."""
    names: dict[str, list[str]] = {}
    for team in teams:
        for member_id in team["memberIds"]:
            names.setdefault(member_id, []).append(team["name"])
    return names


def _show_row(member: dict[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    return {
        **member,
        "person": member["name"] or member["email"],
        "team_names": ", ".join(names.get(member["id"], ())),
        "place": ", ".join(member["attributes"][name] for name in SHORT if name in member["attributes"]),
        "spent": float(member["usage"]),
    }


OF_MEMBER: dict[str, PageAction] = {
    "role": _set_role,
    "activate": _activate,
    "deactivate": _deactivate,
    "erase": _erase,
    "limits": _set_limits,
    "join": _join,
    "leave": _leave,
    **rule_actions(_place_of),
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"invite": _invite, "revoke": _revoke}),
    *page_operations(MEMBER, show_member, OF_MEMBER),
)
