"""`/console/explore`: a measure of usage over time, by one or two groups, compared with an earlier period."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from gateway.accounts.projects import list_projects
from gateway.accounts.saved_views import SavedView
from gateway.clock import HOUR_US, from_datetime, to_datetime
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.rollup_table import HOURS
from gateway.metering.usage_table import raw_id
from gateway.reports.latency_percentiles import BUSIEST
from gateway.reports.shares import read_held
from gateway.runtime.threads import compute_if
from gateway.store.database import Database
from gateway.surfaces.console.explore_views import find_view, read_view, remove, save, show_views
from gateway.surfaces.console.grouping import (
    GROUPS,
    GroupingScope,
    UsageFilter,
    families_of,
    filter_keys,
    filter_values,
    find_dimension,
    find_tag,
    name_rows,
    open_groups,
    read_filters,
    split_groups,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations, show_instead
from gateway.surfaces.console.plots import BarLink, build_lines, build_plot, choose_colours
from gateway.surfaces.console.usage_measures import MEASURES, Measure
from gateway.surfaces.console.usage_reader import (
    NO_ACTIVITY,
    PeriodUsage,
    TimedUsage,
    UsageQuestion,
    read_times,
    read_usage,
)
from gateway.surfaces.visitors.report_windows import (
    DEFAULT_DAYS,
    EARLIEST,
    MAX_DAYS,
    ReportRange,
    hours_between,
    read_window,
)
from gateway.surfaces.visitors.usage_report import THREAD_PARTS, ActivityQuery, UsageScope, scope_of
from gateway.surfaces.visitors.validation_schemas import read_fields
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound
from gateway.worker.services import Services

# The period: a number of hours or days until now, or the days or hours between two times.

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
HOUR_LENGTH = len("2026-01-31T14")
MAX_HOURS = 7 * HOURS
MAX_BARS = 100  # a plot of more days has a bar for each week
WEEK_HOURS = 7 * HOURS


class UsagePeriod(NamedTuple):
    """A period. `report` are the parameters of the usage report. `first` and `last` are the days or hours of a period
    between two times."""

    name: str
    label: str
    window: ReportRange
    report: Mapping[str, str]
    first: str = ""
    last: str = ""
    today: str = ""

    @property
    def is_of_hours(self) -> bool:
        """Return whether its steps are hours."""
        return self.window.span.step == "hour"

    @property
    def is_custom(self) -> bool:
        """Return whether it lies between two times."""
        return self.name == CUSTOM

    @property
    def bars(self) -> ReportRange:
        """Return the period by the steps of the plot."""
        return by_bars(self.window)


def by_bars(window: ReportRange) -> ReportRange:
    """Return a period by hours, days or weeks, so that a plot has few enough bars."""
    if window.span.step != "hour" and len(window.padding) > MAX_BARS:
        return window.by_week()
    return window


def read_period(arguments: Mapping[str, str], now_us: int) -> UsagePeriod:
    """Return the period that the parameters of the page name. Times in the wrong order are exchanged, and a period that
    is longer than a report may be ends with its last day."""
    name = arguments.get("timeRange", "")
    if name not in RANGES:
        name = next(iter(RANGES))
    if name != CUSTOM:
        report = {"timeRange": name}
        return UsagePeriod(name, RANGES[name], _window_of(report, now_us), report)
    first, last = arguments.get("from", ""), arguments.get("to", "")
    if "T" in first and "T" in last:
        return _read_hours(first[:HOUR_LENGTH], last[:HOUR_LENGTH], now_us)
    return _read_days(first, last, now_us)


def _read_days(first_text: str, last_text: str, now_us: int) -> UsagePeriod:
    today = to_datetime(now_us).astimezone(UTC).date()
    last = _read_day(last_text, today, today)
    first = _read_day(first_text, today, last - timedelta(days=DEFAULT_DAYS - 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - timedelta(days=MAX_DAYS - 1))
    days = (last - first).days + 1
    label = "day" if days == 1 else f"{days} days"
    dates = {"from": first.isoformat(), "to": last.isoformat()}
    window = _window_of(dates, now_us)
    return UsagePeriod(CUSTOM, label, window, dates, dates["from"], dates["to"], today.isoformat())


def _read_hours(first_text: str, last_text: str, now_us: int) -> UsagePeriod:
    """Return the hours between two hours like 2026-01-31T14, both included."""
    this = now_us // HOUR_US
    last = min(this, _read_hour(last_text, this))
    first = min(this, _read_hour(first_text, last - HOURS + 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - MAX_HOURS + 1)
    hours = last - first + 1
    label = "hour" if hours == 1 else f"{hours} hours"
    texts = [_write_hour(hour) for hour in (first, last)]
    days = {"from": texts[0][:10], "to": texts[1][:10]}
    return UsagePeriod(CUSTOM, label, hours_between(first, last + 1), days, texts[0], texts[1], _write_hour(this)[:10])


def _window_of(report: Mapping[str, str], now_us: int) -> ReportRange:
    return read_window(read_fields(ActivityQuery, report), now_us)


def _read_day(text: str, today: date, otherwise: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return otherwise
    return min(today, max(EARLIEST, day))


def _read_hour(text: str, otherwise: int) -> int:
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return otherwise
    return from_datetime(max(at, datetime.combine(EARLIEST, datetime.min.time(), UTC))) // HOUR_US


def _write_hour(hour: int) -> str:
    return to_datetime(hour * HOUR_US).astimezone(UTC).strftime("%Y-%m-%dT%H")


# The period of the comparison; the first is the default.

COMPARISONS = {"before": "Period before", "weekdays": "Same weekdays", "none": "Nothing"}
SENTENCES = {"before": "the period before", "weekdays": "the same weekdays before", "none": ""}


def find_earlier(window: ReportRange, comparison: str) -> ReportRange | None:
    """Return the period of a comparison, by the steps of the plot; None for none."""
    hours = window.span.end - window.span.first
    if comparison == "none":
        return None
    if comparison == "weekdays":
        hours = -(-hours // WEEK_HOURS) * WEEK_HOURS
    return by_bars(window.earlier(hours))


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


TITLE = "Explore"
PATH = "/console/explore"
VIEW = "/console/explore/views/<view_id>"
LOGS = "/console/logs"
MAX_TAG_LENGTH = 64
DEFAULT_TAG = "team"  # the tag of a page without one, which no latest request has
SHORT_PERIOD = 31  # days or hours that are listed even without requests
UNKEPT = ("q", "page")  # parameters that end with another search
NEXT_GROUPS = ("model", "user", "apiKey", "app", "tag")  # by which the usage of one name is grouped

COLUMNS = (
    Column("Requests", "requestCount", numeric=True),
    Column("Tokens in / out", "tokens", numeric=True),
    Column("Spend", "cost", numeric=True),
)
PLAIN_MEASURES = {"spend": "cost", "requests": "requestCount", "tokens": "tokens"}  # those of COLUMNS, with their keys


class UsageChoices(NamedTuple):
    """The choices that the visitor made, from the parameters of the page. `report` are the parameters of the usage
    report of the same period, project and key."""

    group: str
    split: str
    measure: str
    comparison: str
    period: UsagePeriod
    filters: dict[UsageFilter, str]
    report: dict[str, str]

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups that are chosen."""
        return (self.group, self.split) if self.split else (self.group,)


def show(call: PageCall) -> Outbound:
    """Show a plot and the totals of a period, split by what the visitor chose, the largest first."""
    return _show(call, call.arguments, None)


def show_view(call: PageCall) -> Outbound:
    """Show a saved view."""
    view = find_view(call)
    return _show(call, read_view(view, call.arguments), view)


def remove_view(call: PageCall) -> Outbound:
    """Remove a saved view, and show Explore."""
    return show_instead(call, PATH, show, remove(call))


def _show(call: PageCall, arguments: dict[str, str], view: SavedView | None) -> Outbound:
    visitor = call.visitor
    choices = read_choices(call, arguments)
    database = call.services.store.database
    projects = {project.id: project.name for project in list_projects(database, list(visitor.memberships))}
    scope = scope_of(visitor, choices.report.get("projectId"), choices.report.get("apiKeyId", ""))
    tags: list[str] = []
    by_tag = "tag" in choices.groups
    if by_tag:
        tags = list_tags(database, scope.owners.project_ids)
    tag = arguments.get("tag", "").strip().lower()[:MAX_TAG_LENGTH] or next(iter(tags), "") or DEFAULT_TAG
    naming = GroupingScope(visitor, scope.keys, find_tag(choices.group, choices.split, choices.filters, tag))
    question = ask(visitor, choices, scope, naming)
    usage = read_usage(database, question)
    times = None
    if question.measure.timed:
        projects_of_keys = {ident: key.project_id for ident, key in scope.keys.items()}
        times = read_times(database, question, usage, projects_of_keys)
        usage = usage._replace(series=times.series, line=[])
    many = len(usage.names) + len(usage.names_before) > THREAD_PARTS
    figures = compute_if(many, _show_figures, question, usage, times, choices, arguments)
    measure = MEASURES[choices.measure]
    step = "day" if question.bars is question.window else "week"
    if choices.period.is_of_hours:
        step = "hour"
    return call.page(
        "explore/explore.html",
        TITLE if view is None else view.name,
        path=PATH,
        logs=LOGS,
        extra=choices.measure not in PLAIN_MEASURES,
        zoom=_write_query(arguments, **dict.fromkeys((*UNKEPT, "timeRange", "from", "to"), "")) or "measure=spend",
        fields=_list_fields(choices, projects),
        filters=_list_filters(choices, arguments, naming, projects),
        groups=[GROUPS[group].label for group in choices.groups],
        tag=tag,
        tags=tags,
        by_tag=by_tag,
        measure=measure,
        step=step,
        period=choices.period,
        busiest=BUSIEST,
        comparison=SENTENCES[choices.comparison],
        credits=_credits(call.services, visitor),
        export=_export_path(choices),
        kept={name: value for name, value in arguments.items() if name not in UNKEPT},
        **show_views(call, arguments, view),
        **figures,
    )


def read_choices(call: PageCall, arguments: Mapping[str, str]) -> UsageChoices:
    """Return the choices that parameters name; what cannot be combined is left out."""
    filters = read_filters(arguments)
    group = _choose(open_groups(families_of(filters)), arguments.get("groupBy"))
    splits = split_groups(group, families_of(filters))
    split = arguments.get("splitBy", "")
    period = read_period(arguments, call.services.clock.now_us())
    report: dict[str, str] = {name: arguments[name] for name in ("projectId", "apiKeyId") if name in arguments}
    return UsageChoices(
        group,
        split if split in splits else "",
        _choose(MEASURES, arguments.get("measure")),
        _choose(COMPARISONS, arguments.get("compare")),
        period,
        filters,
        {**report, **period.report},
    )


def _list_fields(choices: UsageChoices, projects: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the fields of the form, with the choices of each: value, text, and whether it is chosen, by section."""
    families = families_of(choices.filters)
    groups = {name: one.label for name, one in open_groups(families).items()}
    splits = {"": "Nothing else"} | {name: one.label for name, one in split_groups(choices.group, families).items()}
    sections: dict[str, dict[str, str]] = {}
    for name, one in MEASURES.items():
        sections.setdefault(one.section, {})[name] = one.label
    fields = (
        ("measure", "Measure", sections, choices.measure),
        ("groupBy", "By", {"": groups}, choices.group),
        ("splitBy", "And by", {"": splits}, choices.split),
        ("timeRange", "Period", {"": RANGES}, choices.period.name),
        ("compare", "Compared with", {"": COMPARISONS}, choices.comparison),
        ("projectId", "Project", {"": {"": "All projects", **projects}}, choices.report.get("projectId", "")),
    )
    return [
        {"name": name, "label": label, "sections": known, "chosen": chosen} for name, label, known, chosen in fields
    ]


def _list_filters(
    choices: UsageChoices, arguments: Mapping[str, str], naming: GroupingScope, projects: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return the filters in force, each with its parameter, value, text, and the query of the page without it."""
    shown = [(one.parameter, value, f"{GROUPS[one.group].label}: {value}") for one, value in choices.filters.items()]
    for one, value in choices.filters.items():
        if one.group == "user":
            name = GROUPS["user"].find_name(naming)
            people = (name((raw_id(ident),)) for ident in naming.keys)
            text = next((person.name for person in people if person.id == value), value)
            shown = [(name, v, f"Person: {text}" if name == "userId" else label) for name, v, label in shown]
    key_id = choices.report.get("apiKeyId", "")
    if key_id:
        description = naming.keys[key_id].description if key_id in naming.keys else ""
        shown.append(("apiKeyId", key_id, f"API key: {description or key_id}"))
    return [
        {"name": name, "value": value, "text": text, "without": _write_query(arguments, **{name: ""})}
        for name, value, text in shown
    ]


def _export_path(choices: UsageChoices) -> str:
    """Return the path of the CSV with the usage of the page: by attribute, else by hour or day; "" with filters that
    the report does not have."""
    if choices.filters:
        return ""
    if GROUPS[choices.group].attribute:
        report = {name: value for name, value in choices.report.items() if name != "apiKeyId"}
        return f"/activity/shares/export?{urlencode({**report, 'groupBy': choices.group})}"
    return f"/activity/export?{urlencode(choices.report)}"


def ask(visitor: Visitor, choices: UsageChoices, scope: UsageScope, naming: GroupingScope) -> UsageQuestion:
    """Return the question that choices ask within a scope."""
    groups = [GROUPS[group] for group in choices.groups]
    dimension = find_dimension(groups, families_of(choices.filters))
    owners = filter_keys(choices.filters, naming)
    parts = owners or (scope.by_key if dimension.startswith("api_key") else scope.owners)
    keys = {ident: key for ident, key in scope.keys.items() if owners is None or ident in owners.key_ids}
    window, bars = choices.period.window, choices.period.bars
    return UsageQuestion(
        scope.owners if owners is None else owners,
        parts,
        window,
        bars,
        dimension,
        name_rows(groups, naming, dimension),
        MEASURES[choices.measure],
        naming.tag,
        read_held(visitor.services.store.database, keys, groups[0].attribute),
        filter_values(choices.filters, naming),
        find_earlier(window, choices.comparison),
    )


def _show_figures(
    question: UsageQuestion,
    usage: PeriodUsage,
    times: TimedUsage | None,
    choices: UsageChoices,
    arguments: Mapping[str, str],
) -> dict[str, Any]:
    """Return the plot, the totals and the rows of both tables."""
    measure, labels = question.measure, question.bars.padding
    steps = [(label, usage.steps.get(label, NO_ACTIVITY)) for label in labels]
    listed = [(label, sums) for label, sums in reversed(steps) if sums.requests or len(steps) <= SHORT_PERIOD]
    total = ActivityFigures()
    for _, sums in steps:
        total.add(sums)
    compared = bool(usage.before.requests)
    columns = [Column(GROUPS[choices.group].label, "name")]
    if choices.split:
        columns.append(Column(GROUPS[choices.split].label, "second"))
    if choices.measure not in PLAIN_MEASURES:
        columns.append(Column(measure.label, "value", numeric=True))
    columns += COLUMNS
    if compared and times is None and not question.is_of_sessions:
        columns.append(Column("Change", "change", numeric=True))
    draw = build_lines if measure.is_ratio else build_plot
    links = link_bars(question, choices)
    queries = {label: link.query for label, link in zip(labels, links, strict=True)}
    shown_total = _write(measure, total)
    shown_steps = [{"date": label, "query": queries[label], **_write(measure, sums)} for label, sums in listed]
    rows = _list_rows(question, usage)
    if times is not None:
        shown_total["value"] = times.total
        for step in shown_steps:
            step["value"] = times.steps[step["date"]]
        for row in rows:
            row["value"] = times.names.get(row["ident"])
    parts = arrange(
        rows,
        tuple(columns),
        arguments,
        searched=("name", "second"),
        sort=f"-{PLAIN_MEASURES.get(choices.measure, 'value')}",
    )
    _link_names(parts.rows, question, choices, arguments)
    return {
        "plot": draw(labels, usage.series, measure.write, choose_colours(usage.series), links, usage.line),
        "queries": _find_queries(usage),
        "changes": columns[-1].key == "change",
        "compared": compared,
        "total": shown_total,
        "before": _write(measure, usage.before),
        "parts": parts,
        "steps": shown_steps,
    }


def _write(measure: Measure, figures: ActivityFigures) -> dict[str, Any]:
    """Return the figures of a line by the names in the template; money in nano-dollars."""
    return {
        "value": measure.value(figures),
        "requestCount": figures.requests,
        "errorCount": figures.errors,
        "cacheCount": figures.cached_requests,
        "inputTokens": figures.input_tokens,
        "outputTokens": figures.output_tokens,
        "tokens": figures.input_tokens + figures.output_tokens,
        "cost": figures.cost_nusd,
        "apiKeysCost": figures.byok_nusd,
        "discountSavings": figures.discount_nusd,
    }


def _list_rows(question: UsageQuestion, usage: PeriodUsage) -> list[dict[str, Any]]:
    """Return a row for each name, the busiest of equal value first, with the value of the measure in the other
    period."""
    rows = []
    for ident, (named, sums) in usage.names.items():
        pair = named.pair or (named,)
        before = usage.names_before[ident].figures if ident in usage.names_before else NO_ACTIVITY
        shown = _write(question.measure, sums)
        value_before = question.measure.value(before)
        change = (shown["value"] or 0) / value_before if value_before else None
        names = {"name": pair[0].name, "second": pair[-1].name, "named": named, "ident": ident}
        rows.append({**shown, **names, "before": value_before, "change": change})
    return sorted(rows, key=lambda row: (-row["requestCount"], row["name"], row["second"]))


def _link_names(
    rows: Iterable[dict[str, Any]], question: UsageQuestion, choices: UsageChoices, arguments: Mapping[str, str]
) -> None:
    """Add to each row the query that finds its requests, and that of the page that shows only its name."""
    span = question.window.span
    logs = {**_log_filters(choices), **_write_times(choices, span.first, span.end)}
    narrow = _narrow(choices, arguments)
    for row in rows:
        filters = row["named"].filters
        row["query"] = row["narrow"] = ""
        if filters:
            row["narrow"] = _write_query(narrow, **filters)
        if filters and "team" not in {**filters, **logs}:
            row["query"] = _write_query({**filters, **logs, **filters})


def _narrow(choices: UsageChoices, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the page that shows only one name: grouped by what it is not grouped by yet."""
    kept = {name: value for name, value in arguments.items() if name not in (*UNKEPT, "splitBy", "sort", "groupBy")}
    families = {GROUPS[group].family for group in choices.groups} | families_of(choices.filters)
    used = {*choices.groups, *(one.group for one in choices.filters)}
    group = next((name for name in NEXT_GROUPS if name in open_groups(families) and name not in used), choices.group)
    return {**kept, "groupBy": group}


def _find_queries(usage: PeriodUsage) -> dict[str, str]:
    """Return the filters of the request log of each name in the plot, as a query."""
    filters = {named.name: named.filters for named, _ in usage.names.values()}
    shown = {name: filters.get(name, {}) for name in usage.series}
    return {name: urlencode(found) for name, found in shown.items() if found and "team" not in found}


def link_bars(question: UsageQuestion, choices: UsageChoices) -> list[BarLink]:
    """Return for each bar its first and last day or hour, and the query that finds its requests."""
    filters = _log_filters(choices) | ({"failed": "true"} if "errors" in MEASURES[choices.measure].figures else {})
    span, links = question.window.span, []
    hours = {"hour": 1, "day": HOURS}.get(question.bars.span.step, WEEK_HOURS)
    for label in question.bars.padding:
        start = from_datetime(datetime.fromisoformat(label).replace(tzinfo=UTC)) // HOUR_US
        first, end = max(span.first, start), min(span.end, start + hours)
        times = (_write_hour(first), _write_hour(end - 1))
        if hours > 1:
            times = (times[0][:10], times[1][:10])
        query = "" if "team" in filters else urlencode({**filters, "from": _write_time(first), "to": _write_time(end)})
        links.append(BarLink(*times, query))
    return links


def _log_filters(choices: UsageChoices) -> dict[str, str]:
    """Return the filters of the page as those of the request log; it has none for teams."""
    owned: dict[str, str] = {name: choices.report[name] for name in ("projectId", "apiKeyId") if name in choices.report}
    return {**owned, **{one.parameter: value for one, value in choices.filters.items()}}


def _write_times(choices: UsageChoices, first: int, end: int) -> dict[str, str]:
    """Return the filters of the request log of the period; one that lasts until now has no end."""
    if choices.period.is_custom:
        return {"from": _write_time(first), "to": _write_time(end)}
    return {"from": _write_time(first)}


def _write_time(hour: int) -> str:
    """Return an hour as a day where one begins, else as a time."""
    text = _write_hour(hour)
    return text[:10] if hour % HOURS == 0 else f"{text}:00:00"


def _write_query(arguments: Mapping[str, str], **changes: str) -> str:
    given = {**arguments, **changes}
    return urlencode({name: value for name, value in given.items() if value != ""})


def _choose(known: Mapping[str, Any], value: str | None) -> str:
    if value is not None and value in known:
        return value
    return next(iter(known))


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, int | None]]:
    """Return the name and remaining credits of each organization that the visitor manages; None: unlimited."""
    credits = []
    for organization in visitor.organizations():
        if visitor.manages("credits:read", organization.id):
            balance = services.management.ledger.balance(organization.id)
            credits.append((organization.name, None if balance.unlimited else balance.balance_nusd))
    return credits


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show, {"save_view": save}),
    *page_operations(VIEW, show_view, {"remove_view": remove_view}),
)
