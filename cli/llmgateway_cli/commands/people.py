"""The commands `members` and `teams`: roles of people, invitations, leads of teams, and limits of both."""

from typing import Any
from urllib.parse import quote

import click

from llmgateway_cli.account_lists import (
    Record,
    choose_organization,
    find_named,
    find_project,
    list_members,
    list_teams,
    organization_option,
)
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.limit_options import (
    change_limits,
    limit_change_options,
    limit_options,
    new_limits,
    period_limit_of,
    period_spending,
    total_spending,
)
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE

# The permissions of each role, in the order of the console.
ROLES = {
    "viewer": "see usage, models, teams and people of the whole organization, and change nothing",
    "billing": "see spending and credits, and set spending limits, without keys and requests",
    "developer": "create keys, and see their own requests and spending",
    "admin": "create and manage keys, people, teams, projects, providers and limits",
    "owner": "do everything, also appoint owners",
}
PARTS = {
    "lead": "of a team: see its usage, add and remove members, set limits of the team and its members",
    "project admin": "of a project: see its usage, change its settings, API keys and admins",
}
SHOWN_ATTRIBUTES = ("department", "costCenter")

member_argument = click.argument("named", metavar="MEMBER")
team_argument = click.argument("named", metavar="TEAM")


@click.group(cls=ClientGroup)
def members() -> None:
    """List and invite people, and change their roles and limits."""


@members.command("list")
@organization_option
@json_option
@pass_context
def show_members(context: ClientContext, org: str | None) -> None:
    """List the members of an organization."""
    organization = choose_organization(context, org)
    listed = list_members(context, organization)
    rows = [
        (
            str(row.get("name") or row.get("email", "")),
            str(row.get("email", "")),
            str(row.get("role", "")),
            _status_of(row),
            _place_of(row),
            total_spending(row),
            str(row.get("id", "")),
        )
        for row in listed
    ]
    columns = (
        Column("NAME", shorten=True, rank=2),
        Column("E-MAIL ADDRESS", shorten=True),
        Column("ROLE"),
        Column("STATUS"),
        Column("DEPARTMENT", shorten=True, rank=1),
        Column("SPENT / LIMIT", rank=3),
        Column("ID", rank=4),
    )
    context.output.listing(listed, columns, rows, "There are no members.")


@members.command("roles")
@json_option
@pass_context
def show_roles(context: ClientContext) -> None:
    """List the roles that a member can have."""
    listed = [{"role": role, "may": may} for role, may in {**ROLES, **PARTS}.items()]
    rows = [(one["role"], one["may"]) for one in listed]
    context.output.listing(listed, (Column("ROLE"), Column("MAY")), rows)


@members.command("show")
@member_argument
@organization_option
@json_option
@pass_context
def show_member(context: ClientContext, named: str, org: str | None) -> None:
    """Show a member, by e-mail address, name or id."""
    organization, member = _find_member(context, named, org)
    _print_member(context, organization, member)


@members.command("role")
@member_argument
@click.argument("role")
@organization_option
@json_option
@pass_context
def set_role(context: ClientContext, named: str, role: str, org: str | None) -> None:
    """Change the role of a member in the whole organization."""
    if role not in ROLES:
        advice = f"Use one of {', '.join(ROLES)}. `teams add-lead` and `projects add-admin` give the other roles."
        raise CliError(f"There is no role {role!r}.", advice)
    organization, member = _find_member(context, named, org)
    _change(context, organization, member, {"role": role})
    context.output.success(f"{member.get('email')} has the role {role} now.")


@members.command("activate")
@member_argument
@organization_option
@json_option
@pass_context
def activate(context: ClientContext, named: str, org: str | None) -> None:
    """Let a deactivated member in again, with their keys."""
    organization, member = _find_member(context, named, org)
    _change(context, organization, member, {"status": "active"})
    context.output.success(f"{member.get('email')} is active.")


@members.command("deactivate")
@member_argument
@organization_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_context
def deactivate(context: ClientContext, named: str, org: str | None, yes: bool) -> None:
    """Refuse the sign-in and all keys of a member."""
    organization, member = _find_member(context, named, org)
    if not context.output.confirm(f"Refuse the sign-in and all keys of {member.get('email')}?", yes):
        return
    _change(context, organization, member, {"status": "inactive"})
    context.output.success(f"{member.get('email')} is deactivated.")


@members.command("limit")
@member_argument
@limit_change_options
@organization_option
@json_option
@pass_context
def limit_member(context: ClientContext, named: str, org: str | None, changes: dict[str, Any]) -> None:
    """Set the spending limits that all keys of a member share."""
    organization, member = _find_member(context, named, org)
    path = f"{_path(organization, 'members', text_of(member, 'id'))}/limit"
    changed = change_limits(context, path, "member", named, changes)
    context.output.success(f"The limits of {member.get('email')} were set.")
    _print_member(context, organization, changed)


@members.command("invite")
@click.argument("email")
@click.option("--role", type=click.Choice(tuple(ROLES)), default="developer", show_default=True, help="The role.")
@click.option("--team", metavar="TEAM", help="The team that the person joins, by id or name.")
@click.option("--lead", "leads", multiple=True, metavar="TEAM", help="A team that the person leads.")
@click.option("--project-admin", "admins", multiple=True, metavar="PROJECT", help="A project that the person manages.")
@limit_options
@organization_option
@json_option
@pass_context
def invite(
    context: ClientContext,
    email: str,
    role: str,
    team: str | None,
    leads: tuple[str, ...],
    admins: tuple[str, ...],
    limit: str | None,
    period_limit: str | None,
    period: str | None,
    reservation: str | None,
    org: str | None,
) -> None:
    """Invite a person, and print the link that lets them join."""
    fields: dict[str, Any] = {
        "email": email,
        "role": role,
        **new_limits(limit, period_limit, period, reservation),
    }
    organization = choose_organization(context, org)
    ident = text_of(organization, "id")
    if team or leads:
        teams = list_teams(context, organization)
        if team:
            fields["teamId"] = text_of(find_named(teams, team, "team"), "id")
        fields["roleIn"] = [text_of(find_named(teams, one, "team"), "id") for one in leads]
    if admins:
        found = [text_of(find_project(context, one, ident)[1], "id") for one in admins]
        fields["roleIn"] = [*fields.get("roleIn", ()), *found]
    answer = context.client.management("POST", _path(organization, "invitations"), body=fields)
    made = object_of(answer, "invitation")
    if context.output.as_json:
        context.output.document(made)
        return
    if made.get("emailed"):
        context.output.success(f"The invitation was sent to {email}.")
    context.output.data(text_of(made, "link"))
    context.output.info("The link is shown only now. It is valid for a week and for one person.")


@click.group(cls=ClientGroup)
def teams() -> None:
    """List teams, and change their members, leads and limits."""


@teams.command("list")
@organization_option
@json_option
@pass_context
def show_teams(context: ClientContext, org: str | None) -> None:
    """List the teams of an organization."""
    listed = list_teams(context, choose_organization(context, org))
    rows = [
        (
            str(row.get("name", "")),
            str(len(_texts_of(row, "memberIds"))),
            total_spending(row) if row.get("usageLimit") is not None else NO_VALUE,
            period_limit_of(row),
            str(row.get("id", "")),
        )
        for row in listed
    ]
    columns = (
        Column("NAME", shorten=True),
        Column("MEMBERS", number=True),
        Column("SPENT / LIMIT", rank=1),
        Column("PERIOD", rank=2),
        Column("ID"),
    )
    context.output.listing(listed, columns, rows, "There are no teams.")


@teams.command("leads")
@team_argument
@organization_option
@json_option
@pass_context
def show_leads(context: ClientContext, named: str, org: str | None) -> None:
    """List the members who lead a team."""
    organization, team = _find_team(context, named, org)
    path = f"{_path(organization, 'teams', text_of(team, 'id'))}/leads"
    listed = list_of(context.client.management("GET", path), "leads")
    rows = [(str(row.get("email", "")), str(row.get("role", "")), str(row.get("id", ""))) for row in listed]
    columns = (Column("E-MAIL ADDRESS", shorten=True), Column("ROLE"), Column("ID", rank=1))
    context.output.listing(listed, columns, rows, "The team has no lead.")


def _team_command(name: str, method: str, kind: str, text: str, done: str) -> None:
    """Add a command that changes a member's place in a team: `kind` is members or leads."""

    @teams.command(name, help=text)
    @team_argument
    @click.argument("member")
    @organization_option
    @json_option
    @pass_context
    def change(context: ClientContext, named: str, member: str, org: str | None) -> None:
        organization, team = _find_team(context, named, org)
        person = find_named(list_members(context, organization), member, "member", ("email", "name"))
        path = f"{_path(organization, 'teams', text_of(team, 'id'))}/{kind}/{quote(text_of(person, 'id'), safe='')}"
        context.client.management(method, path)
        context.output.success(f"{person.get('email')} {done} {team.get('name')}.")


_team_command("add", "PUT", "members", "Add a member to a team.", "is a member of the team")
_team_command("remove", "DELETE", "members", "Remove a member from a team.", "is no member any more of the team")
_team_command("add-lead", "PUT", "leads", "Make a member a lead of a team.", "is a lead of the team")
_team_command("remove-lead", "DELETE", "leads", "End a member's role as lead.", "is no lead any more of the team")


@teams.command("limit")
@team_argument
@limit_change_options
@organization_option
@json_option
@pass_context
def limit_team(context: ClientContext, named: str, org: str | None, changes: dict[str, Any]) -> None:
    """Set the spending limits that the members of a team share."""
    organization, team = _find_team(context, named, org)
    path = f"{_path(organization, 'teams', text_of(team, 'id'))}/limit"
    changed = change_limits(context, path, "team", named, changes)
    context.output.success(f"The limits of the team {team.get('name')} were set.")
    if context.output.as_json:
        context.output.document(changed)
        return
    context.output.fields((("Total", total_spending(changed)), ("Period", period_spending(changed))))


def _texts_of(row: Record, name: str) -> list[str]:
    value = row.get(name)
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _path(organization: Record, *parts: str) -> str:
    return "/".join((f"/orgs/{text_of(organization, 'id')}", *(quote(part, safe="") for part in parts)))


def _find_member(context: ClientContext, named: str, org: str | None) -> tuple[Record, Record]:
    organization = choose_organization(context, org)
    return organization, find_named(list_members(context, organization), named, "member", ("email", "name"))


def _find_team(context: ClientContext, named: str, org: str | None) -> tuple[Record, Record]:
    organization = choose_organization(context, org)
    return organization, find_named(list_teams(context, organization), named, "team")


def _change(context: ClientContext, organization: Record, member: Record, fields: dict[str, Any]) -> None:
    answer = context.client.management("PATCH", _path(organization, "members", text_of(member, "id")), body=fields)
    if context.output.as_json:
        context.output.document(object_of(answer, "member"))


def _print_member(context: ClientContext, organization: Record, member: Record) -> None:
    if context.output.as_json:
        context.output.document(member)
        return
    parts = _texts_of(member, "roleIn")
    names: dict[str, str] = {}
    if parts:
        names = {text_of(team, "id"): f"lead of {team.get('name')}" for team in list_teams(context, organization)}
    attributes = object_of(member, "attributes") if member.get("attributes") else {}
    context.output.fields(
        (
            ("Member", f"{member.get('name') or member.get('email')} ({member.get('id')})"),
            ("E-mail address", str(member.get("email"))),
            ("Role", str(member.get("role"))),
            *(("Role in", names.get(part, f"admin of project {part}")) for part in parts),
            ("Status", _status_of(member)),
            *((name, str(value)) for name, value in attributes.items()),
            ("Spent", total_spending(member)),
            ("Period", period_spending(member)),
        )
    )


def _status_of(member: Record) -> str:
    return "suspended" if member.get("suspended") else str(member.get("status", ""))


def _place_of(member: Record) -> str:
    """Return the department and the cost center of a member."""
    attributes = member.get("attributes")
    known = attributes if isinstance(attributes, dict) else {}
    return ", ".join(str(known[name]) for name in SHOWN_ATTRIBUTES if name in known) or NO_VALUE
