"""`/console`: spending, requests and tokens of the last 30 days, and what needs attention."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from gateway.accounts.projects import list_projects
from gateway.clock import to_datetime
from gateway.money import NANO
from gateway.runtime.threads import compute
from gateway.surfaces.console.attention import MOST, find_budgets, find_provider_keys, find_retiring
from gateway.surfaces.console.keys.key_pages import list_visible_keys
from gateway.surfaces.console.pages import AFTER_SIGN_IN, page
from gateway.surfaces.console.plots import build_plot
from gateway.surfaces.console.shown_figures import round_cost
from gateway.surfaces.console.usage.grouping import NO_APP
from gateway.surfaces.console.visits import as_page, require_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.usage_report import apps_of, usage_of
from gateway.worker.services import Services

TITLE = "Overview"
DAYS = 30
LONGEST_MONTH = 31
AVERAGED_DAYS = 7  # number of complete days in the average that the forecast extends
TOP = 5
KEYS = 200  # number of newest keys to check for exhausted budgets
COUNTS = ("requestCount", "errorCount", "cacheCount", "totalTokens")


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the figures of everything that the visitor may see; a developer sees the usage of their own keys."""
    visitor = require_visitor(services, inbound, AFTER_SIGN_IN)
    today = to_datetime(services.clock.now_us()).date()
    window = {"from": (today - timedelta(days=LONGEST_MONTH - 1)).isoformat(), "to": today.isoformat()}
    month = {"from": (today - timedelta(days=DAYS - 1)).isoformat(), "to": today.isoformat()}
    with services.background.reports.turn(visitor.user_id):
        by_model = usage_of(visitor, window)["activity"]
        by_key = usage_of(visitor, {**month, "groupBy": "apiKey"})["activity"]
        by_app = apps_of(visitor, month)
    keys = list_visible_keys(visitor, list_projects(services.store.database, list(visitor.memberships)))
    figures = compute(summarize, by_model, by_key, by_app, today)
    used = figures.pop("used")
    checked = keys[:KEYS]
    return page(
        inbound,
        "overview.html",
        TITLE,
        visitor=visitor,
        wide=True,
        notices=[
            *find_provider_keys(services, visitor),
            *find_budgets(checked, services.management.budgets.statuses(key.id for key in checked)),
            *find_retiring(services, used, today),
        ][:MOST],
        has_keys=bool(keys),
        **figures,
    )


def summarize(
    by_model: list[dict[str, Any]], by_key: list[dict[str, Any]], by_app: dict[str, list[dict[str, Any]]], today: date
) -> dict[str, Any]:
    """Return the figures of the page from the days of three reports. The first one may cover a day more than DAYS, so
    that it contains the whole month."""
    spent = {step["date"]: round(step["cost"] * NANO) for step in by_model}
    shown = by_model[-DAYS:]
    days = [step["date"] for step in shown]
    this_month = sum(cost for day, cost in spent.items() if day[:7] == today.isoformat()[:7])
    totals = {name: sum(step[name] for step in shown) for name in COUNTS}
    daily = [spent[day] for day in days]
    return {
        "today": spent.get(today.isoformat(), 0),
        "average": sum(daily[:-1]) // max(1, len(daily) - 1),
        "this_month": this_month,
        "forecast": forecast_month(spent, this_month, today),
        "total": sum(daily),
        "totals": totals,
        "error_rate": _percent(totals["errorCount"], totals["requestCount"]),
        "cache_rate": _percent(totals["cacheCount"], totals["requestCount"]),
        "plot": build_plot(days, {"Spend": daily}, round_cost),
        "days": [
            {"date": step["date"], "cost": spent[step["date"]], "requests": step["requestCount"]}
            for step in reversed(shown)
        ],
        "models": _rank((part["id"], part) for step in shown for part in step["modelBreakdown"]),
        "keys": _rank((part["description"] or part["id"], part) for step in by_key for part in step["apiKeyBreakdown"]),
        "apps": _rank((part["id"] or NO_APP, part) for parts in by_app.values() for part in parts),
        "used": {(part["id"], part["provider"]) for step in shown for part in step["modelBreakdown"]},
    }


def forecast_month(spent: dict[str, int], this_month: int, today: date) -> int:
    """Return the spending of this month if each day that is left costs the average of the last complete days."""
    complete = [spent.get((today - timedelta(days=back)).isoformat(), 0) for back in range(1, AVERAGED_DAYS + 1)]
    next_month = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    days_left = (next_month - today).days - 1
    average = sum(complete) // AVERAGED_DAYS
    rest_of_today = max(0, average - spent.get(today.isoformat(), 0))
    return this_month + rest_of_today + average * days_left


def _rank(parts: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the most expensive names with their share of the first one's cost in percent."""
    costs: dict[tuple[str, str], int] = defaultdict(int)
    requests: dict[tuple[str, str], int] = defaultdict(int)
    for name, part in parts:
        costs[name, part["id"]] += round(part["cost"] * NANO)
        requests[name, part["id"]] += part["requestCount"]
    ranked = sorted(costs, key=lambda one: (-costs[one], -requests[one], one))[:TOP]
    return [{"name": one[0], "cost": costs[one], "requests": requests[one]} for one in ranked]


def _percent(part: int, whole: int) -> str:
    if not whole:
        return "0 %"
    return f"{part * 100 / whole:.1f} %"


OPERATIONS: tuple[Operation, ...] = (Operation("GET", AFTER_SIGN_IN, as_page(show)),)
