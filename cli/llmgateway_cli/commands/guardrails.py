"""The command `guardrails`: rules of an organization that check the texts of requests and answers."""

from typing import Any

import click

from llmgateway_cli.account_lists import Record, organization_option, organization_path
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE

ACTIONS = ("block", "mask", "remove", "warn", "log")
PLACES = ("prompt", "system", "history", "tool_arguments", "tool_results", "answer")
STANDARD_INPUT = "-"
CREDENTIAL_VARIABLE = "LLMGATEWAY_CHECKER_CREDENTIAL"


@click.group(cls=ClientGroup)
def guardrails() -> None:
    """Add, test and change guardrails: rules that check the texts of requests and answers."""


@guardrails.command("list")
@organization_option
@json_option
@pass_context
def list_guardrails(context: ClientContext, org: str | None) -> None:
    """List the guardrails of an organization, its projects and keys."""
    listed = list_of(context.client.management("GET", _path(context, org)), "guardrails")
    columns = (
        Column("ID"),
        Column("NAME", shorten=True),
        Column("ACTION"),
        Column("LOOKS FOR", shorten=True),
        Column("PLACES", rank=1, shorten=True),
        Column("STATUS"),
    )
    rows = [
        (
            text_of(rule, "id"),
            text_of(rule, "name"),
            text_of(rule, "action"),
            _looks_for(rule),
            ", ".join(map(str, rule.get("places", ()))),
            "on probation" if rule.get("probation") else text_of(rule, "status"),
        )
        for rule in listed
    ]
    context.output.listing(listed, columns, rows, "There are no guardrails.")


@guardrails.command("add")
@click.argument("name")
@click.argument("action", type=click.Choice(ACTIONS))
@click.option("-d", "--detector", "detectors", multiple=True, metavar="NAME", help="A detector, or a group of them.")
@click.option("-t", "--term", "terms", multiple=True, metavar="TEXT", help="A term of your own.")
@click.option("--pattern", "patterns", multiple=True, metavar="RE2", help="A regular expression of your own.")
@click.option(
    "--place", "places", multiple=True, type=click.Choice(PLACES), help="Where to look (default: all but answer)."
)
@click.option("--model", "models", multiple=True, metavar="NAME", help="For these models alone; * is any text.")
@click.option("-p", "--project", metavar="ID", help="For the requests of this project alone.")
@click.option("-k", "--key", metavar="ID", help="For the requests of this key alone.")
@click.option("--checker", metavar="FORM", help="An outside checker instead, such as presidio or webhook.")
@click.option("--address", metavar="URL", help="The address of the checker.")
@click.option(
    "--credential", metavar="-", help="Ask for the credential of the checker, or read it from standard input."
)
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the checker.")
@click.option("--on-failure", type=click.Choice(("block", "pass", "warn")), help="What to do if the checker fails.")
@click.option("--contact", metavar="TEXT", help="Contact for callers with questions about a refusal.")
@click.option("--probation", is_flag=True, help="Only record what it would do.")
@organization_option
@json_option
@pass_context
def add_guardrail(
    context: ClientContext,
    /,
    name: str,
    action: str,
    project: str | None,
    key: str | None,
    credential: str | None,
    org: str | None,
    **members: Any,
) -> None:
    """Add a guardrail with a NAME. It applies to the next request."""
    if project and key:
        raise CliError("A guardrail is for a project or a key, not for both.", "Leave one of the options out.")
    names = {"on_failure": "onFailure"}
    body: dict[str, Any] = {"name": name, "action": action}
    body |= {names.get(member, member): _plain(value) for member, value in members.items() if value}
    if project or key:
        body |= {"scope": "project" if project else "key", "scopeId": project or key}
    if credential is not None:
        if credential != STANDARD_INPUT:
            raise CliError("A credential is not given as an argument.", "Give `--credential -`.")
        body["credential"] = context.output.secret("Credential of the checker:", CREDENTIAL_VARIABLE)
    rule = object_of(context.client.management("POST", _path(context, org), body=body), "guardrail")
    if context.output.as_json:
        context.output.document(rule)
        return
    context.output.data(text_of(rule, "id"))
    context.output.success(f"The guardrail {name!r} was added.")


@guardrails.command("set")
@click.argument("guardrail")
@click.option("--name", metavar="TEXT", help="A new name.")
@click.option("--action", type=click.Choice(ACTIONS), help="What happens to a value.")
@click.option("--on/--off", "active", default=None, help="Whether it checks requests.")
@click.option("--probation/--no-probation", default=None, help="Whether it only records.")
@organization_option
@json_option
@pass_context
def set_guardrail(
    context: ClientContext,
    guardrail: str,
    name: str | None,
    action: str | None,
    active: bool | None,
    probation: bool | None,
    org: str | None,
) -> None:
    """Change a guardrail."""
    members = {"name": name, "action": action, "probation": probation}
    if active is not None:
        members["status"] = "active" if active else "inactive"
    body = {member: value for member, value in members.items() if value is not None}
    if not body:
        raise CliError("Nothing is changed.", "Give --on, --off, --probation, --no-probation, --action or --name.")
    rule = object_of(context.client.management("PATCH", _path(context, org, guardrail), body=body), "guardrail")
    if context.output.as_json:
        context.output.document(rule)
        return
    context.output.success(f"The guardrail {text_of(rule, 'name')!r} was changed.")


@guardrails.command("delete")
@click.argument("guardrail")
@organization_option
@pass_context
def delete_guardrail(context: ClientContext, guardrail: str, org: str | None) -> None:
    """Delete a guardrail."""
    context.client.management("DELETE", _path(context, org, guardrail))
    context.output.success("The guardrail was deleted.")


@guardrails.command("test")
@click.argument("text")
@click.option("--place", type=click.Choice(PLACES), default="prompt", show_default=True, help="Where it would be.")
@organization_option
@json_option
@pass_context
def test_text(context: ClientContext, text: str, place: str, org: str | None) -> None:
    """Show what the guardrails would do with TEXT."""
    body = {"text": text, "place": place}
    tested = object_of(context.client.management("POST", _path(context, org, "test"), body=body), "test")
    if context.output.as_json:
        context.output.document(tested)
        return
    for one in tested.get("failed", ()):
        context.output.warning(f"{text_of(one, 'guardrail')} could not be checked: {text_of(one, 'reason')}")
    for one in tested.get("findings", ()):
        context.output.info(f"{text_of(one, 'guardrail')}: {text_of(one, 'kind')} ({text_of(one, 'action')})")
    context.output.data("The request would be blocked." if tested.get("blocked") else text_of(tested, "text"))


@guardrails.command("findings")
@click.option("--days", type=IntegerOption(1, 366), default=30, show_default=True, help="Of how many days.")
@organization_option
@json_option
@pass_context
def list_findings(context: ClientContext, days: int, org: str | None) -> None:
    """Count what guardrails found, by day, guardrail, kind, place and action."""
    answer = context.client.management("GET", _path(context, org, "findings"), query={"days": str(days)})
    listed = list_of(answer, "findings")
    columns = (
        Column("DAY"),
        Column("GUARDRAIL", rank=1),
        Column("KIND"),
        Column("PLACE"),
        Column("ACTION"),
        Column("REQUESTS"),
        Column("VALUES"),
    )
    rows = [
        (
            text_of(one, "date")[:10],
            text_of(one, "guardrailId"),
            text_of(one, "kind"),
            text_of(one, "place"),
            text_of(one, "action"),
            str(one.get("requests", NO_VALUE)),
            str(one.get("values", NO_VALUE)),
        )
        for one in listed
    ]
    context.output.listing(listed, columns, rows, "No guardrail found anything.")
    if object_of(answer).get("complete") is False:
        context.output.warning("There are more findings than are shown; ask for fewer --days.")


@guardrails.command("replay")
@click.argument("guardrail")
@click.option("--days", type=IntegerOption(1, 90), default=7, show_default=True, help="Of how many days.")
@organization_option
@json_option
@pass_context
def replay(context: ClientContext, guardrail: str, days: int, org: str | None) -> None:
    """Show what a guardrail would have found in the retained requests of the latest days."""
    path = _path(context, org, guardrail, "replay")
    found = object_of(context.client.management("POST", path, body={"days": days}), "replay")
    if context.output.as_json:
        context.output.document(found)
        return
    context.output.data(f"{found.get('found')} of {found.get('requests')} retained requests have a finding.")
    for one in found.get("counts", ()):
        where = f"{text_of(one, 'kind')} in {text_of(one, 'place')}"
        context.output.data(f"{where}: {one.get('values')} values in {one.get('requests')} requests")
    for one in found.get("examples", ()):
        context.output.data(f"  {text_of(one, 'logId')} {text_of(one, 'kind')}: {text_of(one, 'masked')}")
    if found.get("complete") is False:
        context.output.warning("There were more requests than are read at once; the newest were read.")


@guardrails.command("except")
@click.argument("guardrail")
@click.argument("value")
@click.option("--note", metavar="TEXT", default="", help="Why it is no finding.")
@organization_option
@pass_context
def add_exception(context: ClientContext, guardrail: str, value: str, note: str, org: str | None) -> None:
    """Let VALUE be no finding of a guardrail. Only its keyed hash is stored."""
    path = _path(context, org, guardrail, "exceptions")
    context.client.management("POST", path, body={"value": value, "note": note})
    context.output.success("The value is an exception now.")


def _path(context: ClientContext, org: str | None, *segments: str) -> str:
    return organization_path(context, org, "guardrails", *segments)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _looks_for(rule: Record) -> str:
    """Return what a guardrail looks for."""
    checker = rule.get("checker")
    wanted = [text_of(checker, "form")] if isinstance(checker, dict) else list(map(str, rule.get("detectors", ())))
    for member in ("terms", "patterns"):
        if rule.get(member):
            wanted.append(f"{len(rule[member])} {member}")
    return ", ".join(wanted)
