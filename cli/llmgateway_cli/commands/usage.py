"""The command `usage`: requests, tokens and cost."""

from datetime import UTC, datetime
from typing import Any

import click

from llmgateway_cli.account_lists import choose_project, find_organization, organizations, projects_of
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.plots import plot_lines
from llmgateway_cli.shapes import list_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.usage_totals import Totals, breakdown_of, total_of
from llmgateway_cli.values import read_date, show_number, show_time, show_usd

RANGES = ("1h", "4h", "24h", "7d", "30d", "365d")
SOURCE_RANGES = ("7d", "30d")
DEFAULT_RANGE = "7d"
# --by, the value that the service knows, and the list with the result.
DIMENSIONS = {"model": ("model", "modelBreakdown"), "key": ("apiKey", "apiKeyBreakdown")}
FIGURES = (Column("REQUESTS", number=True), Column("TOKENS", number=True), Column("COST", number=True))
Query = dict[str, str | int]


@click.group(invoke_without_command=True)
@click.option("-o", "--org", metavar="ID", help="Sum the projects of an organization.")
@click.option("-p", "--project", metavar="ID", help="Only this project (default: the default project, else all).")
@click.option("-k", "--api-key", metavar="ID", help="Only this API key.")
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
        return
    if by not in (None, *DIMENSIONS):
        raise CliError(f"--by {by!r} is unknown.", "Use model or key.")
    window, label = read_window(span, RANGES, first, last, days)
    if org is not None:
        if any((project, api_key, by, plot)):
            context.output.warning("--project, --api-key, --by and --plot have no effect with --org.")
        show_organization(context, org, window, label)
        return
    query: Query = {}
    chosen = project or context.settings.default_project
    if chosen:
        query["projectId"] = chosen
    if api_key:
        query["apiKeyId"] = api_key
    if by:
        query["groupBy"] = DIMENSIONS[by][0]
    answer = context.client.management("GET", "/activity", query=query | window)
    rows = list_of(answer, "activity")
    if context.output.as_json:
        context.output.document(answer)
        return
    _show_totals(context, _place(chosen, api_key), label, total_of(rows))
    _show_rows(context, rows, by, plot)


def _show_rows(context: ClientContext, rows: list[dict[str, Any]], by: str | None, plot: bool) -> None:
    if plot:
        _plot(context, rows)
    elif by:
        _show_breakdown(context, rows, by)
    else:
        _show_timeline(context, rows)


def read_window(
    span: str | None, ranges: tuple[str, ...], first: str | None, last: str | None, days: str | None = None
) -> tuple[Query, str]:
    """Return the query of a period and its description. Days and dates replace the range."""
    if span is not None and span not in ranges:
        raise CliError(f"--range {span!r} is unknown.", f"Use one of {', '.join(ranges)}.")
    if first is not None or last is not None:
        return _read_dates(first, last, days)
    if days is not None:
        if not days.isdigit() or int(days) < 1:
            raise CliError(f"--days {days!r} is not a number of days.", "Give 1 or more.")
        return {"days": int(days)}, f"last {int(days)} days"
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


def _place(project: str | None, api_key: str | None) -> str:
    place = "all projects"
    if project:
        place = f"project {project}"
    if api_key:
        place += f", API key {api_key}"
    return place


def _show_totals(context: ClientContext, place: str, label: str, totals: Totals) -> None:
    context.output.fields(
        (
            ("Usage", f"{place} ({label})"),
            ("Requests", show_number(totals.requests)),
            ("Errors", show_number(totals.errors)),
            (
                "Tokens",
                f"{show_number(totals.tokens)} ({show_number(totals.input)} in, {show_number(totals.output)} out)",
            ),
            ("Cost", show_usd(totals.cost)),
        )
    )
    context.output.data("")


def _show_timeline(context: ClientContext, rows: list[dict[str, Any]]) -> None:
    columns = (Column("DATE"), *FIGURES, Column("ERRORS", number=True))
    cells = [
        (_date_of(row), *_figures(Totals.of(row)), show_number(row.get("errorCount")))
        for row in rows
        if row.get("requestCount")
    ]
    context.output.table(columns, cells, "There were no requests.")
    if cells:
        context.output.info("--by model or --by key shows a breakdown, --plot a chart.")


def _show_breakdown(context: ClientContext, rows: list[dict[str, Any]], by: str) -> None:
    columns = (Column(by.upper(), shorten=True), *FIGURES)
    parts = breakdown_of(rows, DIMENSIONS[by][1])
    cells = [(part.name, *_figures(part.totals)) for part in parts]
    context.output.table(columns, cells, "There were no requests.")


def _plot(context: ClientContext, rows: list[dict[str, Any]]) -> None:
    points = [(_date_of(row), Totals.of(row).cost) for row in rows]
    for line in plot_lines(points, context.output.width):
        context.output.data(line)


def _figures(totals: Totals) -> tuple[str, str, str]:
    return show_number(totals.requests), show_number(totals.tokens), show_usd(totals.cost)


def _date_of(row: dict[str, Any]) -> str:
    """Return the day, or the hour, of a row."""
    return str(row.get("date", "")).replace("T", " ")[:16]


def show_organization(context: ClientContext, named: str, window: Query, label: str) -> None:
    """Print the usage of each project of an organization, and their sum."""
    organization = find_organization(organizations(context), named)
    reports = []
    for project in projects_of(context, organization):
        query: Query = {"projectId": text_of(project, "id"), **window}
        rows = list_of(context.client.management("GET", "/activity", query=query), "activity")
        reports.append({"projectId": project["id"], "projectName": project.get("name", ""), "activity": rows})
    if context.output.as_json:
        context.output.document(reports)
        return
    cells = [
        (str(report["projectName"]), str(report["projectId"]), *_figures(total_of(report["activity"])))
        for report in reports
    ]
    everything = total_of([row for report in reports for row in report["activity"]])
    cells.append(("TOTAL", "", *_figures(everything)))
    context.output.fields((("Usage", f"organization {organization.get('name')} ({label})"),))
    context.output.data("")
    context.output.table((Column("PROJECT", shorten=True), Column("ID"), *FIGURES), cells)


@usage.command("sources")
@click.option("-p", "--project", metavar="ID", help="The project (default: the default project, or the only one).")
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
    cells = [
        (str(row.get("source", "")), *_figures(Totals.of(row)), show_time(row.get("lastUsedAt"))) for row in listed
    ]
    context.output.fields((("Usage", f"{_place(chosen, None)} ({label})"),))
    context.output.data("")
    columns = (Column("SOURCE", shorten=True), *FIGURES, Column("LAST USED"))
    context.output.table(columns, cells, "There were no requests.")
