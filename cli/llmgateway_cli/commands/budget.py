"""The command `budget`: spending limits of API keys."""

import click

from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.limit_options import limit_options, set_limits, show_spending
from llmgateway_cli.shapes import list_of


@click.group(cls=ClientGroup)
def budget() -> None:
    """Set and show spending limits of API keys."""


@budget.command("set")
@click.argument("key_id", metavar="KEY")
@limit_options
@click.option("--clear", is_flag=True, help="Remove every limit.")
@json_option
@pass_context
def set_budget(
    context: ClientContext, key_id: str, limit: str | None, period_limit: str | None, period: str | None, clear: bool
) -> None:
    """Set the spending limits of an API key, by its id."""
    set_limits(context, key_id, limit, period_limit, period, clear)


@budget.command("get")
@click.argument("key_id", metavar="KEY")
@click.option("-p", "--project", metavar="ID", help="The key's project.")
@json_option
@pass_context
def get_budget(context: ClientContext, key_id: str, project: str | None) -> None:
    """Show the spending limits of an API key and what it spent, by its id."""
    query = {}
    if project:
        query["projectId"] = project
    for key in list_of(context.client.management("GET", "/keys/api", query=query), "apiKeys"):
        if key.get("id") == key_id:
            show_spending(context, key)
            return
    raise CliError(
        f"There is no API key {key_id!r}.", "`llmgateway keys list` shows ids. Give -p PROJECT for another project."
    )
