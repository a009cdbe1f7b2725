"""The table of rollups: which series it has, how sums are added, replaced and moved in it, and how far it is."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import orjson
import peewee

from gateway import errors
from gateway.clock import DAY_US, HOUR_US
from gateway.metering.figures import FIGURES
from gateway.store.database import Database
from gateway.threads import pause

HOURS = 24  # of a day


class Series(IntEnum):
    """Sums of an owner by hour; those of days have the same number plus DAILY."""

    PROJECT = 0
    PROJECT_MODEL = 1
    PROJECT_SOURCE = 2
    KEY = 3
    KEY_MODEL = 4
    KEY_SOURCE = 5


DAILY = 8
PIECE_ROWS = 200
HELD, REMOVED = 0, 1  # part
# Names of sources that a project has in an hour at most: callers choose them. What comes under more names counts
# everywhere but in the series of sources.
MOST_SOURCES = 100

# Of a row: how many usage rows it sums up, and the figures.
VALUES = ("rows", *FIGURES)
KEY_COLUMNS = ("series", "owner", "hour", "part", "name", "provider")
COLUMNS = (*KEY_COLUMNS, "updated_at", *VALUES)
ADDED = ", ".join(f"{v} = NULLIF(COALESCE(rollup.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in VALUES)
PLACES = f"VALUES ({', '.join('?' * len(COLUMNS))})"
INSERT = f"INSERT INTO rollup ({', '.join(COLUMNS)}) {PLACES}"
TYPES = ("smallint", "bytea", "integer", "smallint", "text", "text", "bigint")
# Of PostgreSQL; a sum of amounts may leave 64 bits.
ARRAYS = ", ".join(
    f"CAST(? AS {kind}[])" for kind in (*TYPES, *("numeric" if name.endswith("_nusd") else "bigint" for name in VALUES))
)
ADD = (
    f"{INSERT} ON CONFLICT ({', '.join(KEY_COLUMNS)}) DO UPDATE SET "
    f"updated_at = COALESCE(excluded.updated_at, rollup.updated_at), {ADDED}"
)
WIDEN = """
INSERT INTO rollup_hour (hour, low, high, dirty) VALUES (?, ?, ?, ?) ON CONFLICT (hour) DO UPDATE SET
    low = CASE WHEN excluded.low < rollup_hour.low THEN excluded.low ELSE rollup_hour.low END,
    high = CASE WHEN excluded.high > rollup_hour.high THEN excluded.high ELSE rollup_hour.high END,
    dirty = CASE WHEN excluded.dirty > rollup_hour.dirty THEN excluded.dirty ELSE rollup_hour.dirty END
"""
TOUCH_DAY = "INSERT INTO rollup_day (day, stamp) VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET stamp = excluded.stamp"

Key = tuple[int, bytes, int, str, str]  # series, owner, hour, name, provider
Sums = dict[Key, list[int]]
Updated = int | None | dict[int, int]


@dataclass(frozen=True, slots=True)
class State:
    """How far the rollups are. Rows posted before `watermark` are counted; while `filled` is not None, of those before
    `fill_until` only the ones with request ids up to it. Days before `days_through` are summed up but for those in the
    table rollup_day. Before the request id `purged` (hex) rows were removed. `counted` are the last batches: start, end
    and number of rows. Each change raises `version`, so that of two who work on it one finds out."""

    version: int
    watermark: int
    fill_until: int
    filled: str | None
    days_through: int
    purged: str
    counted: tuple[tuple[int, int, int], ...]

    @property
    def filling(self) -> bool:
        return self.filled is not None


STATE = "version, watermark, fill_until, filled, days_through, purged, counted"


def read_state(database: Database) -> State | None:
    """None before the first round of the job. Inside a read or write."""
    row = database.execute(f"SELECT {STATE} FROM rollup_state WHERE id = 1").fetchone()
    if row is None:
        return None
    version, watermark, fill_until, filled, days_through, purged, counted = row
    batches = tuple((first, last, count) for first, last, count in orjson.loads(counted))
    return State(version, watermark, fill_until, filled, days_through, purged, batches)


def insert_state(database: Database, now_us: int, empty: bool) -> None:
    """The beginning: rows posted from now on are counted as they come, those before in a pass over them all."""
    database.execute(
        f"INSERT INTO rollup_state (id, {STATE}) VALUES (1, 1, ?, ?, ?, ?, '', '[]') ON CONFLICT (id) DO NOTHING",
        (now_us, now_us, None if empty else "", now_us // DAY_US if empty else 0),
    )


def advance_state(database: Database, state: State, **changes: Any) -> State:
    """Change the state within a transaction in hand, whose first statement this is. Unavailable when somebody else
    changed it since it was read: then nothing of the transaction may happen."""
    after = dataclasses.replace(state, version=state.version + 1, **changes)
    changed = database.execute(
        "UPDATE rollup_state SET version = ?, watermark = ?, fill_until = ?, filled = ?, days_through = ?, purged = ?, "
        "counted = ? WHERE id = 1 AND version = ?",
        (
            after.version,
            after.watermark,
            after.fill_until,
            after.filled,
            after.days_through,
            after.purged,
            orjson.dumps(after.counted).decode(),
            state.version,
        ),
    )
    if not changed.rowcount:
        raise errors.Unavailable("Somebody else works on the rollups.")
    return after


def add_sums(database: Database, sums: Mapping[Key, Sequence[int]], part: int, updated: Updated) -> None:
    """Add to what is there, within a transaction in hand. `updated` is the moment, of all or by hour; without one what
    is there keeps its own."""
    _run_rows(database, ADD, _table_rows(sums, part, updated))


def insert_sums(database: Database, sums: Mapping[Key, Sequence[int]], part: int, updated: Updated) -> None:
    """Write where nothing is, within a transaction in hand."""
    _run_rows(database, INSERT, _table_rows(sums, part, updated))


def _run_rows(database: Database, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Rows of the table: on PostgreSQL many in a statement, as arrays of its columns."""
    if database.kind == "sqlite":
        _run_many(database, sql, rows)
        return
    many = sql.replace(PLACES, f"SELECT * FROM unnest({ARRAYS})", 1)
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute(many, [list(column) for column in zip(*rows[start : start + PIECE_ROWS], strict=True)])
        pause(0)


def _run_many(database: Database, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    if database.kind == "sqlite":
        if rows:
            database.execute_many(sql, rows)
        return
    # PostgreSQL's rows are written out on the event loop, which others need meanwhile.
    for start in range(0, len(rows), PIECE_ROWS):
        database.execute_many(sql, rows[start : start + PIECE_ROWS])
        pause(0)


def _table_rows(sums: Mapping[Key, Sequence[int]], part: int, updated: Updated) -> list[tuple[Any, ...]]:
    # In the order of the key, so that writers lock alike and pages are visited once.
    moment = updated.get if isinstance(updated, dict) else lambda hour: updated
    return [
        (series, owner, hour, part, name, provider, moment(hour), *[_stored(value) for value in sums[key]])
        for key in sorted(sums)
        for series, owner, hour, name, provider in (key,)
    ]


def _stored(value: int) -> int | float | None:
    """Zero takes no room; beyond 64 bits is the nearest double, as in SQLite's own sums."""
    if not value:
        return None
    return value if -(2**63) <= value < 2**63 else float(value)


def delete_empty(database: Database, hours: Iterable[int]) -> None:
    """Rows of the part HELD that sum up nothing any more, within a transaction in hand."""
    sql = f"DELETE FROM rollup WHERE hour = ? AND series < {DAILY} AND part = {HELD} AND rows IS NULL"
    _run_many(database, sql, [(hour,) for hour in hours])


def widen_hours(database: Database, ranges: Mapping[int, tuple[str, str]], dirty: bool = False) -> None:
    """Remember in which range of request ids (hex) the rows of hours lie, within a transaction in hand."""
    rows = [(hour, low, high, int(dirty)) for hour, (low, high) in sorted(ranges.items())]
    _run_many(database, WIDEN, rows)


def touch_days(database: Database, hours: Iterable[int], stamp: int) -> None:
    """Days that must be summed up again, within a transaction in hand."""
    _run_many(database, TOUCH_DAY, [(day, stamp) for day in sorted({hour // HOURS for hour in hours})])


def run_sums(database: Database, sql: str, params: Sequence[Any]) -> Any:
    """A statement whose every sum(…) is of what lies in the table; the driver's cursor. Beyond 64 bits, where SQLite's
    own ends in an error, it is the nearest double."""
    try:
        return database.execute(sql, params)
    except peewee.OperationalError as error:
        if "overflow" not in str(error):
            raise
        return database.execute(sql.replace("sum(", "total("), params)


def hour_of(at_us: int) -> int:
    """Hours since the epoch."""
    return at_us // HOUR_US
