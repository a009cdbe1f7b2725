"""`/console/usage`: requests, tokens and costs of a period by model, key or person, and of the period before."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.accounts.projects import list_projects
from gateway.metering.rollups.rollup_table import OTHER
from gateway.money import NANO
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.plots import Plot, build_plot
from gateway.surfaces.console.shown_figures import round_cost, round_count
from gateway.surfaces.console.usage.grouping import APPS, GROUPS, Grouping, GroupName
from gateway.surfaces.console.usage.tag_steps import list_tags, read_tag_steps, read_tag_sums_before
from gateway.surfaces.console.usage.usage_period import RANGES, UsagePeriod, read_period
from gateway.surfaces.http import Operation, Outbound
from gateway.surfaces.usage_report import MANY, apps_of, usage_of
from gateway.surfaces.visitor import MANAGERS, Visitor
from gateway.worker.services import Services

TITLE = "Usage"
PATH = "/console/usage"
# Value of the field → its label; the first is the default.
MEASURES = {"spend": "Spend", "requests": "Requests", "tokens": "Tokens"}
COUNTS = ("requestCount", "errorCount", "cacheCount", "inputTokens", "outputTokens")
COSTS = ("cost", "apiKeysCost", "discountSavings")
LONGEST_TAG = 64
SHORT_PERIOD = 31  # days or hours that are listed even without requests
MOST_BARS = 100  # a plot of more steps has a bar for each week
WEEK = 7

COLUMNS = (
    Column("Requests", "requestCount", numeric=True),
    Column("Tokens in / out", "tokens", numeric=True),
    Column("Spend", "cost", numeric=True),
)
CHANGE = Column("Change", "change", numeric=True)
UNKEPT = ("q", "page")  # parameters that end with another search

Name = Callable[[dict[str, Any]], GroupName]
Steps = list[dict[str, Any]]
GroupKey = tuple[str, str]


class Shown(NamedTuple):
    """The figures that the page shows; `name` names a part of a report."""

    period: UsagePeriod
    grouping: Grouping
    measure: str
    name: Name
    is_compared: bool


def show(call: PageCall) -> Outbound:
    """Show a plot and the totals of a period, split by what the visitor chose, the most expensive first."""
    visitor = call.visitor
    arguments = call.arguments
    group = _choose(dict.fromkeys(GROUPS, ""), arguments.get("groupBy"))
    grouping = GROUPS[group]
    measure = _choose(MEASURES, arguments.get("measure"))
    period = read_period(arguments, call.services.clock.now_us())
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
    chosen = {**scope, **period.report}
    steps = _read_steps(visitor, chosen, grouping, tag)
    earlier = _read_steps_before(visitor, chosen, grouping, tag, steps)
    name = grouping.find_name(visitor)
    many = sum(len(step[grouping.parts]) for step in (*steps, *earlier)) > MANY
    shown = Shown(period, grouping, measure, name, any(step["requestCount"] for step in earlier))
    figures = compute_if(many, _read_figures, steps, earlier, shown, arguments)
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
            ("timeRange", "Time", _options(RANGES, period.name)),
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
        step="Hour" if period.is_of_hours else "Day",
        period=period,
        compared=shown.is_compared,
        credits=_credits(call.services, visitor),
        export=urlencode(chosen),
        kept={name: value for name, value in arguments.items() if name not in UNKEPT},
        **figures,
    )


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


def _read_steps_before(visitor: Visitor, chosen: dict[str, str], grouping: Grouping, tag: str, steps: Steps) -> Steps:
    """Return the sums of the period of the same length before `steps`, in at most one step. Sessions are not compared:
    few last longer than a period."""
    if grouping.report == "session":
        earlier = usage_of(visitor, chosen, broken_down=False, earlier=True)["activity"]
        return [{**step, grouping.parts: ()} for step in earlier]
    if grouping.report == "tag":
        values = {part["id"]: None for step in steps for part in step[grouping.parts]}
        return read_tag_sums_before(visitor, chosen, tag, [value for value in values if value not in ("", OTHER)])
    if grouping.parts != APPS:
        compared: Steps = usage_of(visitor, {**chosen, "groupBy": grouping.report}, earlier=True)["activity"]
        return compared
    by_app = apps_of(visitor, chosen, earlier=True)
    totals = usage_of(visitor, chosen, broken_down=False, earlier=True)["activity"]
    return [{**step, APPS: by_app.get(step["date"], ())} for step in totals]


def _read_figures(steps: Steps, earlier: Steps, shown: Shown, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the plot, the totals and the rows of both tables."""
    parts = shown.grouping.parts
    listed = [step for step in reversed(steps) if step["requestCount"] or len(steps) <= SHORT_PERIOD]
    rows = _list_rows(
        _group((part for step in steps for part in step[parts]), shown.name),
        _group((part for step in earlier for part in step[parts]), shown.name),
        {"from": steps[0]["date"] if steps else "", **shown.period.logs},
    )
    columns: tuple[Column, ...] = (Column(shown.grouping.label, "name"), *COLUMNS)
    if shown.is_compared and shown.grouping.report != "session":
        columns = (*columns, CHANGE)
    return {
        "plot": _plot(steps, parts, shown.name, shown.measure),
        "weekly": len(steps) > MOST_BARS,
        "total": _sum(steps),
        "before": _sum(earlier),
        "parts": arrange(rows, columns, arguments, searched=("name",), sort="-cost"),
        "steps": [{"date": step["date"], **_sum([step])} for step in listed],
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


def _list_rows(
    groups: dict[GroupKey, tuple[GroupName, Steps]],
    earlier: dict[GroupKey, tuple[GroupName, Steps]],
    logs: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return a row for each name, the busiest of equal cost first, with its cost in the period before and the query
    that finds its requests: its filters and those of the period, `logs`."""
    rows = []
    for ident, (named, parts) in groups.items():
        query = urlencode({**named.filters, **logs}) if named.filters else ""
        sums = _sum(parts)
        before = _sum(earlier[ident][1])["cost"] if ident in earlier else 0
        change = sums["cost"] / before if before else None
        tokens = sums["inputTokens"] + sums["outputTokens"]
        rows.append({"name": named.name, "query": query, "before": before, "change": change, "tokens": tokens, **sums})
    return sorted(rows, key=_rank)


def _rank(summary: dict[str, Any]) -> tuple[int, str]:
    return -summary["requestCount"], summary["name"]


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
