"""Questions to the rollups: sums of owners over a time, by hour, by day or in one, and by what series tell apart."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import orjson

from gateway.metering.figures import FIGURES, ActivityFigures
from gateway.metering.rollups.days import BLOCK, DAY, SumStep, list_blocks
from gateway.metering.rollups.rollup_table import HOURS, Series, State, fetch_sums, read_state
from gateway.metering.rollups.sum_tables import LEAST_BEYOND
from gateway.store.database import Database
from gateway.store.partitions import time_of

T = TypeVar("T")

OWNERS = 2_000  # in one statement
AT_ONCE = {"sqlite": "DEFERRED", "postgresql": "REPEATABLE READ"}
DAY_MINUTES = HOURS * 60
# What the rows of a bucket are made of, besides hours.
MADE_OF = {"hour": (), "day": (DAY,), "all": (BLOCK, DAY)}
HOUR = SumStep(0, 0, 1)

# Cells as the JSON of a list, one in the place of many; ids as text.
LIST = {"sqlite": "json_group_array({})", "postgresql": "array_to_json(array_agg({}))::text"}
HEX = {"sqlite": "lower(hex(owner))", "postgresql": "encode(owner, 'hex')"}

# What tells the rows of a series apart.
APART: dict[Series, set[str]] = {
    Series.PROJECT_MODEL: {"name", "provider"},
    Series.KEY_MODEL: {"name", "provider"},
    Series.PROJECT_SOURCE: {"name"},
    Series.KEY_SOURCE: {"name"},
}

Bucket = Literal["hour", "day", "all"]
Dimension = Literal["owner", "name", "provider"]
Shifts = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RollupQuestion:
    """The sums of a series' `owners` (raw ids) over the hours [first, end) since the epoch: in buckets, and by each
    combination of the dimensions. `figures` are those that are wanted, the others stay 0. Days are those of UTC, or
    with `shifts` those of a zone: from which hour on its clock is how many minutes ahead; an hour counts to the day in
    which it begins there."""

    series: Series
    owners: Sequence[bytes]
    first: int
    end: int
    bucket: Bucket = "all"
    dimensions: tuple[Dimension, ...] = ()
    figures: tuple[str, ...] = FIGURES
    shifts: Shifts = ()


class HourRun(NamedTuple):
    """The hours [first, end), read as sums of `step`s; `minutes` by which a zone's clock is ahead all the time, None:
    it does not matter."""

    step: SumStep
    first: int
    end: int
    minutes: int | None = None


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


class StepColumns(NamedTuple):
    """What there is of one step: a list for each of the question's dimensions, of ids in hex, and for each of its
    figures; an item of each list belongs together."""

    step: int
    dimensions: list[list[str]]
    figures: list[list[int]]


class RollupQuery(NamedTuple):
    """`order`: the column by which its lines come."""

    sql: str
    params: tuple[Any, ...]
    order: str


def at_once(database: Database, work: Callable[[], T]) -> T:
    """The result of `work`, a long read that sees one moment of the store. Unavailable."""

    def read() -> T:
        with database.peewee.transaction(AT_ONCE[database.kind]):
            return work()

    return database.report(read)


def ask(database: Database, question: RollupQuestion) -> list[Row]:
    """The answers, in no order; only those with usage. Inside `at_once`."""
    found: dict[tuple[int, tuple[Any, ...]], Row] = {}
    width = 1 + len(question.dimensions)
    moments = ("MAX(hour)", "MAX(updated_at)"), ("hour", "updated_at")
    statements = _statements(database, question, *moments)
    for line in (line for one in statements for line in fetch_sums(database, one.sql, one.params)):
        figures = ActivityFigures()
        vars(figures).update(
            {name: int(value) for name, value in zip(question.figures, line[width + 2 :], strict=True) if value}
        )
        row = Row(int(line[0]), _values(question, line), figures, int(line[width]), int(line[width + 1] or 0))
        known = found.setdefault((row.step, row.value), row)
        if known is not row:
            known.add(row)
    return list(found.values())


def ask_columns(database: Database, question: RollupQuestion) -> list[StepColumns]:
    """The same without moments, for tens of thousands of them: the store makes the lists. A step may come in pieces.
    Inside `at_once`."""
    wide = len(question.dimensions)
    listed = LIST[database.kind]
    names = (HEX[database.kind] if name == "owner" else name for name in question.dimensions)
    lists = ", ".join(listed.format(name) for name in (*names, *question.figures))
    found = []
    for sql, params, order in _statements(database, question):
        outer = f"SELECT MIN(step), {lists} FROM ({sql}) lines GROUP BY {order}"
        for step, *cells in fetch_sums(database, outer, params):
            dimensions = [orjson.loads(cell) for cell in cells[:wide]]
            found.append(StepColumns(int(step), dimensions, [_read_numbers(cell) for cell in cells[wide:]]))
    return found


def _read_numbers(text: str) -> list[int]:
    numbers: list[int] = orjson.loads(text)
    # Beyond 64 bits PostgreSQL is exact still, and SQLite gives the nearest double.
    if max(numbers) < LEAST_BEYOND:
        return numbers
    return [int(number) for number in json.loads(text)]


def is_filled(database: Database) -> bool:
    """Whether all rows that were there before the rollups are counted. Inside a read."""
    state = read_state(database)
    return state is not None and not state.filling


def rows_begin_us(database: Database) -> int:
    """Since when all usage rows are there still; before that moment some or all were removed. 0: none was. Inside a
    read."""
    state = read_state(database)
    if state is not None and state.purged:
        return time_of(bytes.fromhex(state.purged))
    return 0


def _runs(database: Database, question: RollupQuestion) -> list[HourRun]:
    """What is read, coarse sums wherever they are made."""
    first = question.first
    end = question.end
    if question.bucket == "day" and question.shifts:
        ends = (*(hour for hour, _ in question.shifts[1:]), end)
        shifted = zip(question.shifts, ends, strict=True)
        return [HourRun(HOUR, max(first, begin), min(end, stop), minutes) for (begin, minutes), stop in shifted]
    state = read_state(database)
    if state is None:
        return []
    runs = [HourRun(HOUR, first, end)]
    for step in MADE_OF[question.bucket]:
        runs = [part for run in runs for part in (_split(database, state, run, step) if run.step is HOUR else [run])]
    return runs


def _split(database: Database, state: State, run: HourRun, step: SumStep) -> Iterator[HourRun]:
    """A run of hours with the steps in it that are made."""
    begun = run.first
    for start, stop in _ready(database, state, step, -(-run.first // step.hours), run.end // step.hours):
        if begun < start * step.hours:
            yield HourRun(HOUR, begun, start * step.hours)
        yield HourRun(step, start * step.hours, stop * step.hours)
        begun = stop * step.hours
    if begun < run.end:
        yield HourRun(HOUR, begun, run.end)


def _ready(database: Database, state: State, step: SumStep, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of days or blocks in [first, end) that are summed up."""
    if step is BLOCK:
        made = list_blocks(database, first, end)
        missing = sorted(set(range(first, end)) - set(made))
    else:
        end = min(end, state.days_through)
        sql = "SELECT day FROM rollup_day WHERE day >= ? AND day < ? ORDER BY day"
        missing = [int(day) for (day,) in database.fetch(sql, (first, end))]
    for number in missing:
        if first < number:
            yield first, number
        first = number + 1
    if first < end:
        yield first, end


def _statements(
    database: Database, question: RollupQuestion, summed: tuple[str, ...] = (), plain: tuple[str, ...] = ("hour",)
) -> Iterator[RollupQuery]:
    """For lines of step, dimensions, what else is asked for (where lines are summed up, and where not), and figures."""
    for run in _runs(database, question):
        for start in range(0, len(question.owners), OWNERS):
            yield _statement(question, question.owners[start : start + OWNERS], run, summed, plain)


def _statement(
    question: RollupQuestion, owners: Sequence[bytes], run: HourRun, summed: tuple[str, ...], plain: tuple[str, ...]
) -> RollupQuery:
    bucket = _bucket_sql(question.bucket, run.minutes)
    if len(owners) == 1 and run.step is DAY and question.bucket == "day" and _is_apart(question):
        # One line for each answer already.
        figures = (f"COALESCE({name}, 0) AS {name}" for name in question.figures)
        shown = ", ".join((f"{bucket} AS step", *question.dimensions, *plain, *figures))
        grouped = ""
        order = "hour"
    else:
        figures = (f"COALESCE(sum({name}), 0) AS {name}" for name in question.figures)
        shown = ", ".join((f"{bucket} AS step", *question.dimensions, *summed, *figures))
        # By the series where nothing is distinguished: without any group, nothing at all would be summed up in one
        # line.
        keys = (bucket if question.bucket != "all" else "series", *question.dimensions)
        grouped = f" GROUP BY {', '.join(keys)}"
        order = "step"
    sql = (
        f"SELECT {shown} FROM rollup WHERE series = ? AND owner IN ({', '.join('?' * len(owners))}) "
        f"AND hour >= ? AND hour < ?{grouped}"
    )
    return RollupQuery(sql, (question.series + run.step.coarse, *owners, run.first, run.end), order)


def _bucket_sql(bucket: Bucket, minutes: int | None) -> str:
    if bucket == "day":
        if minutes is None:
            return f"hour / {HOURS}"
        return f"(hour * 60 + {minutes}) / {DAY_MINUTES}"
    if bucket == "hour":
        return "hour"
    return "0"


def _is_apart(question: RollupQuestion) -> bool:
    """Whether an owner has a line of its own for each answer."""
    return set(question.dimensions) >= APART.get(question.series, set())


def _values(question: RollupQuestion, line: tuple[Any, ...]) -> tuple[Any, ...]:
    values = line[1 : 1 + len(question.dimensions)]
    if "owner" not in question.dimensions:
        return tuple(values)
    return tuple([bytes(cell) if isinstance(cell, memoryview) else cell for cell in values])
