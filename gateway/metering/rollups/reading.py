"""Questions to the rollups: sums of owners over a time, by hour, by day or in one, and by what series tell apart."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from gateway.metering.figures import FIGURES, ActivityFigures
from gateway.metering.rollups.table import DAILY, HOURS, Series, State, read_state, run_sums
from gateway.store.database import Database

T = TypeVar("T")

OWNERS = 2_000  # in one statement
AT_ONCE = {"sqlite": "DEFERRED", "postgresql": "REPEATABLE READ"}
BUCKETS = {"hour": ("hour",), "day": (f"hour / {HOURS}",), "all": ()}

# What tells the rows of a series apart.
APART: dict[Series, set[str]] = {
    Series.PROJECT_MODEL: {"name", "provider"},
    Series.KEY_MODEL: {"name", "provider"},
    Series.PROJECT_SOURCE: {"name"},
    Series.KEY_SOURCE: {"name"},
}

Bucket = Literal["hour", "day", "all"]
Dimension = Literal["owner", "name", "provider"]


@dataclass(frozen=True, slots=True)
class RollupQuestion:
    """The sums of a series' `owners` (raw ids) over the hours [first, end) since the epoch: in buckets, and by each
    combination of the dimensions. `figures` are those that are wanted, the others stay 0."""

    series: Series
    owners: Sequence[bytes]
    first: int
    end: int
    bucket: Bucket = "all"
    dimensions: tuple[Dimension, ...] = ()
    figures: tuple[str, ...] = FIGURES


@dataclass(slots=True)
class Row:
    """Figures of one step (hours or days since the epoch, 0 for all in one) and one value of the dimensions; ids as the
    16 bytes behind their prefix. `last_hour` is the newest hour that has any, as far as hours were read; `updated_us`
    when the newest of them were summed up."""

    step: int
    value: tuple[Any, ...]
    figures: ActivityFigures = field(default_factory=ActivityFigures)
    last_hour: int = 0
    updated_us: int = 0

    def add(self, other: "Row") -> None:
        self.figures.add(other.figures)
        self.last_hour = max(self.last_hour, other.last_hour)
        self.updated_us = max(self.updated_us, other.updated_us)


def at_once(database: Database, work: Callable[[], T]) -> T:
    """The result of `work`, a long read that sees one moment of the store. Unavailable."""

    def read() -> T:
        with database.peewee.transaction(AT_ONCE[database.kind]):
            return work()

    return database.report(read)


def ask(database: Database, question: RollupQuestion) -> list[Row]:
    """The answers, in no order; only those with usage. Inside `at_once`."""
    found: dict[tuple[int, tuple[Any, ...]], Row] = {}
    for daily, first, end in _runs(database, question):
        for start in range(0, len(question.owners), OWNERS):
            for row in _select(database, question, question.owners[start : start + OWNERS], daily, first, end):
                known = found.setdefault((row.step, row.value), row)
                if known is not row:
                    known.add(row)
    return list(found.values())


def is_filled(database: Database) -> bool:
    """Whether all rows that were there before the rollups are counted. Inside a read."""
    state = read_state(database)
    return state is not None and not state.filling


def _runs(database: Database, question: RollupQuestion) -> Iterator[tuple[bool, int, int]]:
    """[first, end) in runs of days that are summed up, True, and of hours."""
    first, end = question.first, question.end
    if question.bucket == "hour":
        yield False, first, end
        return
    state = read_state(database)
    if state is None:
        return
    begun = first  # of hours that no day was yielded for
    for start, stop in _ready(database, state, -(-first // HOURS), end // HOURS):
        if begun < start * HOURS:
            yield False, begun, start * HOURS
        yield True, start * HOURS, stop * HOURS
        begun = stop * HOURS
    if begun < end:
        yield False, begun, end


def _ready(database: Database, state: State, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of days in [first, end) that are summed up."""
    end = min(end, state.days_through)
    sql = "SELECT day FROM rollup_day WHERE day >= ? AND day < ? ORDER BY day"
    for (day,) in database.execute(sql, (first, end)).fetchall():
        if first < day:
            yield first, day
        first = day + 1
    if first < end:
        yield first, end


def _select(
    database: Database, question: RollupQuestion, owners: Sequence[bytes], daily: bool, first: int, end: int
) -> Iterator[Row]:
    keys = [*BUCKETS[question.bucket], *question.dimensions]
    if len(owners) == 1 and _is_single(question, daily):
        # Nothing to sum up: what comes in two parts is added where it arrives.
        shown, grouped = [*keys, "hour", "updated_at", *question.figures], ""
    else:
        shown = [*keys, "MAX(hour)", "MAX(updated_at)", *(f"sum({name})" for name in question.figures)]
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    sql = (
        f"SELECT {', '.join(shown)} FROM rollup WHERE series = ? AND owner IN ({', '.join('?' * len(owners))}) "
        f"AND hour >= ? AND hour < ?{grouped}"
    )
    params = (question.series + DAILY * daily, *owners, first, end)
    start, width = len(keys) - len(question.dimensions), len(keys)
    names, owned = question.figures, "owner" in question.dimensions
    for row in run_sums(database, sql, params).fetchall():
        if row[width] is None:
            continue  # nothing at all, summed up in one
        figures = ActivityFigures()
        vars(figures).update({name: int(value) for name, value in zip(names, row[width + 2 :], strict=False) if value})
        values = row[start:width]
        if owned:
            values = tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in values)
        yield Row(int(row[0]) if start else 0, values, figures, int(row[width]), int(row[width + 1] or 0))


def _is_single(question: RollupQuestion, daily: bool) -> bool:
    """Whether an owner has a row of its own for each answer, but for the two parts of an hour."""
    apart = set(question.dimensions) >= APART.get(question.series, set())
    return apart and question.bucket == ("day" if daily else "hour")
