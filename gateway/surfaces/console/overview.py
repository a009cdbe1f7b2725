"""`/console`: spending, requests, latency and tokens of a period, what changed and why, what needs attention, and what
concerns the visitor alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import list_members
from gateway.accounts.spending_limits import SpendingLimits
from gateway.accounts.teams import list_teams
from gateway.clock import DAY_US, to_datetime
from gateway.limits.budgets import Status
from gateway.limits.owned_limits import list_of_owners
from gateway.money import NANO, round_usd
from gateway.runtime.threads import compute
from gateway.surfaces.console.choice_bar import ChoiceField, build_bar, choose_period
from gateway.surfaces.console.grouping import NO_APP
from gateway.surfaces.console.organization_choice import PARAMETER as ORGANIZATION
from gateway.surfaces.console.organization_choice import list_visible_keys
from gateway.surfaces.console.overview_attention import (
    choose_items,
    find_alert_items,
    find_budgets,
    find_credits,
    find_ending,
    find_invitations,
    find_limits,
    find_provider_keys,
    find_raise_requests,
    find_retiring,
    find_undelivered,
    name_limit,
)
from gateway.surfaces.console.overview_changes import find_changes
from gateway.surfaces.console.overview_outages import find_outages, find_since_visit
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.pages import AFTER_SIGN_IN
from gateway.surfaces.console.plots import Plot, build_plot, plot_outcomes
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.report_windows import read_window
from gateway.surfaces.visitors.usage_report import ActivityQuery, apps_of, usage_of, visible_keys
from gateway.surfaces.visitors.validation_schemas import read_fields
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Overview"
DAYS = 30
# Value of the field of the period → its days; the first is the default.
PERIODS = {"30d": DAYS, "7d": 7, "90d": 90}
DAYS_PER_MONTH = 31
AVERAGED_DAYS = 7  # number of complete days in the average that the forecast extends
LATENCY = ManagementCall("GET /activity/latency")
ASK = ManagementCall("POST /orgs/<organization_id>/limits/<limit_id>/requests")
MEMBERSHIP = ManagementCall("GET /orgs/<organization_id>/membership")
TOP = 5
KEYS = 200  # number of newest keys to check for exhausted budgets
COUNTS = ("requestCount", "errorCount", "cacheCount", "totalTokens")
LOGS = "/console/logs"


class RankedName(NamedTuple):
    """A name of a ranking, with the path of its page or of the requests behind it."""

    name: str
    path: str


def show(call: PageCall) -> Outbound:
    """Show the figures of everything that the visitor may see; a developer sees the usage of their own keys."""
    chosen_organization = _read_organization(call)
    visitor, inbound, services = narrow(call.visitor, chosen_organization), call.inbound, call.services
    now_us = services.clock.now_us()
    today = to_datetime(now_us).date()
    period = call.arguments.get("timeRange", "")
    period = period if period in PERIODS else next(iter(PERIODS))
    days = PERIODS[period]
    window = {"from": (today - timedelta(days=max(days, DAYS_PER_MONTH) - 1)).isoformat()}
    chosen = {"from": (today - timedelta(days=days - 1)).isoformat()}
    by_model = usage_of(visitor, window)["activity"]
    by_key = usage_of(visitor, {**chosen, "groupBy": "apiKey"})["activity"]
    by_app = apps_of(visitor, chosen)
    compared = read_window(read_fields(ActivityQuery, chosen), services.clock.now_us())
    keys = list_visible_keys(visitor, visitor.projects())
    figures = compute(summarize, by_model, by_key, by_app, today, _find_owners(visitor), days)
    used = figures.pop("used")
    checked = keys[:KEYS]
    statuses = services.management.budgets.statuses(key.id for key in checked)
    own_limits = find_own_limits(visitor, keys)
    notices, more_notices = choose_items(
        (
            find_raise_requests(visitor),
            find_credits(visitor, figures["average"]),
            find_provider_keys(services, visitor),
            find_undelivered(visitor, now_us),
            find_limits(visitor),
            find_budgets(checked, statuses),
            find_alert_items(visitor, inbound, now_us),
            find_ending(visitor, keys, now_us),
            find_retiring(services, used, today),
            find_invitations(visitor, now_us),
        )
    )
    return call.page(
        "overview.html",
        TITLE,
        bar=build_bar(
            inbound,
            ChoiceField(ORGANIZATION, "Organization", _list_organizations(call.visitor), chosen_organization),
            choose_period(period, [(value, f"{length} days") for value, length in PERIODS.items()]),
        ),
        days=days,
        daily=figures.pop("days"),
        changes=find_changes(visitor, compared, {"timeRange": "custom", **chosen, "to": today.isoformat()}),
        own_keys=_list_own_keys(visitor, keys, statuses),
        own_limits=own_limits,
        outages=find_outages(visitor, used),
        since_visit=find_since_visit(visitor),
        notices=notices,
        more_notices=more_notices,
        has_keys=bool(keys),
        is_new=not figures["totals"]["requestCount"] and _has_new_request(services, visitor),
        latency=_find_latency(visitor, inbound),
        budgets=list_budgets(visitor, inbound),
        saved=sum_route_savings(visitor, days),
        **figures,
    )


def _list_organizations(visitor: Visitor) -> list[tuple[str, str]]:
    """Return the choices of a field; none for a visitor with a single organization."""
    if len(visitor.memberships) < 2:
        return []
    return [("", "All organizations"), *((one.id, one.name) for one in visitor.organizations())]


def _read_organization(call: PageCall) -> str:
    """Return the organization that the page is about, "" for all of the visitor."""
    asked = call.arguments.get(ORGANIZATION, "")
    return asked if asked in call.visitor.memberships else ""


def narrow(visitor: Visitor, organization_id: str) -> Visitor:
    """Return the visitor as a member of one organization only; "": of all."""
    if not organization_id:
        return visitor
    return replace(visitor, memberships={organization_id: visitor.memberships[organization_id]})


def sum_route_savings(visitor: Visitor, days: int) -> int:
    """Return the savings of routes, in nano-dollars, in organizations that show their routes to the visitor."""
    totals = visitor.services.billing.reports.route_savings
    organizations = [one.id for one in visitor.organizations() if visitor.manages("rules:read", one.id)]
    return sum(totals.find(ident, days) for ident in organizations)


def _has_new_request(services: Services, visitor: Visitor) -> bool:
    """Return whether the visitor may see a request that statistics do not count yet."""
    newest = request_log_reader_module.find_newest(visitor)
    return newest is not None and newest.at_us > services.clock.now_us() - DAYS * DAY_US


def _find_latency(visitor: Visitor, inbound: Inbound) -> dict[str, Any] | None:
    """Return the latency of the model that the visitor's requests of today used most; None without requests."""
    measured = [one for one in LATENCY.run(visitor, inbound, {"timeRange": "24h"}) if one["timeToFirstTokenMs"]]
    return max(measured, key=lambda one: int(one["calls"]), default=None)


def list_budgets(visitor: Visitor, inbound: Inbound) -> list[dict[str, Any]]:
    """Return the visitor's own memberships that have spending limits, with the names of the organizations."""
    budgets = []
    for organization in visitor.organizations():
        own = MEMBERSHIP.run(visitor, inbound, organization_id=organization.id)
        teams = [team for team in own["teams"] if team["usageLimit"] or team["periodUsageLimit"]]
        member = own["member"]
        if member["usageLimit"] or member["periodUsageLimit"] or teams:
            budgets.append({"organization": organization.name, "member": member, "teams": teams})
    return budgets


def find_own_limits(visitor: Visitor, keys: Iterable[KeyInfo]) -> list[tuple[str, str]]:
    """Return the limits that count usage of the visitor, for a choice: the name with the organization, and a text."""
    store = visitor.services.store
    limits = []
    for organization_id, membership in visitor.memberships.items():
        teams = {team.id for team in list_teams(store.database, organization_id) if membership.id in team.member_ids}
        own = {"organization": {organization_id}, "member": {membership.id}, "team": teams}
        limits += [
            (f"{rule.name} {organization_id}", rule.name)
            for rule in SpendingLimits(store.database, store.control).list_rules(organization_id)
            if all(one.kind in own and (one.each or one.value in own[one.kind]) for one in rule.subjects)
        ]
        own_keys = [key.id for key in keys if key.member_id == membership.id and key.state == "active"]
        owners = [membership.id, *teams, *own_keys[:TOP]]
        found = store.database.read(partial(list_of_owners, store.database, organization_id, owners))
        limits += [(f"{one.id} {organization_id}", name_limit(one)) for one in found]
    return limits


def _list_own_keys(visitor: Visitor, keys: Iterable[KeyInfo], statuses: Mapping[str, Status]) -> list[dict[str, Any]]:
    """Return the visitor's own active keys with what they spent, the newest first."""
    members = {membership.id for membership in visitor.memberships.values()}
    own = [key for key in keys if key.member_id in members and key.state == "active" and key.id in statuses]
    return [
        {
            "id": key.id,
            "name": key.description or key.id,
            "cost": statuses[key.id].usage_nusd,
            "limit": statuses[key.id].total_nusd,
        }
        for key in own[:TOP]
    ]


def _find_owners(visitor: Visitor) -> dict[str, RankedName]:
    """Return the person of each key of the organizations that the visitor manages, by the id of the key."""
    people = {
        member.id: _link(member.name or member.email, userId=member.user_id)
        for organization_id in visitor.memberships
        if visitor.manages("usage:read", organization_id)
        for member in list_members(visitor.services.store.database, organization_id, service_accounts=True)
    }
    return {key.id: people[key.member_id] for key in visible_keys(visitor).values() if key.member_id in people}


def summarize(
    by_model: list[dict[str, Any]],
    by_key: list[dict[str, Any]],
    by_app: dict[str, list[dict[str, Any]]],
    today: date,
    owners: Mapping[str, RankedName],
    length: int = DAYS,
) -> dict[str, Any]:
    """Return the figures of the page from the days of three reports. The first one may cover more days than `length`,
    so that it contains the whole month."""
    spent = {step["date"]: round(step["cost"] * NANO) for step in by_model}
    shown = by_model[-length:]
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
        "plot": build_plot(days, {"Spend": daily}, round_usd),
        "requests_plot": _plot_requests(shown),
        "days": [
            {"date": step["date"], "cost": spent[step["date"]], "requests": step["requestCount"]}
            for step in reversed(shown)
        ],
        "models": _rank(
            (_link(part["id"], model=part["id"]), part) for step in shown for part in step["modelBreakdown"]
        ),
        "keys": _rank(
            (_link(part["description"] or part["id"], apiKeyId=part["id"]), part)
            for step in by_key
            for part in step["apiKeyBreakdown"]
        ),
        "people": _rank(
            (owners[part["id"]], part) for step in by_key for part in step["apiKeyBreakdown"] if part["id"] in owners
        ),
        "apps": _rank(
            (_link(part["id"] or NO_APP, source=part["id"] or "unknown"), part)
            for parts in by_app.values()
            for part in parts
        ),
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


def _plot_requests(steps: list[dict[str, Any]]) -> Plot:
    failed = [step["errorCount"] for step in steps]
    answered = [step["requestCount"] - step["errorCount"] for step in steps]
    return plot_outcomes([step["date"] for step in steps], answered, failed)


def _link(name: str, **filters: str) -> RankedName:
    """Return a name that leads to the requests with these filters."""
    return RankedName(name, f"{LOGS}?{urlencode(filters)}")


def _rank(parts: Iterable[tuple[RankedName, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the most expensive names with their costs and requests."""
    costs: dict[RankedName, int] = defaultdict(int)
    requests: dict[RankedName, int] = defaultdict(int)
    for ranked, part in parts:
        costs[ranked] += round(part["cost"] * NANO)
        requests[ranked] += part["requestCount"]
    first = sorted(costs, key=lambda ranked: (-costs[ranked], -requests[ranked], ranked))[:TOP]
    return [
        {"name": ranked.name, "path": ranked.path, "cost": costs[ranked], "requests": requests[ranked]}
        for ranked in first
    ]


def _percent(part: int, whole: int) -> str:
    if not part:
        return "0 %"
    return f"{part * 100 / whole:.1f} %"


def ask(call: PageCall) -> str:
    """Ask for more of a limit."""
    form = call.form
    fields = {
        "amount": form.get("amount", "").strip(),
        "until": form.get("until", "").strip(),
        "note": form.get("note", ""),
    }
    name, _, organization_id = form.get("limit", "").partition(" ")
    call.run(ASK, fields, organization_id=organization_id, limit_id=name)
    return "The request was sent to the people who may raise the limit."


OPERATIONS: tuple[Operation, ...] = page_operations(AFTER_SIGN_IN, show, {"ask": ask})
