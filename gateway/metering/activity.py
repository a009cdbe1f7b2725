"""Activity: requests, tokens and costs by hour, day or week within a caller's scope, read from the rollups.

A request counts once, by its last attempt; costs and tokens of every attempt count. An error is a request that failed
in its last attempt; a request that was rejected before any attempt has no row and is not counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import HOUR_US
from gateway.metering.figures import FIGURES
from gateway.metering.rollups.queries import (
    DAY_MINUTES,
    Bucket,
    RollupQuestion,
    Row,
    Shifts,
    StepColumns,
    fetch_columns,
    fetch_rows,
    fetch_top,
    week_of,
)
from gateway.metering.rollups.queries import Dimension as ColumnName
from gateway.metering.rollups.rollup_table import HOURS, SESSION, Series
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

Dimension = (
    Literal["total", "model", "api_key", "owner", "source", "tag", "tag_total"]
    | Literal["api_key_model", "api_key_source", "api_key_tag", "api_key_tag_total"]
    | Literal["rows"]  # combinations that are summed from usage rows (cross_sums.py)
)
HOUR_MINUTES = 60
NAMES = 200  # values of a tag in one question

# Series for whole projects, series for keys, and the columns that identify a row.
SERIES: dict[Dimension, tuple[Series, Series, tuple[ColumnName, ...]]] = {
    "total": (Series.PROJECT, Series.KEY, ()),
    "model": (Series.PROJECT_MODEL, Series.KEY_MODEL, ("name", "provider")),
    "source": (Series.PROJECT_SOURCE, Series.KEY_SOURCE, ("name",)),
    "api_key": (Series.KEY, Series.KEY, ("owner",)),
    "owner": (Series.PROJECT, Series.KEY, ("owner",)),
    "tag": (Series.PROJECT_TAG, Series.KEY_TAG, ("name",)),
    "tag_total": (Series.PROJECT_TAG, Series.KEY_TAG, ()),
    "api_key_model": (Series.KEY_MODEL, Series.KEY_MODEL, ("owner", "name", "provider")),
    "api_key_source": (Series.KEY_SOURCE, Series.KEY_SOURCE, ("owner", "name")),
    "api_key_tag": (Series.KEY_TAG, Series.KEY_TAG, ("owner", "name")),
    "api_key_tag_total": (Series.KEY_TAG, Series.KEY_TAG, ("owner",)),
}


class TagValues(NamedTuple):
    """A tag, SESSION for sessions, and the values that are measured; none: all. Beyond a number of values in an hour
    (`rollup_table.MOST_VALUES`), the others are one value, OTHER."""

    tag: str
    names: tuple[str, ...] = ()


SESSIONS = TagValues(SESSION)


class ActivityScope(Struct, frozen=True):
    """The projects to report: all of their usage, or with `member_id` only the usage of that member's keys."""

    project_ids: tuple[str, ...]
    member_id: str = ""


class Owners(Struct, frozen=True):
    """The projects and keys to measure."""

    project_ids: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()


class Span(Struct, frozen=True):
    """The hours [first, end) since the epoch, by hour, day or week, or as one sum. Days are UTC days, or with `shifts`
    those of a time zone; see RollupQuestion."""

    first: int
    end: int
    step: Bucket
    shifts: Shifts = ()

    @property
    def start_us(self) -> int:
        return self.first * HOUR_US

    @property
    def end_us(self) -> int:
        return self.end * HOUR_US


def measure(
    database: Database,
    owners: Owners,
    span: Span,
    dimension: Dimension,
    figures: tuple[str, ...] = FIGURES,
    values: TagValues = SESSIONS,
) -> list[Row]:
    """Return rows by step and value of `dimension`; empty ones are left out. `values` matter for the dimensions of
    tags. Inside `queries.at_once`."""
    questions = _questions(owners, span, dimension, figures, values)
    return [row for question in questions for row in fetch_rows(database, question)]


def measure_columns(
    database: Database, owners: Owners, span: Span, dimension: Dimension, figures: tuple[str, ...]
) -> list[StepColumns]:
    """Return the same figures as columns, for tens of thousands of rows; see `queries.fetch_columns`."""
    return [
        columns
        for question in _questions(owners, span, dimension, figures)
        for columns in fetch_columns(database, question)
    ]


def measure_top(
    database: Database, owners: Owners, span: Span, tag: str, figures: tuple[str, ...], maximum: int
) -> list[Row]:
    """Return a row for each of the `maximum` values of a tag with the highest cost in the span. Inside
    `queries.at_once`."""
    questions = list(_questions(owners, replace(span, step="all"), "tag", figures, TagValues(tag)))
    tops = [fetch_top(database, question, maximum) for question in questions]
    rows = [row for top in tops for row in top]
    if len(questions) > 1:  # values may have usage of projects and of keys
        names = tuple({row.value[0] for row in rows})
        rows = []
        for start in range(0, len(names), NAMES):
            some = TagValues(tag, names[start : start + NAMES])
            rows += measure(database, owners, replace(span, step="all"), "tag", figures, some)
        rows = merge(rows, [row.value for row in rows])
    return sorted(rows, key=lambda row: (-row.figures.cost_nusd, row.value))[:maximum]


def _questions(
    owners: Owners, span: Span, dimension: Dimension, figures: tuple[str, ...], values: TagValues = SESSIONS
) -> Iterator[RollupQuestion]:
    of_projects, of_keys, columns = SERIES[dimension]
    for series, idents in ((of_projects, owners.project_ids), (of_keys, owners.key_ids)):
        if idents:
            raw = [raw_id(ident) for ident in idents]
            yield RollupQuestion(
                series, raw, span.first, span.end, span.step, columns, figures, span.shifts, values.tag, values.names
            )


class HeldValue(NamedTuple):
    """A value that held in the hours [first, end) since the epoch, such as a cost center."""

    value: str
    first: int
    end: int


HeldValues = Mapping[str, Sequence[HeldValue]]  # by key id


def measure_held(database: Database, held: HeldValues, span: Span, figures: tuple[str, ...]) -> list[Row]:
    """Return rows by step and value of something that changes over time, for the usage of keys: each hour counts with
    the value that held in it, "" without one. Inside `queries.at_once`.

    Only on the days of changes the usage of the keys that changed is read by hour.
    """
    moves: dict[int, set[str]] = {}
    for key_id, values in held.items():
        for hour in {hour for one in values for hour in (one.first, one.end)}:
            if span.first < hour < span.end:
                moves.setdefault(hour // HOURS, set()).add(key_id)
    moved = set().union(*moves.values())
    sums: dict[tuple[int, str], Row] = {}

    def add(part: Span, key_ids: Iterable[str]) -> None:
        for row in measure(database, Owners(key_ids=tuple(sorted(key_ids))), part, "api_key", figures):
            hour = row.step if part.step == "hour" else part.first
            step = row.step if part.step == span.step else step_of(row.step, span)
            value = value_at(held[f"key_{row.value[0].hex()}"], hour)
            sums.setdefault((step, value), Row(step, (value,))).add(row)

    add(span, held.keys() - moved)
    first = span.first
    for day in sorted(moves):
        begin, end = max(first, day * HOURS), min(span.end, (day + 1) * HOURS)
        if first < begin:
            add(replace(span, first=first, end=begin), moved)
        add(replace(span, first=begin, end=end, step="hour"), moves[day])
        add(replace(span, first=begin, end=end), moved - moves[day])
        first = end
    if moves and first < span.end:
        add(replace(span, first=first), moved)
    return list(sums.values())


def value_at(values: Sequence[HeldValue], hour: int) -> str:
    return next((one.value for one in values if one.first <= hour < one.end), "")


def step_of(hour: int, span: Span) -> int:
    """Return the step of a span to which an hour belongs."""
    if span.step in ("hour", "all"):
        return hour if span.step == "hour" else 0
    minutes = next((minutes for first, minutes in reversed(span.shifts) if first <= hour), 0)
    day = (hour * HOUR_MINUTES + minutes) // DAY_MINUTES
    return week_of(day) if span.step == "week" else day


def last_hours(database: Database, owners: Owners, span: Span) -> dict[tuple[Any, ...], int]:
    """Return the newest hour of each source within a span. The span may be summed by day, so the newest day of each
    source is read by hour. Inside `queries.at_once`."""
    days: dict[tuple[Any, ...], int] = {}
    for row in measure(database, owners, Span(span.first, span.end, "day"), "source", ("requests",)):
        days[row.value] = max(days.get(row.value, 0), row.step)
    newest: dict[tuple[Any, ...], int] = {}
    for day in set(days.values()):
        hours = Span(max(span.first, day * HOURS), min(span.end, (day + 1) * HOURS), "hour")
        for row in measure(database, owners, hours, "source", ("requests",)):
            newest[row.value] = max(newest.get(row.value, 0), row.step)
    return newest


def merge(rows: Iterable[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Replace the values of the rows by `keys` (one for each row), and add up rows with equal step and value."""
    merged: dict[tuple[int, tuple[Any, ...]], Row] = {}
    for row, value in zip(rows, keys, strict=True):
        known = merged.setdefault((row.step, value), Row(row.step, value))
        known.add(row)
    return list(merged.values())
