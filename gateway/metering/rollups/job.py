"""The job that keeps the rollups current: new rows, rows from before the rollups, hours that differ, and days."""

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from gateway.clock import HOUR_US, MINUTE_US, SECOND_US
from gateway.metering.rollups import days, late
from gateway.metering.rollups.rollup_table import (
    MAX_SESSIONS,
    MAX_SOURCES,
    MAX_TAGS,
    MAX_VALUES,
    OTHER,
    OWN_NAMES,
    SESSION,
    Series,
    State,
    Sums,
    add_sums,
    advance_state,
    compare_sums,
    delete_sums,
    hour_of,
    insert_state,
    insert_sums,
    read_held,
    read_state,
    read_sums,
    touch_days,
    try_again,
    widen_hours,
)
from gateway.metering.rollups.row_sums import (
    SOURCE_PLACE,
    Group,
    Names,
    Place,
    fold,
    list_tags,
    ranges_of,
    read_pieces,
    sum_outrun,
    sum_rows,
)
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import compute, pause
from gateway.store.database import Database

# The names of sources, sessions and tags that are counted separately. Callers choose them, so their number is limited
# for each project and hour.

FirstRequests = dict[Place, dict[str, str]]  # place → name → the first request id (hex) with it
NAMES_PER_STATEMENT = 500

OF_HOUR = "FROM rollup WHERE series = ? AND owner = ? AND hour = ?"


class KnownTagNames(Struct):
    """The names in the table: of each place how many there are, and those of interest; of each project and hour the
    tags."""

    counts: dict[Place, int] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    tags: dict[tuple[bytes, int], set[str]] = field(default_factory=dict)


def read_known(database: Database, first: FirstRequests, only: str = "") -> KnownTagNames:
    """Return the names in the table that belong to places of `first`; `only` is one more condition. Inside a
    report."""
    known = KnownTagNames()
    for project, hour in {place[:2] for place in first}:
        sql = f"SELECT name {OF_HOUR} {only}"
        names = {str(name) for (name,) in database.fetch(sql, (Series.PROJECT_SOURCE, project, hour))}
        known.names[project, hour, SOURCE_PLACE] = names
        known.counts[project, hour, SOURCE_PLACE] = len(names - {""})
    for project, hour in {place[:2] for place in first if place[2] is not SOURCE_PLACE}:
        sql = f"SELECT provider, COUNT(DISTINCT name) {OF_HOUR} AND name <> ? {only} GROUP BY provider"
        for tag, count in database.fetch(sql, (Series.PROJECT_TAG, project, hour, OTHER)):
            known.counts[project, hour, str(tag)] = int(count)
            if tag not in OWN_NAMES:
                known.tags.setdefault((project, hour), set()).add(str(tag))
    for place, requests in first.items():
        # As long as all names of the place are admitted, it does not matter which of them are known.
        if place[2] is not SOURCE_PLACE and known.counts.get(place, 0) + len(requests) > max_names(place[2]):
            known.names[place] = _read_names(database, place, list(requests), only)
    return known


def _read_names(database: Database, place: Place, names: Sequence[str], only: str) -> set[str]:
    """Return those of the names that are in the table."""
    project, hour, tag = place
    found: set[str] = set()
    for start in range(0, len(names), NAMES_PER_STATEMENT):
        some = names[start : start + NAMES_PER_STATEMENT]
        sql = f"SELECT name {OF_HOUR} AND provider = ? AND name IN ({', '.join('?' * len(some))}) {only}"
        found.update(str(name) for (name,) in database.fetch(sql, (Series.PROJECT_TAG, project, hour, tag, *some)))
    return found


def find_first(groups: Iterable[Group]) -> FirstRequests:
    """Return the names of sources, sessions and tags in the groups. Groups without a source ("") have that name."""
    first: FirstRequests = {}
    for group in groups:
        pairs: list[tuple[str | None, str]] = [(SOURCE_PLACE, group.source), *list_tags(group)]
        for tag, name in pairs:
            of_place = first.setdefault((group.project, group.hour, tag), {})
            low = of_place.get(name)
            if low is None or group.low < low:
                of_place[name] = group.low
    return first


def admit_names(first: FirstRequests, known: KnownTagNames) -> Names:
    """Return the names that are counted separately, for each place: known names first, then the earliest new ones, as
    many as `max_names` allows. MAX_TAGS tags of a project and hour have names. Groups without a source always
    count."""
    tags = {place: set(names) for place, names in known.tags.items()}
    admitted: Names = {}
    for place, requests in sorted(first.items(), key=_first_request):
        project, hour, tag = place
        if tag is not SOURCE_PLACE and tag not in OWN_NAMES:
            of_hour = tags.setdefault((project, hour), set())
            if tag not in of_hour and len(of_hour) >= MAX_TAGS:
                continue
            of_hour.add(tag)
        names = {name for name in requests if name in known.names.get(place, ())}
        room = max_names(tag) - known.counts.get(place, 0)
        if tag is SOURCE_PLACE:
            names.add("")
        for name in sorted(requests, key=lambda name: (requests[name], name)):
            if name not in names and room > 0:
                names.add(name)
                room -= 1
        admitted[place] = names
    return admitted


def _first_request(item: tuple[Place, dict[str, str]]) -> tuple[str, str]:
    place, requests = item
    return min(requests.values()), place[2] or ""


def max_names(tag: str | None) -> int:
    """Return how many names a place has at most."""
    if tag is SOURCE_PLACE:
        return MAX_SOURCES
    if tag == SESSION:
        return MAX_SESSIONS
    return MAX_VALUES


# A commit normally takes less than this after its rows are created; later commits are detected by counting.
COMMIT_LAG_US = 2 * SECOND_US
# A step reads as many new rows as make about SUMS rows of the table; writing them blocks other writers for about 20 ms.
BATCH_ROWS = 2_000
MIN_ROWS = 50  # make SUMS sums if each has a session and 20 tags
SUMS = 2_500
PAUSE_S = 0.02  # between two steps, so that other writers do not wait for several of them
MAX_RECOMPUTE_S = 10.0  # in which one round computes hours again
# For this long, the last batches are counted again in each round.
RECOUNT_FOR_US = 3 * MINUTE_US

log = logging.getLogger(__name__)


class Rollups:
    """Maintains the rollups. `advance` is meant for the leading worker, but safe in every worker: concurrent runs
    detect each other, and one starts again. Unavailable when the store is down, or when other workers changed the
    rollups too often meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = MIN_ROWS

    def advance(
        self,
        should_continue: ShouldContinue = always,
        lag_us: int = COMMIT_LAG_US,
        pause_s: float = PAUSE_S,
        thorough: bool = False,
    ) -> None:
        """Run one round over everything that was posted until `lag_us` ago; `should_continue` is called between steps.
        `thorough`: also search for rows of nodes with a slow clock, which other rounds do only at intervals."""
        try_again(partial(self._advance, should_continue, lag_us, pause_s, thorough))

    def _advance(self, should_continue: ShouldContinue, lag_us: int, pause_s: float, thorough: bool) -> None:
        state = self._state()
        now_us = self._database.now_us()
        if state.watermark > now_us and not state.filling:
            state = late.move_watermark_back(self._database, state, now_us - lag_us)
        state = self._count_new(state, now_us - lag_us, should_continue, pause_s)
        state = self._fill(state, now_us - lag_us, should_continue, pause_s)
        if state.filling or not should_continue():
            return
        state = late.find_late_rows(self._database, state, thorough)
        if state.named != state.version:
            state = late.mark_named(self._database, state)
        state = self._compute_dirty(state, should_continue, pause_s, thorough)
        days.sum_up(self._database, state, hour_of(now_us), should_continue)

    def catch_up(self) -> None:
        """Process everything in the store, however long it takes (for commands, and before a comparison)."""
        self.advance(lag_us=0, pause_s=0, thorough=True)

    def rebuild(self, first_hour: int, last_hour: int) -> int:
        """Compute the hours (since the epoch) from first to last again, from the remaining rows and the sums of removed
        rows; return how many had usage. Days follow."""
        self.advance(lag_us=0, pause_s=0)
        count = try_again(lambda: late.mark_hours(self._database, self._state(), first_hour, last_hour))
        self.catch_up()
        return count

    def state(self) -> State | None:
        """Return the progress of the rollups; None before the first round."""
        return self._database.read(partial(read_state, self._database))

    def _state(self) -> State:
        state = self.state()
        if state is not None:
            return state
        # Rows created by now may not be committed yet, so rows of the last minute count as new.
        start_us = self._database.now_us() - MINUTE_US

        def begin() -> State | None:
            empty = self._database.execute("SELECT 1 FROM usage WHERE posted_at < ? LIMIT 1", (start_us,)).fetchone()
            insert_state(self._database, start_us, empty is None)
            return read_state(self._database)

        begun = self._database.write(begin)
        assert begun is not None
        return begun

    def _count_new(self, state: State, until_us: int, should_continue: ShouldContinue, pause_s: float) -> State:
        """Add rows posted since the watermark, batch by batch."""
        while state.watermark < until_us and should_continue():
            start_us = state.watermark
            end_us = self._database.report(partial(self._end_of_batch, start_us, until_us))
            purged = bytes.fromhex(state.purged)
            groups, outrun = self._database.report(partial(self._sum_batch, start_us, end_us, purged))
            count = sum(group.values[0] for group in groups)
            counted = [batch for batch in state.counted if batch[1] > end_us - RECOUNT_FOR_US]
            after = {"watermark": end_us, "counted": (*counted, (start_us, end_us, count))}
            state = self._add(state, [*groups, *outrun], after)
            if groups:
                pause(pause_s)
        return state

    def _end_of_batch(self, start_us: int, until_us: int) -> int:
        sql = "SELECT posted_at FROM usage WHERE posted_at >= ? AND posted_at < ? ORDER BY posted_at LIMIT 1 OFFSET ?"
        row = self._database.execute(sql, (start_us, until_us, self._rows)).fetchone()
        if row:
            end_us: int = max(start_us + 1, row[0])
            return end_us
        return until_us

    def _sum_batch(self, start_us: int, end_us: int, purged: bytes) -> tuple[list[Group], list[Group]]:
        params = (start_us, end_us)
        groups, retried = sum_rows(self._database, "w.posted_at >= ? AND w.posted_at < ?", params, end_us, purged)
        return groups, sum_outrun(self._database, start_us, end_us, purged) if retried else []

    def _fill(self, state: State, until_us: int, should_continue: ShouldContinue, pause_s: float) -> State:
        """Add the rows from before the rollups in one pass, in the order of request ids. Rows posted meanwhile are
        added in between."""
        while state.filling and should_continue():
            last = bytes.fromhex(state.filled or "")
            end = self._database.report(partial(self._end_of_range, last))
            condition = "w.request > ? AND w.posted_at < ?"
            params = [last, state.fill_until]
            if end is not None:
                condition = f"{condition} AND w.request <= ?"
                params = [*params, end]
            groups, _ = self._database.report(
                partial(sum_rows, self._database, condition, params, state.fill_until, bytes.fromhex(state.purged))
            )
            state = self._add(state, groups, {"filled": None if end is None else end.hex()})
            state = self._count_new(state, until_us, should_continue, pause_s)
            pause(pause_s)
        return state

    def _end_of_range(self, last: bytes) -> bytes | None:
        """Return the last request id of the next range, which includes all attempts of each request; None at the
        end."""
        sql = "SELECT request FROM usage WHERE request > ? ORDER BY request LIMIT 1 OFFSET ?"
        row = self._database.execute(sql, (last, self._rows)).fetchone()
        if row:
            return bytes(row[0])
        return None

    def _add(self, state: State, groups: Sequence[Group], after: dict[str, Any]) -> State:
        """Add groups and advance the state, in one transaction."""
        sums = self._fold(groups)
        ranges = ranges_of(groups)
        now_us = self._database.now_us()
        rows = sum(group.values[0] for group in groups)
        if rows:
            # The last batch of a round is shorter than a step may be, so the size follows the rows that it had.
            self._rows = max(min(MIN_ROWS, BATCH_ROWS), min(BATCH_ROWS, rows * SUMS // len(sums)))

        def write() -> State:
            moved = advance_state(self._database, state, **after)
            if groups:
                add_sums(self._database, sums, read_held(self._database, ranges), now_us)
                widen_hours(self._database, ranges)
                touch_days(self._database, ranges, moved.version)
            return moved

        return self._database.write(write)

    def _compute_dirty(self, state: State, should_continue: ShouldContinue, pause_s: float, thorough: bool) -> State:
        """Compute the marked hours again, the newest first. After an update of the gateway these may be all hours, so
        a round that is not `thorough` ends after some seconds; the next one continues."""
        until = time.monotonic() + MAX_RECOMPUTE_S
        for hour, low, high in late.list_dirty(self._database):
            if not should_continue() or (time.monotonic() > until and not thorough):
                break
            state = self._compute_hour(state, hour, low, high)
            pause(pause_s)
        return state

    def _compute_hour(self, state: State, hour: int, low: str, high: str) -> State:
        """Compute the part HELD of an hour again, from the rows in the table and the pieces that were removed."""
        start_us = hour * HOUR_US
        condition = "w.at >= ? AND w.at < ? AND w.request >= ? AND w.request <= ? AND w.posted_at < ?"
        params = (start_us, start_us + HOUR_US, bytes.fromhex(low), bytes.fromhex(high), state.watermark)
        purged = bytes.fromhex(state.purged)
        groups, _ = self._database.report(partial(sum_rows, self._database, condition, params, state.watermark, purged))
        held = self._database.read(partial(read_held, self._database, [hour]))
        part = held.get(hour, 0)
        groups += self._database.report(partial(read_pieces, self._database, hour, part))
        sums = self._fold(groups, f"AND part <> {part}")
        stored = self._database.report(partial(read_sums, self._database, hour, part))
        # Most rows are unchanged, and other writers wait while this writes.
        wrong, sums = compute(compare_sums, stored, sums)
        now_us = self._database.now_us()

        def write() -> State:
            moved = advance_state(self._database, state)
            delete_sums(self._database, wrong, part)
            insert_sums(self._database, sums, held, now_us)
            self._database.execute("UPDATE rollup_hour SET dirty = 0 WHERE hour = ?", (hour,))
            touch_days(self._database, [hour], moved.version)
            return moved

        return self._database.write(write)

    def _fold(self, groups: Sequence[Group], only: str = "") -> Sums:
        """Return the sums of groups by row of the table. Names of rows that meet the condition `only` are known."""
        if not groups:
            return {}
        first = compute(find_first, groups)
        known = self._database.report(partial(read_known, self._database, first, only))
        return compute(fold, groups, admit_names(first, known))
