"""Removal of old usage rows: their sums stay in the rollups and in the tables that outlive them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.clock import DAY_US, HOUR_US, Clock
from gateway.configuration.file import SettingsError
from gateway.errors import Unavailable
from gateway.metering.models import CREDITS
from gateway.metering.rollups.rollup_table import (
    COLUMNS,
    DAILY,
    KEY_COLUMNS,
    VALUES,
    RollupConflict,
    Series,
    State,
    advance_state,
    fetch_exact,
    read_held,
    read_state,
    run_many,
    try_again,
    widen_hours,
)
from gateway.metering.rollups.row_sums import Group, add_pieces, count_pieces, list_pieces, sum_rows, sweep_pieces
from gateway.metering.usage_table import split_teams
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.partitions import Partition, Partitions, id_at, time_of

# The spending of deleted usage rows: the reconciliation compares counters and the ledger with it.


class RemovedSpend(NamedTuple):
    """The spending of rows to be removed: nano-dollars by (kind, owner, hour), and the hours for which the ledger may
    lack some of these rows."""

    amounts: dict[tuple[str, str, int], int]
    unposted: set[int]


PROVIDER_KEY = {
    "sqlite": "substr(json_extract(w.extra, '$.provider_key'), -32)",
    "postgresql": "right(CAST(w.extra AS json) ->> 'provider_key', 32)",
}
HOUR_COSTS = """
SELECT w.api_key, w.member, w.organization, w.at / {hour}, w.mode, SUM(w.cost_nusd), SUM(COALESCE(w.storage_nusd, 0)),
    COUNT(w.storage_nusd), MAX(w.posted_at)
FROM usage w WHERE {condition} GROUP BY w.api_key, w.member, w.organization, w.at / {hour}, w.mode
"""
OF_TEAMS = "SELECT w.teams, SUM(w.cost_nusd) FROM usage w WHERE {condition} AND w.teams IS NOT NULL GROUP BY w.teams"
OF_GROUPS = """
SELECT t.team, SUM(w.cost_nusd) FROM group_usage t
JOIN usage w ON w.request = t.request AND w.attempt = t.attempt AND w.kind = t.kind WHERE {condition} GROUP BY t.team
"""
OF_PROVIDER_KEYS = "SELECT {key}, SUM(w.cost_nusd) FROM usage w WHERE {condition} AND w.extra LIKE ? GROUP BY {key}"
# Makes the closing of hours compare such an hour again.
REOPEN_HOUR = "UPDATE rollup_hour SET late_at = ? WHERE hour = ?"
KEEP_SPEND = """
INSERT INTO removed_spend (kind, owner, hour, nusd) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, owner, hour) DO UPDATE SET nusd = removed_spend.nusd + excluded.nusd
"""


def sum_spent(database: Database, condition: str, params: Sequence[Any], marked: str, closed_us: int) -> RemovedSpend:
    """Return the spending of the rows `w` that meet a condition on their request and time of posting. Rows recorded
    since `closed_us`, before which every hour is closed, may be missing in the ledger. Inside a report."""
    spent = RemovedSpend({}, set())

    def add(kind: str, owner: str, nusd: Any, hour: int = 0) -> None:
        place = kind, owner, hour
        spent.amounts[place] = spent.amounts.get(place, 0) + int(nusd)

    sql = HOUR_COSTS.format(condition=condition, hour=HOUR_US)
    for key, member, organization, hour, mode, cost, storage, stored, last_us in fetch_exact(database, sql, params):
        add("api_key", bytes(key).hex(), cost)
        add("member", bytes(member).hex(), cost)
        if mode == CREDITS:
            add("credits", bytes(organization).hex(), cost, int(hour))
        if stored:
            add("storage", bytes(organization).hex(), storage, int(hour))
        if last_us >= closed_us:
            spent.unposted.add(int(hour))
    for teams, cost in fetch_exact(database, OF_TEAMS.format(condition=condition), params):
        for team in split_teams(bytes(teams)):
            add("team", team.hex(), cost)
    of_groups = OF_GROUPS.format(condition=condition.replace("w.request", "t.request"))
    for group, cost in fetch_exact(database, of_groups, params):
        add("team", bytes(group).hex(), cost)
    sql = OF_PROVIDER_KEYS.format(condition=condition, key=PROVIDER_KEY[database.kind])
    for key, cost in fetch_exact(database, sql, [*params, marked]):
        add("provider_key", str(key), cost)
    return spent


def keep_spent(database: Database, spent: RemovedSpend) -> None:
    """Store the spending, within the transaction that removes the rows."""
    run_many(database, KEEP_SPEND, [(*place, nusd) for place, nusd in sorted(spent.amounts.items())])
    now_us = database.now_us()
    run_many(database, REOPEN_HOUR, [(now_us, hour) for hour in sorted(spent.unposted)])


MIN_DAYS = 3
# One step removes the rows of whole hours. If an hour has more than STEP_ROWS, it removes as many rows as make about
# GROUPS groups. Both hold the write lock for 10 to 20 ms.
STEP_ROWS = 2_500
FIRST_ROWS = 250
MIN_ROWS = 100
GROUPS = 250
STEP_HOURS = 24
# The share of time spent on removal. The write lock is held for half of it, so that fewer than one in a hundred commits
# has to wait. With full hours that is 500 to 800 rows per second. MAX_PAUSE_S limits a pause.
MAX_LOAD = 1 / 100
MAX_PAUSE_S = 5.0
# A round ends after this many steps (about an hour); the next one continues, after it prepared new partitions.
ROUND_STEPS = 1_000
WEEKS_FROM_DAYS = 60  # above this retention a partition has a week, otherwise a day

MERGED_COLUMNS = ", ".join(f"{v} = NULLIF(COALESCE(rollup.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in VALUES)
MERGE_SUMS = f"""
INSERT INTO rollup ({", ".join(COLUMNS)})
SELECT series, owner, hour, ?, name, provider, updated_at, {", ".join(VALUES)} FROM rollup
WHERE hour = ? AND series >= 0 AND series < {DAILY} AND part = ?
ON CONFLICT ({", ".join(KEY_COLUMNS)}) DO UPDATE SET
    updated_at = CASE WHEN excluded.updated_at > rollup.updated_at THEN excluded.updated_at ELSE rollup.updated_at END,
    {MERGED_COLUMNS}
"""
# A range of one value: with an equality, SQLite would narrow by the series instead of the hour.
OF_PROJECTS = f"hour = ? AND series >= {Series.PROJECT} AND series <= {Series.PROJECT}"
OF_PARTS = f"SELECT part, SUM(rows) FROM rollup WHERE {OF_PROJECTS} GROUP BY part"
MARK_DIRTY = "UPDATE rollup_hour SET dirty = 1, late_at = ? WHERE hour = ?"


class Removal(NamedTuple):
    """Rows to delete in one transaction: the `rows` rows that meet `condition`. The hours in `whole` lose all of their
    counted rows. The hours in `wrong` do too, but their rows differ from what was counted. `groups` are the sums of the
    rows in all hours except the whole ones."""

    condition: str
    params: list[Any]
    end: bytes
    rows: int
    whole: list[int]
    wrong: list[int]
    groups: list[Group]
    spent: RemovedSpend


class UsagePurge:
    """Removes usage rows and their team rows once the request is more than `days` days old (0: keep all rows) and the
    ledger has posted its hour. Meant for the leading worker; safe to repeat and to run twice at once.

    On PostgreSQL the usage table is partitioned, and a partition is dropped once all of its rows are old. If the table
    was not partitioned from the start, its first partition holds all earlier rows; from that one, and on SQLite, rows
    are deleted in small steps.
    """

    def __init__(
        self, database: Database, clock: Clock, days: int, marked: str, closed_until: Callable[[], int]
    ) -> None:
        """`marked` is the pattern in the details of rows that count for the spending limit of a provider key (see
        reconciliation.py). `closed_until` returns the time (µs) before which the ledger has closed every hour.
        SettingsError when `days` are too few: late rows must have arrived before rows are removed."""
        if days < 0 or 0 < days < MIN_DAYS:
            raise SettingsError(f"[metering] usage_days: at least {MIN_DAYS}, or 0 to keep all usage rows")
        self._database = database
        self._clock = clock
        self._days = days
        width_us = (7 if days == 0 or days > WEEKS_FROM_DAYS else 1) * DAY_US
        self.partitions = Partitions(database, "usage", ("request", "attempt", "kind"), width_us)
        self._marked = marked
        self._rows = FIRST_ROWS
        self._closed_until = closed_until
        self._closed_us = 0

    def run(self, should_continue: ShouldContinue = always) -> int:
        """Run one round; return how many rows were removed. Unavailable when the store is down or busy: the next round
        continues."""
        self.partitions.keep_ready(should_continue)
        state = self._database.read(partial(read_state, self._database))
        now_us = self._database.now_us()
        # While a day's attempts are not counted yet, earlier attempts of the same requests must stay.
        if not self._days or state is None or state.filling or state.watermark < now_us - DAY_US:
            return 0
        self._closed_us = self._closed_until()
        cut_us = min((now_us - self._days * DAY_US) // HOUR_US * HOUR_US, self._closed_us)
        if state.named != state.version or self._database.read(partial(self._is_marked, cut_us)):
            return 0
        cut = id_at(cut_us)
        self._finish(should_continue)
        removed = 0
        for partition in self.partitions.ended(cut):
            if not should_continue():
                return removed
            removed += try_again(partial(self._drop, partition))
        return removed + self._delete(self._minimum(cut), should_continue)

    def _is_marked(self, cut_us: int) -> bool:
        """Return whether an hour before `cut_us` is to be computed again, for which its rows may be needed."""
        sql = "SELECT 1 FROM rollup_hour WHERE dirty = 1 AND hour < ? LIMIT 1"
        return self._database.execute(sql, (cut_us // HOUR_US,)).fetchone() is not None

    def _finish(self, should_continue: ShouldContinue) -> None:
        """Complete earlier removals: sweep obsolete pieces, and move hours without rows that differed when their last
        rows were removed."""
        self._repeat(self._sweep, should_continue)
        for hour, part, _ in self._database.read(partial(list_pieces, self._database)):
            if not should_continue():
                return
            try_again(partial(self._finish_hour, hour, part))

    def _finish_hour(self, hour: int, part: int) -> None:
        state = self._read_state()
        if self._database.report(partial(self._is_whole, hour, part, 0, bytes.fromhex(state.purged))):

            def move() -> None:
                advance_state(self._database, state)
                self._move_hour(hour)

            self._database.write(move)

    def _sweep(self) -> int | None:
        """Delete some obsolete pieces; None when there are none."""
        state = self._read_state()
        pieces = self._database.read(partial(list_pieces, self._database))
        obsolete = [(hour, part) for hour, part, is_held in pieces if not is_held]
        if not obsolete:
            return None
        hour, part = obsolete[0]

        def sweep() -> None:
            advance_state(self._database, state)
            sweep_pieces(self._database, hour, part)

        self._database.write(sweep)
        return 0

    def _minimum(self, cut: bytes) -> bytes:
        """Return the request id up to which rows are deleted one by one. Rows in ordinary partitions wait for these to
        be dropped."""
        for partition in self.partitions.ranges():
            if partition.name.endswith(("_first", "_past")) and partition.high is not None:
                return min(cut, partition.high)
        if self.partitions.exist():
            return b""
        return cut

    def _delete(self, cut: bytes, should_continue: ShouldContinue) -> int:
        return self._repeat(partial(self._step, cut), should_continue)

    def _repeat(self, step: Callable[[], int | None], should_continue: ShouldContinue) -> int:
        """Repeat `step` until it returns None, with pauses; return how many rows were removed."""
        removed = 0
        for _ in range(ROUND_STEPS):
            start = self._clock.monotonic()
            count = try_again(step) if should_continue() else None
            if count is None:
                break
            removed += count
            pause(min(MAX_PAUSE_S, (self._clock.monotonic() - start) * (1 / MAX_LOAD - 1)))
        return removed

    def _step(self, cut: bytes) -> int | None:
        """Remove the oldest rows, all attempts of a request together; return how many, None when there are none. The
        rows of an hour are removed at once unless they are too many."""
        if self._sweep() is not None:
            return 0
        state = self._read_state()
        ids = self._database.report(partial(self._next, cut))
        if ids is None:
            return None
        removal = self._plan(state, *ids)
        if not removal.rows:
            return None
        self._database.write(partial(self._remove, state, removal))
        if removal.groups:
            self._rows = max(MIN_ROWS, min(STEP_ROWS, removal.rows * GROUPS // len(removal.groups)))
        return removal.rows

    def _next(self, cut: bytes) -> tuple[bytes, bytes] | None:
        """Return the next range of request ids to remove: whole hours, or a piece of an hour with too many rows."""
        sql = "SELECT request FROM usage WHERE request < ? ORDER BY request LIMIT 1 OFFSET ?"
        first = self._database.execute(sql, (cut, 0)).fetchone()
        if first is None:
            return None
        low = bytes(first[0])
        hour = time_of(low) // HOUR_US
        end = min(cut, id_at((hour + STEP_HOURS) * HOUR_US))
        beyond = self._database.execute(sql, (end, STEP_ROWS)).fetchone()
        if beyond is None:
            return low, end
        whole = time_of(bytes(beyond[0])) // HOUR_US
        if hour < whole:
            return low, id_at(whole * HOUR_US)
        beyond = self._database.execute(sql, (end, min(self._rows, STEP_ROWS))).fetchone()
        return low, max(bytes(beyond[0]), (int.from_bytes(low, "big") + 1).to_bytes(16, "big"))

    def _plan(self, state: State, low: bytes, end: bytes) -> Removal:
        # Both ends, or SQLite would use the index on `posted_at`, which matches nearly all rows.
        condition = "w.request >= ? AND w.request < ? AND w.posted_at < ?"
        params = [low, end, state.watermark]
        return self._database.report(partial(self._read_removal, state, condition, params, end))

    def _read_removal(self, state: State, condition: str, params: list[Any], end: bytes) -> Removal:
        sql = f"SELECT w.at / {HOUR_US}, COUNT(*) FROM usage w WHERE {condition} GROUP BY w.at / {HOUR_US}"
        counts = {int(hour): int(count) for hour, count in self._database.fetch(sql, params)}
        held = read_held(self._database, counts)
        whole = []
        wrong = []
        groups = []
        for hour, count in counts.items():
            is_whole = self._is_whole(hour, held.get(hour, 0), count, end)
            if is_whole:
                whole.append(hour)
                continue
            if is_whole is False:
                wrong.append(hour)
            groups += self._groups_of(state, hour, condition, params)
        spent = sum_spent(self._database, condition, params, self._marked, self._closed_us)
        return Removal(condition, params, end, sum(counts.values()), whole, wrong, groups, spent)

    def _is_whole(self, hour: int, part: int, count: int, end: bytes) -> bool | None:
        """Return whether `count` rows plus the removed pieces are everything that is counted in the part HELD (`part`)
        of an hour; None if the hour has rows beyond `end`. Inside a report."""
        high = self._database.execute("SELECT high FROM rollup_hour WHERE hour = ?", (hour,)).fetchone()
        if high is None or high[0] >= end.hex():
            return None
        counted = {int(number): int(rows or 0) for number, rows in self._database.fetch(OF_PARTS, (hour,))}
        return counted.get(part, 0) == count + count_pieces(self._database, hour, part)

    def _groups_of(self, state: State, hour: int, condition: str, params: list[Any]) -> list[Group]:
        """Return the sums of the rows of an hour that meet a condition. Inside a report."""
        within = f"{condition} AND w.at >= ? AND w.at < ?"
        bounds = [*params, hour * HOUR_US, (hour + 1) * HOUR_US]
        return sum_rows(self._database, within, bounds, state.watermark, bytes.fromhex(state.purged))[0]

    def _remove(self, state: State, removal: Removal) -> None:
        run = self._database.execute
        params = removal.params
        advance_state(self._database, state, purged=max(state.purged, removal.end.hex()))
        for hour in removal.whole:
            self._move_hour(hour)
        for hour in removal.wrong:
            run(MARK_DIRTY, (self._database.now_us(), hour))
        add_pieces(self._database, removal.groups, self._clock.now_us())
        keep_spent(self._database, removal.spent)
        run(
            "DELETE FROM group_usage WHERE request >= ? AND request < ? AND EXISTS (SELECT 1 FROM usage w WHERE "
            "w.request = group_usage.request AND w.attempt = group_usage.attempt AND w.kind = group_usage.kind "
            "AND w.posted_at < ?)",
            params,
        )
        count = run(f"DELETE FROM usage WHERE {removal.condition.replace('w.', '')}", params).rowcount
        _check(count, removal.rows)

    def _move_hour(self, hour: int) -> int:
        """Move the sums of an hour from the part HELD to the part REMOVED; return how many rows it held. The smaller
        part is added to the larger one, which becomes REMOVED."""
        held = read_held(self._database, [hour]).get(hour, 0)
        rows = {int(part): int(count or 0) for part, count in self._database.fetch(OF_PARTS, (hour,))}
        larger = held if rows.get(held, 0) >= rows.get(1 - held, 0) else 1 - held
        if 1 - larger in rows:
            self._database.execute(MERGE_SUMS, (larger, hour, 1 - larger))
            emptied = f"DELETE FROM rollup WHERE hour = ? AND series >= 0 AND series < {DAILY} AND part = ?"
            self._database.execute(emptied, (hour, 1 - larger))
        self._database.execute("UPDATE rollup_hour SET held = ? WHERE hour = ?", (1 - larger, hour))
        return rows.get(held, 0)

    def _drop(self, partition: Partition) -> int:
        """Drop a partition. The sums of hours with all rows in it move within the table of rollups."""
        assert partition.high is not None
        state = self._read_state()
        whole, cut_off = self._database.report(partial(self._hours_of, partition))
        condition = "w.request >= ? AND w.request < ?"
        params: list[Any] = [partition.low, partition.high]
        counted = f"{condition} AND w.posted_at < ?"
        bounds = [*params, state.watermark]
        groups: list[Group] = []
        for hour in cut_off:
            groups += self._database.report(partial(self._groups_of, state, hour, counted, bounds))
        spent = self._database.report(
            partial(sum_spent, self._database, condition, params, self._marked, self._closed_us)
        )

        def write() -> int:
            run = self._database.execute
            # Until the partition is dropped, no row may arrive in it that was not counted.
            self.partitions.lock(partition)
            advance_state(self._database, state, purged=max(state.purged, (partition.high or b"").hex()))
            count = int(run(f"SELECT COUNT(*) FROM {partition.name}").fetchone()[0])
            parts = read_held(self._database, whole)
            pieces = sum(count_pieces(self._database, hour, parts.get(hour, 0)) for hour in whole)
            held = sum(map(self._move_hour, whole)) - pieces
            _check(count - held, sum(group.values[0] for group in groups))
            add_pieces(self._database, groups, self._clock.now_us())
            keep_spent(self._database, spent)
            run("DELETE FROM group_usage WHERE request >= ? AND request < ?", params)
            self.partitions.drop(partition)
            return count

        try:
            return self._database.write(write, patient=True)
        except RollupConflict:
            raise
        except Unavailable:
            # Uncounted rows make their hours differ; computing these hours again corrects that.
            self._database.write(partial(self._mark, whole))
            raise

    def _mark(self, hours: list[int]) -> None:
        state = self._read_state()
        advance_state(self._database, state)
        ranges = {
            hour: tuple(self._database.execute("SELECT low, high FROM rollup_hour WHERE hour = ?", (hour,)).fetchone())
            for hour in hours
        }
        widen_hours(self._database, ranges, dirty=True)

    def _hours_of(self, partition: Partition) -> tuple[list[int], list[int]]:
        """Return the hours with rows in the partition: those with all rows in it, and the others."""
        assert partition.high is not None
        low = partition.low.hex()
        high = partition.high.hex()
        sql = "SELECT hour, low, high FROM rollup_hour WHERE high >= ? AND low < ? ORDER BY hour"
        whole: list[int] = []
        cut_off: list[int] = []
        for hour, first, last in self._database.execute(sql, (low, high)).fetchall():
            is_whole = first >= low and last < high
            (whole if is_whole else cut_off).append(int(hour))
        return whole, cut_off

    def _read_state(self) -> State:
        state = self._database.read(partial(read_state, self._database))
        if state is None:
            raise Unavailable("The rollups have not been started yet.")
        return state


def _check(count: int, counted: int) -> None:
    """Check that no row arrived while others were removed. Unavailable: the transaction is rolled back."""
    if count != counted:
        raise Unavailable("New rows arrived during the removal; it will be repeated.")
