"""The command `keys`: API keys."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from llmgateway_cli.account_lists import choose_project, key_id_of, member_id_of, project_id_of, project_names
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.limit_options import (
    key_path,
    limit_change_options,
    limit_options,
    new_limits,
    period_limit_of,
    period_spending,
    set_limits,
)
from llmgateway_cli.sessions import is_service_account
from llmgateway_cli.settings import API_KEY
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, read_expiry, show_time, show_usd

SAVE_IT = "Save this token now. It will not be shown again."
UNAUTHORIZED = 401
MANAGERS = ("owner", "admin")
expires_option = click.option(
    "-e", "--expires", metavar="TIME", help="Expiry: 30d, 12h, a date such as 2027-01-01, or never."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group(cls=ClientGroup)
def keys() -> None:
    """Create, list, change and delete API keys."""


@keys.command("create")
@click.option("-p", "--project", metavar="PROJECT", help="The key's project, by id or name.")
@click.option("-d", "--description", metavar="TEXT", help="What the key is for.")
@click.option("-m", "--member", metavar="EMAIL", help="The colleague who owns the key, for owners and admins.")
@limit_options
@expires_option
@click.option(
    "--save/--no-save", default=None, help="Store the token for `chat` and `launch` (default: if no key is stored)."
)
@json_option
@pass_context
def create_key(
    context: ClientContext,
    project: str | None,
    description: str | None,
    member: str | None,
    limit: str | None,
    period_limit: str | None,
    period: str | None,
    reservation: str | None,
    expires: str | None,
    save: bool | None,
) -> None:
    """Create an API key, also for a colleague, who cannot raise its limits. Its token is shown once."""
    members = new_limits(limit, period_limit, period, reservation)
    if expires is not None:
        members["expiresAt"] = read_expiry(expires, datetime.now(UTC))
    if description is None:
        description = context.output.ask("Description:", "-d TEXT")
    if not description.strip():
        raise CliError("The description is empty.", "Give a text that says what the key is for: -d TEXT.")
    body = {"description": description.strip(), "projectId": choose_project(context, project), **members}
    if member is not None:
        body["memberId"] = member_id_of(context, body["projectId"], member)
    key = object_of(context.client.management("POST", "/keys/api", body=body), "apiKey")
    _show_token(context, key, "was created")
    if _is_to_save(context, save, member is not None):
        context.settings.save({API_KEY: text_of(key, "token")})
        context.output.info("This computer now uses it for `llmgateway chat`, `launch` and `configure`.")
    if context.output.as_json:
        return
    context.output.fields(
        (
            ("ID", str(key.get("id"))),
            ("Project", str(key.get("projectId"))),
            *([("Owner", member)] if member else []),
            ("Budget", show_usd(key.get("usageLimit"))),
            ("Period budget", period_limit_of(key)),
            ("Expires", show_time(key.get("expiresAt"))),
        )
    )


def _is_to_save(context: ClientContext, save: bool | None, for_another: bool) -> bool:
    """Return whether to store the token of a new key: as the user says, else if a person has no key on this computer.
    Scripts, which read JSON or are service accounts, make keys for others."""
    if save is not None:
        return save
    return not (for_another or context.settings.api_key or context.settings.service_token or context.output.as_json)


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
@click.option("-p", "--project", metavar="PROJECT", help="Only the keys of this project, by id or name.")
@click.option("--all", "all_keys", is_flag=True, help="The keys of all members, for owners and admins.")
@json_option
@pass_context
def list_keys(context: ClientContext, project: str | None, all_keys: bool) -> None:
    """List your API keys, with --all those of all members. A service account sees all that it may."""
    query = {}
    if project:
        query["projectId"] = project_id_of(context, project)
    if all_keys:
        query["filter"] = "all"
    elif not is_service_account(context.settings):
        query["filter"] = "mine"
    listed = []
    for answer in context.client.pages("/keys/api", query):
        if all_keys and answer.get("userRole", MANAGERS[0]) not in MANAGERS:
            hint = "Leave out --all to list your own keys."
            raise CliError("Only owners and admins see the keys of all members.", hint)
        listed += [key for key in list_of(answer, "apiKeys") if key.get("status") != "deleted"]
    if context.output.as_json:
        context.output.document(listed)
        return
    names = project_names(context) if listed else {}
    empty = "There is no API key." if all_keys else "You have no API key. `llmgateway keys create -d TEXT` makes one."
    context.output.table(KEY_COLUMNS, [_row(key, names) for key in listed], empty)
    plan = answer.get("planLimits")
    if isinstance(plan, dict) and plan.get("maxKeys"):
        context.output.info(f"{plan.get('currentCount')} of at most {plan['maxKeys']} keys are in use.")


KEY_COLUMNS = (
    Column("DESCRIPTION", shorten=True),
    Column("ID"),
    Column("STATUS"),
    Column("SPEND / BUDGET"),
    Column("PERIOD", rank=1),
    Column("EXPIRES", rank=2),
    Column("OWNER", shorten=True, rank=3),
    Column("PROJECT", shorten=True, rank=4),
    Column("TOKEN", rank=5),
)


def _shown_status(key: dict[str, Any]) -> str:
    """Return the key's status. That of an expired key is "inactive"; only its `state` shows that it is expired."""
    if key.get("state") == "expired":
        return "expired"
    return str(key.get("status", ""))


def _row(key: dict[str, Any], projects: Mapping[str, str]) -> tuple[str, ...]:
    project_id = str(key.get("projectId", ""))
    creator = key.get("creator")
    return (
        str(key.get("description", "")),
        str(key.get("id", "")),
        _shown_status(key),
        f"{show_usd(key.get('usage'))} / {show_usd(key.get('usageLimit'))}",
        period_spending(key),
        show_time(key.get("expiresAt")),
        str(creator.get("email") or creator.get("name") or NO_VALUE) if isinstance(creator, dict) else NO_VALUE,
        projects.get(project_id, project_id),
        str(key.get("maskedToken", "")),
    )


@keys.command("update")
@click.argument("named", metavar="KEY")
@click.option("--activate", is_flag=True, help="Allow the key again.")
@click.option("--deactivate", is_flag=True, help="Refuse the key until it is activated again.")
@expires_option
@json_option
@pass_context
def update_key(context: ClientContext, named: str, activate: bool, deactivate: bool, expires: str | None) -> None:
    """Activate or deactivate an API key, by id or description, or change its expiry. An expired key also needs a new
    expiry."""
    if activate and deactivate:
        raise CliError("--activate and --deactivate exclude each other.", "Give one of them.")
    if not activate and not deactivate and expires is None:
        raise CliError("There is nothing to change.", "Give --activate, --deactivate, or --expires.")
    body: dict[str, str | None] = {}
    if activate or deactivate:
        body["status"] = "active" if activate else "inactive"
    if expires is not None:
        body["expiresAt"] = read_expiry(expires, datetime.now(UTC))
    key = object_of(context.client.management("PATCH", key_path(key_id_of(context, named)), body=body), "apiKey")
    expiry = f"it expires {show_time(key['expiresAt'])}" if key.get("expiresAt") else "it does not expire"
    context.output.success(f"The API key {key.get('description')!r} is now {_shown_status(key)}; {expiry}.")
    if context.output.as_json:
        context.output.document(key)


@keys.command("limit")
@click.argument("named", metavar="KEY")
@limit_change_options
@json_option
@pass_context
def limit_key(context: ClientContext, named: str, changes: dict[str, Any]) -> None:
    """Set the spending limits of an API key, by id or description; the same as `budget set`."""
    set_limits(context, named, changes)


@keys.command("tag")
@click.argument("named", metavar="KEY")
@click.argument("tags", nargs=-1, metavar="[NAME=VALUE]…")
@click.option("--clear", is_flag=True, help="Remove all tags.")
@json_option
@pass_context
def tag_key(context: ClientContext, named: str, tags: tuple[str, ...], clear: bool) -> None:
    """Replace the tags that all requests with an API key have, or show them."""
    path = key_path(key_id_of(context, named), "/tags")
    if clear and tags:
        raise CliError("--clear and tags were given.", "Give one of them.")
    if tags or clear:
        pairs = dict(tag.partition("=")[::2] for tag in tags)
        if not all(pairs.values()):
            raise CliError("A tag is a name and a value.", "Write each tag like team=search.")
        answer = context.client.management("PUT", path, body={"tags": pairs})
    else:
        answer = context.client.management("GET", path)
    set_ones = object_of(object_of(answer, "keyTags"), "tags")
    if context.output.as_json:
        context.output.document(set_ones)
        return
    if not set_ones:
        context.output.info("The key has no tags.")
    context.output.fields(tuple((name, str(value)) for name, value in set_ones.items()))


@keys.command("roll")
@click.argument("named", metavar="KEY")
@yes_option
@json_option
@pass_context
def roll_key(context: ClientContext, named: str, yes: bool) -> None:
    """Replace the token of an API key, by id or description. The old token stops working at once."""
    key_id = key_id_of(context, named)
    if not context.output.confirm(f"Replace the token of {named}? The old token stops working immediately.", yes):
        return
    key = object_of(context.client.management("POST", key_path(key_id, "/roll")), "apiKey")
    _show_token(context, key, "has a new token")
    stored = context.settings.stored.get(API_KEY)
    if stored and context.client.gateway_response("/v1/key", key=stored).status_code == UNAUTHORIZED:
        context.output.warning(
            "The key in the settings of this computer is invalid. `llmgateway auth login --key` replaces it."
        )


@keys.command("delete")
@click.argument("named", metavar="KEY")
@yes_option
@pass_context
def delete_key(context: ClientContext, named: str, yes: bool) -> None:
    """Delete an API key, by id or description."""
    key_id = key_id_of(context, named)
    if not context.output.confirm(f"Delete the API key {named}? This cannot be undone.", yes):
        return
    context.client.management("DELETE", key_path(key_id))
    context.output.success("The API key was deleted.")
