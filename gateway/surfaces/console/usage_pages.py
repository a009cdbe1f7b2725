"""`/connect/usage`: what was asked, used and spent, by model, key or person and by day or hour."""

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
# Value of a field → what stands for it; the first is what counts without a choice.
RANGES = {"7d": "7 days", "1h": "An hour", "24h": "24 hours", "30d": "30 days", "365d": "A year"}
GROUPS = {"model": "Model", "apiKey": "API key", "user": "Person"}
COUNTS = ("requestCount", "errorCount", "cacheCount", "inputTokens", "outputTokens")
COSTS = ("cost", "apiKeysCost", "discountSavings")
SHOWN = 100  # lines of a table
WHOLE = 31  # days or hours that are listed all


def show(services: Services, inbound: Inbound) -> Outbound:
    """Totals of a time, who or what they are made up of, dearest first, and how they came about."""
    visitor = require_visitor(services, inbound, PATH)
    asked = inbound.arguments()
    chosen = {
        "timeRange": asked["timeRange"] if asked.get("timeRange") in RANGES else next(iter(RANGES)),
        "groupBy": asked["groupBy"] if asked.get("groupBy") in GROUPS else next(iter(GROUPS)),
    }
    places = {"": "All"} | {
        one.id: one.name for one in list_projects(services.store.database, list(visitor.memberships))
    }
    if asked.get("projectId"):
        chosen["projectId"] = asked["projectId"]
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
            ("projectId", "Project", _options(places, chosen.get("projectId", ""))),
            ("timeRange", "Time", _options(RANGES, chosen["timeRange"])),
            ("groupBy", "By", _options(GROUPS, chosen["groupBy"])),
        ],
        group=GROUPS[chosen["groupBy"]],
        step="Hour" if chosen["timeRange"].endswith("h") else "Day",
        credits=_credits(services, visitor),
        **figures,
    )


def _read_figures(steps: list[dict[str, Any]], breakdown: str) -> dict[str, Any]:
    """The total, the parts and the steps, newest first; of a long time only those in which something was asked."""
    shown = [step for step in reversed(steps) if len(steps) <= WHOLE or step["requestCount"]]
    return {
        "total": _sum(steps),
        "parts": _ranked(part for step in steps for part in step[breakdown]),
        "steps": [{"name": step["date"].replace("T", " "), **_sum([step])} for step in shown],
    }


def _options(known: dict[str, str], chosen: str) -> list[tuple[str, str, bool]]:
    return [(value, text, value == chosen) for value, text in known.items()]


def _sum(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of rows together, as a page shows them; money is added up in whole nano-dollars."""
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        for name in COUNTS:
            found[name] += row.get(name, 0)
        for name in COSTS:
            found[name] += round(row.get(name, 0) * NANO)
    shown = {name: f"{found[name]:,}" for name in COUNTS} | {name: format_usd(found[name]) for name in COSTS}
    return shown | {"nano": found["cost"], "count": found["requestCount"]}


def _ranked(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each model, key or person, dearest first."""
    together: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        if "provider" in part:
            name = f"{part['provider']}/{part['id']}"
        else:
            name = part["description"] or part["id"]
        together[name, part["id"]].append(part)  # several keys or people may have the same name
    lines = [{"name": name, **_sum(rows)} for (name, _), rows in together.items()]
    return sorted(lines, key=lambda line: (-line["nano"], -line["count"], line["name"]))[:SHOWN]


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, str]]:
    """(organization, what is left of its credits) of those that the visitor manages."""
    found = organizations.list_organizations(services.store.database, visitor.user_id)
    mine = [one for one in found if one.id in visitor.memberships and visitor.memberships[one.id].role in MANAGERS]
    ledger = services.management.ledger
    return [(one.name, _left(ledger.balance(one.id))) for one in mine]


def _left(balance: Balance) -> str:
    if balance.unlimited:
        return "unlimited"
    return format_usd(balance.balance_nusd)


OPERATIONS: tuple[Operation, ...] = (Operation("GET", PATH, as_page(show)),)
