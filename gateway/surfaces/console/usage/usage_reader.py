"""The figures of the usage page, read in one snapshot: totals by hour or day, sums by name, and the bars of a plot.

Sums of keys and projects are read for the whole period, from blocks of days, and by bar only for the names in the plot.
The other dimensions have few names, or names that every bar has to be searched for, so one query serves both.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.metering.activity import Owners, TagValues, measure, measure_top
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once, week_of
from gateway.metering.rollups.rollup_table import OTHER, SESSION
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.surfaces.console.plots import MAX_SERIES
from gateway.surfaces.console.plots import OTHER_SERIES as OTHER_NAMES
from gateway.surfaces.console.usage.grouping import Grouping, GroupName, Namer
from gateway.surfaces.visitors.report_windows import ReportRange

MAX_VALUES_SHOWN = 100  # values of a tag, or sessions, with the highest cost; the others are one name
COST = ("cost_nusd",)
PARTS = ("requests", "input_tokens", "output_tokens", "cost_nusd")
TOTALS = (*PARTS, "errors", "cached_requests", "byok_nusd", "discount_nusd")
NO_ACTIVITY = ActivityFigures()

Steps = dict[str, ActivityFigures]  # by label


class UsageQuestion(Struct, frozen=True):
    """The usage of a period and how it is plotted. `owners` have all usage, `parts` the same usage by name. The bars
    show the sum of the figures `measured`. `tag` is the name of a tag, SESSION for sessions."""

    owners: Owners
    parts: Owners
    window: ReportRange
    bars: ReportRange
    grouping: Grouping
    name: Namer
    measured: tuple[str, ...]
    tag: str = SESSION


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
