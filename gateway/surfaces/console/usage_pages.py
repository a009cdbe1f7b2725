"""`/console/usage`: requests, tokens and costs of a period by model, key or person, and of the period before."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, timedelta
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson
from msgspec import Struct

from gateway.accounts.projects import list_projects
from gateway.clock import to_datetime
from gateway.metering.activity import HeldValues, Owners, TagValues, measure, measure_held, measure_top
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once, week_of
from gateway.metering.rollups.rollup_table import OTHER, SESSION
from gateway.metering.usage_table import raw_id
from gateway.money import round_usd
from gateway.reports.shares import read_held
from gateway.runtime.threads import compute_if
from gateway.store.database import Database
from gateway.surfaces.console.grouping import GROUPS, Grouping, GroupingScope, GroupName, Namer
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.plots import MAX_SERIES, build_plot
from gateway.surfaces.console.plots import OTHER_SERIES as OTHER_NAMES
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.visitors.report_windows import DEFAULT_DAYS, EARLIEST, MAX_DAYS, ReportRange, read_window
from gateway.surfaces.visitors.usage_report import THREAD_PARTS, ActivityQuery, UsageScope, scope_of
from gateway.surfaces.visitors.validation_schemas import read_fields
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound
from gateway.worker.services import Services

# The figures of the usage page, read in one snapshot: totals by hour or day, sums by name, and the bars of a plot.
#
# Sums of keys and projects are read for the whole period, from blocks of days, and by bar only for the names in the
# plot. The other dimensions have few names, or names that every bar has to be searched for, so one query serves both.

MAX_VALUES_SHOWN = 100  # values of a tag, or sessions, with the highest cost; the others are one name
COST = ("cost_nusd",)
PARTS = ("requests", "input_tokens", "output_tokens", "cost_nusd")
TOTALS = (*PARTS, "errors", "cached_requests", "byok_nusd", "discount_nusd")
NO_ACTIVITY = ActivityFigures()

Steps = dict[str, ActivityFigures]  # by label


class UsageQuestion(Struct, frozen=True):
    """The usage of a period and how it is plotted. `owners` have all usage, `parts` the same usage by name. The bars
    show the sum of the figures `measured`. `tag` is the name of a tag, SESSION for sessions, and `held` has the values
    of an attribute of the owner of each key."""

    owners: Owners
    parts: Owners
    window: ReportRange
    bars: ReportRange
    grouping: Grouping
    name: Namer
    measured: tuple[str, ...]
    tag: str = SESSION
    held: HeldValues | None = None


class NamedUsage(NamedTuple):
    """The sums of a name over a period."""

    named: GroupName
    figures: ActivityFigures


NameKey = tuple[str, str]  # name and id; the ids tell equal names apart


class PeriodUsage(NamedTuple):
    """The usage of a period by step and by name, and that of the period before. `series` are the values of the bars of
    the largest names, and of all other names together."""

    steps: Steps
    names: dict[NameKey, NamedUsage]
    series: dict[str, list[int]]
    before: ActivityFigures
    names_before: dict[NameKey, NamedUsage]


class UsagePart(NamedTuple):
    """The figures of a row in the bar or period of a label."""

    label: str
    values: tuple[Any, ...]
    figures: ActivityFigures


def read_usage(database: Database, question: UsageQuestion) -> PeriodUsage:
    """Return the figures of the page. Unavailable."""
    return at_once(database, lambda: _read(database, question))


def _read(database: Database, question: UsageQuestion) -> PeriodUsage:
    window = question.window
    rows = measure(database, question.owners, window.span, "total", TOTALS)
    steps = _add_up((window.label(row.step), row.figures) for row in rows)
    totals = _add_up((_bar_of(question, row), row.figures) for row in rows)
    if question.grouping.is_of_owners:
        names = _sum_names(question, _read_parts(database, question, window.whole(), PARTS))
        bars = _read_bars(database, question, _list_largest(question, names))
    else:
        parts = _read_named_parts(database, question, totals)
        names = _sum_names(question, parts)
        bars = _add_bars(question, parts, _list_largest(question, names))
    earlier = window.before()
    rows = measure(database, question.owners, earlier.span, "total", TOTALS)
    before = _add_up((earlier.label(row.step), row.figures) for row in rows)
    names_before = {}
    if before:
        names_before = _sum_names(question, _read_parts_before(database, question, earlier, names, before))
    total_before = next(iter(before.values()), NO_ACTIVITY)
    return PeriodUsage(steps, names, _list_series(question, totals, bars), total_before, names_before)


def _bar_of(question: UsageQuestion, row: Row) -> str:
    """Return the label of the bar in which an hour or day is."""
    if question.bars.span.step == "week":
        return question.bars.label(week_of(row.step))
    return question.bars.label(row.step)


def _read_parts(
    database: Database, question: UsageQuestion, period: ReportRange, figures: tuple[str, ...]
) -> list[UsagePart]:
    if question.held is not None:
        rows = measure_held(database, question.held, period.span, figures)
    else:
        rows = measure(database, question.parts, period.span, question.grouping.dimension, figures)
    return [UsagePart(period.label(row.step), row.value, row.figures) for row in rows]


def _read_named_parts(database: Database, question: UsageQuestion, totals: Steps) -> list[UsagePart]:
    """Return the parts of all bars in a dimension that is not one of owners."""
    if question.grouping.dimension != "tag":
        return _read_parts(database, question, question.bars, PARTS)
    top = measure_top(database, question.parts, question.window.span, question.tag, COST, MAX_VALUES_SHOWN)
    return _read_values(database, question, question.bars, [row.value[0] for row in top], totals)


def _read_parts_before(
    database: Database, question: UsageQuestion, earlier: ReportRange, names: Iterable[NameKey], totals: Steps
) -> list[UsagePart]:
    """Return the parts of the period before. Sessions are not compared: few last longer than a period."""
    if question.grouping.dimension != "tag":
        return _read_parts(database, question, earlier, COST)
    if question.tag == SESSION:
        return []
    return _read_values(database, question, earlier, [ident for _, ident in names], totals)


def _read_values(
    database: Database, question: UsageQuestion, period: ReportRange, values: Sequence[str], totals: Steps
) -> list[UsagePart]:
    """Return the parts of values of a tag, those of all other values as OTHER, and of usage without the tag as ""."""
    rows = []
    if values:
        listed = TagValues(question.tag, tuple(values))
        rows = measure(database, question.parts, period.span, "tag", PARTS, listed)
    parts = [UsagePart(period.label(row.step), row.value, row.figures) for row in rows]
    of_values = _add_up((part.label, part.figures) for part in parts)
    rows = measure(database, question.parts, period.span, "tag_total", PARTS, TagValues(question.tag))
    of_tag = _add_up((period.label(row.step), row.figures) for row in rows)
    for label, total in totals.items():
        tagged = of_tag.get(label, NO_ACTIVITY)
        parts.append(UsagePart(label, (OTHER,), _subtract(tagged, of_values.get(label, NO_ACTIVITY))))
        parts.append(UsagePart(label, ("",), _subtract(total, tagged)))
    return [part for part in parts if any(vars(part.figures).values())]


def _sum_names(question: UsageQuestion, parts: Iterable[UsagePart]) -> dict[NameKey, NamedUsage]:
    by_name: dict[tuple[Any, ...], GroupName] = {}
    sums: dict[NameKey, NamedUsage] = {}
    for part in parts:
        named = by_name.get(part.values)
        if named is None:
            named = by_name[part.values] = question.name(part.values)
        sums.setdefault((named.name, named.id), NamedUsage(named, ActivityFigures())).figures.add(part.figures)
    return sums


def _list_largest(question: UsageQuestion, names: dict[NameKey, NamedUsage]) -> list[str]:
    """Return the names that get a series."""
    sizes: dict[str, int] = {}
    for (name, ident), usage in names.items():
        if ident != OTHER and name != OTHER_NAMES:
            sizes[name] = sizes.get(name, 0) + _value(question, usage.figures)
    return sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_SERIES]


def _read_bars(database: Database, question: UsageQuestion, shown: Sequence[str]) -> dict[str, Steps]:
    """Return the bars of some names of keys or projects."""
    owners: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in shown}
    for place, idents in enumerate((question.parts.project_ids, question.parts.key_ids)):
        for ident in idents:
            name = question.name((raw_id(ident),)).name
            if name in owners:
                owners[name][place].append(ident)
    bars = {}
    for name, (project_ids, key_ids) in owners.items():
        owned = Owners(tuple(project_ids), tuple(key_ids))
        rows = measure(database, owned, question.bars.span, "total", question.measured)
        bars[name] = _add_up((question.bars.label(row.step), row.figures) for row in rows)
    return bars


def _add_bars(question: UsageQuestion, parts: Iterable[UsagePart], shown: Sequence[str]) -> dict[str, Steps]:
    bars: dict[str, list[UsagePart]] = {name: [] for name in shown}
    for part in parts:
        name = question.name(part.values).name
        if name in bars:
            bars[name].append(part)
    return {name: _add_up((part.label, part.figures) for part in listed) for name, listed in bars.items()}


def _list_series(question: UsageQuestion, totals: Steps, bars: dict[str, Steps]) -> dict[str, list[int]]:
    labels = question.bars.padding
    series = {}
    rest = [_value(question, totals.get(label, NO_ACTIVITY)) for label in labels]
    for name, steps in bars.items():
        series[name] = [_value(question, steps.get(label, NO_ACTIVITY)) for label in labels]
        rest = [total - value for total, value in zip(rest, series[name], strict=True)]
    if any(rest):
        series[OTHER_NAMES] = rest
    return series


def _add_up(labelled: Iterable[tuple[str, ActivityFigures]]) -> Steps:
    sums: Steps = {}
    for label, figures in labelled:
        sums.setdefault(label, ActivityFigures()).add(figures)
    return sums


def _value(question: UsageQuestion, figures: ActivityFigures) -> int:
    return sum(getattr(figures, name) for name in question.measured)


def _subtract(figures: ActivityFigures, part: ActivityFigures) -> ActivityFigures:
    rest = ActivityFigures()
    for name in PARTS:
        setattr(rest, name, getattr(figures, name) - getattr(part, name))
    return rest


# The period of the usage page: a number of hours or days until now, or the days between two dates.

CUSTOM = "custom"
# Value of the field → its label; the first is the default.
RANGES = {
    "7d": "7 days",
    "1h": "1 hour",
    "24h": "24 hours",
    "30d": "30 days",
    "365d": "1 year",
    CUSTOM: "Custom",
}


class UsagePeriod(NamedTuple):
    """A period. `report` are the parameters of the usage report, `logs` those that find its requests in the request
    log, in addition to the first step. `first` and `last` are the days of a period between two dates."""

    name: str
    label: str
    report: Mapping[str, str]
    logs: Mapping[str, str]
    first: str = ""
    last: str = ""
    today: str = ""

    @property
    def is_of_hours(self) -> bool:
        """Return whether its steps are hours."""
        return self.name.endswith("h")

    @property
    def is_custom(self) -> bool:
        """Return whether it lies between two dates."""
        return self.name == CUSTOM


def read_period(arguments: Mapping[str, str], now_us: int) -> UsagePeriod:
    """Return the period that the parameters of the page name. Days in the wrong order are exchanged, and a period that
    is longer than a report may be ends with its last day."""
    name = arguments.get("timeRange", "")
    if name not in RANGES:
        name = next(iter(RANGES))
    if name != CUSTOM:
        return UsagePeriod(name, RANGES[name], {"timeRange": name}, {})
    today = to_datetime(now_us).astimezone(UTC).date()
    last = _read_day(arguments.get("to", ""), today, today)
    first = _read_day(arguments.get("from", ""), today, last - timedelta(days=DEFAULT_DAYS - 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - timedelta(days=MAX_DAYS - 1))
    days = (last - first).days + 1
    label = "day" if days == 1 else f"{days} days"
    dates = {"from": first.isoformat(), "to": last.isoformat()}
    logs = {"to": (last + timedelta(days=1)).isoformat()}
    return UsagePeriod(name, label, dates, logs, dates["from"], dates["to"], today.isoformat())


def _read_day(text: str, today: date, otherwise: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return otherwise
    return min(today, max(EARLIEST, day))


# The names of tags in the latest requests, for a choice.

PROJECTS = 20
LATEST = 500  # rows of each project in which names of tags are searched


def list_tags(database: Database, project_ids: Sequence[str]) -> list[str]:
    """Return the names of tags in the latest requests of the projects."""
    rows = database.report(partial(_latest_tags, database, project_ids[:PROJECTS]))
    return sorted({name for row in rows for name in orjson.loads(row)})


def _latest_tags(database: Database, projects: Sequence[str]) -> list[str]:
    sql = "SELECT tags FROM usage WHERE project = ? ORDER BY request DESC LIMIT ?"
    rows = [row for project in projects for row in database.fetch(sql, (raw_id(project), LATEST))]
    return [row[0] for row in rows if row[0]]


TITLE = "Usage"
PATH = "/console/usage"


class Measure(NamedTuple):
    """Something that the plot can show, and the figures that are added up for it."""

    label: str
    figures: tuple[str, ...]


# The first is the default.
MEASURES = {
    "spend": Measure("Spend", ("cost_nusd",)),
    "requests": Measure("Requests", ("requests",)),
    "tokens": Measure("Tokens", ("input_tokens", "output_tokens")),
}
MAX_TAG_LENGTH = 64
DEFAULT_TAG = "team"  # the tag of a page without one, which no latest request has
SHORT_PERIOD = 31  # days or hours that are listed even without requests
MAX_BARS = 100  # a plot of more days has a bar for each week

COLUMNS = (
    Column("Requests", "requestCount", numeric=True),
    Column("Tokens in / out", "tokens", numeric=True),
    Column("Spend", "cost", numeric=True),
)
CHANGE = Column("Change", "change", numeric=True)
UNKEPT = ("q", "page")  # parameters that end with another search


class UsageChoices(NamedTuple):
    """The choices that the visitor made, from the parameters of the page."""

    group: str
    measure: str
    period: UsagePeriod
    # Parameters of the usage report of the same period, projects and key.
    report: dict[str, str]


def show(call: PageCall) -> Outbound:
    """Show a plot and the totals of a period, split by what the visitor chose, the most expensive first."""
    visitor = call.visitor
    arguments = call.arguments
    choices = _read_choices(call)
    group, measure, period, report = choices
    grouping = GROUPS[group]
    database = call.services.store.database
    projects = {"": "All projects"} | {
        project.id: project.name for project in list_projects(database, list(visitor.memberships))
    }
    scope = scope_of(visitor, report.get("projectId"), report.get("apiKeyId", ""))
    tags: list[str] = []
    if group == "tag":
        tags = list_tags(database, scope.owners.project_ids)
    tag = arguments.get("tag", "").strip().lower()[:MAX_TAG_LENGTH] or next(iter(tags), "")
    question = _ask(visitor, choices, scope, tag)
    usage = read_usage(database, question)
    figures = compute_if(
        len(usage.names) + len(usage.names_before) > THREAD_PARTS, _show_figures, question, usage, choices, arguments
    )
    key_name = ""
    if "apiKeyId" in report:
        key_name = scope.keys[report["apiKeyId"]].description if report["apiKeyId"] in scope.keys else ""
    return call.page(
        "usage/usage.html",
        TITLE,
        path=PATH,
        logs="/console/logs",
        fields=[
            ("projectId", "Project", _options(projects, report.get("projectId", ""))),
            ("timeRange", "Period", _options(RANGES, period.name)),
            ("groupBy", "Group by", _options({name: one.label for name, one in GROUPS.items()}, group)),
            ("measure", "Metric", _options({name: one.label for name, one in MEASURES.items()}, measure)),
        ],
        group=grouping.label,
        tag=tag,
        tags=tags,
        by_tag=group == "tag",
        key_id=report.get("apiKeyId", ""),
        key_name=key_name,
        measure=MEASURES[measure].label,
        step="Hour" if period.is_of_hours else "Day",
        weekly=question.bars is not question.window,
        period=period,
        credits=_credits(call.services, visitor),
        export=_export_path(choices),
        kept={name: value for name, value in arguments.items() if name not in UNKEPT},
        **figures,
    )


def _read_choices(call: PageCall) -> UsageChoices:
    arguments = call.arguments
    group = _choose(GROUPS, arguments.get("groupBy"))
    period = read_period(arguments, call.services.clock.now_us())
    report: dict[str, str] = {name: arguments[name] for name in ("projectId", "apiKeyId") if name in arguments}
    if GROUPS[group].dimension in ("source", "tag") or GROUPS[group].attribute:
        report.pop("apiKeyId", None)
    return UsageChoices(group, _choose(MEASURES, arguments.get("measure")), period, {**report, **period.report})


def _export_path(choices: UsageChoices) -> str:
    """Return the path of the CSV with the usage of the page: by attribute, else by hour or day."""
    if GROUPS[choices.group].attribute:
        report = {name: value for name, value in choices.report.items() if name != "apiKeyId"}
        return f"/activity/shares/export?{urlencode({**report, 'groupBy': choices.group})}"
    return f"/activity/export?{urlencode(choices.report)}"


def _ask(visitor: Visitor, choices: UsageChoices, scope: UsageScope, tag: str) -> UsageQuestion:
    grouping = GROUPS[choices.group]
    window = read_window(read_fields(ActivityQuery, choices.report), visitor.services.clock.now_us())
    bars = window
    if len(window.padding) > MAX_BARS:
        bars = window.by_week()
    parts = scope.owners
    if grouping.dimension == "api_key":
        parts = scope.by_key
    tag = SESSION if choices.group == "session" else tag or DEFAULT_TAG
    name = grouping.find_name(GroupingScope(visitor, scope.keys, tag))
    figures = MEASURES[choices.measure].figures
    keys = {ident: key for ident, key in scope.keys.items() if ident in scope.by_key.key_ids}
    held = read_held(visitor.services.store.database, keys, grouping.attribute)
    return UsageQuestion(scope.owners, parts, window, bars, grouping, name, figures, tag, held)


def _show_figures(
    question: UsageQuestion, usage: PeriodUsage, choices: UsageChoices, arguments: Mapping[str, str]
) -> dict[str, Any]:
    """Return the plot, the totals and the rows of both tables."""
    grouping = question.grouping
    steps = [(label, usage.steps.get(label, NO_ACTIVITY)) for label in question.window.padding]
    listed = [(label, sums) for label, sums in reversed(steps) if sums.requests or len(steps) <= SHORT_PERIOD]
    rows = _list_rows(usage, {"from": steps[0][0], **choices.period.logs})
    compared = bool(usage.before.requests)
    columns: tuple[Column, ...] = (Column(grouping.label, "name"), *COLUMNS)
    if compared and choices.group != "session":
        columns = (*columns, CHANGE)
    write = round_usd if choices.measure == "spend" else round_count
    total = ActivityFigures()
    for _, sums in steps:
        total.add(sums)
    return {
        "plot": build_plot(question.bars.padding, usage.series, write),
        "compared": compared,
        "total": _show(total),
        "before": _show(usage.before),
        "parts": arrange(rows, columns, arguments, searched=("name",), sort="-cost"),
        "steps": [{"date": label, **_show(sums)} for label, sums in listed],
    }


def _show(figures: ActivityFigures) -> dict[str, int]:
    """Return the figures of a line by the names in the template; money in nano-dollars."""
    return {
        "requestCount": figures.requests,
        "errorCount": figures.errors,
        "cacheCount": figures.cached_requests,
        "inputTokens": figures.input_tokens,
        "outputTokens": figures.output_tokens,
        "cost": figures.cost_nusd,
        "apiKeysCost": figures.byok_nusd,
        "discountSavings": figures.discount_nusd,
    }


def _choose(known: Mapping[str, Any], value: str | None) -> str:
    if value is not None and value in known:
        return value
    return next(iter(known))


def _options(known: dict[str, str], chosen: str) -> list[tuple[str, str, bool]]:
    return [(value, text, value == chosen) for value, text in known.items()]


def _list_rows(usage: PeriodUsage, logs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each name, the busiest of equal cost first, with its cost in the period before and the query
    that finds its requests: its filters and those of the period, `logs`."""
    rows = []
    for ident, (named, sums) in usage.names.items():
        query = urlencode({**named.filters, **logs}) if named.filters else ""
        before = 0
        if ident in usage.names_before:
            before = usage.names_before[ident].figures.cost_nusd
        change = sums.cost_nusd / before if before else None
        tokens = sums.input_tokens + sums.output_tokens
        shown = {"name": named.name, "query": query, "before": before, "change": change, "tokens": tokens}
        rows.append({**shown, **_show(sums)})
    return sorted(rows, key=_rank)


def _rank(summary: dict[str, Any]) -> tuple[int, str]:
    return -summary["requestCount"], summary["name"]


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, int | None]]:
    """Return the name and remaining credits of each organization that the visitor manages; None: unlimited."""
    credits = []
    for organization in visitor.organizations():
        if visitor.manages("credits:read", organization.id):
            balance = services.management.ledger.balance(organization.id)
            credits.append((organization.name, None if balance.unlimited else balance.balance_nusd))
    return credits


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show)
