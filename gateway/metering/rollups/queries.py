"""Queries of the rollups: sums of owners over a time, by hour, day or week or in total, and by the dimensions of a
series."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import orjson
from msgspec import Struct, field, structs

from gateway.errors import Unavailable
from gateway.metering.figures import FIGURES, ActivityFigures
from gateway.metering.rollups.days import BLOCK, DAY, SumStep, list_blocks
from gateway.metering.rollups.rollup_table import (
    FIRST_OUT_OF_RANGE,
    HOURS,
    OTHER,
    SESSION,
    Series,
    State,
    fetch_sums,
    read_state,
)
from gateway.store.database import Database
from gateway.store.partitions import time_of

# The times by which a query sums up hours: hours, days, weeks from Monday, or all of them. Days and weeks are those
# of UTC or of a time zone.

Bucket = Literal["hour", "day", "week", "all"]
# Pairs of the first hour and the minutes by which the clock of a time zone is ahead from then on.
Shifts = tuple[tuple[int, int], ...]

DAY_MINUTES = HOURS * 60
WEEK_DAYS = 7
FIRST_WEEKDAY = 3  # of the epoch, a Thursday; Monday is 0


def _divide(number: str, divisor: int) -> str:
    return f"({number}) / {divisor}"


def bucket_sql(
    bucket: Bucket, minutes: int | None, hour: str = "hour", divide: Callable[[str, int], str] = _divide
) -> str:
    """Return the SQL for the number of an hour's bucket since the epoch, 0 for "all". `minutes` is the offset of the
    time zone, None for UTC; `hour` is the SQL of the hour, `divide` that of an integer division."""
    if bucket == "all":
        return "0"
    if bucket == "hour":
        return hour
    day = divide(hour, HOURS) if minutes is None else divide(f"{hour} * 60 + {minutes}", DAY_MINUTES)
    if bucket == "day":
        return day
    return divide(f"{day} + {FIRST_WEEKDAY}", WEEK_DAYS)


def week_of(day: int) -> int:
    """Return the number of the week of a day."""
    return (day + FIRST_WEEKDAY) // WEEK_DAYS


def monday_of(week: int) -> int:
    """Return the first day of a week."""
    return week * WEEK_DAYS - FIRST_WEEKDAY


T = TypeVar("T")

OWNERS = 2_000  # owners in one statement
STATEMENTS = 8  # statements that are joined to one
SNAPSHOT_ISOLATION = {"sqlite": "DEFERRED", "postgresql": "REPEATABLE READ"}
# PostgreSQL expects few names, so that its workers sort the sums of hundreds of thousands of sessions on disk.
NO_PARALLEL_WORKERS = "SET LOCAL max_parallel_workers_per_gather = 0"
# The precomputed sums that can serve a bucket, in addition to hours.
PRECOMPUTED_SUMS = {"hour": (), "day": (DAY,), "week": (DAY,), "all": (BLOCK, DAY)}
HOUR = SumStep(0, 0, 1)

# Columns as JSON lists, so that the store returns one value instead of many; ids as text.
JSON_LIST = {"sqlite": "json_group_array({})", "postgresql": "array_to_json(array_agg({}))::text"}
HEX = {"sqlite": "lower(hex(owner))", "postgresql": "encode(owner, 'hex')"}

COST = ("cost_nusd",)
TAGS = (Series.PROJECT_TAG, Series.KEY_TAG)
# The dimensions of each series.
SERIES_DIMENSIONS: dict[Series, set[str]] = {
    Series.PROJECT_MODEL: {"name", "provider"},
    Series.KEY_MODEL: {"name", "provider"},
    Series.PROJECT_SOURCE: {"name"},
    Series.KEY_SOURCE: {"name"},
    **{key: {"name"} for key in TAGS},  # of one tag
}

Dimension = Literal["owner", "name", "provider"]


class RollupQuestion(Struct, frozen=True):
    """The sums of a series' `owners` (raw ids) over the hours [first, end) since the epoch, in buckets and by each
    combination of the dimensions.

    Only `figures` are read, the others stay 0. Days are UTC days, or with `shifts` days of a time zone: pairs of the
    first hour and the minutes by which the zone's clock is ahead from then on. An hour belongs to the day in which it
    begins there. Weeks are made of these days and begin on Monday. In the series of tags, `tag` is the name of the
    tag (SESSION: sessions), and `names` are the values that are read; none: all.
    """

    series: Series
    owners: Sequence[bytes]
    first: int
    end: int
    bucket: Bucket = "all"
    dimensions: tuple[Dimension, ...] = ()
    figures: tuple[str, ...] = FIGURES
    shifts: Shifts = ()
    tag: str = SESSION
    names: tuple[str, ...] = ()


class HourRun(NamedTuple):
    """The hours [first, end), read as sums of `step`s. `minutes` is the constant offset of the time zone, None if it
    does not matter."""

    step: SumStep
    first: int
    end: int
    minutes: int | None = None


class Row(Struct):
    """Figures of one step (hours or days since the epoch, 0 for the total) and one value of the dimensions; ids as the
    16 bytes after their prefix. `last_hour` is the newest hour with usage, as far as hours were read; `updated_us` is
    when the newest of them were computed."""

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
    """The rows of one step as columns: a list for each of the question's dimensions (ids in hex), and for each of its
    figures. Items at the same index belong together."""

    step: int
    dimensions: list[list[str]]
    figures: list[list[int]]


class RollupQuery(NamedTuple):
    """A statement; `order` is the column by which its rows are sorted."""

    sql: str
    params: tuple[Any, ...]
    order: str


class StatisticsEngine(Protocol):
    """Another engine that answers questions, from the same usage rows. Its methods raise NotCovered and Unavailable;
    then the rollups answer."""

    def is_usable(self) -> bool: ...
    def leave(self) -> None: ...
    def fetch_rows(self, question: RollupQuestion) -> list[Row]: ...
    def fetch_columns(self, question: RollupQuestion) -> list[StepColumns]: ...
    def fetch_top(self, question: RollupQuestion, maximum: int) -> list[Row]: ...


class NotCovered(Exception):
    """An engine does not have all rows of the time in question."""


# The engine that answers in the running greenlet, inside `at_once`.
_CHOSEN: ContextVar[StatisticsEngine | None] = ContextVar("statistics engine", default=None)


def at_once(database: Database, work: Callable[[], T]) -> T:
    """Return the result of `work`, a long read of one snapshot of the store; or of another engine, where one is
    configured and usable. Unavailable."""

    def read() -> T:
        return _read_snapshot(database, work)

    def ask(engine: StatisticsEngine) -> T:
        token = _CHOSEN.set(engine)
        try:
            return work()
        finally:
            _CHOSEN.reset(token)

    return answer_or(database, ask, read)


def from_store(database: Database, work: Callable[[], T]) -> T:
    """Return the result of `work`, a long read of one snapshot of the store, which has the usage rows. Unavailable."""
    return database.view(lambda: _read_snapshot(database, work))


def _read_snapshot(database: Database, work: Callable[[], T]) -> T:
    with database.peewee.transaction(SNAPSHOT_ISOLATION[database.kind]):
        if database.kind == "postgresql":
            database.execute(NO_PARALLEL_WORKERS)
        return work()


def answer_or(database: Database, ask: Callable[[StatisticsEngine], T], read: Callable[[], T]) -> T:
    """Return what `ask` gets from another engine, where one is configured, usable and has the rows; else what `read`
    gets from the store. Unavailable."""
    engine: StatisticsEngine | None = database.statistics
    if engine is not None and engine.is_usable():
        try:
            return ask(engine)
        except NotCovered:
            pass
        except Unavailable:
            engine.leave()
    return database.view(read)


def fetch_rows(database: Database, question: RollupQuestion) -> list[Row]:
    """Return the rows with usage, in no order. Inside `at_once`."""
    engine = _CHOSEN.get()
    if engine is not None:
        return engine.fetch_rows(question)
    rows: dict[tuple[int, tuple[Any, ...]], Row] = {}
    width = 1 + len(question.dimensions)
    moments = ("MAX(hour)", "MAX(updated_at)"), ("hour", "updated_at")
    for statement in _statements(database, question, *moments):
        for line in fetch_sums(database, statement.sql, statement.params):
            figures = _read_figures(question.figures, line[width + 2 :])
            row = Row(int(line[0]), _values(question, line), figures, int(line[width]), int(line[width + 1] or 0))
            known = rows.setdefault((row.step, row.value), row)
            if known is not row:
                known.add(row)
    return list(rows.values())


def fetch_columns(database: Database, question: RollupQuestion) -> list[StepColumns]:
    """Return the same figures as columns and without times, for tens of thousands of rows: the store builds the lists.
    A step may be split. Inside `at_once`."""
    engine = _CHOSEN.get()
    if engine is not None:
        return engine.fetch_columns(question)
    wide = len(question.dimensions)
    listed = JSON_LIST[database.kind]
    names = (HEX[database.kind] if name == "owner" else name for name in question.dimensions)
    lists = ", ".join(listed.format(name) for name in (*names, *question.figures))
    columns = []
    for sql, params, order in _statements(database, question):
        outer = f"SELECT MIN(step), {lists} FROM ({sql}) lines GROUP BY {order}"
        for step, *cells in fetch_sums(database, outer, params):
            dimensions = [orjson.loads(cell) for cell in cells[:wide]]
            columns.append(StepColumns(int(step), dimensions, [_read_numbers(cell) for cell in cells[wide:]]))
    return columns


def fetch_top(database: Database, question: RollupQuestion, maximum: int) -> list[Row]:
    """Return the rows of a question that is summed over its whole time by name, of the `maximum` names with the highest
    cost. OTHER is not among them. A question of costs alone gets no times. Inside `at_once`."""
    engine = _CHOSEN.get()
    if engine is not None:
        return engine.fetch_top(question, maximum)
    pieces = list(_pieces(database, question))
    if not pieces:
        return []
    if len(pieces) > STATEMENTS:
        found = [row for row in fetch_rows(database, question) if row.value[0] != OTHER]
    else:
        # Costs first: grouping all figures of all names would take three times as long.
        found = _find_top(database, question, pieces, maximum)
        if not found or question.figures == COST:
            return found
        names = tuple([row.value[0] for row in found])
        found = fetch_rows(database, structs.replace(question, names=names))
    return sorted(found, key=lambda row: (-row.figures.cost_nusd, row.value))[:maximum]


def _find_top(
    database: Database, question: RollupQuestion, pieces: Sequence[tuple[HourRun, Sequence[bytes]]], maximum: int
) -> list[Row]:
    """Return the names with the highest cost and their costs."""
    conditions = [_where(question, owners, run) for run, owners in pieces]
    costs = " UNION ALL ".join(f"SELECT name, cost_nusd AS cost {where}" for where, _ in conditions)
    sql = (
        f"SELECT name, COALESCE(sum(cost), 0) FROM ({costs}) c WHERE name <> ? GROUP BY name "
        f"ORDER BY 2 DESC, name LIMIT {maximum}"
    )
    params = [value for _, values in conditions for value in values]
    found = fetch_sums(database, sql, (*params, OTHER))
    return [Row(0, (str(name),), _read_figures(COST, (cost,))) for name, cost in found]


def _read_figures(names: Sequence[str], values: Sequence[Any]) -> ActivityFigures:
    figures = ActivityFigures()
    vars(figures).update({name: int(value) for name, value in zip(names, values, strict=True) if value})
    return figures


def _read_numbers(text: str) -> list[int]:
    numbers: list[int] = orjson.loads(text)
    # Beyond 64 bits PostgreSQL stays exact, while SQLite returns the nearest double.
    if max(numbers) < FIRST_OUT_OF_RANGE:
        return numbers
    return [int(number) for number in json.loads(text)]


def is_filled(database: Database) -> bool:
    """Return whether all rows from before the rollups are counted. Inside `at_once`."""
    if _CHOSEN.get() is not None:
        return True
    state = read_state(database)
    return state is not None and not state.filling


def rows_begin_us(database: Database) -> int:
    """Return the time from which on all usage rows still exist; before it some or all were removed. 0: none were
    removed. Inside a read."""
    state = read_state(database)
    if state is not None and state.purged:
        return time_of(bytes.fromhex(state.purged))
    return 0


def _runs(database: Database, question: RollupQuestion) -> list[HourRun]:
    """Return the runs to read, with precomputed sums where available."""
    first = question.first
    end = question.end
    if question.shifts and question.bucket in ("day", "week"):
        ends = (*(hour for hour, _ in question.shifts[1:]), end)
        shifted = zip(question.shifts, ends, strict=True)
        return [HourRun(HOUR, max(first, begin), min(end, stop), minutes) for (begin, minutes), stop in shifted]
    state = read_state(database)
    if state is None:
        return []
    runs = [HourRun(HOUR, first, end)]
    for step in PRECOMPUTED_SUMS[question.bucket]:
        runs = [part for run in runs for part in (_split(database, state, run, step) if run.step is HOUR else [run])]
    return runs


def _split(database: Database, state: State, run: HourRun, step: SumStep) -> Iterator[HourRun]:
    """Split a run of hours into precomputed steps and the remaining hours."""
    begun = run.first
    for start, stop in _ready(database, state, step, -(-run.first // step.hours), run.end // step.hours):
        if begun < start * step.hours:
            yield HourRun(HOUR, begun, start * step.hours)
        yield HourRun(step, start * step.hours, stop * step.hours)
        begun = stop * step.hours
    if begun < run.end:
        yield HourRun(HOUR, begun, run.end)


def _ready(database: Database, state: State, step: SumStep, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield runs of days or blocks in [first, end) that are computed."""
    if step is BLOCK:
        computed = list_blocks(database, first, end)
        missing = sorted(set(range(first, end)) - set(computed))
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
    """Yield statements for step, dimensions, further columns (`summed` with grouping, `plain` without), and figures."""
    for run, owners in _pieces(database, question):
        yield _statement(question, owners, run, summed, plain)


def _pieces(database: Database, question: RollupQuestion) -> Iterator[tuple[HourRun, Sequence[bytes]]]:
    """Yield the runs and owners of each statement."""
    for run in _runs(database, question):
        for start in range(0, len(question.owners), OWNERS):
            yield run, question.owners[start : start + OWNERS]


def _statement(
    question: RollupQuestion, owners: Sequence[bytes], run: HourRun, summed: tuple[str, ...], plain: tuple[str, ...]
) -> RollupQuery:
    bucket = bucket_sql(question.bucket, run.minutes)
    if len(owners) == 1 and run.step is DAY and question.bucket == "day" and _is_apart(question):
        # Each result is a single row of the table.
        figures = (f"COALESCE({name}, 0) AS {name}" for name in question.figures)
        shown = ", ".join((f"{bucket} AS step", *question.dimensions, *plain, *figures))
        grouped = ""
        order = "hour"
    else:
        figures = (f"COALESCE(sum({name}), 0) AS {name}" for name in question.figures)
        shown = ", ".join((f"{bucket} AS step", *question.dimensions, *summed, *figures))
        # Grouped by the series if there is no other key: without a group, SQL returns one row even if nothing matches.
        keys = (bucket if question.bucket != "all" else "series", *question.dimensions)
        grouped = f" GROUP BY {', '.join(keys)}"
        order = "step"
    where, params = _where(question, owners, run)
    return RollupQuery(f"SELECT {shown} {where}{grouped}", params, order)


def _where(question: RollupQuestion, owners: Sequence[bytes], run: HourRun) -> tuple[str, tuple[Any, ...]]:
    """Return table and conditions of a statement, and their parameters."""
    more, params = _conditions(question)
    where = (
        f"FROM rollup WHERE series = ? AND owner IN ({', '.join('?' * len(owners))}) AND hour >= ? AND hour < ?{more}"
    )
    return where, (question.series + run.step.coarse, *owners, run.first, run.end, *params)


def _conditions(question: RollupQuestion) -> tuple[str, tuple[str, ...]]:
    """Return the conditions on tag and names, and their parameters."""
    if question.series not in TAGS:
        return "", ()
    if not question.names:
        return " AND provider = ?", (question.tag,)
    return f" AND provider = ? AND name IN ({', '.join('?' * len(question.names))})", (question.tag, *question.names)


def _is_apart(question: RollupQuestion) -> bool:
    """Return whether an owner has one row of the table for each result."""
    return set(question.dimensions) >= SERIES_DIMENSIONS.get(question.series, set())


def _values(question: RollupQuestion, line: tuple[Any, ...]) -> tuple[Any, ...]:
    values = line[1 : 1 + len(question.dimensions)]
    if "owner" not in question.dimensions:
        return tuple(values)
    return tuple([bytes(cell) if isinstance(cell, memoryview) else cell for cell in values])


class TokenSums(NamedTuple):
    """The tokens of a model in a project; `input` includes `cached`."""

    project_id: str
    model: str
    input: int
    cached: int
    output: int


MIX_HOURS = 72
MAX_MIXES = 20_000
MIX_SQL = """
SELECT owner, name, SUM(input_tokens), COALESCE(SUM(cached_tokens), 0), COALESCE(SUM(output_tokens), 0) FROM rollup
WHERE series = ? AND hour >= ? GROUP BY owner, name HAVING SUM(input_tokens) >= ? ORDER BY 3 DESC LIMIT ?
"""


def sum_tokens(database: Database, now_hour: int, minimum: int) -> list[TokenSums]:
    """Return the tokens of the last days by project and model, with at least `minimum` input tokens: the largest
    MAX_MIXES."""
    params = (Series.PROJECT_MODEL, now_hour - MIX_HOURS, minimum, MAX_MIXES)
    rows = database.view(lambda: list(database.fetch(MIX_SQL, params)))
    return [TokenSums(f"proj_{bytes(owner).hex()}", name, *map(int, sums)) for owner, name, *sums in rows]
