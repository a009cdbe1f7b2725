"""The command `usage`: requests, tokens and cost."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from llmgateway_cli.account_lists import (
    Record,
    choose_project,
    find_organization,
    find_project,
    key_id_of,
    organizations,
    project_id_of,
    projects_of,
)
from llmgateway_cli.command_lines import ClientGroup, suggestion
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.outcome_tables import (
    OUTCOME_COLUMNS,
    SAVED_COLUMNS,
    WASTED_COLUMNS,
    outcome_cells,
    saved_cells,
    wasted_cells,
)
from llmgateway_cli.shapes import list_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.usage_tables import DIMENSIONS, FIGURES, NO_REQUESTS, figures, show_rows, show_totals
from llmgateway_cli.usage_totals import Totals, merged_rows, total_of
from llmgateway_cli.values import read_date, show_many, show_number, show_time, show_usd

RANGES = ("1h", "4h", "24h", "7d", "30d", "365d")
SOURCE_RANGES = ("7d", "30d")
DEFAULT_RANGE = "7d"
# The groups of `GET /activity/shares`.
SHARES = (
    *("team", "person", "costCenter", "department", "division", "organization", "employeeNumber"),
    *("tag", "session", "provider", "model", "key", "app"),
)
# The groups of `GET /activity/outcomes`.
OUTCOME_GROUPS = ("team", "project", "repository", "model", "person", "key", "session")
NOT_STATED = "(not stated)"
NOT_FOUND = 404
Query = dict[str, str | int]


@click.group(cls=ClientGroup, invoke_without_command=True)
@click.option("-o", "--org", metavar="ORG", help="The projects of an organization, by id or name (or the default one).")
@click.option(
    "-p",
    "--project",
    metavar="PROJECT",
    help="One project, by id or name (default: the default project, else all).",
)
@click.option("-k", "--api-key", metavar="KEY", help="Only this API key, by id or description.")
@click.option("--by", metavar="DIMENSION", help="Split by model or key.")
@click.option("-r", "--range", "span", metavar="RANGE", help=f"{', '.join(RANGES)} (default: {DEFAULT_RANGE}).")
@click.option("--days", metavar="N", help="The last N days instead of --range.")
@click.option("--from", "first", metavar="DATE", help="First day, YYYY-MM-DD.")
@click.option("--to", "last", metavar="DATE", help="Last day, YYYY-MM-DD (default: today).")
@click.option("--plot", is_flag=True, help="Draw the cost over time.")
@json_option
@pass_context
@click.pass_context
def usage(
    command: click.Context,
    context: ClientContext,
    org: str | None,
    project: str | None,
    api_key: str | None,
    by: str | None,
    span: str | None,
    days: str | None,
    first: str | None,
    last: str | None,
    plot: bool,
) -> None:
    """Show requests, tokens and cost."""
    if command.invoked_subcommand is not None:
        if any((org, project, api_key, by, span, days, first, last, plot)):
            raise click.UsageError(f"Give the options after `{command.invoked_subcommand}`.", command)
        return
    if by not in (None, *DIMENSIONS):
        raise CliError(f"--by {by!r} is unknown.", f"Use model or key.{suggestion(str(by), DIMENSIONS)}")
    window, label = read_window(span, RANGES, first, last, days)
    query: Query = {**window}
    if api_key:
        api_key = key_id_of(context, api_key)
        query["apiKeyId"] = api_key
    if by:
        query["groupBy"] = DIMENSIONS[by][0]
    chosen = project
    is_default = org is None and project is None
    if is_default:
        chosen = context.settings.default_project
        org = None if chosen else context.settings.default_organization
    if org:
        _show_organization(context, UsageQuestion(org, project, query, by, plot, label, is_default))
        return
    if chosen:
        chosen = project_id_of(context, chosen)
        query["projectId"] = chosen
    answer = context.client.management("GET", "/activity", query=query)
    rows = list_of(answer, "activity")
    if context.output.as_json:
        context.output.document(answer)
        return
    show_totals(context, _place(chosen, api_key), label, total_of(rows))
    show_rows(context, rows, by, plot)


class UsageQuestion(NamedTuple):
    """A question about the usage of an organization: `project` is one of its projects, None for all. With `is_default`
    the user named no organization, and the JSON document has the form of the account's."""

    organization: str
    project: str | None
    query: Query
    by: str | None
    plot: bool
    label: str
    is_default: bool


def read_window(
    span: str | None, ranges: tuple[str, ...], first: str | None, last: str | None, days: str | None = None
) -> tuple[Query, str]:
    """Return the query of a period and its description. Days and dates replace the range."""
    if span is not None and span not in ranges:
        raise CliError(f"--range {span!r} is unknown.", f"Use one of {', '.join(ranges)}.")
    if first is not None or last is not None:
        return _read_dates(first, last, days)
    if days is not None:
        if not (days.isascii() and days.isdigit()) or int(days) < 1:
            raise CliError(f"--days {days!r} is not a number of days.", "Give 1 or more.")
        return {"days": int(days)}, f"last {show_many(int(days), 'day')}"
    chosen = span or DEFAULT_RANGE
    return {"timeRange": chosen}, f"last {chosen}"


def _read_dates(first: str | None, last: str | None, days: str | None) -> tuple[Query, str]:
    if days is not None:
        raise CliError("--days and dates exclude each other.", "Give --days, or --from and --to.")
    if first is None:
        raise CliError("--to has no effect without --from.", "Give both.")
    begin = read_date(first, "--from")
    end = datetime.now(UTC).date()
    if last is not None:
        end = read_date(last, "--to")
    if begin > end:
        raise CliError(f"--from {begin} is after --to {end}.", "Exchange them.")
    return {"from": begin.isoformat(), "to": end.isoformat()}, f"{begin} to {end}"


def _place(project: Any, api_key: str | None) -> str:
    place = "all projects"
    if project:
        place = f"project {project}"
    if api_key:
        place += f", API key {api_key}"
    return place


def _show_organization(context: ClientContext, asked: UsageQuestion) -> None:
    """Print the usage of an organization: each project and their sum, or a breakdown or chart of all together."""
    organization = find_organization(organizations(context), asked.organization)
    projects = projects_of(context, organization)
    if asked.project:
        projects = [find_project(context, asked.project, text_of(organization, "id"))[1]]
    reports, common = _read_reports(context, projects, asked.query)
    rows = merged_rows(row for report in reports for row in report["activity"])
    if context.output.as_json:
        context.output.document({**common, "activity": rows} if asked.is_default else reports)
        return
    everything = total_of(rows)
    place = f"organization {organization.get('name')}"
    if asked.project:
        place += f", project {projects[0].get('name')}"
    if "apiKeyId" in asked.query:
        place += f", API key {asked.query['apiKeyId']}"
    show_totals(context, place, asked.label, everything)
    if asked.by or asked.plot:
        show_rows(context, rows, asked.by, asked.plot)
        return
    cells = [
        (str(report["projectName"]), str(report["projectId"]), *figures(total_of(report["activity"])))
        for report in reports
    ]
    cells.append(("TOTAL", "", *figures(everything)))
    context.output.table((Column("PROJECT", shorten=True), Column("ID", rank=1), *FIGURES), cells)


def _read_reports(
    context: ClientContext, projects: Sequence[Record], query: Query
) -> tuple[list[Record], dict[str, Any]]:
    """Return the usage of each project, with an API key only that of the key's project, and the other members of the
    answers, such as the granularity."""
    reports = []
    common: dict[str, Any] = {}
    refused: HttpError | None = None
    for project in projects:
        asked: Query = {"projectId": text_of(project, "id"), **query}
        try:
            answer = context.client.management("GET", "/activity", query=asked)
        except HttpError as error:
            if "apiKeyId" not in query or error.status != NOT_FOUND:
                raise
            refused = error
            continue
        rows = list_of(answer, "activity")
        common = answer
        reports.append({"projectId": project["id"], "projectName": project.get("name", ""), "activity": rows})
    if refused is not None and not reports:
        raise refused
    return reports, common


@usage.command("shares")
@click.option(
    "--by", type=click.Choice(SHARES, case_sensitive=False), default="team", show_default=True, help="The group."
)
@click.option("--tag", metavar="NAME", help="The name of the tag, with --by tag.")
@click.option("-p", "--project", metavar="PROJECT", help="One project, by id or name (default: all).")
@click.option("-r", "--range", "span", metavar="RANGE", help=f"{', '.join(RANGES)} (default: {DEFAULT_RANGE}).")
@click.option("--from", "first", metavar="DATE", help="First day, YYYY-MM-DD.")
@click.option("--to", "last", metavar="DATE", help="Last day, YYYY-MM-DD (default: today).")
@json_option
@pass_context
def shares(
    context: ClientContext,
    by: str,
    tag: str | None,
    project: str | None,
    span: str | None,
    first: str | None,
    last: str | None,
) -> None:
    """Show usage by team, person, department, cost center, tag and others, the most expensive first."""
    window, label = read_window(span, RANGES, first, last)
    query: Query = {"groupBy": by, **window}
    if tag:
        query["tag"] = tag
    if project:
        query["projectId"] = project_id_of(context, project)
    listed = list_of(context.client.management("GET", "/activity/shares", query=query), "shares")
    if context.output.as_json:
        context.output.document(listed)
        return
    cells = [
        (
            str(row.get("name") or NOT_STATED),
            show_number(row.get("requestCount")),
            show_number(_count(row, "inputTokens") + _count(row, "outputTokens")),
            show_usd(row.get("cost")),
        )
        for row in listed
    ]
    context.output.fields((("Usage", f"{_place(query.get('projectId'), None)} ({label})"),))
    context.output.data("")
    context.output.table((Column(by.upper(), shorten=True), *FIGURES), cells, NO_REQUESTS)


def _count(row: Record, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


@usage.command("outcomes")
@click.option("--by", type=click.Choice(OUTCOME_GROUPS, case_sensitive=False), help="The group (default: days).")
@click.option("--mine", is_flag=True, help="Only what your own keys did.")
@click.option("-p", "--project", metavar="PROJECT", help="One project, by id or name (default: all).")
@click.option("-r", "--range", "span", metavar="RANGE", help=f"{', '.join(RANGES)} (default: {DEFAULT_RANGE}).")
@click.option("--from", "first", metavar="DATE", help="First day, YYYY-MM-DD.")
@click.option("--to", "last", metavar="DATE", help="Last day, YYYY-MM-DD (default: today).")
@json_option
@pass_context
def outcomes(
    context: ClientContext,
    by: str | None,
    mine: bool,
    project: str | None,
    span: str | None,
    first: str | None,
    last: str | None,
) -> None:
    """Show what coding agents brought: commits, pull requests, lines and accepted edits, with the cost of each."""
    window, label = read_window(span, RANGES, first, last)
    query: Query = {**window}
    if by:
        query["groupBy"] = by
    if mine:
        query["mine"] = "true"
    if project:
        query["projectId"] = project_id_of(context, project)
    answer = context.client.management("GET", "/activity/outcomes", query=query)
    if context.output.as_json:
        context.output.document(answer)
        return
    listed = list_of(answer, "groups" if by else "steps")
    cells = [outcome_cells(str(row.get("name" if by else "date") or NOT_STATED), row) for row in listed]
    total = answer.get("total")
    if isinstance(total, dict):
        cells.append(outcome_cells("Total", total))
    context.output.fields((("Outcomes", f"{_place(query.get('projectId'), None)} ({label})"),))
    context.output.data("")
    context.output.table((Column((by or "day").upper(), shorten=True), *OUTCOME_COLUMNS), cells, NO_REQUESTS)


@usage.command("savings")
@click.option("-p", "--project", metavar="PROJECT", help="One project, by id or name (default: all).")
@click.option("-r", "--range", "span", metavar="RANGE", help=f"{', '.join(RANGES)} (default: {DEFAULT_RANGE}).")
@click.option("--from", "first", metavar="DATE", help="First day, YYYY-MM-DD.")
@click.option("--to", "last", metavar="DATE", help="Last day, YYYY-MM-DD (default: today).")
@json_option
@pass_context
def savings(context: ClientContext, project: str | None, span: str | None, first: str | None, last: str | None) -> None:
    """Show what caches, routes and discounts saved, and what was wasted, with remedies."""
    window, label = read_window(span, RANGES, first, last)
    query: Query = {**window}
    if project:
        query["projectId"] = project_id_of(context, project)
    answer = context.client.management("GET", "/activity/savings", query=query)
    if context.output.as_json:
        context.output.document(answer)
        return
    context.output.fields((("Savings", f"{_place(query.get('projectId'), None)} ({label})"),))
    context.output.data("")
    context.output.table(SAVED_COLUMNS, [saved_cells(row) for row in list_of(answer, "saved")], "Nothing was saved.")
    context.output.data("")
    context.output.table(
        WASTED_COLUMNS, [wasted_cells(row) for row in list_of(answer, "wasted")], "Nothing was wasted."
    )


@usage.command("sources")
@click.option(
    "-p", "--project", metavar="PROJECT", help="By id or name (default: the default project, or the only one)."
)
@click.option("-r", "--range", "span", metavar="RANGE", help="7d or 30d (default: 7d).")
@click.option("--from", "first", metavar="DATE", help="First day, YYYY-MM-DD.")
@click.option("--to", "last", metavar="DATE", help="Last day, YYYY-MM-DD (default: today).")
@json_option
@pass_context
def sources(context: ClientContext, project: str | None, span: str | None, first: str | None, last: str | None) -> None:
    """Show usage by app, for owners and admins."""
    window, label = read_window(span, SOURCE_RANGES, first, last)
    chosen = choose_project(context, project)
    query: Query = {"projectId": chosen, **window}
    listed = list_of(context.client.management("GET", "/activity/sources", query=query), "sources")
    if context.output.as_json:
        context.output.document(listed)
        return
    cells = [(str(row.get("source", "")), *figures(Totals.of(row)), show_time(row.get("lastUsedAt"))) for row in listed]
    context.output.fields((("Usage", f"{_place(chosen, None)} ({label})"),))
    context.output.data("")
    columns = (Column("SOURCE", shorten=True), *FIGURES, Column("LAST USED"))
    context.output.table(columns, cells, NO_REQUESTS)
