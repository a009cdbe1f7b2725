"""Activity: requests, tokens and costs by hour or day within a caller's scope, read from the rollups.

A request counts once, by its last attempt; costs and tokens of every attempt count. An error is a request whose last
attempt failed; a request that was refused before any attempt left no row and is not counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.clock import HOUR_US
from gateway.metering.figures import FIGURES
from gateway.metering.rollups.queries import Dimension as ColumnName
from gateway.metering.rollups.queries import RollupQuestion, Row, Shifts, StepColumns, ask, ask_columns
from gateway.metering.rollups.rollup_table import HOURS, Series
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

Dimension = Literal["total", "model", "api_key", "source"]

# Of whole projects, and of keys; keys are distinguished by their own sums.
SERIES: dict[Dimension, tuple[Series, Series, tuple[ColumnName, ...]]] = {
    "total": (Series.PROJECT, Series.KEY, ()),
    "model": (Series.PROJECT_MODEL, Series.KEY_MODEL, ("name", "provider")),
    "source": (Series.PROJECT_SOURCE, Series.KEY_SOURCE, ("name",)),
    "api_key": (Series.KEY, Series.KEY, ("owner",)),
}


@dataclass(frozen=True, slots=True)
class ActivityScope:
    """Projects of which everything counts, or, with `member_id`, only what that member's keys did."""

    project_ids: tuple[str, ...]
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose usage: all of these projects, and of these keys. Only keys can be distinguished as such."""

    project_ids: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """The hours [first, end) since the epoch, by hour, by day, or in one. Days are those of UTC, or with `shifts` those
    of a zone; see RollupQuestion."""

    first: int
    end: int
    step: Literal["hour", "day", "all"]
    shifts: Shifts = ()

    @property
    def start_us(self) -> int:
        return self.first * HOUR_US

    @property
    def end_us(self) -> int:
        return self.end * HOUR_US


def measure(
    database: Database, owners: Owners, span: Span, dimension: Dimension, figures: tuple[str, ...] = FIGURES
) -> list[Row]:
    """Rows by step and value of `dimension`, only those with anything in them. Inside `reading.at_once`."""
    return [row for question in _questions(owners, span, dimension, figures) for row in ask(database, question)]


def measure_columns(
    database: Database, owners: Owners, span: Span, dimension: Dimension, figures: tuple[str, ...]
) -> list[StepColumns]:
    """The same for tens of thousands of them; see `reading.ask_columns`."""
    return [one for question in _questions(owners, span, dimension, figures) for one in ask_columns(database, question)]


def _questions(owners: Owners, span: Span, dimension: Dimension, figures: tuple[str, ...]) -> Iterator[RollupQuestion]:
    of_projects, of_keys, columns = SERIES[dimension]
    for series, idents in ((of_projects, owners.project_ids), (of_keys, owners.key_ids)):
        if idents:
            raw = [raw_id(ident) for ident in idents]
            yield RollupQuestion(series, raw, span.first, span.end, span.step, columns, figures, span.shifts)


def last_hours(database: Database, owners: Owners, span: Span) -> dict[tuple[Any, ...], int]:
    """The newest hour of each source within a span, whose sums may be of days or more. Inside `reading.at_once`."""
    days: dict[tuple[Any, ...], int] = {}
    for row in measure(database, owners, Span(span.first, span.end, "day"), "source", ("requests",)):
        days[row.value] = max(days.get(row.value, 0), row.step)
    found: dict[tuple[Any, ...], int] = {}
    for day in set(days.values()):
        hours = Span(max(span.first, day * HOURS), min(span.end, (day + 1) * HOURS), "hour")
        for row in measure(database, owners, hours, "source", ("requests",)):
            found[row.value] = max(found.get(row.value, 0), row.step)
    return found


def merge(rows: Iterable[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    """The rows with other values in their place, one for each row; those that have the same step and value are added
    up."""
    found: dict[tuple[int, tuple[Any, ...]], Row] = {}
    for row, value in zip(rows, keys, strict=True):
        known = found.setdefault((row.step, value), Row(row.step, value))
        known.add(row)
    return list(found.values())
