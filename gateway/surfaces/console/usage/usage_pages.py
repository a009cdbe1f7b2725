"""`/console/usage`: requests, tokens and costs of a period by model, key or person, and of the period before."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from gateway.accounts.projects import list_projects
from gateway.clock import to_datetime
from gateway.money import NANO
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.plots import Plot, build_plot
from gateway.surfaces.console.shown_figures import round_cost, round_count
from gateway.surfaces.console.usage.grouping import APPS, GROUPS, Grouping, GroupName
from gateway.surfaces.console.usage.tag_steps import list_tags, read_tag_steps
from gateway.surfaces.http import Operation, Outbound
from gateway.surfaces.usage_report import MANY, apps_of, usage_of
from gateway.surfaces.visitor import MANAGERS, Visitor
from gateway.worker.services import Services

TITLE = "Usage"
PATH = "/console/usage"
# Value of a field → its label; the first is the default.
RANGES = {"7d": "7 days", "1h": "1 hour", "24h": "24 hours", "30d": "30 days", "365d": "1 year"}
MEASURES = {"spend": "Spend", "requests": "Requests", "tokens": "Tokens"}
COUNTS = ("requestCount", "errorCount", "cacheCount", "inputTokens", "outputTokens")
COSTS = ("cost", "apiKeysCost", "discountSavings")
LONGEST_TAG = 64
SHOWN = 100  # rows of a table
SHORT_PERIOD = 31  # days or hours that are listed even without requests
MOST_BARS = 100  # a plot of more steps has a bar for each week
WEEK = 7

Name = Callable[[dict[str, Any]], GroupName]
Steps = list[dict[str, Any]]
GroupKey = tuple[str, str]


def show(call: PageCall) -> Outbound:
    """Show a plot and the totals of a period, split by what the visitor chose, the most expensive first."""
    visitor = call.visitor
    arguments = call.arguments
    group = _choose(dict.fromkeys(GROUPS, ""), arguments.get("groupBy"))
    grouping = GROUPS[group]
    measure = _choose(MEASURES, arguments.get("measure"))
    time_range = _choose(RANGES, arguments.get("timeRange"))
    scope: dict[str, str] = {name: arguments[name] for name in ("projectId", "apiKeyId") if name in arguments}
    if grouping.parts == APPS or grouping.is_of_tags:
        scope.pop("apiKeyId", None)
    tags: list[str] = []
    if group == "tag":
        tags = list_tags(visitor, scope.get("projectId"))
    tag = arguments.get("tag", "").strip().lower()[:LONGEST_TAG] or next(iter(tags), "")
    projects = {"": "All"} | {
        project.id: project.name for project in list_projects(call.services.store.database, list(visitor.memberships))
    }
    steps = _read_steps(visitor, {**scope, "timeRange": time_range}, grouping, tag)
    before = _find_period_before(call, time_range)
    earlier = _read_steps(visitor, {**scope, **before}, grouping, tag) if before else []
    many = sum(len(step[grouping.parts]) for step in (*steps, *earlier)) > MANY
    name = grouping.find_name(visitor)
    figures = compute_if(many, _read_figures, steps, earlier, grouping.parts, name, measure)
    key_name = ""
    if "apiKeyId" in scope:
        key_name = visitor.key(scope["apiKeyId"]).description
    return call.page(
        "usage/usage.html",
        TITLE,
        path=PATH,
        logs="/console/logs",
        fields=[
            ("projectId", "Project", _options(projects, scope.get("projectId", ""))),
            ("timeRange", "Time", _options(RANGES, time_range)),
            ("groupBy", "By", _options({name: one.label for name, one in GROUPS.items()}, group)),
            ("measure", "Plot of", _options(MEASURES, measure)),
        ],
        group=grouping.label,
        tag=tag,
        tags=tags,
        by_tag=group == "tag",
        key_id=scope.get("apiKeyId", ""),
        key_name=key_name,
        measure=MEASURES[measure],
        step="Hour" if time_range.endswith("h") else "Day",
        period=RANGES[time_range],
        compared=bool(before),
        credits=_credits(call.services, visitor),
        export=urlencode({**scope, "timeRange": time_range}),
        **figures,
    )


def _find_period_before(call: PageCall, time_range: str) -> dict[str, str]:
    """Return the window of as many days before a range of days; nothing for hours and for a year."""
    if time_range not in ("7d", "30d"):
        return {}
    days = int(time_range[:-1])
    today: date = to_datetime(call.services.clock.now_us()).date()
    last = today - timedelta(days=days)
    return {"from": (last - timedelta(days=days - 1)).isoformat(), "to": last.isoformat()}


def _read_steps(visitor: Visitor, chosen: dict[str, str], grouping: Grouping, tag: str) -> Steps:
    """Return the hours or days of the period, each with its breakdown."""
    if grouping.is_of_tags:
        return read_tag_steps(visitor, chosen, grouping.report, tag)
    if grouping.parts != APPS:
        steps: Steps = usage_of(visitor, {**chosen, "groupBy": grouping.report})["activity"]
        return steps
    by_app = apps_of(visitor, chosen)
    return [
        {**step, APPS: by_app.get(step["date"], [])}
        for step in usage_of(visitor, chosen, broken_down=False)["activity"]
    ]


def _read_figures(steps: Steps, earlier: Steps, parts: str, name: Name, measure: str) -> dict[str, Any]:
    """Return the plot, the totals and the rows of both tables."""
    shown = [step for step in reversed(steps) if step["requestCount"] or len(steps) <= SHORT_PERIOD]
    return {
        "plot": _plot(steps, parts, name, measure),
        "weekly": len(steps) > MOST_BARS,
        "total": _sum(steps),
        "before": _sum(earlier),
        "parts": _ranked(
            _group((part for step in steps for part in step[parts]), name),
            _group((part for step in earlier for part in step[parts]), name),
            steps[0]["date"] if steps else "",
        ),
        "steps": [{"name": step["date"].replace("T", " "), **_sum([step])} for step in shown],
    }


def _plot(steps: Steps, parts: str, name: Name, measure: str) -> Plot:
    size = 1
    if len(steps) > MOST_BARS:
        size = WEEK
    bars = [steps[index : index + size] for index in range(0, len(steps), size)]
    series: dict[str, list[int]] = defaultdict(lambda: [0] * len(bars))
    for index, bar in enumerate(bars):
        for part in (part for step in bar for part in step[parts]):
            series[name(part).name][index] += _value_of(part, measure)
    dates = [bar[0]["date"] for bar in bars]
    if measure == "spend":
        return build_plot(dates, series, round_cost)
    return build_plot(dates, series, round_count)


def _value_of(part: dict[str, Any], measure: str) -> int:
    if measure == "spend":
        return round(part["cost"] * NANO)
    if measure == "requests":
        return int(part["requestCount"])
    return int(part["totalTokens"])


def _choose(known: dict[str, str], value: str | None) -> str:
    if value in known:
        return value
    return next(iter(known))


def _options(known: dict[str, str], chosen: str) -> list[tuple[str, str, bool]]:
    return [(value, text, value == chosen) for value, text in known.items()]


def _sum(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of `rows`. Money is summed in integer nano-dollars."""
    sums: dict[str, int] = dict.fromkeys((*COUNTS, *COSTS), 0)
    for row in rows:
        for name in COUNTS:
            sums[name] += row.get(name, 0)
        for name in COSTS:
            sums[name] += round(row.get(name, 0) * NANO)
    return sums


def _group(parts: Iterable[dict[str, Any]], name: Name) -> dict[GroupKey, tuple[GroupName, Steps]]:
    """Return the parts of each name; ids tell equal names apart."""
    groups: dict[GroupKey, tuple[GroupName, Steps]] = {}
    for part in parts:
        named = name(part)
        groups.setdefault((named.name, named.id), (named, []))[1].append(part)
    return groups


def _ranked(
    groups: dict[GroupKey, tuple[GroupName, Steps]], earlier: dict[GroupKey, tuple[GroupName, Steps]], first: str
) -> list[dict[str, Any]]:
    """Return a row for each name, the most expensive first, with its cost in the period before and the query that finds
    its requests."""
    rows = []
    for ident, (named, parts) in groups.items():
        query = urlencode({**named.filters, "from": first}) if named.filters else ""
        before = _sum(earlier[ident][1])["cost"] if ident in earlier else 0
        rows.append({"name": named.name, "query": query, "before": before, **_sum(parts)})
    return sorted(rows, key=_rank)[:SHOWN]


def _rank(summary: dict[str, Any]) -> tuple[int, int, str]:
    return -summary["cost"], -summary["requestCount"], summary["name"]


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, int | None]]:
    """Return the name and remaining credits of each organization that the visitor manages; None: unlimited."""
    credits = []
    for organization in visitor.organizations():
        membership = visitor.memberships.get(organization.id)
        if membership is not None and membership.role in MANAGERS:
            balance = services.management.ledger.balance(organization.id)
            credits.append((organization.name, None if balance.unlimited else balance.balance_nusd))
    return credits


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show)
