"""The commands `orgs`, `projects` and `credits`."""

import click

from llmgateway_cli.account_lists import (
    find_organization,
    find_project,
    organizations,
    projects_of,
    selected_organizations,
)
from llmgateway_cli.command_lines import ClientCommand, ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.settings import DEFAULT_ORGANIZATION, DEFAULT_PROJECT
from llmgateway_cli.shapes import text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_usd

organization_option = click.option("-o", "--org", metavar="ID", help="An organization's id or name.")


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
    """List projects and choose the default one."""


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
