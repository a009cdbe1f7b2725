"""The figures of Explore, read in one snapshot: totals by hour, day or week, sums by name, and the bars of a plot.

Sums of keys and projects are read for the whole period, from blocks of days, and by bar only for the names in the
plot. The other dimensions have few names, or names that every bar has to be searched for, so one query serves both.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from gateway.clock import HOUR_US, from_datetime
from gateway.metering.activity import (
    Dimension,
    HeldValues,
    Owners,
    Span,
    TagValues,
    measure,
    measure_held,
    measure_top,
    value_at,
)
from gateway.metering.cross_sums import CrossQuestion, CrossSlot, measure_crossed
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once, from_store
from gateway.metering.rollups.rollup_table import (
    ERROR,
    HOURS,
    OPERATION,
    OTHER,
    SESSION,
    USUAL_OPERATION,
)
from gateway.metering.usage_table import raw_id
from gateway.reports.latency_percentiles import TimedCall, rank_percentile, sample_calls
from gateway.runtime.threads import compute_if
from gateway.store.database import Database
from gateway.surfaces.console.grouping import GroupName, Namer, UsageValues, Values
from gateway.surfaces.console.plots import MAX_SERIES
from gateway.surfaces.console.plots import OTHER_SERIES as OTHER_NAMES
from gateway.surfaces.console.usage_measures import Measure, time_of
from gateway.surfaces.visitors.report_windows import ReportRange

MAX_VALUES_SHOWN = 100  # values of a tag, or sessions, with the highest cost; the others are one name
MAX_VALUES_PAIRED = 12  # the same for each key
FEW_VALUES = (OPERATION, ERROR)  # tags whose values the gateway chooses
COST = ("cost_nusd",)
PARTS = ("requests", "input_tokens", "output_tokens", "cost_nusd")
TOTALS = (*PARTS, "errors", "cached_requests", "byok_nusd", "discount_nusd")
NO_ACTIVITY = ActivityFigures()
# Dimensions of a key or project, which is the first value of their rows → the dimension of the other values.
OF_OWNERS: dict[Dimension, Dimension | None] = {
    "api_key": None,
    "owner": None,
    "api_key_model": "model",
    "api_key_source": "source",
    "api_key_tag": "tag",
}

Steps = dict[str, ActivityFigures]  # by label


class CrossScope(NamedTuple):
    """What is needed to sum a combination from usage rows: the slots of its rows, the projects of the visitor's keys,
    the values of attributes by name and key, and those of tags that filters name, of which no other is read."""

    slots: tuple[CrossSlot, ...]
    projects: tuple[str, ...]
    held: Mapping[str, HeldValues]
    filtered: Mapping[str, str]


class UsageQuestion(Struct, frozen=True):
    """The usage of a period and how it is plotted. `owners` have all usage, `parts` the same usage by name, in rows of
    `dimension` that `name` names. `tag` is the name of a tag, SESSION for sessions, and `held` has the values of an
    attribute of the owner of each key. `filter` restricts the usage further. `earlier` is the period of the comparison,
    None for none; `against` is what is asked there, None for the same. `names_compared`: names are compared too.
    `crossed` is set for a combination that is summed from usage rows."""

    owners: Owners
    parts: Owners
    window: ReportRange
    bars: ReportRange
    dimension: Dimension
    name: Namer
    measure: Measure
    tag: str = SESSION
    held: HeldValues | None = None
    filter: UsageValues | None = None
    earlier: ReportRange | None = None
    against: "UsageQuestion | None" = None
    names_compared: bool = True
    crossed: CrossScope | None = None

    @property
    def is_of_rows(self) -> bool:
        """Return whether single requests are summed, which takes seconds for many of them."""
        return self.crossed is not None or (self.against is not None and self.against.crossed is not None)

    @property
    def is_of_owners(self) -> bool:
        """Return whether rows belong to keys or projects."""
        return self.dimension in OF_OWNERS and self.held is None

    @property
    def values_dimension(self) -> Dimension | None:
        """Return the dimension of a row's values other than its owner; None without any."""
        return OF_OWNERS.get(self.dimension, self.dimension)

    @property
    def is_of_sessions(self) -> bool:
        """Return whether rows are those of sessions."""
        return self.values_dimension == "tag" and self.tag == SESSION

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the figures that are read by name."""
        return tuple(dict.fromkeys((*PARTS, *self.measure.read)))


class NamedUsage(NamedTuple):
    """The sums of a name over a period."""

    named: GroupName
    figures: ActivityFigures


NameKey = tuple[str, str]  # name and id; the ids tell equal names apart


class PeriodUsage(NamedTuple):
    """The usage of a period by bar and by name, and that of the period of the comparison. `series` are the values of
    the bars of the largest names, and of all other names together, unless they have none; `line` those of the bars of
    the other period."""

    steps: Steps
    names: dict[NameKey, NamedUsage]
    series: dict[str, list[int | None]]
    before: ActivityFigures
    names_before: dict[NameKey, NamedUsage]
    line: Sequence[int | None]


NO_USAGE = PeriodUsage({}, {}, {}, ActivityFigures(), {}, ())


class UsagePart(NamedTuple):
    """The figures of a row in the bar or period of a label."""

    label: str
    values: Values
    figures: ActivityFigures


def read_usage(database: Database, question: UsageQuestion) -> PeriodUsage:
    """Return the figures of the page. Unavailable, CrossUnavailable."""
    if question.is_of_rows:
        return from_store(database, lambda: _read(database, question))
    return at_once(database, lambda: _read(database, question))


def read_totals(database: Database, question: UsageQuestion) -> Steps:
    """Return all usage by bar. Unavailable."""
    return at_once(database, lambda: _read_totals(database, question, question.bars))


def _read(database: Database, question: UsageQuestion) -> PeriodUsage:
    tags = _list_values(database, question)
    if question.crossed is not None:
        parts = _read_parts(database, question, question.bars, tags)
        names = _sum_names(question, parts)
        bars = _add_bars(question, parts, _list_largest(question, names))
        totals = _add_up((part.label, part.figures) for part in parts)
        return _compare_usage(database, question, totals, names, bars, tags)
    totals = _read_totals(database, question, question.bars)
    if question.is_of_owners:
        parts = _read_parts(database, question, question.window.whole(), tags)
        names = _sum_names(question, parts)
        bars = _read_bars(database, question, parts, tags, _list_largest(question, names))
    else:
        parts = _read_parts(database, question, question.bars, tags)
        names = _sum_names(question, parts)
        bars = _add_bars(question, parts, _list_largest(question, names))
    return _compare_usage(database, question, totals, names, bars, tags)


def _compare_usage(
    database: Database,
    question: UsageQuestion,
    totals: Steps,
    names: dict[NameKey, NamedUsage],
    bars: dict[str, Steps],
    tags: Sequence[str],
) -> PeriodUsage:
    """Return the usage of a period together with that of the comparison."""
    before, line, names_before = ActivityFigures(), Steps(), dict[NameKey, NamedUsage]()
    earlier, other = question.earlier, question.against or question
    # Sessions are not compared by name: few last longer than a period.
    by_name = question.names_compared and not question.is_of_sessions
    if earlier is not None and other.crossed is not None:  # reading single requests takes long: once for both
        parts = _read_parts(database, other, earlier, tags)
        line = _add_up((part.label, part.figures) for part in parts)
        names_before = _sum_names(other, parts) if by_name else {}
    elif earlier is not None:
        line = _read_totals(database, other, earlier)
        names_before = (
            _sum_names(other, _read_parts(database, other, earlier.whole(), tags)) if by_name and line else {}
        )
    for figures in line.values():
        before.add(figures)
    series = _list_series(question, totals, bars)
    return PeriodUsage(totals, names, series, before, names_before, _list_line(question, line))


def _read_totals(database: Database, question: UsageQuestion, period: ReportRange) -> Steps:
    """Return all usage by step."""
    if question.crossed is not None:
        parts = _read_parts(database, question, period, _list_values(database, question))
        return _add_up((part.label, part.figures) for part in parts)
    figures = tuple(dict.fromkeys((*TOTALS, *question.measure.read)))
    only = question.filter
    if only is None:
        rows = measure(database, question.owners, period.span, "total", figures)
    else:
        values = TagValues(question.tag, only.names)
        rows = measure(database, question.owners, period.span, only.dimension, figures, values)
        rows = [row for row in rows if only.matches(row.value)]
    return _add_up((period.label(row.step), row.figures) for row in rows)


def _list_values(database: Database, question: UsageQuestion) -> Sequence[str]:
    """Return the values of the tag that have names of their own."""
    if question.values_dimension != "tag":
        return ()
    if question.filter is not None:
        return question.filter.names
    owners, span = question.parts, question.window.span
    maximum = MAX_VALUES_PAIRED if question.is_of_owners and question.tag not in FEW_VALUES else MAX_VALUES_SHOWN
    return [row.value[0] for row in measure_top(database, owners, span, question.tag, COST, maximum)]


def _read_parts(
    database: Database, question: UsageQuestion, period: ReportRange, tags: Sequence[str]
) -> list[UsagePart]:
    """Return the parts of a period."""
    span = period.span
    if question.crossed is not None:
        rows = _read_crossed(database, question, question.crossed, span)
    elif question.held is not None:
        rows = measure_held(database, question.held, span, question.figures)
    elif question.values_dimension == "tag":
        return _read_values(database, question, question.parts, period, question.dimension, tags)
    else:
        rows = measure(database, question.parts, span, question.dimension, question.figures)
    first = 1 if question.is_of_owners else 0
    if question.filter is not None:
        rows = [row for row in rows if question.filter.matches(row.value[first:])]
    return [UsagePart(period.label(row.step), row.value, row.figures) for row in rows]


def _read_crossed(database: Database, question: UsageQuestion, crossed: CrossScope, span: Span) -> list[Row]:
    """Return the rows of a combination. Of each tag the values with the highest cost have names of their own."""
    names = {}
    for slot in crossed.slots:
        if slot.kind != "tag" or slot.tag in FEW_VALUES:
            continue
        if slot.tag in crossed.filtered:
            names[slot.tag] = [crossed.filtered[slot.tag]]
            continue
        top = measure_top(database, question.owners, question.window.span, slot.tag, COST, MAX_VALUES_SHOWN)
        names[slot.tag] = [row.value[0] for row in top]
    figures = tuple(dict.fromkeys((*TOTALS, *question.measure.read)))
    return measure_crossed(
        database, question.owners, span, CrossQuestion(crossed.slots, names, crossed.projects, crossed.held), figures
    )


def _read_values(
    database: Database,
    question: UsageQuestion,
    owners: Owners,
    period: ReportRange,
    dimension: Dimension,
    tags: Sequence[str],
) -> list[UsagePart]:
    """Return the parts of values of a tag and, unless these are a filter, those of all other values as OTHER and of
    usage without the tag as ""; of each key separately for the dimension of keys."""
    by_key = dimension == "api_key_tag"
    rows = []
    if tags:
        rows = measure(database, owners, period.span, dimension, question.figures, TagValues(question.tag, tuple(tags)))
    parts = [UsagePart(period.label(row.step), row.value, row.figures) for row in rows]
    if question.filter is not None:
        return parts
    listed: dict[tuple[str, Values], ActivityFigures] = {}
    for part in parts:
        listed.setdefault((part.label, part.values[:-1]), ActivityFigures()).add(part.figures)
    of_tag = TagValues(question.tag)
    all_values: Dimension = "api_key_tag_total" if by_key else "tag_total"
    rows = measure(database, owners, period.span, all_values, question.figures, of_tag)
    tagged = {(period.label(row.step), row.value): ActivityFigures() for row in rows}
    for row in rows:
        tagged[period.label(row.step), row.value].add(row.figures)
    totals: dict[tuple[str, Values], ActivityFigures] = {}
    for row in measure(database, owners, period.span, "api_key" if by_key else "total", question.figures):
        totals.setdefault((period.label(row.step), row.value), ActivityFigures()).add(row.figures)
    for (label, owner), total in totals.items():
        with_tag = tagged.get((label, owner), NO_ACTIVITY)
        rest = _subtract(question, with_tag, listed.get((label, owner), NO_ACTIVITY))
        parts.append(UsagePart(label, (*owner, OTHER), rest))
        parts.append(UsagePart(label, (*owner, ""), _subtract(question, total, with_tag)))
    return [part for part in parts if any(vars(part.figures).values())]


def _sum_names(question: UsageQuestion, parts: Iterable[UsagePart]) -> dict[NameKey, NamedUsage]:
    by_name: dict[Values, GroupName] = {}
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
            sizes[name] = sizes.get(name, 0) + question.measure.size(usage.figures)
    return sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_SERIES]


def _read_bars(
    database: Database, question: UsageQuestion, parts: Iterable[UsagePart], tags: Sequence[str], shown: Sequence[str]
) -> dict[str, Steps]:
    """Return the bars of some names of keys or projects."""
    owners: dict[str, set[bytes]] = {name: set() for name in shown}
    for part in parts:
        name = question.name(part.values).name
        if name in owners:
            owners[name].add(part.values[0])
    return {name: _read_bars_of(database, question, name, raw, tags) for name, raw in owners.items()}


def _read_bars_of(
    database: Database, question: UsageQuestion, name: str, raw: set[bytes], tags: Sequence[str]
) -> Steps:
    """Return the bars of a name that belongs to some keys or projects."""
    project_ids, key_ids = (
        tuple(ident for ident in idents if raw_id(ident) in raw)
        for idents in (question.parts.project_ids, question.parts.key_ids)
    )
    owned = Owners(project_ids, key_ids)
    bars, dimension = question.bars, question.values_dimension
    if dimension is None:
        rows = measure(database, owned, bars.span, "total", question.measure.read)
        return _add_up((bars.label(row.step), row.figures) for row in rows)
    if dimension == "tag":
        parts = _read_values(database, question, owned, bars, dimension, tags)
    else:
        rows = measure(database, owned, bars.span, dimension, question.measure.read)
        parts = [UsagePart(bars.label(row.step), row.value, row.figures) for row in rows]
    only = question.filter
    # All these owners have the same part of the name, so any of them stands for all.
    one = next(iter(raw))
    return _add_up(
        (part.label, part.figures)
        for part in parts
        if (only is None or only.matches(part.values)) and question.name((one, *part.values)).name == name
    )


def _add_bars(question: UsageQuestion, parts: Iterable[UsagePart], shown: Sequence[str]) -> dict[str, Steps]:
    bars: dict[str, list[UsagePart]] = {name: [] for name in shown}
    for part in parts:
        name = question.name(part.values).name
        if name in bars:
            bars[name].append(part)
    return {name: _add_up((part.label, part.figures) for part in listed) for name, listed in bars.items()}


def _list_series(question: UsageQuestion, totals: Steps, bars: dict[str, Steps]) -> dict[str, list[int | None]]:
    measure_ = question.measure
    labels = question.bars.padding
    series = {}
    rest = [totals.get(label, NO_ACTIVITY) for label in labels]
    for name, steps in bars.items():
        series[name] = [measure_.value(steps.get(label, NO_ACTIVITY)) for label in labels]
        rest = [
            _subtract(question, total, steps.get(label, NO_ACTIVITY)) for label, total in zip(labels, rest, strict=True)
        ]
    if any(measure_.size(figures) for figures in rest):
        series[OTHER_NAMES] = [measure_.value(figures) for figures in rest]
    return series


def _list_line(question: UsageQuestion, steps: Steps) -> list[int | None]:
    """Return the values of the bars of the period of the comparison, as many as there are bars."""
    if question.earlier is None or not steps:
        return []
    labels = question.earlier.padding[: len(question.bars.padding)]
    values = [question.measure.value(steps.get(label, NO_ACTIVITY)) for label in labels]
    return [*values, *[None] * (len(question.bars.padding) - len(values))]


def _add_up(labelled: Iterable[tuple[str, ActivityFigures]]) -> Steps:
    sums: Steps = {}
    for label, figures in labelled:
        sums.setdefault(label, ActivityFigures()).add(figures)
    return sums


def _subtract(question: UsageQuestion, figures: ActivityFigures, part: ActivityFigures) -> ActivityFigures:
    rest = ActivityFigures()
    for name in question.figures:
        setattr(rest, name, getattr(figures, name) - getattr(part, name))
    return rest


# Percentiles of times, which no sums can give: they are computed from a sample of single calls.

STEP_HOURS = {"hour": 1, "day": HOURS, "week": 7 * HOURS}
THREAD_CALLS = 2_000  # naming and sorting more of them takes milliseconds


class TimedUsage(NamedTuple):
    """The values of a timed measure: in total, by bar, by name, and by name and bar; and in total and by bar for what
    they are compared with in the same period."""

    total: int | None
    steps: dict[str, int | None]
    names: dict[NameKey, int | None]
    series: dict[str, list[int | None]]
    before: int | None = None
    line: Sequence[int | None] = ()


def read_times(
    database: Database, question: UsageQuestion, usage: PeriodUsage, projects_of_keys: Mapping[str, str]
) -> TimedUsage:
    """Return the percentiles of the names of `usage`. Unavailable."""
    bars, span = question.bars, question.window.span
    length_us = STEP_HOURS[bars.span.step] * HOUR_US
    steps = []
    for label in bars.padding:
        start_us = from_datetime(datetime.fromisoformat(label).replace(tzinfo=UTC))
        steps.append((max(span.start_us, start_us), min(span.end_us, start_us + length_us)))
    projects = at_once(database, lambda: _find_projects(database, question, projects_of_keys))
    # A key may have been created since the keys were listed.
    known = {raw_id(key_id) for key_id in projects_of_keys}
    calls = [call for call in sample_calls(database, tuple(projects), steps) if call.api_key in known]
    return compute_if(len(calls) > THREAD_CALLS, _rank_times, question, usage, projects, calls)


# The keys that count, by project; None: all keys of the project.
ProjectKeys = dict[str, set[bytes] | None]


def _find_projects(database: Database, question: UsageQuestion, projects_of_keys: Mapping[str, str]) -> ProjectKeys:
    """Return the projects of a question, the busiest first."""
    found: ProjectKeys = dict.fromkeys(question.owners.project_ids)
    requests: dict[str, int] = {}
    for row in measure(database, question.owners, question.window.whole().span, "owner", ("requests",)):
        ident = row.value[0].hex()
        project = projects_of_keys.get(f"key_{ident}", f"proj_{ident}")
        requests[project] = requests.get(project, 0) + row.figures.requests
    for key_id in question.owners.key_ids:
        keys = found.setdefault(projects_of_keys[key_id], set())
        if keys is not None:
            keys.add(raw_id(key_id))
    return {project: found[project] for project in sorted(requests, key=lambda one: -requests[one])}


def _rank_times(
    question: UsageQuestion, usage: PeriodUsage, projects: ProjectKeys, calls: Sequence[TimedCall]
) -> TimedUsage:
    measure_, labels = question.measure, question.bars.padding
    whole: list[int] = []
    by_step: dict[int, list[int]] = {}
    by_name: dict[NameKey, list[int]] = {}
    by_bar: dict[tuple[str, int], list[int]] = {}
    named: dict[Values, GroupName] = {}
    for call in calls:
        value = _time_within(question, projects, call)
        values = _values_of(question, call)
        if value is None or values is None:
            continue
        name = named.get(values) or named.setdefault(values, question.name(values))
        whole.append(value)
        by_step.setdefault(call.step, []).append(value)
        by_name.setdefault((name.name, name.id), []).append(value)
        by_bar.setdefault((name.name if name.name in usage.series else OTHER_NAMES, call.step), []).append(value)
    for values_ in (whole, *by_step.values(), *by_name.values(), *by_bar.values()):
        values_.sort()

    def rank(values: list[int]) -> int | None:
        return rank_percentile(values, measure_.percent)

    before, line = _rank_against(question, projects, calls)
    return TimedUsage(
        rank(whole),
        {label: rank(by_step.get(place, [])) for place, label in enumerate(labels)},
        {name: rank(values) for name, values in by_name.items()},
        {name: [rank(by_bar.get((name, place), [])) for place in range(len(labels))] for name in usage.series},
        before,
        line,
    )


def _rank_against(
    question: UsageQuestion, projects: ProjectKeys, calls: Iterable[TimedCall]
) -> tuple[int | None, list[int | None]]:
    """Return the percentiles of what a question is compared with in the same period, in total and by bar."""
    other = question.against
    if other is None:
        return None, []
    by_step: dict[int, list[int]] = {}
    for call in calls:
        value = _time_within(other, projects, call)
        if value is not None:
            by_step.setdefault(call.step, []).append(value)
    percent = question.measure.percent
    whole = sorted(value for values in by_step.values() for value in values)
    steps = [rank_percentile(sorted(by_step.get(place, [])), percent) for place in range(len(question.bars.padding))]
    return rank_percentile(whole, percent), steps


def _time_within(question: UsageQuestion, projects: ProjectKeys, call: TimedCall) -> int | None:
    """Return the value of a call; None if it has none, or the question does not count it."""
    keys = projects[f"proj_{call.project.hex()}"]
    if _values_of(question, call) is None or (keys is not None and call.api_key not in keys):
        return None
    return time_of(question.measure, call)


def _tag_of(tag: str, call: TimedCall) -> str:
    """Return the value of a tag as the sums have it. A timed call has no error."""
    if tag == SESSION:
        return call.session or ""
    if tag == OPERATION:
        return call.operation if call.operation != USUAL_OPERATION else ""
    return str(orjson.loads(call.tags).get(tag, "")) if call.tags else ""


def _cross_values(crossed: CrossScope, call: TimedCall) -> Values:
    """Return the values of a call for the slots of a combination."""
    values: list[Any] = []
    for slot in crossed.slots:
        if slot.kind == "model":
            values += [call.served, call.provider]
        elif slot.kind == "source":
            values.append(call.source)
        elif slot.kind == "tag":
            values.append(_tag_of(slot.tag, call))
        elif slot.kind == "held":
            known = crossed.held[slot.tag].get(f"key_{call.api_key.hex()}", ())
            values.append(value_at(known, call.at_us // HOUR_US))
        else:
            values.append(call.api_key)
    return tuple(values)


def _values_of(question: UsageQuestion, call: TimedCall) -> Values | None:
    """Return the values of a call as a row of the question has them; None for one that the filter leaves out."""
    if question.held is not None:
        return (value_at(question.held[f"key_{call.api_key.hex()}"], call.at_us // HOUR_US),)
    dimension = question.values_dimension
    values: Values = ()
    if dimension == "model":
        values = (call.served, call.provider)
    elif dimension == "source":
        values = (call.source,)
    elif dimension == "tag":
        values = (_tag_of(question.tag, call),)
    elif question.crossed is not None:
        values = _cross_values(question.crossed, call)
    only = question.filter
    if only is not None and not (only.matches(values) and (not only.names or values[0] in only.names)):
        return None
    return (call.api_key, *values) if question.is_of_owners else values
