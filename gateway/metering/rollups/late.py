"""Late rows, committed after the watermark had passed them: detects them, and marks their hours to be computed
again."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from gateway.clock import DAY_US, HOUR_US, MINUTE_US
from gateway.metering.rollups.rollup_table import (
    IS_UNUSUAL,
    Series,
    State,
    advance_state,
    read_held,
    widen_hours,
)
from gateway.metering.rollups.row_sums import HEX, START_MARGIN_US, count_pieces
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.partitions import id_at

# Rows posted up to this long ago are compared with the rollups at intervals: a process may have been suspended between
# the creation of a row and its commit, or a node's clock may be slow, even by two hours.
REPEAT_FOR_US = 3 * HOUR_US
REPEAT_EVERY_US = 10 * MINUTE_US
# Rows of this time are examined again after a release that does not know sums of all names.
NAME_RECHECK_US = 2 * DAY_US
# A row may have been created up to this long before its first commit failed.
MAX_CREATION_LAG_US = MINUTE_US
# Rows that one statement reads when hours are computed again.
STEP_ROWS = 10_000
PAUSE_S = 0.01

Ranges = dict[int, tuple[str, str]]  # of request ids (hex), by hour

log = logging.getLogger(__name__)


def find_late_rows(database: Database, state: State, thorough: bool = False) -> State:
    """Detect late rows and mark their hours; return the state afterwards.

    Counts the last batches again and reads the journals' marks of late commits. At intervals, or if `thorough`, rows of
    the last hours are compared with the rollups.
    """
    if state.counted:
        start_us = state.counted[0][0]
        end_us = state.counted[-1][1]
        if _count(database, start_us, end_us) != sum(count for _, _, count in state.counted):
            state = _mark_posted(database, state, start_us, end_us)
    for writer, since_us, at_us in database.read(partial(_read_marks, database)):
        state = _mark_posted(database, state, since_us - MAX_CREATION_LAG_US, state.watermark, (writer, at_us))
    last = state.counted[-1] if state.counted else None
    if thorough or (last is not None and last[0] // REPEAT_EVERY_US != last[1] // REPEAT_EVERY_US):
        state = _compare_posted(database, state, state.watermark - REPEAT_FOR_US)
    return state


def move_watermark_back(database: Database, state: State, until_us: int) -> State:
    """Move the watermark back to `until_us` after a clock that was ahead was corrected; otherwise no new row would be
    counted until that time.

    Rows posted from `until_us` on are counted when that time comes. The hours of their requests, and of rows posted in
    the hours before, are computed again without them.
    """
    requests = "request IN (SELECT request FROM usage WHERE posted_at >= ? AND posted_at < ?)"
    ranges = _ranges(database, requests, (until_us - REPEAT_FOR_US, state.watermark))
    log.warning("the clock was ahead: %d hours of rollups are computed again", len(ranges))

    def write() -> State:
        moved = advance_state(database, state, watermark=until_us, counted=())
        widen_hours(database, ranges, dirty=True)
        return moved

    return database.write(write)


def list_dirty(database: Database) -> list[tuple[int, str, str]]:
    """Return the hours to be computed again, the newest first, with the range of their request ids."""
    sql = "SELECT hour, low, high FROM rollup_hour WHERE dirty = 1 ORDER BY hour DESC"
    return [(hour, low, high) for hour, low, high in database.report(partial(database.fetch, sql))]


def mark_hours(database: Database, state: State, first_hour: int, last_hour: int) -> int:
    """Mark all hours from first to last that have rollups or rows; return how many."""
    ranges = _search(database, first_hour, last_hour)

    def write() -> int:
        advance_state(database, state)
        widen_hours(database, ranges, dirty=True)
        sql = "UPDATE rollup_hour SET dirty = 1 WHERE hour >= ? AND hour <= ?"
        return int(database.execute(sql, (first_hour, last_hour)).rowcount)

    return database.write(write)


def mark_named(database: Database, state: State) -> State:
    """Mark the hours for which sums of names (tags, sessions, operations, errors) may be missing because a release that
    does not know all of them has summed these hours: those since `named_until`, and older ones with late rows."""
    first_hour = max(0, state.named_until - NAME_RECHECK_US) // HOUR_US
    named = f"AND (session IS NOT NULL OR tags IS NOT NULL OR error IS NOT NULL OR {IS_UNUSUAL})"
    ranges = _search(database, first_hour, state.watermark // HOUR_US + 1, named)
    log.info("%d hours of rollups are computed again for their sums by name", len(ranges))

    def write() -> State:
        moved = advance_state(database, structs.replace(state, named=state.version))
        widen_hours(database, ranges, dirty=True)
        if state.named_until:
            database.execute("UPDATE rollup_hour SET dirty = 1 WHERE late_at >= ?", (state.named_until,))
        return moved

    return database.write(write)


def _search(database: Database, first_hour: int, last_hour: int, more: str = "") -> Ranges:
    """Return the ranges of request ids of all hours from first to last with rows that meet the condition `more`. Rows
    are searched step by step among request ids of that time."""
    start_us = first_hour * HOUR_US
    end_us = (last_hour + 1) * HOUR_US
    condition = f"request >= ? AND request < ? AND at >= ? AND at < ? {more}"
    ranges: Ranges = {}
    for low, high in _steps(database, id_at(max(0, start_us - START_MARGIN_US)), id_at(end_us + START_MARGIN_US)):
        for hour, (first, last) in _ranges(database, condition, (low, high, start_us, end_us)).items():
            known = ranges.get(hour, (first, last))
            ranges[hour] = min(first, known[0]), max(last, known[1])
    return ranges


def _steps(database: Database, low: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield ranges of request ids that cover [low, end) and have a limited number of rows each."""
    sql = "SELECT request FROM usage WHERE request >= ? AND request < ? ORDER BY request LIMIT 1 OFFSET ?"
    while True:
        read = partial(database.fetch, sql, (low, end, STEP_ROWS))
        beyond = database.report(read)
        # All rows of a request share its id, so a request with more rows than a step makes the step longer.
        high = max(bytes(beyond[0][0]), low + b"\x00") if beyond else end
        yield low, high
        if high == end:
            return
        low = high
        pause(PAUSE_S)


def _count(database: Database, start_us: int, end_us: int) -> int:
    sql = "SELECT COUNT(*) FROM usage WHERE posted_at >= ? AND posted_at < ?"
    return int(database.report(lambda: database.execute(sql, (start_us, end_us)).fetchone())[0])


def _read_marks(database: Database) -> list[tuple[str, int, int]]:
    return [
        (writer, since, at)
        for writer, since, at in database.execute("SELECT writer, since, at FROM late_commit").fetchall()
    ]


def _mark_posted(
    database: Database, state: State, start_us: int, end_us: int, mark: tuple[str, int] | None = None
) -> State:
    """Mark the hours of all rows posted in [start, end), and delete the journal's mark that reported them."""
    # Counted first: a row that arrives between the two statements is detected by the next round.
    count = _count(database, start_us, end_us)
    ranges = _ranges(database, "posted_at >= ? AND posted_at < ?", (start_us, end_us))
    log.info("rows were committed late: %d hours of rollups are computed again", len(ranges))

    def write() -> State:
        counted = state.counted if mark else ((start_us, end_us, count),)
        moved = advance_state(database, state, counted=counted)
        widen_hours(database, ranges, dirty=True, late_us=database.now_us())
        if mark:
            database.execute("DELETE FROM late_commit WHERE writer = ? AND at = ?", mark)
        return moved

    return database.write(write)


def _compare_posted(database: Database, state: State, since_us: int) -> State:
    """Mark the hours with recently posted rows that have more or fewer rows than the rollups."""
    ranges = _ranges(database, "posted_at >= ? AND posted_at < ?", (since_us, state.watermark))
    differing = {hour: ids for hour, ids in ranges.items() if _differs(database, state, hour, ids)}
    if not differing:
        return state

    def write() -> State:
        moved = advance_state(database, state)
        widen_hours(database, differing, dirty=True, late_us=database.now_us())
        return moved

    return database.write(write)


def _differs(database: Database, state: State, hour: int, ids: tuple[str, str]) -> bool:
    def read() -> bool:
        known = database.execute("SELECT low, high FROM rollup_hour WHERE hour = ?", (hour,)).fetchone()
        if known is None:
            low, high = ids
        else:
            low, high = (min(ids[0], known[0]), max(ids[1], known[1]))
        start_us = hour * HOUR_US
        params = (start_us, start_us + HOUR_US, bytes.fromhex(low), bytes.fromhex(high), state.watermark)
        rows = database.execute(
            "SELECT COUNT(*) FROM usage WHERE at >= ? AND at < ? AND request >= ? AND request <= ? AND posted_at < ?",
            params,
        ).fetchone()[0]
        held = read_held(database, [hour]).get(hour, 0)
        sums = database.execute(
            "SELECT SUM(rows) FROM rollup WHERE hour = ? AND part = ? "
            f"AND series >= {Series.PROJECT} AND series <= {Series.PROJECT}",
            (hour, held),
        ).fetchone()[0]
        return int(rows) + count_pieces(database, hour, held) != int(sums or 0)

    return database.report(read)


def _ranges(database: Database, condition: str, params: Sequence[Any]) -> Ranges:
    """Return the range of request ids (hex) of the rows that meet a condition, by hour."""
    ident = HEX[database.kind].format("request")
    sql = f"SELECT at / {HOUR_US}, MIN({ident}), MAX({ident}) FROM usage WHERE {condition} GROUP BY at / {HOUR_US}"
    return {int(hour): (low, high) for hour, low, high in database.report(partial(database.fetch, sql, params))}
