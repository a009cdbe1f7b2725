"""The table of `usage outcomes`: what coding agents brought, and the cost of each."""

from llmgateway_cli.account_lists import Record
from llmgateway_cli.tables import Column
from llmgateway_cli.values import show_number, show_usd

OUTCOME_COLUMNS = tuple(
    Column(name, number=True)
    for name in ("COST", "EDITS", "COST EACH", "COMMITS", "COST EACH", "PULL REQUESTS", "COST EACH", "LINES")
)


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
