"""Sums of usage rows: what a batch, a range or an hour of them adds to the rollups."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from gateway.clock import HOUR_US
from gateway.metering.figures import (
    COLUMNAR,
    EXTRA_FIGURES,
    SUM_EXPRESSIONS,
    column_sums_sql,
    kept_sums_sql,
    last_params,
    rows_sql,
    sums_sql,
)
from gateway.metering.models import SETTLEMENT
from gateway.metering.rollups.rollup_table import (
    ERROR,
    OPERATION,
    OTHER,
    OWN_NAMES,
    SESSION,
    USUAL_OPERATION,
    VALUES,
    Key,
    Series,
    Sums,
    fetch_exact,
    fetch_sums,
    read_held,
    sum_table,
    write_rows,
)
from gateway.store.database import Database

# An attempt begins at most this long after its request arrived, even with differing clocks.
START_MARGIN_US = HOUR_US
HEX = {"sqlite": "lower(hex({0}))", "postgresql": "encode({0}, 'hex')"}
DIMENSIONS = (
    f"u.at / {HOUR_US}, u.project, u.api_key, u.provider, u.served, u.source, u.session, u.tags, u.operation, u.error"
)
WIDE = 10  # the number of DIMENSIONS
VALUE_INDEX = {name: place for place, name in enumerate(VALUES)}
EXTRA_INDEXES = tuple(VALUE_INDEX[name] for name in EXTRA_FIGURES)
# The rows that represented their requests before a batch brought later attempts.
OUTRUN_ROWS = f"""
(SELECT w.*, -1 AS last FROM usage w WHERE w.kind = {SETTLEMENT} AND w.posted_at < ? AND w.request IN (
    SELECT b.request FROM usage b WHERE b.posted_at >= ? AND b.posted_at < ? AND b.attempt > w.attempt)
AND NOT EXISTS (SELECT 1 FROM usage v WHERE v.request = w.request AND v.attempt > w.attempt AND v.posted_at < ?)
AND (w.attempt = 0 OR w.request >= ? OR EXISTS (SELECT 1 FROM usage f WHERE f.request = w.request
    AND f.attempt < w.attempt AND f.posted_at < ?))) u
"""


class Group(NamedTuple):
    """Usage rows of one hour with equal dimensions: their range of request ids (hex), and the sums of VALUES."""

    hour: int
    project: bytes
    key: bytes
    provider: str
    model: str
    source: str
    session: str | None
    tags: str | None  # JSON
    operation: str | None  # None for removed rows of which it was not kept
    error: str | None
    low: str
    high: str
    values: list[int]


def sum_rows(
    database: Database, condition: str, params: Sequence[Any], horizon_us: int, purged: bytes
) -> tuple[list[Group], bool]:
    """Return groups of the usage rows `w` that meet a condition, and whether they include second attempts. Only rows
    posted before `horizon_us` decide which attempt is the last. Inside a report."""
    ident = HEX[database.kind].format("u.request")
    sql = (
        f"SELECT {DIMENSIONS}, MIN({ident}), MAX({ident}), MAX(u.attempt), COUNT(u.extra), COUNT(*), "
        f"{column_sums_sql()} FROM {rows_sql(condition)} GROUP BY {DIMENSIONS}"
    )
    sql_params = (*last_params(horizon_us, purged), *params)
    groups = []
    retried = False
    has_extra = False
    for row in fetch_exact(database, sql, sql_params):
        low, high, attempt, extras, rows, *sums = row[WIDE:]
        groups.append(_group(row[:WIDE], low, high, rows, zip(COLUMNAR, sums, strict=True)))
        retried = retried or attempt > 0
        has_extra = has_extra or extras > 0
    return (_add_kept(database, groups, condition, params) if has_extra else groups), retried


def _add_kept(database: Database, groups: list[Group], condition: str, params: Sequence[Any]) -> list[Group]:
    """Add the figures from `extra`. Few rows have one, and reading it for every row would double the time."""
    sql = (
        f"SELECT {DIMENSIONS}, {kept_sums_sql(database)} FROM usage u WHERE {condition.replace('w.', 'u.')} "
        f"AND u.extra IS NOT NULL GROUP BY {DIMENSIONS}"
    )
    known = {group[:WIDE]: group.values for group in groups}
    for row in fetch_exact(database, sql, params):
        hour, project, key, *names = row[:WIDE]
        values = known[int(hour), bytes(project), bytes(key), *names]
        for place, value in zip(EXTRA_INDEXES, row[WIDE:], strict=True):
            values[place] += int(value)
    return groups


def sum_outrun(database: Database, start_us: int, end_us: int, purged: bytes) -> list[Group]:
    """Return the corrections for requests that a batch, posted in [start, end), extended by later attempts: negative
    counts of requests for the earlier attempts. Inside a report."""
    ident = HEX[database.kind].format("u.request")
    sql = (
        f"SELECT {DIMENSIONS}, MIN({ident}), MAX({ident}), {sums_sql(database, SUM_EXPRESSIONS)} "
        f"FROM {OUTRUN_ROWS} GROUP BY {DIMENSIONS}"
    )
    params = (start_us, start_us, end_us, start_us, purged, start_us)
    rows = fetch_exact(database, sql, params)
    return [
        _group(row[:WIDE], row[WIDE], row[WIDE + 1], 0, zip(SUM_EXPRESSIONS, row[WIDE + 2 :], strict=True))
        for row in rows
    ]


def _group(dimensions: Sequence[Any], low: str, high: str, rows: int, figures: Iterable[tuple[str, Any]]) -> Group:
    hour, project, key, *names = dimensions
    values = [0] * len(VALUES)
    values[0] = rows
    for name, value in figures:
        values[VALUE_INDEX[name]] = int(value)
    return Group._make((int(hour), bytes(project), bytes(key), *names, low, high, values))


# Groups of usage rows, folded into the series of the rollups.

SOURCE_PLACE = None  # the place of source names, among the tags of a project
MAX_NAME_LENGTH = 256  # characters of a value
# JSON texts of tags that are kept decoded. Requests of a client have the same few, or none has the same.
DECODED_TEXTS = 4_096

Place = tuple[bytes, int, str | None]  # project, hour, and tag
Names = dict[Place, set[str]]


def fold(groups: Iterable[Group], names: Mapping[Place, set[str]]) -> Sums:
    """Return the sums by row of the table. Groups with a source that is not in `names` are left out of the series of
    sources, those with a tag that has no names out of the series of tags; other values of a tag count as OTHER."""
    sums: Sums = {}
    for group in groups:
        hour, project, key, provider, model, source = group[:6]
        values = group.values
        places: list[Key] = [
            (Series.PROJECT, project, hour, "", ""),
            (Series.PROJECT_MODEL, project, hour, model, provider),
            (Series.KEY, key, hour, "", ""),
            (Series.KEY_MODEL, key, hour, model, provider),
        ]
        if source in names[project, hour, SOURCE_PLACE]:
            places.append((Series.PROJECT_SOURCE, project, hour, source, ""))
            places.append((Series.KEY_SOURCE, key, hour, source, ""))
        for tag, name in list_tags(group):
            admitted = names.get((project, hour, tag))
            if admitted is not None:
                shown = name if name in admitted else OTHER
                places.append((Series.PROJECT_TAG, project, hour, shown, tag))
                places.append((Series.KEY_TAG, key, hour, shown, tag))
        for place in places:
            known = sums.get(place)
            if known is None:
                sums[place] = values
            else:
                sums[place] = [a + b for a, b in zip(known, values, strict=True)]
    return sums


def list_tags(group: Group) -> list[tuple[str, str]]:
    """Return the tags of a group with their values; the session has the tag SESSION, an operation other than the usual
    one OPERATION, and the code of an error ERROR."""
    listed = []
    if group.session:
        listed.append((SESSION, group.session))
    if group.operation and group.operation != USUAL_OPERATION:
        listed.append((OPERATION, group.operation))
    if group.error:
        listed.append((ERROR, group.error))
    if group.tags:
        listed += _read_tags(group.tags)
    return listed


@lru_cache(DECODED_TEXTS)
def _read_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Return the tags in a JSON object of strings. PostgreSQL stores no NUL."""
    pairs = ((_clean(name), _clean(str(value))) for name, value in orjson.loads(text).items())
    return tuple((name, value) for name, value in pairs if name and value and name not in OWN_NAMES)


def _clean(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_NAME_LENGTH]


def ranges_of(groups: Iterable[Group]) -> dict[int, tuple[str, str]]:
    """Return the range of request ids of each hour."""
    ranges: dict[int, tuple[str, str]] = {}
    for group in groups:
        low, high = ranges.get(group.hour, (group.low, group.high))
        ranges[group.hour] = min(low, group.low), max(high, group.high)
    return ranges


# Sums of removed rows of hours that are removed piece by piece, and that still count for the part HELD.
#
# Moving these sums to the part REMOVED with each piece would rewrite every sum of the hour again and again. They stay
# in this table until the last piece is removed, and move then with a single update. Until then, the part HELD is the
# sum of the rows in the usage table and the pieces here. Pieces under a part number that is no longer HELD belong to
# an hour that has moved: they are obsolete, and are deleted.

KEY_COLUMNS = {  # with their types on PostgreSQL
    "hour": "integer",
    "part": "smallint",
    "low": "text",
    "project": "bytea",
    "api_key": "bytea",
    "provider": "text",
    "name": "text",
    "source": "text",
}
# In the order in which rows are removed, so that each step appends behind the previous one.
LABEL_COLUMNS = {"session": "text", "tags": "text", "operation": "text", "error": "text"}
PIECES_TABLE = sum_table("removed_piece", KEY_COLUMNS, ("removed_at", "bigint"), LABEL_COLUMNS)
DIGEST_BYTES = 8
GROUPED = "project, api_key, provider, name, source, session, tags, operation, error"
READ_GROUPS = f"""
SELECT {GROUPED}, MIN(low), {", ".join(f"sum({name})" for name in VALUES)} FROM removed_piece
WHERE hour = ? AND part = ? GROUP BY {GROUPED}
"""
COUNT_ROWS = "SELECT SUM(rows) FROM removed_piece WHERE hour = ? AND part = ?"
NEXT_HOUR = "SELECT hour FROM removed_piece WHERE hour > ? ORDER BY hour LIMIT 1"
HAS_PIECES = "SELECT 1 FROM removed_piece WHERE hour = ? AND part = ? LIMIT 1"
BEYOND_PIECE = "SELECT low FROM removed_piece WHERE hour = ? AND part = ? ORDER BY low LIMIT 1 OFFSET ?"
SWEEP_ROWS = 5_000  # at once


def add_pieces(database: Database, groups: Sequence[Group], now_us: int) -> None:
    """Store the sums of rows that are about to be removed, within the transaction that removes them."""
    held = read_held(database, (group.hour for group in groups))
    rows = [(_head(group, held.get(group.hour, 0), now_us), group.values) for group in groups]
    write_rows(database, PIECES_TABLE, rows, adding=True)


def _head(group: Group, part: int, now_us: int) -> tuple[Any, ...]:
    """Return the key of a piece and the columns beside it. The names of a piece, which are too long for a key, are in
    it as a digest."""
    low = group.low
    labels = (group.session, group.tags, group.operation, group.error)
    if group.session or group.tags or group.error or group.operation not in (None, USUAL_OPERATION):
        text = "\0".join(label or "" for label in labels)
        low = f"{low}-{blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()}"
    return (group.hour, part, low, *group[1:6], now_us, *labels)


def read_pieces(database: Database, hour: int, part: int) -> list[Group]:
    """Return the sums of removed rows that count for the part HELD of an hour; `part` is its number. Inside a
    report."""
    groups = []
    for project, key, *row in fetch_sums(database, READ_GROUPS, (hour, part)):
        names, low, values = row[: WIDE - 3], row[WIDE - 3], row[WIDE - 2 :]
        sums = [int(value or 0) for value in values]
        groups.append(Group._make((hour, bytes(project), bytes(key), *names, low, low, sums)))
    return groups


def count_pieces(database: Database, hour: int, part: int) -> int:
    """Return the number of removed rows in the pieces of an hour. Inside a read."""
    return int(database.execute(COUNT_ROWS, (hour, part)).fetchone()[0] or 0)


def list_pieces(database: Database) -> list[tuple[int, int, bool]]:
    """Return the hours with pieces, the number of their part, and whether that part is HELD. Inside a read."""
    pieces = []
    last = -1
    while row := database.execute(NEXT_HOUR, (last,)).fetchone():
        last = int(row[0])
        held = read_held(database, [last]).get(last, 0)
        parts = [part for part in (0, 1) if database.execute(HAS_PIECES, (last, part)).fetchone()]
        pieces += [(last, part, part == held) for part in parts]
    return pieces


def sweep_pieces(database: Database, hour: int, part: int) -> None:
    """Delete some thousand obsolete rows, within an open transaction."""
    beyond = database.execute(BEYOND_PIECE, (hour, part, SWEEP_ROWS)).fetchone()
    delete = "DELETE FROM removed_piece WHERE hour = ? AND part = ?"
    if beyond is None:
        database.execute(delete, (hour, part))
    else:
        database.execute(f"{delete} AND low <= ?", (hour, part, beyond[0]))
