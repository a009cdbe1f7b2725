"""The job that delivers usage rows to ClickHouse: in the order in which they were posted, then those that were late.

Each row arrives at least once and counts once (delivered_rows.py). Undelivered rows stay in `usage`, which is
the backlog: rows are not removed before their delivery, for at most `backlog_days` more than otherwise. The progress is
a document, written after each batch; after a crash the last batch is delivered again.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from gateway.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Clock, to_iso
from gateway.errors import Unavailable
from gateway.metering.clickhouse.clickhouse_http import ClickHouse, ClickHouseAddress
from gateway.metering.figures import FIGURES, figures_sql, last_params, rows_sql
from gateway.metering.rollups.queries import rows_begin_us
from gateway.metering.rollups.row_sums import START_MARGIN_US
from gateway.money import format_usd
from gateway.runtime.loop_turns import ShouldContinue
from gateway.runtime.state_changes import INFO, WARNING, StateChange, StateLog
from gateway.runtime.threads import compute
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.partitions import id_at, time_of

# The table of usage in ClickHouse: its columns, its rows as JSON, and the SQL that reads them from the database.
#
# A row is one attempt with all columns of `usage`, and all figures of reports computed. Rows with equal keys are one
# row: the newest `version` counts, so a row may be delivered any number of times.

ID_COLUMNS = ("request", "organization", "project", "api_key", "member")
TEXTS = ("operation", "provider", "asked", "served", "source", "finish", "error")
FREE_TEXTS = ("price_version", "label", "session", "tags", "extra")
NUMBERS = ("attempt", "kind", "status", "mode", "basis", "flags", "duration_ms", "ttft_ms")
COUNTS = ("input", "cache_read", "cache_write", "output", "reasoning", "discount_ppm")
TIMES = ("at", "posted_at")
# How many blocks of inserts a table remembers, to ignore repeated ones.
DEDUPLICATION_WINDOW = 1_000

COLUMNS = {
    **dict.fromkeys(ID_COLUMNS, "String"),
    **dict.fromkeys(TEXTS, "LowCardinality(String)"),
    **dict.fromkeys(FREE_TEXTS, "String"),
    **dict.fromkeys((*NUMBERS, *COUNTS), "Int32"),
}
SELECTED = (*COLUMNS, *TIMES)
WRITTEN = {**COLUMNS, "at_us": "Int64", "posted_us": "Int64", **dict.fromkeys(FIGURES, "Int64")}
TYPES = {**WRITTEN, "version": "UInt64"}
# The value of a column in which a usage row has none.
EMPTY_VALUES = [0 if "Int" in kind else "" for kind in [*WRITTEN.values()][len(ID_COLUMNS) :]]


def table_sql(table: str) -> tuple[str, ...]:
    """Return the statements that create the table, and add the columns that an earlier release did not have."""
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} {kind}" for name, kind in TYPES.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}, "
        "at DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(at_us)) "
        "ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(at_us, 'UTC')) "
        "ORDER BY (project, at_us, request, attempt, kind) "
        f"SETTINGS non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}",
        f"ALTER TABLE {table} {added}",
    )


def fetch(database: Database, condition: str, params: Sequence[Any], horizon_us: int) -> list[Sequence[Any]]:
    """Return the usage rows `w` that meet a condition; rows posted before `horizon_us` decide which attempt is the
    last of its request. Inside a report."""
    columns = ", ".join(f"u.{name}" for name in SELECTED)
    sql = f"SELECT {columns}, {figures_sql(database)} FROM {rows_sql(condition)}"
    return database.fetch(sql, (*last_params(horizon_us, b""), *params))


def write_delivered_row(rows: Sequence[Sequence[Any]], version: int) -> bytes:
    """Return rows of `fetch` as JSONEachRow."""
    lines = []
    for row in rows:
        values: list[Any] = [bytes(value).hex() for value in row[: len(ID_COLUMNS)]]
        values += [
            empty if value is None else value for value, empty in zip(row[len(ID_COLUMNS) :], EMPTY_VALUES, strict=True)
        ]
        line: dict[str, Any] = dict(zip(WRITTEN, values, strict=True))
        line["version"] = version
        lines.append(orjson.dumps(line))
    return b"\n".join(lines)


KIND = "usage_sink"
STATE_TTL_S = 10 * 365 * 86_400.0
SUBJECT = "clickhouse"
REMEDY = "check analytics.clickhouse_url; usage rows wait in the database and are delivered later"
ANALYTICS_BACK = StateChange("analytics.back", SUBJECT, "ClickHouse takes usage rows again", INFO)
# A commit normally takes less than this after its rows are created; others are found by counting.
COMMIT_LAG_US = 10 * SECOND_US
# The rows of this long ago are counted at intervals of half of it.
RECOUNT_AFTER_US = 20 * MINUTE_US
# Hours with late rows are compared this long after they were marked, when that transaction has ended.
COMPARE_AFTER_US = 10 * SECOND_US
FOREVER_US = 1 << 62
NEW = "w.request IN (SELECT b.request FROM usage b WHERE b.posted_at >= ? AND b.posted_at < ?)"
OF_TIME = "w.at >= ? AND w.at < ? AND w.request >= ? AND w.request < ?"


class SinkState(NamedTuple):
    """The progress. Rows posted before `cursor_us` were delivered, and late hours marked before `late_us`; rows up to
    `counted_us` were counted on both sides. ClickHouse has all rows of requests from `since_us` on."""

    cursor_us: int
    late_us: int
    counted_us: int
    since_us: int


class TimeDifference(NamedTuple):
    """A step of time with different rows or costs: here, and in ClickHouse."""

    start_us: int
    here: tuple[int, int]
    there: tuple[int, int]


class UsageSink:
    """Delivers the usage rows of `database` to a table of `client` (None: there is no ClickHouse)."""

    def __init__(
        self,
        database: Database,
        documents: Documents,
        clock: Clock,
        states: StateLog,
        client: ClickHouse | None,
        table: str,
        batch_rows: int,
    ) -> None:
        self._database = database
        self._documents = documents
        self._clock = clock
        self._states = states
        self.client = client
        self.table = table
        self._batch_rows = batch_rows
        self._prepared = False

    def run(self, should_continue: ShouldContinue, lag_us: int = COMMIT_LAG_US, thorough: bool = False) -> None:
        """Deliver everything that was posted until `lag_us` ago. `thorough`: count the last rows at once. Unavailable
        when the database or ClickHouse is down: the next run continues."""
        if self.client is None:
            return
        try:
            self._run(self.client, should_continue, lag_us, thorough)
        except Unavailable as error:
            if error.message.startswith("ClickHouse"):
                self._states.fire(StateChange("analytics.away", SUBJECT, error.message, WARNING, REMEDY))
            raise
        self._states.resolve(ANALYTICS_BACK)

    def state(self) -> SinkState | None:
        """Return the progress; None before the first run. Unavailable."""
        if self.client is None:
            return None
        return read_progress(self._documents, self.client.address, self.table)

    def kept_from_us(self, min_us: int) -> int:
        """Return the time from which rows must be kept for their delivery: `min_us` if they wait for longer, and the
        end of time without ClickHouse."""
        if self.client is None:
            return FOREVER_US
        state = self.state()
        if state is None:
            return min_us
        return max(min_us, state.cursor_us - DAY_US)

    def compare(self, from_us: int, until_us: int, step_us: int) -> list[TimeDifference]:
        """Return the steps of [from, until), by the times of attempts, in which ClickHouse has other rows or costs."""
        assert self.client is not None
        sql = (
            f"SELECT w.at / {step_us}, COUNT(*), COALESCE(SUM(w.cost_nusd), 0) FROM usage w WHERE {OF_TIME} GROUP BY 1"
        )
        params = (from_us, until_us, id_at(from_us - START_MARGIN_US), id_at(until_us + START_MARGIN_US))
        here = {int(row[0]): (int(row[1]), int(row[2])) for row in self._fetch(sql, params)}
        found = self.client.query(
            f"SELECT intDiv(at_us, {step_us}), count(), sum(cost_nusd) FROM {self.table} FINAL "
            f"WHERE at_us >= {from_us} AND at_us < {until_us} GROUP BY 1"
        )
        there = {int(row[0]): (int(row[1]), int(row[2])) for row in found}
        nothing = (0, 0)
        return [
            TimeDifference(step * step_us, here.get(step, nothing), there.get(step, nothing))
            for step in sorted({*here, *there})
            if here.get(step, nothing) != there.get(step, nothing)
        ]

    def check(self) -> list[str]:
        """Deliver everything, then return a line for each hour in which ClickHouse has other rows or costs. Hours from
        which rows were removed here are left out. Unavailable."""
        self.run(lambda: True, 0, thorough=True)
        state = self.state()
        if state is None:
            return []
        begin_us = max(state.since_us, self._database.read(partial(rows_begin_us, self._database)))
        if begin_us:
            begin_us = (begin_us + START_MARGIN_US) // HOUR_US * HOUR_US + HOUR_US
        differences: list[str] = []
        end_us = state.cursor_us
        # Days one after the other, because a statement has a time limit.
        first_us = max(begin_us, self._oldest_us(end_us))
        for start_us in range(first_us // HOUR_US * HOUR_US, end_us, DAY_US):
            steps = self.compare(start_us, min(start_us + DAY_US, end_us), HOUR_US)
            differences.extend(map(_describe, steps))
        return differences

    def _oldest_us(self, until_us: int) -> int:
        """Return the time of the oldest attempt on either side."""
        assert self.client is not None
        here = self._fetch("SELECT MIN(request) FROM usage", ())[0][0]
        there = self.client.query(f"SELECT min(at_us) FROM {self.table} HAVING count() > 0")
        oldest = [] if here is None else [time_of(bytes(here)) - START_MARGIN_US]
        return max(0, min([until_us, *oldest, *(int(row[0]) for row in there)]))

    def _run(self, client: ClickHouse, should_continue: ShouldContinue, lag_us: int, thorough: bool) -> None:
        if not self._prepared:
            for statement in table_sql(self.table):
                client.execute(statement)
            self._prepared = True
        now_us = self._database.now_us()
        state = self.state() or self._first(now_us)
        # A clock that was ahead and was corrected: new rows have earlier times than delivered ones.
        state = state._replace(cursor_us=min(state.cursor_us, now_us - lag_us))
        state = self._deliver_new(client, state, now_us - lag_us, should_continue)
        state = self._deliver_late(client, state, now_us - COMPARE_AFTER_US, should_continue)
        if should_continue() and (thorough or state.cursor_us >= state.counted_us + RECOUNT_AFTER_US // 2):
            self._deliver_missing(client, state.counted_us - RECOUNT_AFTER_US // 2, state.cursor_us, should_continue)
            self._save(client, state._replace(counted_us=state.cursor_us))

    def _first(self, now_us: int) -> SinkState:
        """Return the state before the first delivery, which begins with the oldest row."""
        begin_us = self._database.read(partial(rows_begin_us, self._database))
        rows = self._fetch("SELECT MIN(posted_at) FROM usage", ())
        oldest_us = rows[0][0]
        return SinkState(now_us - COMMIT_LAG_US if oldest_us is None else int(oldest_us), now_us, now_us, begin_us)

    def _deliver_new(
        self, client: ClickHouse, state: SinkState, until_us: int, should_continue: ShouldContinue
    ) -> SinkState:
        while state.cursor_us < until_us and should_continue():
            end_us = self._end_of_batch(state.cursor_us, until_us)
            rows = self._rows(NEW, (state.cursor_us, end_us))
            self._insert(client, rows, repeatable=True)
            state = state._replace(cursor_us=end_us)
            self._save(client, state)
        return state

    def _deliver_late(
        self, client: ClickHouse, state: SinkState, until_us: int, should_continue: ShouldContinue
    ) -> SinkState:
        """Deliver what the rollups found to be committed late (a record of an outage, a slow clock)."""
        if until_us <= state.late_us:
            return state
        sql = "SELECT hour FROM rollup_hour WHERE late_at >= ? AND late_at < ? ORDER BY hour"
        for (hour,) in self._fetch(sql, (state.late_us, until_us)):
            if not should_continue():
                return state
            self._deliver_missing(client, int(hour) * HOUR_US, (int(hour) + 1) * HOUR_US, should_continue)
        state = state._replace(late_us=until_us)
        self._save(client, state)
        return state

    def _deliver_missing(
        self, client: ClickHouse, from_us: int, until_us: int, should_continue: ShouldContinue
    ) -> None:
        """Deliver the minutes of [from, until) again that ClickHouse does not have as a whole."""
        from_us = from_us // MINUTE_US * MINUTE_US
        for start_us, here, there in self.compare(from_us, until_us, MINUTE_US):
            if not should_continue():
                return
            if here[0] < there[0]:
                continue  # rows were removed here, or delivered between the two counts
            end_us = start_us + MINUTE_US
            params = (start_us, end_us, id_at(start_us - START_MARGIN_US), id_at(end_us + START_MARGIN_US))
            rows = self._rows(OF_TIME, params)
            for first in range(0, len(rows), self._batch_rows):
                self._insert(client, rows[first : first + self._batch_rows], repeatable=False)

    def _end_of_batch(self, start_us: int, until_us: int) -> int:
        sql = "SELECT posted_at FROM usage WHERE posted_at >= ? AND posted_at < ? ORDER BY posted_at LIMIT 1 OFFSET ?"
        rows = self._fetch(sql, (start_us, until_us, self._batch_rows))
        if rows:
            return max(start_us + 1, int(rows[0][0]))
        return until_us

    def _rows(self, condition: str, params: Sequence[Any]) -> list[Sequence[Any]]:
        return self._database.report(partial(fetch, self._database, condition, params, FOREVER_US))

    def _insert(self, client: ClickHouse, rows: list[Sequence[Any]], repeatable: bool) -> None:
        """Insert rows; if they are `repeatable`, the same block is ignored when it arrived before."""
        if not rows:
            return
        version = self._clock.now_us()
        lines, token = compute(_write, rows, version)
        client.insert(self.table, lines, token if repeatable else "")

    def _fetch(self, sql: str, params: Sequence[Any]) -> list[Any]:
        return self._database.report(partial(self._database.fetch, sql, params))

    def _save(self, client: ClickHouse, state: SinkState) -> None:
        key = _key(client.address, self.table)
        self._documents.put(KIND, key, orjson.dumps(state._asdict()), STATE_TTL_S)


def _describe(step: TimeDifference) -> str:
    rows, cost = step.here
    found, found_cost = step.there
    return (
        f"ClickHouse has {found} usage rows of {format_usd(found_cost)} USD for the hour {to_iso(step.start_us)[:13]}, "
        f"the database {rows} of {format_usd(cost)} USD"
    )


def read_progress(documents: Documents, address: ClickHouseAddress, table: str) -> SinkState | None:
    """Return the progress of deliveries to a table; None before the first. Unavailable."""
    stored = documents.get(KIND, _key(address, table))
    if stored:
        return SinkState(**orjson.loads(stored))
    return None


def _key(address: ClickHouseAddress, table: str) -> str:
    """Return the key of the progress: another server or table begins anew."""
    return hashlib.sha256(f"{address.shown} {table}".encode()).hexdigest()[:32]


def _write(rows: list[Sequence[Any]], version: int) -> tuple[bytes, str]:
    """Return rows as lines, and a token for these rows."""
    content = write_delivered_row(rows, 0)
    return write_delivered_row(rows, version), hashlib.sha256(content).hexdigest()
