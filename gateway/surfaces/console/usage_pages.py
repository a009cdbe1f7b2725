"""`/connect/usage`: requests, tokens and costs by model, key or person and by day or hour."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from gateway.accounts import organizations
from gateway.accounts.projects import list_projects
from gateway.limits.ledger import Balance
from gateway.money import NANO, format_usd
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, require_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.usage_report import BREAKDOWNS, MANY, usage_of
from gateway.surfaces.visitor import MANAGERS, Visitor
from gateway.worker.services import Services

TITLE = "Usage"
PATH = "/connect/usage"
# Value of a field → its label; the first is the default.
RANGES = {"7d": "7 days", "1h": "1 hour", "24h": "24 hours", "30d": "30 days", "365d": "1 year"}
GROUPS = {"model": "Model", "apiKey": "API key", "user": "Person"}
COUNTS = ("requestCount", "errorCount", "cacheCount", "inputTokens", "outputTokens")
COSTS = ("cost", "apiKeysCost", "discountSavings")
SHOWN = 100  # rows of a table
SHORT_PERIOD = 31  # days or hours that are listed even without requests


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the totals of a period, split by model, key or person (most expensive first) and by day or hour."""
    visitor = require_visitor(services, inbound, PATH)
    arguments = inbound.arguments()
    chosen = {
        "timeRange": _choose(RANGES, arguments.get("timeRange")),
        "groupBy": _choose(GROUPS, arguments.get("groupBy")),
    }
    projects = {"": "All"} | {
        project.id: project.name for project in list_projects(services.store.database, list(visitor.memberships))
    }
    if arguments.get("projectId"):
        chosen["projectId"] = arguments["projectId"]
    with services.background.reports.turn(visitor.user_id):
        steps = usage_of(visitor, chosen)["activity"]
    breakdown = BREAKDOWNS[chosen["groupBy"]]
    many = sum(len(step[breakdown]) for step in steps) > MANY
    figures = compute_if(many, _read_figures, steps, breakdown)
    return page(
        inbound,
        "usage.html",
        TITLE,
        wide=True,
        path=PATH,
        fields=[
            ("projectId", "Project", _options(projects, chosen.get("projectId", ""))),
            ("timeRange", "Time", _options(RANGES, chosen["timeRange"])),
            ("groupBy", "By", _options(GROUPS, chosen["groupBy"])),
        ],
        group=GROUPS[chosen["groupBy"]],
        step="Hour" if chosen["timeRange"].endswith("h") else "Day",
        credits=_credits(services, visitor),
        **figures,
    )


def _read_figures(steps: list[dict[str, Any]], breakdown: str) -> dict[str, Any]:
    """Return the total, the parts and the steps (newest first). A long period lists only steps with requests."""
    shown = [step for step in reversed(steps) if len(steps) <= SHORT_PERIOD or step["requestCount"]]
    return {
        "total": _sum(steps),
        "parts": _ranked(part for step in steps for part in step[breakdown]),
        "steps": [{"name": step["date"].replace("T", " "), **_sum([step])} for step in shown],
    }


def _choose(known: dict[str, str], value: str | None) -> str:
    if value in known:
        return value
    return next(iter(known))


def _options(known: dict[str, str], chosen: str) -> list[tuple[str, str, bool]]:
    return [(value, text, value == chosen) for value, text in known.items()]


def _sum(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the formatted sums of `rows`. Money is summed in integer nano-dollars."""
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        for name in COUNTS:
            sums[name] += row.get(name, 0)
        for name in COSTS:
            sums[name] += round(row.get(name, 0) * NANO)
    formatted = {name: f"{sums[name]:,}" for name in COUNTS} | {name: format_usd(sums[name]) for name in COSTS}
    return formatted | {"nano": sums["cost"], "count": sums["requestCount"]}


def _ranked(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model, key or person, the most expensive first."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        if "provider" in part:
            name = f"{part['provider']}/{part['id']}"
        else:
            name = part["description"] or part["id"]
        groups[name, part["id"]].append(part)  # names are not unique
    summaries = [{"name": name, **_sum(rows)} for (name, _), rows in groups.items()]
    return sorted(summaries, key=_rank)[:SHOWN]


def _rank(summary: dict[str, Any]) -> tuple[int, int, str]:
    return -summary["nano"], -summary["count"], summary["name"]


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, str]]:
    """Return the name and remaining credits of each organization that the visitor manages."""
    credits = []
    for organization in organizations.list_organizations(services.store.database, visitor.user_id):
        membership = visitor.memberships.get(organization.id)
        if membership is not None and membership.role in MANAGERS:
            credits.append((organization.name, _format_balance(services.management.ledger.balance(organization.id))))
    return credits


def _format_balance(balance: Balance) -> str:
    if balance.unlimited:
        return "unlimited"
    return format_usd(balance.balance_nusd)


OPERATIONS: tuple[Operation, ...] = (Operation("GET", PATH, as_page(show)),)
