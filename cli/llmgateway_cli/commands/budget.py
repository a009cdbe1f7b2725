"""The command `budget`: one's own budget, spending limits of API keys, and the limits of an organization."""

from datetime import UTC, datetime
from typing import Any

import click

from llmgateway_cli.account_lists import (
    Record,
    find_key,
    list_keys,
    organization_option,
    organization_path,
    project_id_of,
    selected_organizations,
)
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.limit_options import (
    limit_change_options,
    period_limit_of,
    period_spending,
    set_limits,
    show_spending,
    total_spending,
)
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, read_expiry, read_limit, show_usd


@click.group(cls=ClientGroup, invoke_without_command=True)
@click.option("-o", "--org", metavar="ID", help="An organization's id or name (default: all).")
@json_option
@pass_context
@click.pass_context
def budget(command: click.Context, context: ClientContext, org: str | None) -> None:
    """Show your own budget, the spending limits of API keys, or the limits of an organization."""
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
@limit_change_options
@json_option
@pass_context
def set_budget(context: ClientContext, named: str, changes: dict[str, Any]) -> None:
    """Set the spending limits of an API key, by id or description."""
    set_limits(context, named, changes)


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


@budget.command("list")
@click.option("--all", "with_others", is_flag=True, help="Also those of keys, members, teams, sessions and runs.")
@organization_option
@json_option
@pass_context
def list_limits(context: ClientContext, with_others: bool, org: str | None) -> None:
    """List the limits of an organization and what is used of them."""
    query = {"all": "true"} if with_others else {}
    listed = list_of(context.client.management("GET", _limits_path(context, org), query=query), "limits")
    columns = (
        Column("LIMIT"),
        Column("OF", shorten=True),
        Column("USED / LIMIT"),
        Column("PERIOD"),
        Column("RENEWS", rank=1),
    )
    context.output.listing(listed, columns, list(map(_row, listed)), "There are no limits.")


@budget.command("put")
@click.argument("limit")
@click.argument("amount")
@click.option("--subject", "subjects", multiple=True, required=True, help="Its subject, or two: team=ID, each user …")
@click.option("--period", metavar="LENGTH", help="12h, 1d, 2w, 1mo, or day, week, month (default: in total).")
@click.option("--timezone", metavar="ZONE", help="Time zone of a day, week or month of the calendar.")
@click.option("--action", "actions", multiple=True, help="warn@80, refuse@100, model@90=ID (default: refuse@100).")
@click.option("--reservation", type=click.Choice(("likely", "exact")), help="What requests reserve.")
@click.option("--dry-run", is_flag=True, help="Save nothing; show what the limit would have done in the last 30 days.")
@organization_option
@json_option
@pass_context
def put_limit(
    context: ClientContext,
    limit: str,
    amount: str,
    subjects: tuple[str, ...],
    period: str | None,
    timezone: str | None,
    actions: tuple[str, ...],
    reservation: str | None,
    dry_run: bool,
    org: str | None,
) -> None:
    """Set the limit of an organization with the id LIMIT, which you choose, to AMOUNT US dollars."""
    given = {
        "subjects": list(subjects),
        "amount": _amount(amount),
        "period": period,
        "timezone": timezone,
        "actions": list(actions),
        "reservation": reservation,
    }
    body = {name: value for name, value in given.items() if value}
    if dry_run:
        path = _limits_path(context, org, "simulation")
        _show_simulation(context, context.client.management("POST", path, body=body))
        return
    _show(context, context.client.management("PUT", _limits_path(context, org, limit), body=body))


@budget.command("simulate")
@click.argument("limit")
@click.option("--days", type=IntegerOption(1, 92), default=30, help="Of how many days (default: 30).")
@organization_option
@json_option
@pass_context
def simulate_limit(context: ClientContext, limit: str, days: int, org: str | None) -> None:
    """Show which requests of the last days a limit would have refused."""
    path = _limits_path(context, org, limit, "simulation")
    _show_simulation(context, context.client.management("GET", path, query={"days": str(days)}))


@budget.command("delete")
@click.argument("limit")
@organization_option
@pass_context
def delete_limit(context: ClientContext, limit: str, org: str | None) -> None:
    """Delete a limit of an organization."""
    context.client.management("DELETE", _limits_path(context, org, limit))
    context.output.success(f"The limit {limit!r} was deleted.")


@budget.command("raise")
@click.argument("limit")
@click.argument("amount")
@click.option("--until", required=True, metavar="DATE", help="When the raise ends: 2d, 1w, or a date.")
@organization_option
@json_option
@pass_context
def raise_limit(context: ClientContext, limit: str, amount: str, until: str, org: str | None) -> None:
    """Raise a limit by AMOUNT US dollars for a time; 0 ends a raise."""
    body = {"amount": _amount(amount), "until": _until(until)}
    _show(context, context.client.management("PUT", _limits_path(context, org, limit, "raise"), body=body))


@budget.command("ask")
@click.argument("limit")
@click.argument("amount")
@click.option("--until", required=True, metavar="DATE", help="How long you need more: 2d, 1w, or a date.")
@click.option("--note", default="", help="Why.")
@organization_option
@pass_context
def ask_for_more(context: ClientContext, limit: str, amount: str, until: str, note: str, org: str | None) -> None:
    """Ask for AMOUNT US dollars more of a limit for a time."""
    body = {"amount": _amount(amount), "until": _until(until), "note": note}
    context.client.management("POST", _limits_path(context, org, limit, "requests"), body=body)
    context.output.success(f"You asked for {show_usd(_amount(amount))} more of the limit {limit!r}.")


def _limits_path(context: ClientContext, org: str | None, *segments: str) -> str:
    return organization_path(context, org, "limits", *segments)


def _amount(text: str) -> str:
    amount = read_limit(text, "AMOUNT")
    if amount is None:
        raise CliError("AMOUNT is an amount in USD.", "Give a number such as 100 or 49.99.")
    return amount


def _until(text: str) -> str:
    until = read_expiry(text, datetime.now(UTC))
    if until is None:
        raise CliError("--until is a time.", "Give a duration such as 2d, or a date.")
    return until


def _row(limit: Record) -> tuple[str, ...]:
    period = str(limit.get("period") or NO_VALUE)
    if zone := limit.get("timezone"):
        period = f"{period} ({zone})"
    return (
        text_of(limit, "id"),
        " × ".join(map(str, limit.get("subjects", ()))),
        f"{show_usd(limit.get('usage'))} / {show_usd(limit.get('limit'))}",
        period,
        str(limit.get("renewsAt") or NO_VALUE),
    )


def _show(context: ClientContext, answer: Any) -> None:
    limit = object_of(answer, "limit")
    if context.output.as_json:
        context.output.document(limit)
        return
    names = ("Limit", "Subjects", "Used", "Period", "Renews")
    context.output.fields(tuple(zip(names, _row(limit), strict=True)))


def _show_simulation(context: ClientContext, answer: Record) -> None:
    done = object_of(answer, "simulation")
    if context.output.as_json:
        context.output.document(done)
        return
    first = str(done.get("firstRefusedAt") or "")[:10] or NO_VALUE
    people = ", ".join(f"{text_of(one, 'email')} ({one.get('requests')})" for one in list_of(done, "people"))
    requests = f"{done.get('refusedRequests')} of {done.get('requests')}"
    fields = [
        ("Since", str(done.get("since"))[:10]),
        ("Requests refused", requests),
        ("Their cost", f"{show_usd(done.get('refusedCost'))} of {show_usd(done.get('cost'))}"),
        ("First refused", first),
        ("People", f"{done.get('peopleCount')}{f': {people}' if people else ''}"),
        ("Requests warned", str(done.get("warnedRequests"))),
        ("Other model", str(done.get("substitutedRequests"))),
    ]
    if not done.get("complete"):
        fields.append(("Complete", "no: earlier usage was too much to read"))
    context.output.fields(tuple(fields))
