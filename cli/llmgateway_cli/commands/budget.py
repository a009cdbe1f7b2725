"""The command `budget`: one's own budget, and spending limits of API keys."""

import click

from llmgateway_cli.account_lists import find_key, list_keys, project_id_of, selected_organizations
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.limit_options import (
    limit_options,
    period_limit_of,
    period_spending,
    set_limits,
    show_spending,
    total_spending,
)
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import show_usd


@click.group(cls=ClientGroup, invoke_without_command=True)
@click.option("-o", "--org", metavar="ID", help="An organization's id or name (default: all).")
@json_option
@pass_context
@click.pass_context
def budget(command: click.Context, context: ClientContext, org: str | None) -> None:
    """Show your own budget, or the spending limits of API keys."""
    if command.invoked_subcommand is None:
        show_own_budget(context, org)


def show_own_budget(context: ClientContext, org: str | None) -> None:
    """Print what the signed-in person spent and may spend, and the limits of each team, without what others spent."""
    memberships, rows = [], []
    for organization in selected_organizations(context, org):
        answer = context.client.management("GET", f"/orgs/{text_of(organization, 'id')}/membership")
        own = object_of(answer, "membership")
        name = str(organization.get("name", ""))
        member = object_of(own, "member")
        memberships.append(own)
        rows.append(("you", total_spending(member), period_spending(member), name))
        rows += [
            (f"team {team.get('name')}", show_usd(team.get("usageLimit")), period_limit_of(team), name)
            for team in list_of(own, "teams")
        ]
    columns = (
        Column("BUDGET OF", shorten=True),
        Column("SPENT / LIMIT"),
        Column("PERIOD"),
        Column("ORGANIZATION", shorten=True, rank=1),
    )
    context.output.listing(memberships, columns, rows, "You have no organization.")


@budget.command("set")
@click.argument("named", metavar="KEY")
@limit_options
@click.option("--clear", is_flag=True, help="Remove every limit.")
@json_option
@pass_context
def set_budget(
    context: ClientContext,
    named: str,
    limit: str | None,
    period_limit: str | None,
    period: str | None,
    reservation: str | None,
    clear: bool,
) -> None:
    """Set the spending limits of an API key, by id or description."""
    set_limits(context, named, limit, period_limit, period, reservation, clear)


@budget.command("get")
@click.argument("named", metavar="KEY")
@click.option("-p", "--project", metavar="PROJECT", help="The key's project, by id or name.")
@json_option
@pass_context
def get_budget(context: ClientContext, named: str, project: str | None) -> None:
    """Show the spending limits of an API key and what it spent, by id or description."""
    query = {}
    if project:
        query["projectId"] = project_id_of(context, project)
    show_spending(context, find_key(list_keys(context, query), named))
