"""Removing of old usage rows: what they counted stays, in the rollups and in the books that outlive them."""

from functools import partial
from typing import Any

from gateway.clock import DAY_US, HOUR_US, Clock
from gateway.errors import Unavailable
from gateway.metering.models import CREDITS
from gateway.metering.rollups.fold import Names, fold
from gateway.metering.rollups.job import GoOn, forever, places_of
from gateway.metering.rollups.rows import HEX, sum_rows
from gateway.metering.rollups.table import (
    COLUMNS,
    DAILY,
    HELD,
    KEY_COLUMNS,
    REMOVED,
    VALUES,
    Series,
    State,
    add_sums,
    advance_state,
    delete_empty,
    read_state,
    widen_hours,
)
from gateway.settings import SettingsError
from gateway.store.database import Database
from gateway.store.partitions import Partition, Partitions, id_at
from gateway.threads import compute, pause

LEAST_DAYS = 3
STEP_ROWS = 50
# The share of the time that removing takes, so that others are not kept waiting.
SHARE = 1 / 4
# A round ends after so many steps; the next one goes on.
ROUND_STEPS = 20_000
WEEKS_FROM_DAYS = 60  # who keeps rows for longer has partitions of a week, else of a day

PROVIDER_KEY = {
    "sqlite": "substr(json_extract(w.extra, '$.provider_key'), -32)",
    "postgresql": "right(CAST(w.extra AS json) ->> 'provider_key', 32)",
}
# What counters and the ledger are compared with once the rows are gone: (kind, owner, hour), of rows `w`.
SPENT = """
INSERT INTO removed_spend (kind, owner, hour, nusd)
SELECT '{kind}', {owner}, {hour}, SUM({nusd}) FROM {source} WHERE {condition} GROUP BY 2, 3
ON CONFLICT (kind, owner, hour) DO UPDATE SET nusd = removed_spend.nusd + excluded.nusd
"""
TEAMS = "team_usage t JOIN usage w ON w.request = t.request AND w.attempt = t.attempt AND w.kind = t.kind"
HOUR = f"w.at / {HOUR_US}"
MERGED = ", ".join(f"{v} = NULLIF(COALESCE(rollup.{v}, 0) + COALESCE(excluded.{v}, 0), 0)" for v in VALUES)
MOVE = f"""
INSERT INTO rollup ({", ".join(COLUMNS)})
SELECT series, owner, hour, {REMOVED}, name, provider, updated_at, {", ".join(VALUES)} FROM rollup
WHERE hour = ? AND series < {DAILY} AND part = {HELD}
ON CONFLICT ({", ".join(KEY_COLUMNS)}) DO UPDATE SET updated_at = excluded.updated_at, {MERGED}
"""


class UsagePurge:
    """Removes usage rows, with the rows that tell which teams paid, whose request came more than `days` days ago
    (0: none is ever removed). For the one worker that leads; safe to repeat and to run twice at once.

    On PostgreSQL usage lies in partitions, which are dropped whole once all of them is old. Where it did not always,
    the first partition holds all that was before; of that one, and on SQLite, rows go in small steps.
    """

    def __init__(self, database: Database, clock: Clock, days: int, marked: str) -> None:
        """`marked` is how the details of a row look whose cost a bound provider key counted (see reconciliation.py).
        SettingsError when `days` are too few: hours must be closed, and late rows have come, before rows may go."""
        if days < 0 or 0 < days < LEAST_DAYS:
            raise SettingsError(f"[metering] usage_days: at least {LEAST_DAYS}, or 0 to keep usage rows for ever")
        self._database, self._clock, self._days = database, clock, days
        width_us = (7 if days == 0 or days > WEEKS_FROM_DAYS else 1) * DAY_US
        self.partitions = Partitions(database, "usage", ("request", "attempt", "kind"), width_us)
        self._marked = marked

    def run(self, go_on: GoOn = forever) -> int:
        """One round; how many rows went. Unavailable when the store is away or busy: the next round goes on."""
        self.partitions.keep_ready(go_on)
        state = self._database.read(lambda: read_state(self._database))
        now_us = self._database.now_us()
        # While attempts of a day wait to be counted, no earlier ones of their requests may go.
        if not self._days or state is None or state.filling or state.watermark < now_us - DAY_US:
            return 0
        cut = id_at(now_us - self._days * DAY_US)
        gone = 0
        for partition in self.partitions.ended(cut):
            if not go_on():
                return gone
            gone += self._drop(partition)
        return gone + self._delete(self._least(cut), go_on)

    def _least(self, cut: bytes) -> bytes:
        """Up to where rows go one by one: what lies in ordinary partitions waits for those to end."""
        for one in self.partitions.ranges():
            if one.name.endswith(("_first", "_past")) and one.high is not None:
                return min(cut, one.high)
        return b"" if self.partitions.exist() else cut

    def _delete(self, cut: bytes, go_on: GoOn) -> int:
        gone = 0
        for _ in range(ROUND_STEPS):
            if not go_on():
                break
            start = self._clock.monotonic()
            count = self._step(cut)
            gone += count
            if not count:
                break
            pause((self._clock.monotonic() - start) * (1 / SHARE - 1))
        return gone

    def _step(self, cut: bytes) -> int:
        """Remove the oldest rows, all attempts of a request together; how many."""
        state = self._read_state()
        end = self._database.report(partial(self._end_of_step, cut))
        if end is None:
            return 0
        condition, params = "w.request < ? AND w.posted_at < ?", [end, state.watermark]
        moved = self._sums_of(state, condition, params)
        return self._database.write(partial(self._remove, state, condition, params, moved, end)) if moved else 0

    def _end_of_step(self, cut: bytes) -> bytes | None:
        sql = "SELECT request FROM usage WHERE request < ? ORDER BY request LIMIT 1"
        if self._database.execute(sql, (cut,)).fetchone() is None:
            return None
        found = self._database.execute(f"{sql} OFFSET {STEP_ROWS}", (cut,)).fetchone()
        return bytes(found[0]) if found else cut

    def _sums_of(self, state: State, condition: str, params: list[Any]) -> dict[Any, list[int]]:
        """What rows have in the part HELD of their hours."""
        purged = bytes.fromhex(state.purged)
        groups, _ = self._database.report(partial(sum_rows, self._database, condition, params, state.watermark, purged))
        names = self._database.report(partial(self._held_names, places_of(groups)))
        return compute(fold, groups, names)

    def _remove(self, state: State, condition: str, params: list[Any], moved: dict[Any, list[int]], end: bytes) -> int:
        run = self._database.execute
        advance_state(self._database, state, purged=max(state.purged, end.hex()))
        self._move(moved)
        self._keep_spent(condition, params)
        run(
            "DELETE FROM team_usage WHERE (request, attempt, kind) IN "
            f"(SELECT w.request, w.attempt, w.kind FROM usage w WHERE {condition})",
            params,
        )
        count = run(f"DELETE FROM usage WHERE {condition.replace('w.', '')}", params).rowcount
        self._check(count, moved)
        return int(count)

    def _move(self, moved: dict[Any, list[int]]) -> None:
        """From the part HELD to the part REMOVED, which keeps the moment of its aggregation."""
        hours = sorted({key[2] for key in moved})
        newest = f"SELECT MAX(updated_at) FROM rollup WHERE hour = ? AND series = {Series.PROJECT}"
        updated = {hour: self._database.execute(newest, (hour,)).fetchone()[0] for hour in hours}
        add_sums(self._database, {key: [-value for value in values] for key, values in moved.items()}, HELD, None)
        add_sums(self._database, moved, REMOVED, updated)
        delete_empty(self._database, hours)
        # Less than nothing: rows went that were never counted. What lies in the table still is summed up anew.
        short = f"SELECT 1 FROM rollup r WHERE r.hour = rollup_hour.hour AND r.part = {HELD} AND r.rows < 0"
        for hour in hours:
            self._database.execute(f"UPDATE rollup_hour SET dirty = 1 WHERE hour = ? AND EXISTS ({short})", (hour,))

    def _check(self, count: int, moved: dict[Any, list[int]]) -> None:
        """A row may come while its neighbours go. Unavailable: nothing happened."""
        if count != sum(values[0] for key, values in moved.items() if key[0] == Series.PROJECT):
            raise Unavailable("Rows came while they were to be removed; they are removed another time.")

    def _keep_spent(self, condition: str, params: list[Any]) -> None:
        hexed = HEX[self._database.kind].format
        key = PROVIDER_KEY[self._database.kind]
        credits = f"{condition} AND w.mode = {CREDITS}"
        kept: tuple[tuple[str, str, str, str, str, str], ...] = (
            ("api_key", hexed("w.api_key"), "0", "w.cost_nusd", "usage w", condition),
            ("member", hexed("w.member"), "0", "w.cost_nusd", "usage w", condition),
            ("team", hexed("t.team"), "0", "w.cost_nusd", TEAMS, condition),
            ("provider_key", key, "0", "w.cost_nusd", "usage w", f"{condition} AND w.extra LIKE ?"),
            ("credits", hexed("w.organization"), HOUR, "w.cost_nusd", "usage w", credits),
            ("storage", hexed("w.organization"), HOUR, "COALESCE(w.storage_nusd, 0)", "usage w",
             f"{condition} AND w.storage_nusd IS NOT NULL"),
        )  # fmt: skip
        for kind, owner, hour, nusd, source, where in kept:
            sql = SPENT.format(kind=kind, owner=owner, hour=hour, nusd=nusd, source=source, condition=where)
            more = [self._marked] if kind == "provider_key" else []
            self._database.execute(self._database.exact_sums(sql), [*params, *more])

    def _drop(self, partition: Partition) -> int:
        """Drop a partition whole. Hours that lie in it with all of their rows move in the table of rollups itself."""
        assert partition.high is not None
        state = self._read_state()
        whole, cut_off = self._database.report(partial(self._hours_of, partition))
        condition = "w.request >= ? AND w.request < ?"
        params: list[Any] = [partition.low, partition.high]
        moved: dict[Any, list[int]] = {}
        for hour in cut_off:
            within = f"{condition} AND w.at >= ? AND w.at < ? AND w.posted_at < ?"
            bounds = [*params, hour * HOUR_US, (hour + 1) * HOUR_US, state.watermark]
            moved |= self._sums_of(state, within, bounds)

        def write() -> int:
            run = self._database.execute
            # Until it is gone no row can come for it that was not counted.
            run(f"LOCK TABLE {partition.name} IN SHARE MODE")
            advance_state(self._database, state, purged=max(state.purged, (partition.high or b"").hex()))
            count = int(run(f"SELECT COUNT(*) FROM {partition.name}").fetchone()[0])
            held = self._move_hours(whole)
            self._check(count - held, moved)
            self._move(moved)
            self._keep_spent(condition, params)
            run("DELETE FROM team_usage WHERE request >= ? AND request < ?", params)
            self.partitions.drop(partition)
            return count

        try:
            return self._database.write(write, patient=True)
        except Unavailable:
            # What was not counted yet makes its hours differ, which computing them anew mends.
            self._database.write(lambda: self._mark(whole))
            raise

    def _mark(self, hours: list[int]) -> None:
        state = self._read_state()
        advance_state(self._database, state)
        ranges = {
            hour: tuple(self._database.execute("SELECT low, high FROM rollup_hour WHERE hour = ?", (hour,)).fetchone())
            for hour in hours
        }
        widen_hours(self._database, ranges, dirty=True)

    def _move_hours(self, hours: list[int]) -> int:
        """Move hours whole; how many rows they held."""
        run, held = self._database.execute, 0
        for hour in hours:
            sql = f"SELECT SUM(rows) FROM rollup WHERE hour = ? AND series = {Series.PROJECT} AND part = {HELD}"
            held += int(run(sql, (hour,)).fetchone()[0] or 0)
            run(MOVE, (hour,))
            run(f"DELETE FROM rollup WHERE hour = ? AND series < {DAILY} AND part = {HELD}", (hour,))
        return held

    def _hours_of(self, partition: Partition) -> tuple[list[int], list[int]]:
        """The hours of which rows lie in the partition: those with all of their rows in it, and the others."""
        assert partition.high is not None
        low, high = partition.low.hex(), partition.high.hex()
        sql = "SELECT hour, low, high FROM rollup_hour WHERE high >= ? AND low < ? ORDER BY hour"
        whole: list[int] = []
        cut_off: list[int] = []
        for hour, first, last in self._database.execute(sql, (low, high)).fetchall():
            (whole if first >= low and last < high else cut_off).append(int(hour))
        return whole, cut_off

    def _held_names(self, places: set[tuple[bytes, int]]) -> Names:
        """The sources that count, of projects and hours."""
        sql = (
            f"SELECT name FROM rollup WHERE series = {Series.PROJECT_SOURCE} AND owner = ? AND hour = ? "
            f"AND part = {HELD}"
        )
        return {place: {str(name) for (name,) in self._database.execute(sql, place).fetchall()} for place in places}

    def _read_state(self) -> State:
        state = self._database.read(lambda: read_state(self._database))
        if state is None:
            raise Unavailable("Nothing is summed up yet.")
        return state
