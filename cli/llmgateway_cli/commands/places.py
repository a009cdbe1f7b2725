"""The commands `orgs`, `projects` and `credits`."""

from urllib.parse import quote

import click

from llmgateway_cli.account_lists import (
    find_named,
    find_organization,
    find_project,
    list_members,
    organization_option,
    organizations,
    projects_of,
    selected_organizations,
)
from llmgateway_cli.command_lines import ClientCommand, ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.settings import DEFAULT_ORGANIZATION, DEFAULT_PROJECT
from llmgateway_cli.shapes import list_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_usd


@click.group(cls=ClientGroup)
def orgs() -> None:
    """List organizations and choose the default one."""


@orgs.command("list")
@json_option
@pass_context
def list_organizations(context: ClientContext) -> None:
    """List your organizations."""
    listed = organizations(context)
    default = context.settings.default_organization
    rows = [
        (
            str(row.get("name", "")) + " (default)" * (row.get("id") == default),
            str(row.get("id", "")),
            str(row.get("plan", NO_VALUE)),
            show_usd(row.get("credits")),
        )
        for row in listed
    ]
    columns = (Column("NAME", shorten=True), Column("ID"), Column("PLAN", rank=1), Column("CREDITS", number=True))
    context.output.listing(listed, columns, rows, "You have no organization.")


@orgs.command("use")
@click.argument("organization")
@pass_context
def use_organization(context: ClientContext, organization: str) -> None:
    """Set the default organization of the commands `keys create` and `usage`, by id or name."""
    chosen = find_organization(organizations(context), organization)
    ident = text_of(chosen, "id")
    forgotten: dict[str, str | None] = {}
    if ident != context.settings.default_organization and context.settings.default_project:
        # A default project of another organization would decide where keys are made.
        own = [project.get("id") for project in projects_of(context, chosen)]
        if context.settings.default_project not in own:
            forgotten = {DEFAULT_PROJECT: None}
            context.output.info("The default project was one of another organization; there is none now.")
    context.settings.save({DEFAULT_ORGANIZATION: ident, **forgotten})
    context.output.success(f"The default organization is now {chosen.get('name')} ({chosen.get('id')}).")


@click.group(cls=ClientGroup)
def projects() -> None:
    """List projects, choose the default one, and change their admins."""


@projects.command("list")
@organization_option
@json_option
@pass_context
def list_projects(context: ClientContext, org: str | None) -> None:
    """List the projects of your organizations."""
    listed = [
        {**project, "organizationName": organization.get("name", "")}
        for organization in selected_organizations(context, org)
        for project in projects_of(context, organization)
    ]
    default = context.settings.default_project
    rows = [
        (
            str(row.get("name", "")) + " (default)" * (row.get("id") == default),
            str(row.get("id", "")),
            str(row.get("mode", NO_VALUE)),
            str(row["organizationName"]),
        )
        for row in listed
    ]
    columns = (
        Column("NAME", shorten=True),
        Column("ID"),
        Column("MODE", rank=1),
        Column("ORGANIZATION", shorten=True, rank=2),
    )
    context.output.listing(listed, columns, rows, "There is no project.")


@projects.command("use")
@click.argument("project")
@pass_context
def use_project(context: ClientContext, project: str) -> None:
    """Set the default project of the commands `keys create` and `usage`, by id or name."""
    organization, chosen = find_project(context, project)
    ident = text_of(chosen, "id")
    context.settings.save({DEFAULT_PROJECT: ident, DEFAULT_ORGANIZATION: text_of(organization, "id")})
    context.output.success(f"The default project is now {chosen.get('name')} ({ident}) of {organization.get('name')}.")


@projects.command("admins")
@click.argument("project")
@json_option
@pass_context
def list_admins(context: ClientContext, project: str) -> None:
    """List the members who are admins of a project, by id or name."""
    found = find_project(context, project)[1]
    listed = list_of(context.client.management("GET", f"/projects/{text_of(found, 'id')}/admins"), "admins")
    rows = [(str(row.get("email", "")), str(row.get("role", "")), str(row.get("id", ""))) for row in listed]
    columns = (Column("E-MAIL ADDRESS", shorten=True), Column("ROLE"), Column("ID", rank=1))
    context.output.listing(listed, columns, rows, "The project has no admin of its own.")


@projects.command("add-admin")
@click.argument("project")
@click.argument("member")
@pass_context
def add_admin(context: ClientContext, project: str, member: str) -> None:
    """Make a member an admin of a project."""
    context.output.success(f"{_set_admin(context, 'PUT', project, member)} is an admin of the project.")


@projects.command("remove-admin")
@click.argument("project")
@click.argument("member")
@pass_context
def remove_admin(context: ClientContext, project: str, member: str) -> None:
    """End a member's role as admin of a project."""
    context.output.success(f"{_set_admin(context, 'DELETE', project, member)} is no admin of the project any more.")


def _set_admin(context: ClientContext, method: str, project: str, member: str) -> str:
    """Change the admins of a project; return the address of the member."""
    organization, found = find_project(context, project)
    person = find_named(list_members(context, organization), member, "member", ("email", "name"))
    path = f"/projects/{quote(text_of(found, 'id'), safe='')}/admins/{quote(text_of(person, 'id'), safe='')}"
    context.client.management(method, path)
    return str(person.get("email"))


@click.command(cls=ClientCommand)
@organization_option
@json_option
@pass_context
def credits(context: ClientContext, org: str | None) -> None:
    """Show the credit balance of your organizations."""
    listed = [
        {"id": item.get("id"), "name": item.get("name"), "credits": item.get("credits")}
        for item in selected_organizations(context, org)
    ]
    rows = [(str(item["name"]), str(item["id"]), show_usd(item["credits"])) for item in listed]
    columns = (Column("NAME", shorten=True), Column("ID"), Column("CREDITS", number=True))
    context.output.listing(listed, columns, rows, "You have no organization.")
