"""The tables of `usage outcomes` and `usage savings`: what coding agents brought with the cost of each, and what was
saved and wasted."""

from llmgateway_cli.account_lists import Record
from llmgateway_cli.tables import Column
from llmgateway_cli.values import show_number, show_usd

OUTCOME_COLUMNS = tuple(
    Column(name, number=True)
    for name in ("COST", "EDITS", "COST EACH", "COMMITS", "COST EACH", "PULL REQUESTS", "COST EACH", "LINES")
)

SAVED_COLUMNS = (Column("SAVED BY"), Column("AMOUNT", number=True), Column("MEANS", shorten=True))
WASTED_COLUMNS = (
    Column("WASTED ON"),
    Column("CAUSE"),
    Column("TIMES", number=True),
    Column("AMOUNT", number=True),
    Column("REMEDY", shorten=True),
)


def saved_cells(row: Record) -> tuple[str, ...]:
    """Return the cells of what one means saved."""
    about = "about " if row.get("estimated") else ""
    return str(row.get("kind", "")), about + show_usd(row.get("amount")), str(row.get("means", ""))


def wasted_cells(row: Record) -> tuple[str, ...]:
    """Return the cells of what was wasted for one cause."""
    amount, times = show_usd(row.get("amount")), show_number(row.get("count"))
    return str(row.get("kind", "")), str(row.get("cause") or "-"), times, amount, str(row.get("remedy", ""))


def outcome_cells(name: str, row: Record) -> tuple[str, ...]:
    """Return the cells of a group or day."""
    return (
        name,
        show_usd(row.get("agentCost")),
        show_number(row.get("editsAccepted")),
        _show_each(row.get("costPerAcceptedEdit")),
        show_number(row.get("commits")),
        _show_each(row.get("costPerCommit")),
        show_number(row.get("pullRequests")),
        _show_each(row.get("costPerPullRequest")),
        f"+{show_number(row.get('linesAdded'))} -{show_number(row.get('linesRemoved'))}",
    )


def _show_each(cost: object) -> str:
    return "-" if cost is None else show_usd(cost)
