"""The command `keys`: API keys."""

from datetime import UTC, datetime
from typing import Any

import click

from llmgateway_cli.account_lists import choose_project
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.limit_options import key_path, limit_options, period_limit_of, read_limits, set_limits
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import read_expiry, show_time, show_usd

SAVE_IT = "Save this token now. It will not be shown again."
expires_option = click.option("-e", "--expires", metavar="TIME", help="Expiry: 30d, 12h, or a date such as 2027-01-01.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group()
def keys() -> None:
    """Create, list, change and delete API keys."""


@keys.command("create")
@click.option("-p", "--project", metavar="ID", help="The key's project.")
@click.option("-d", "--description", metavar="TEXT", help="What the key is for.")
@limit_options
@expires_option
@json_option
@pass_context
def create_key(
    context: ClientContext,
    project: str | None,
    description: str | None,
    limit: str | None,
    period_limit: str | None,
    period: str | None,
    expires: str | None,
) -> None:
    """Create an API key. Its token is shown once."""
    members = read_limits(limit, period_limit, period)
    if expires is not None:
        members["expiresAt"] = read_expiry(expires, datetime.now(UTC))
    if description is None:
        description = context.output.ask("Description:", "-d TEXT")
    if not description.strip():
        raise CliError("The description is empty.", "Give a text that says what the key is for: -d TEXT.")
    body = {"description": description.strip(), "projectId": choose_project(context, project), **members}
    key = object_of(context.client.management("POST", "/keys/api", body=body), "apiKey")
    _show_token(context, key, "was created")
    if context.output.as_json:
        return
    context.output.fields(
        (
            ("ID", str(key.get("id"))),
            ("Project", str(key.get("projectId"))),
            ("Budget", show_usd(key.get("usageLimit"))),
            ("Period budget", period_limit_of(key)),
            ("Expires", show_time(key.get("expiresAt"))),
        )
    )


def _show_token(context: ClientContext, key: dict[str, Any], change: str) -> None:
    """Print the token of a key, which the service returns only once."""
    token = text_of(key, "token")
    if context.output.as_json:
        context.output.document(key)
        return
    context.output.success(f"The API key {key.get('description')!r} {change}.")
    context.output.data(f"\n  {token}\n")
    context.output.warning(SAVE_IT)


@keys.command("list")
@click.option("-p", "--project", metavar="ID", help="Only the keys of this project.")
@click.option("--all", "all_keys", is_flag=True, help="The keys of all members, for owners and admins.")
@json_option
@pass_context
def list_keys(context: ClientContext, project: str | None, all_keys: bool) -> None:
    """List API keys."""
    query = {}
    if project:
        query["projectId"] = project
    if all_keys:
        query["filter"] = "all"
    answer = context.client.management("GET", "/keys/api", query=query)
    listed = [key for key in list_of(answer, "apiKeys") if key.get("status") != "deleted"]
    if context.output.as_json:
        context.output.document(listed)
        return
    columns = (
        Column("DESCRIPTION", shorten=True),
        Column("ID"),
        Column("TOKEN"),
        Column("STATUS"),
        Column("SPEND / BUDGET"),
        Column("EXPIRES"),
    )
    context.output.table(columns, [_row(key) for key in listed], "There is no API key.")
    plan = answer.get("planLimits")
    if isinstance(plan, dict) and plan.get("maxKeys"):
        context.output.info(f"{plan.get('currentCount')} of at most {plan['maxKeys']} keys are in use.")


def _shown_status(key: dict[str, Any]) -> str:
    """Return the key's status. That of an expired key is "inactive"; only its `state` shows that it is expired."""
    if key.get("state") == "expired":
        return "expired"
    return str(key.get("status", ""))


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(key.get("description", "")),
        str(key.get("id", "")),
        str(key.get("maskedToken", "")),
        _shown_status(key),
        f"{show_usd(key.get('usage'))} / {show_usd(key.get('usageLimit'))}",
        show_time(key.get("expiresAt")),
    )


@keys.command("update")
@click.argument("key_id", metavar="KEY")
@click.option("--activate", is_flag=True, help="Allow the key again.")
@click.option("--deactivate", is_flag=True, help="Refuse the key until it is activated again.")
@expires_option
@json_option
@pass_context
def update_key(context: ClientContext, key_id: str, activate: bool, deactivate: bool, expires: str | None) -> None:
    """Activate or deactivate an API key, by its id. An expired key also needs a new expiry."""
    if activate == deactivate:
        raise CliError("Exactly one of --activate and --deactivate is required.", "Give one of them.")
    body = {"status": "active"}
    if deactivate:
        body = {"status": "inactive"}
    if expires is not None:
        body["expiresAt"] = read_expiry(expires, datetime.now(UTC))
    key = object_of(context.client.management("PATCH", key_path(key_id), body=body), "apiKey")
    context.output.success(f"The API key {key.get('description')!r} is now {key.get('status')}.")
    if context.output.as_json:
        context.output.document(key)


@keys.command("limit")
@click.argument("key_id", metavar="KEY")
@limit_options
@click.option("--clear", is_flag=True, help="Remove every limit.")
@json_option
@pass_context
def limit_key(
    context: ClientContext, key_id: str, limit: str | None, period_limit: str | None, period: str | None, clear: bool
) -> None:
    """Set the spending limits of an API key, by its id; the same as `budget set`."""
    set_limits(context, key_id, limit, period_limit, period, clear)


@keys.command("roll")
@click.argument("key_id", metavar="KEY")
@yes_option
@json_option
@pass_context
def roll_key(context: ClientContext, key_id: str, yes: bool) -> None:
    """Replace the token of an API key, by its id. The old token stops working at once."""
    if not context.output.confirm(f"Replace the token of {key_id}? The old token stops working immediately.", yes):
        return
    key = object_of(context.client.management("POST", key_path(key_id, "/roll")), "apiKey")
    _show_token(context, key, "has a new token")


@keys.command("delete")
@click.argument("key_id", metavar="KEY")
@yes_option
@pass_context
def delete_key(context: ClientContext, key_id: str, yes: bool) -> None:
    """Delete an API key, by its id."""
    if not context.output.confirm(f"Delete the API key {key_id}? This cannot be undone.", yes):
        return
    context.client.management("DELETE", key_path(key_id))
    context.output.success("The API key was deleted.")
