"""The tables and the chart that show usage."""

from typing import Any

from llmgateway_cli.context import ClientContext
from llmgateway_cli.plots import plot_lines
from llmgateway_cli.tables import Column
from llmgateway_cli.usage_totals import Totals, breakdown_of
from llmgateway_cli.values import show_number, show_usd

# --by, the value that the service knows, and the list with the result.
DIMENSIONS = {"model": ("model", "modelBreakdown"), "key": ("apiKey", "apiKeyBreakdown")}
FIGURES = (Column("REQUESTS", number=True), Column("TOKENS", number=True), Column("COST", number=True))
NO_REQUESTS = "There were no requests."


def show_rows(context: ClientContext, rows: list[dict[str, Any]], by: str | None, plot: bool) -> None:
    if plot:
        _plot(context, rows)
    elif by:
        _show_breakdown(context, rows, by)
    else:
        _show_timeline(context, rows)


def show_totals(context: ClientContext, place: str, label: str, totals: Totals) -> None:
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
        (_date_of(row), *figures(Totals.of(row)), show_number(row.get("errorCount")))
        for row in rows
        if row.get("requestCount")
    ]
    context.output.table(columns, cells, NO_REQUESTS)
    if cells:
        context.output.info("--by model or --by key shows a breakdown, --plot a chart.")


def _show_breakdown(context: ClientContext, rows: list[dict[str, Any]], by: str) -> None:
    parts = breakdown_of(rows, DIMENSIONS[by][1])
    if by != "key":
        columns = (Column(by.upper(), shorten=True), *FIGURES)
        context.output.table(columns, [(part.name, *figures(part.totals)) for part in parts], NO_REQUESTS)
        return
    # Keys may have one name; their ids tell them apart.
    names = [part.name for part in parts]
    is_clear = len(set(names)) == len(names)
    cells = [(part.name, part.id, *figures(part.totals)) for part in parts]
    context.output.table((Column("KEY", shorten=True), Column("ID", rank=int(is_clear)), *FIGURES), cells, NO_REQUESTS)


def _plot(context: ClientContext, rows: list[dict[str, Any]]) -> None:
    points = [(_date_of(row), Totals.of(row).cost) for row in rows]
    for line in plot_lines(points, context.output.width):
        context.output.data(line)


def figures(totals: Totals) -> tuple[str, str, str]:
    """Return requests, tokens and cost."""
    return show_number(totals.requests), show_number(totals.tokens), show_usd(totals.cost)


def _date_of(row: dict[str, Any]) -> str:
    """Return the day, or the hour, of a row."""
    return str(row.get("date", "")).replace("T", " ")[:16]
