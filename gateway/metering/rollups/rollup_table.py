"""The table of rollups: its series, how sums are added, replaced and moved in it, and its progress."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import orjson
import peewee
from msgspec import Struct, structs

from gateway import errors
from gateway.clock import DAY_US, HOUR_US
from gateway.metering.figures import FIGURES, RARE
from gateway.runtime.threads import pause
from gateway.store.database import Database

# Tables with a key and sums: statements that insert rows, or add to existing ones.

# The values of a row: the number of summed usage rows, and the figures.
VALUES = ("rows", *FIGURES)
# Rows are written with the smallest of these sets of values that has all of theirs. Most rows have only the first.
COMMON_COLUMN_SETS = (
    *("rows", "requests", "input_tokens", "output_tokens", "cached_tokens"),
    *("cost_nusd", "input_nusd", "output_nusd", "cached_nusd"),
)
COMMON = VALUES[: -len(RARE)]
FIRST_OUT_OF_RANGE = 2**63  # beyond the store's integers, which then become the nearest double
PIECE_ROWS = 200
NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


class Insertion(NamedTuple):
    """The statements that write rows with some of VALUES: `plain` inserts, `adding` adds to existing rows. PostgreSQL
    writes many rows at once: `arrays` of columns replace `places`. `pick` returns those values of VALUES, `others` the
    remaining ones."""

    plain: str
    adding: str
    places: str
    arrays: str
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    others: Callable[[Sequence[int]], tuple[int, ...]]


class SumTable(NamedTuple):
    """The statements for rows with COMMON_COLUMN_SETS, COMMON and all of VALUES; and the number of key columns."""

    usual: Insertion
    common: Insertion
    whole: Insertion
    keys: int


def sum_table(
    name: str, keys: Mapping[str, str], newest: tuple[str, str], fixed: Mapping[str, str] = NO_COLUMNS
) -> SumTable:
    """Return the statements of a table. `keys` are the key columns with their types on PostgreSQL. `newest` is a column
    and its type that has the value of the row that was added last, `fixed` are columns that are equal for equal
    keys."""
    beside = {**dict([newest]), **fixed}
    usual, common, whole = (
        _insertion(name, keys, newest[0], beside, values) for values in (COMMON_COLUMN_SETS, COMMON, VALUES)
    )
    return SumTable(usual, common, whole, len(keys))


def _insertion(
    table: str, keys: Mapping[str, str], newest: str, beside: Mapping[str, str], values: tuple[str, ...]
) -> Insertion:
    columns = (*keys, *beside, *values)
    places = f"VALUES ({', '.join('?' * len(columns))})"
    plain = f"INSERT INTO {table} ({', '.join(columns)}) {places}"
    added = ", ".join(f"{v} = NULLIF(COALESCE({table}.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in values)
    adding = f"{plain} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {newest} = excluded.{newest}, {added}"
    # On PostgreSQL, a sum of amounts may exceed 64 bits.
    types = (*keys.values(), *beside.values(), *("numeric" if v.endswith("_nusd") else "bigint" for v in values))
    arrays = ", ".join(f"CAST(? AS {kind}[])" for kind in types)
    others = tuple(name for name in VALUES if name not in values)
    return Insertion(plain, adding, places, f"SELECT * FROM unnest({arrays})", _picker(values), _picker(others))


def _picker(names: Sequence[str]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that returns the values with these names of VALUES; there are none or several."""
    if not names:
        return _pick_none
    return itemgetter(*(VALUES.index(name) for name in names))


def _pick_none(values: Sequence[int]) -> tuple[int, ...]:
    return ()


def write_rows(
    database: Database, table: SumTable, rows: Iterable[tuple[tuple[Any, ...], Sequence[int]]], adding: bool
) -> None:
    """Write rows (each with its key and the columns beside it, and its VALUES) within an open transaction."""
    usual: list[tuple[Any, ...]] = []
    common: list[tuple[Any, ...]] = []
    whole: list[tuple[Any, ...]] = []
    # Sorted by key, so that writers lock in the same order and each page is visited once.
    for head, sums in sorted(rows, key=lambda row: row[0][: table.keys]):
        form, into = table.usual, usual
        if any(form.others(sums)):
            form, into = table.common, common
        if any(form.others(sums)):
            form, into = table.whole, whole
        values: Sequence[int | float] = form.pick(sums)
        if max(values) >= FIRST_OUT_OF_RANGE or min(values) <= -FIRST_OUT_OF_RANGE:
            values = [float(value) if abs(value) >= FIRST_OUT_OF_RANGE else value for value in values]
        # Zero is stored as NULL, which takes no space.
        into.append((*head, *[value or None for value in values]))
    for form, some in ((table.usual, usual), (table.common, common), (table.whole, whole)):
        _run_rows(database, form.adding if adding else form.plain, form, some)


def _run_rows(database: Database, sql: str, form: Insertion, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of a table; on PostgreSQL many per statement, as arrays of its columns."""
    if database.kind == "sqlite":
        run_many(database, sql, rows)
        return
    many = sql.replace(form.places, form.arrays, 1)
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute(many, [list(column) for column in zip(*rows[start : start + PIECE_ROWS], strict=True)])
        pause(0)


def run_many(database: Database, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement for each of `rows`, within an open transaction."""
    if database.kind == "sqlite":
        if rows:
            database.execute_many(sql, rows)
        return
    # PostgreSQL's driver encodes rows on the event loop, so other greenlets need a turn in between.
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute_many(sql, rows[start : start + PIECE_ROWS])
        pause(0)


T = TypeVar("T")

HOURS = 24


class Series(IntEnum):
    """Sums of an owner by hour. Sums of days have the same number plus DAILY, those of blocks of days plus BLOCKS."""

    PROJECT = 0
    PROJECT_MODEL = 1
    PROJECT_SOURCE = 2
    KEY = 3
    KEY_MODEL = 4
    KEY_SOURCE = 5
    # One row for each tag and value; the column `provider` is the name of the tag, "" for sessions.
    PROJECT_TAG = 6
    KEY_TAG = 7


DAILY = 8
BLOCKS = 16
BLOCK_DAYS = 32
BLOCK_HOURS = BLOCK_DAYS * HOURS
# Most source names of a project in an hour, because callers choose them. Rows under further names count everywhere
# except in the series of sources.
MAX_SOURCES = 100
# The same for sessions, for tags, and for the values of a tag. Further sessions and values count as OTHER, further tags
# in no series of tags.
MAX_SESSIONS = 5_000
MAX_TAGS = 20
MAX_VALUES = 500
OTHER = "(other)"
SESSION = ""  # the name that stands for sessions among the tags
# The names of operations and of error codes among the tags. The name of a caller's tag does not begin with a space.
# Requests of the usual operation, and rows without an error, have no sums of these names.
OPERATION = " operation"
ERROR = " error"
OWN_NAMES = (SESSION, OPERATION, ERROR)
USUAL_OPERATION = "chat"
IS_UNUSUAL = f"operation NOT IN ('', '{USUAL_OPERATION}')"  # the condition on rows with sums of OPERATION

KEY_COLUMNS = {  # with their types on PostgreSQL
    "series": "smallint",
    "owner": "bytea",
    "hour": "integer",
    "part": "smallint",
    "name": "text",
    "provider": "text",
}
COLUMNS = (*KEY_COLUMNS, "updated_at", *VALUES)
ROLLUP = sum_table("rollup", KEY_COLUMNS, ("updated_at", "bigint"))
WIDEN = """
INSERT INTO rollup_hour (hour, low, high, dirty, late_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (hour) DO UPDATE SET
    low = CASE WHEN excluded.low < rollup_hour.low THEN excluded.low ELSE rollup_hour.low END,
    high = CASE WHEN excluded.high > rollup_hour.high THEN excluded.high ELSE rollup_hour.high END,
    dirty = CASE WHEN excluded.dirty > rollup_hour.dirty THEN excluded.dirty ELSE rollup_hour.dirty END,
    late_at = CASE WHEN excluded.late_at > rollup_hour.late_at THEN excluded.late_at ELSE rollup_hour.late_at END
"""
FORGET_BLOCK = "DELETE FROM rollup_block WHERE block = ?"
TOUCH_DAY = "INSERT INTO rollup_day (day, stamp) VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET stamp = excluded.stamp"

Key = tuple[int, bytes, int, str, str]  # series, owner, hour, name, provider
Sums = dict[Key, list[int]]


class RollupConflict(errors.Unavailable):
    """Another worker changed the rollups since their state was read; nothing was written, and the work can be
    repeated."""


class State(Struct, frozen=True):
    """The progress of the rollups.

    Rows posted before `watermark` are counted. While `filled` is not None, rows posted before `fill_until` are counted
    only
    up to that request id. Days before `days_through` are computed, except those in the table rollup_day. Before the
    request
    id `purged` (hex) rows were removed. `counted` are the last batches: start, end and number of rows. Each change
    increments `version`, so that concurrent changes are detected.

    Names (tags, sessions, operations and errors) are summed up to the watermark `named_until`. `named` equals `version`
    unless a release that does not know sums of all these was the last to change the rollups.
    """

    version: int
    watermark: int
    fill_until: int
    filled: str | None
    days_through: int
    purged: str
    counted: tuple[tuple[int, int, int], ...]
    named: int = 0
    named_until: int = 0

    @property
    def filling(self) -> bool:
        return self.filled is not None


STATE = "version, watermark, fill_until, filled, days_through, purged, counted, named, named_until"


def read_state(database: Database) -> State | None:
    """Return the state, None before the first round of the job. Inside a read or write."""
    row = database.execute(f"SELECT {STATE} FROM rollup_state WHERE id = 1").fetchone()
    if row is None:
        return None
    version, watermark, fill_until, filled, days_through, purged, counted, named, named_until = row
    batches = tuple((first, last, count) for first, last, count in orjson.loads(counted))
    return State(version, watermark, fill_until, filled, days_through, purged, batches, named, named_until)


def insert_state(database: Database, now_us: int, empty: bool) -> None:
    """Insert the first state: rows posted from now on are counted as they arrive, earlier ones in a separate pass."""
    database.execute(
        f"INSERT INTO rollup_state (id, {STATE}) VALUES (1, 1, ?, ?, ?, ?, '', '[]', 1, ?) ON CONFLICT (id) DO NOTHING",
        (now_us, now_us, None if empty else "", now_us // DAY_US if empty else 0, now_us),
    )


def advance_state(database: Database, state: State, **changes: Any) -> State:
    """Change the state; must be the first statement of an open transaction.

    RollupConflict when another worker changed it since it was read; the transaction must be rolled back then.
    """
    after = structs.replace(state, version=state.version + 1, **changes)
    if state.named == state.version:
        after = structs.replace(after, named=after.version, named_until=after.watermark)
    changed = database.execute(
        "UPDATE rollup_state SET version = ?, watermark = ?, fill_until = ?, filled = ?, days_through = ?, purged = ?, "
        "counted = ?, named = ?, named_until = ?, tagged = ?, tagged_until = ? WHERE id = 1 AND version = ?",
        (
            after.version,
            after.watermark,
            after.fill_until,
            after.filled,
            after.days_through,
            after.purged,
            orjson.dumps(after.counted).decode(),
            after.named,
            after.named_until,
            # An earlier release, which sums tags and sessions alone, may be the next one to change the rollups.
            after.named,
            after.named_until,
            state.version,
        ),
    )
    if not changed.rowcount:
        raise RollupConflict("Another worker changed the rollups.")
    return after


def read_held(database: Database, hours: Iterable[int]) -> dict[int, int]:
    """Return the number of the part HELD of hours; a missing hour means 0. Inside a read or write."""
    sorted_hours = sorted(set(hours))
    parts: dict[int, int] = {}
    for start in range(0, len(sorted_hours), PIECE_ROWS):
        some = sorted_hours[start : start + PIECE_ROWS]
        sql = f"SELECT hour, held FROM rollup_hour WHERE held <> 0 AND hour IN ({', '.join('?' * len(some))})"
        parts.update((int(hour), int(held)) for hour, held in database.execute(sql, some).fetchall())
    return parts


def add_sums(database: Database, sums: Mapping[Key, Sequence[int]], parts: Mapping[int, int], updated_us: int) -> None:
    """Add to existing sums within an open transaction, in the part that `parts` gives for an hour, otherwise 0."""
    write_rows(database, ROLLUP, _table_rows(sums, parts, updated_us), adding=True)


def insert_sums(
    database: Database, sums: Mapping[Key, Sequence[int]], parts: Mapping[int, int], updated_us: int
) -> None:
    """Insert sums that do not exist yet, within an open transaction."""
    write_rows(database, ROLLUP, _table_rows(sums, parts, updated_us), adding=False)


def read_sums(database: Database, hour: int, part: int) -> dict[Key, list[int]]:
    """Return the sums of a part of an hour. Inside a report."""
    sql = (
        f"SELECT series, owner, name, provider, {', '.join(VALUES)} FROM rollup "
        f"WHERE hour = ? AND series >= 0 AND series < {DAILY} AND part = ?"
    )
    return {
        (int(series), bytes(owner), hour, str(name), str(provider)): [int(value or 0) for value in values]
        for series, owner, name, provider, *values in database.fetch(sql, (hour, part))
    }


def compare_sums(stored: Sums, expected: Sums) -> tuple[list[Key], Sums]:
    """Return the keys with wrong stored values, and the sums to write."""
    wrong = [key for key, values in stored.items() if expected.get(key) != values]
    return wrong, {key: values for key, values in expected.items() if stored.get(key) != values}


def delete_sums(database: Database, keys: Iterable[Key], part: int) -> None:
    """Delete rows of one part, within an open transaction."""
    sql = "DELETE FROM rollup WHERE series = ? AND owner = ? AND hour = ? AND name = ? AND provider = ? AND part = ?"
    run_many(database, sql, [(*key, part) for key in sorted(keys)])


def _table_rows(
    sums: Mapping[Key, Sequence[int]], parts: Mapping[int, int], updated_us: int
) -> Iterator[tuple[tuple[Any, ...], Sequence[int]]]:
    for (series, owner, hour, name, provider), values in sums.items():
        yield (series, owner, hour, parts.get(hour, 0), name, provider, updated_us), values


def widen_hours(
    database: Database, ranges: Mapping[int, tuple[str, str]], dirty: bool = False, late_us: int = 0
) -> None:
    """Extend the range of request ids (hex) in which the rows of hours lie, within an open transaction. `late_us`: when
    late rows of these hours were detected, by the store's clock; the closing of hours reads it."""
    rows = [(hour, low, high, int(dirty), late_us) for hour, (low, high) in sorted(ranges.items())]
    run_many(database, WIDEN, rows)


def touch_days(database: Database, hours: Iterable[int], stamp: int) -> None:
    """Mark days, and their blocks, to be computed again, within an open transaction."""
    days = sorted({hour // HOURS for hour in hours})
    run_many(database, TOUCH_DAY, [(day, stamp) for day in days])
    run_many(database, FORGET_BLOCK, [(block,) for block in sorted({day // BLOCK_DAYS for day in days})])


def fetch_sums(database: Database, sql: str, params: Sequence[Any]) -> list[Any]:
    """Return the rows of a statement with sum(…) over rollups. Beyond 64 bits, where SQLite's sum() raises an error,
    the nearest double is returned."""
    return _with_room(database.fetch, sql, params, lambda: sql.replace("sum(", "total("))


def run_sums(database: Database, sql: str, params: Sequence[Any]) -> None:
    """Run a statement with sum(…) that returns no rows; see `fetch_sums`."""
    _with_room(database.execute, sql, params, lambda: sql.replace("sum(", "total("))


def fetch_exact(database: Database, sql: str, params: Sequence[Any]) -> list[Any]:
    """Return the rows of a statement with SUM(…) over usage rows. `Database.exact_sums` takes twice as long, so it is
    used only after an overflow."""
    return _with_room(database.fetch, sql, params, lambda: database.exact_sums(sql))


def _with_room(run: Callable[[str, Sequence[Any]], T], sql: str, params: Sequence[Any], wider: Callable[[], str]) -> T:
    try:
        return run(sql, params)
    except peewee.OperationalError as error:
        if "overflow" not in str(error):
            raise
        return run(wider(), params)


def try_again(work: Callable[[], T], attempts: int = 20, pause_s: float = 0.02) -> T:
    """Return the result of `work`, repeated up to `attempts` times when another worker changed the rollups first."""
    for attempt in range(1, attempts):
        try:
            return work()
        except RollupConflict:
            pause(pause_s * attempt)
    return work()


def hour_of(at_us: int) -> int:
    """Return the hours since the epoch."""
    return at_us // HOUR_US
