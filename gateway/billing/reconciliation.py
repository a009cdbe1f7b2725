"""Reconciliation: ledger, balances, counters and usage rows must agree exactly, to the nano-dollar.

The comparison runs in the store and returns only differences, so that books of any size need little memory here.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from gateway.billing.ledger_close import CLOSED_HOURS, ID_DIGITS, LATE_REF, closed_until_us, hour_sums
from gateway.billing.usage_rows import BOUNDED
from gateway.clock import HOUR_US, SECOND_US, Clock
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError, Unavailable
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import ROWS, compare_rollups
from gateway.metering.rollups.rollup_table import hour_of
from gateway.metering.rollups.row_sums import HEX
from gateway.money import NANO, format_usd
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.plurals import many
from gateway.runtime.state_changes import ERROR, INFO, StateChange, StateLog
from gateway.runtime.threads import Job
from gateway.store.database import Database
from gateway.store.documents import Documents

PROVIDER_KEY = {
    "sqlite": "json_extract(extra, '$.provider_key')",
    "postgresql": "CAST(extra AS json) ->> 'provider_key'",
}
# Compares sums of rows (id, nano-dollars) from two sides.
DIFFERENT_SUMS = """
SELECT id, SUM(mine), SUM(theirs) FROM (
    SELECT id, nusd AS mine, 0 AS theirs FROM ({mine}) a UNION ALL SELECT id, 0, nusd FROM ({theirs}) b
) c GROUP BY id HAVING SUM(mine) <> SUM(theirs) ORDER BY id
"""
FUNDED = f"""
SELECT organization AS id, amount_nusd AS nusd FROM ledger
WHERE (kind IN ('grant', 'refund') OR (kind = 'adjustment' AND NOT {LATE_REF}))
    AND organization NOT IN (SELECT scope_id FROM budget WHERE kind = 'credits' AND limit_nusd IS NULL)
"""
# An unlimited organization has no balance to compare with its postings.
BALANCES = "SELECT scope_id AS id, limit_nusd AS nusd FROM budget WHERE kind = 'credits' AND limit_nusd IS NOT NULL"
# The settled amount of every budget, with spending of its leases that was not folded yet.
SETTLED = f"""
SELECT {ID_DIGITS.format("b.scope_id")} AS id, b.settled_nusd + COALESCE((SELECT SUM(l.spent_nusd) FROM lease l
    WHERE l.budget = b.id AND l.generation = b.generation), 0) AS nusd FROM budget b WHERE b.kind = '{{kind}}'
"""
# The amount that every total counted, and every limit of a row of `limits` in all of its windows.
COUNTERS = f"""
SELECT {ID_DIGITS.format("b.scope_id")} AS id, b.settled_nusd + b.past_nusd + COALESCE((SELECT SUM(l.spent_nusd)
    FROM lease l WHERE l.budget = b.id AND (l.generation = b.generation OR b.scope = 'limit')), 0) AS nusd
FROM budget b WHERE b.kind = 'total' OR b.scope = 'limit'
"""
USED = "SELECT id, nusd FROM rows"
COUNTED_SUMS = (
    "SELECT {api_key} AS id, nusd FROM (SELECT api_key, SUM(cost_nusd) AS nusd FROM usage GROUP BY api_key) k",
    "SELECT {member} AS id, nusd FROM (SELECT member, SUM(cost_nusd) AS nusd FROM usage GROUP BY member) m",
    "SELECT {team} AS id, nusd FROM (SELECT t.team, SUM(u.cost_nusd) AS nusd FROM group_usage t JOIN usage u "
    "ON u.request = t.request AND u.attempt = t.attempt AND u.kind = t.kind GROUP BY t.team) t",
    "SELECT {team} AS id, nusd FROM (WITH RECURSIVE part (team, rest, nusd) AS ("
    "SELECT substr(teams, 1, 16), substr(teams, 17), SUM(cost_nusd) FROM usage WHERE teams IS NOT NULL GROUP BY teams "
    "UNION ALL SELECT substr(rest, 1, 16), substr(rest, 17), nusd FROM part WHERE length(rest) > 0) "
    "SELECT team, SUM(nusd) AS nusd FROM part GROUP BY team) p",
    # Spending through provider keys with a spending limit; a mark in the row's details identifies them.
    f"SELECT {ID_DIGITS.format('ident')} AS id, nusd FROM "
    "(SELECT {provider_key} AS ident, SUM(cost_nusd) AS nusd FROM usage WHERE extra LIKE ? GROUP BY 1) p",
    "SELECT owner AS id, nusd FROM removed_spend WHERE kind IN ('api_key', 'member', 'team', 'provider_key')",
)
MARKED = f'%"{BOUNDED}":true%'
LEASED = """
SELECT id, leased_nusd, granted FROM (
    SELECT b.id, b.leased_nusd, COALESCE((SELECT SUM(l.granted_nusd) FROM lease l
        WHERE l.budget = b.id AND l.generation = b.generation), 0) AS granted FROM budget b
) x WHERE leased_nusd <> granted ORDER BY id
"""
# Every hold has its leases, and every lease without a worker belongs to a hold.
HELD_SUMS = """
SELECT id, SUM(amount), SUM(leased) FROM (
    SELECT id, 1 AS amount, 0 AS leased FROM hold
    UNION ALL SELECT DISTINCT hold, 0, 1 FROM lease WHERE hold IS NOT NULL
) h GROUP BY id HAVING SUM(amount) <> SUM(leased) ORDER BY id
"""
# Callers reserve only from budgets of teams that are marked as limited.
UNMARKED = """
SELECT t.id, MAX(b.limit_nusd), 0 FROM team t JOIN budget b ON b.scope_id = t.id
WHERE b.limit_nusd IS NOT NULL AND NOT t.limited GROUP BY t.id ORDER BY t.id
"""
NEGATIVE = "SELECT id, {column}, 0 FROM budget WHERE {column} < 0 ORDER BY id"


class Difference(NamedTuple):
    """A difference between two books that must agree on `subject` (an id, or its digits). Without `money` the
    figures count requests, tokens or rows."""

    subject: str
    left: str
    left_nusd: int
    right: str
    right_nusd: int
    money: bool = True

    @property
    def nusd(self) -> int:
        """The size of the difference. A count weighs like a nano-dollar, so that no difference is zero."""
        return abs(self.left_nusd - self.right_nusd)

    def __str__(self) -> str:
        show = format_usd if self.money else str
        return f"{self.subject}: {self.left} {show(self.left_nusd)}, {self.right} {show(self.right_nusd)}"


def doctor(database: Database) -> list[str]:
    """Return every difference as a line; [] if the books agree."""
    return list(map(str, examine(database)))


def examine(
    database: Database, should_continue: ShouldContinue = always, rollups_from: int | None = 0
) -> list[Difference]:
    """Return every difference between the books.

    Reads one snapshot, so it may run under load. `should_continue` is called between queries. Unavailable when it
    returns False or the store is down.

    `removed_spend` holds the sums of removed usage rows, so counters and ledger are always compared exactly. Rollups
    are compared from the hour `rollups_from` (since the epoch) on; None leaves them out.
    """
    level = "DEFERRED" if database.kind == "sqlite" else "REPEATABLE READ"

    def read() -> list[Difference]:
        _spare_memory(database)
        with database.peewee.transaction(level):
            examination = Examination(database, should_continue)
            differences = list(examination.differences())
            if rollups_from is not None:
                for sql, params, name in compare_rollups(database, rollups_from):
                    differences += examination.compare(sql, params, name)
            return differences

    return database.report(read)


class Examination:
    """The comparisons, within one snapshot."""

    def __init__(self, database: Database, should_continue: ShouldContinue) -> None:
        self._database = database
        self._go_on = should_continue
        written = HEX[database.kind]
        self._columns = {name: written.format(name) for name in ("api_key", "member", "team")}
        self._columns["provider_key"] = PROVIDER_KEY[database.kind]
        self._hours = hour_sums(database.kind)

    def differences(self) -> Iterator[Difference]:
        funds = DIFFERENT_SUMS.format(mine=FUNDED, theirs=BALANCES)
        yield from self._compare_sums(funds, "ledger", "credit balance")
        closed = closed_until_us(self._database) // HOUR_US
        yield from self._compare_sums(self._hours + CLOSED_HOURS, "ledger usage", "usage rows", closed)
        settled = SETTLED.format(kind="credits")
        used = self._hours + DIFFERENT_SUMS.format(mine=USED, theirs=settled)
        yield from self._compare_sums(used, "usage", "credits settled")
        counted = " UNION ALL ".join(COUNTED_SUMS).format(**self._columns)
        sql = DIFFERENT_SUMS.format(mine=f"SELECT id, nusd FROM ({counted}) r WHERE id <> ''", theirs=COUNTERS)
        yield from self._compare_sums(sql, "usage rows", "counter", MARKED)
        yield from self._compare_sums(LEASED, "leased", "granted to workers")
        yield from self._compare_sums(HELD_SUMS, "held for a job", "leased for it")
        yield from self._compare_sums(UNMARKED, "limit", "limit enforced for members")
        for column in ("settled_nusd", "leased_nusd"):
            negative = NEGATIVE.format(column=column)
            yield from self._compare_sums(negative, column.removesuffix("_nusd"), "lowest valid value")

    def compare(self, sql: str, params: Sequence[Any], names: tuple[str, str]) -> Iterator[Difference]:
        """Yield the differences that a query returns as (subject, figure, left, right)."""
        for subject, figure, left_value, right_value in self._rows(sql, *params):
            left, right = (f"{name} {figure}" for name in names)
            yield Difference(subject, left, int(left_value), right, int(right_value), money=figure.endswith("_nusd"))

    def _compare_sums(self, sql: str, left: str, right: str, *params: Any) -> Iterator[Difference]:
        for subject, left_value, right_value in self._rows(sql, *params):
            yield Difference(subject, left, int(left_value), right, int(right_value))

    def _rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        if not self._go_on():
            raise Unavailable("The reconciliation was interrupted.")
        return self._database.execute(self._database.exact_sums(sql), params).fetchall()


def _spare_memory(database: Database) -> None:
    """Let SQLite sort on disk, since the sums of millions of rows would take much memory, and forget the statements,
    which would take 2 MB until the next reconciliation."""
    if database.kind == "sqlite":
        database.retire_connection()
        database.execute("PRAGMA temp_store = file")


# Gauges of the reconciliation: one worker measures what `doctor` finds at intervals, every worker reports it.

GAUGE_KIND = "gauge"
KEY = "ledger_drift"
TTL_S = 24 * 3600
# Reading all usage rows takes long on a large installation: at most this share of the store's time is spent on it.
MAX_GAUGE_LOAD = 1 / 20
# The gauge compares this many hours of rollups; `doctor` compares all.
GAUGED_ROLLUP_HOURS = 48
READ_TIMEOUT_S = 0.5  # longest wait of a metrics scrape for the store

SUBJECT = "books"
REMEDY = f"run {MANAGE} doctor and do not change the database until the cause is known"


class ReconciliationGauge:
    """`measure` runs in the leading worker and stores its result as a document, which every worker can report."""

    def __init__(
        self, database: Database, documents: Documents, clock: Clock, rollups: Rollups, states: StateLog | None = None
    ) -> None:
        self._database = database
        self._documents = documents
        self._clock = clock
        self._rollups = rollups
        self._backoff_until = float("-inf")
        self._states = states or StateLog()
        self._suspected: set[tuple[str, str, str]] = set()

    def measure(self, should_continue: ShouldContinue = always) -> None:
        """Examine the books and store the size of their differences.

        Returns at once if the last examination is too recent for the time that it took. Unavailable when the store is
        down, or when `should_continue` (called before each query) returns False.
        """
        start = self._clock.monotonic()
        if start < self._backoff_until:
            return
        try:
            differences = self._examine(should_continue)
        finally:
            end = self._clock.monotonic()
            self._backoff_until = end + (end - start) / MAX_GAUGE_LOAD
        self._report(differences)
        nusd = sum(difference.nusd for difference in differences)
        self._documents.put(GAUGE_KIND, KEY, orjson.dumps((nusd, self._database.now_us())), TTL_S)

    def _report(self, differences: Sequence[Difference]) -> None:
        """Report the differences that the last examination found too, and their end.

        Books never differ by themselves, and a difference never goes away, so a defect is reported one interval later.
        What one examination alone finds is a record that another node posts late after an outage.
        """
        found = {(difference.subject, difference.left, difference.right) for difference in differences}
        confirmed = [
            difference
            for difference in differences
            if (difference.subject, difference.left, difference.right) in self._suspected
        ]
        self._suspected = found
        if confirmed:
            nusd = sum(difference.nusd for difference in confirmed)
            message = f"the books differ in {many(len(confirmed), 'place')} by {format_usd(nusd)} USD"
            facts: dict[str, object] = {"places": len(confirmed), "usd": format_usd(nusd)}
            self._states.fire(StateChange("books.differ", SUBJECT, message, ERROR, REMEDY, facts))
        elif not differences:
            self._states.resolve(StateChange("books.agree", SUBJECT, "the books agree again", INFO))

    def _examine(self, should_continue: ShouldContinue) -> list[Difference]:
        """Compare the books, with the rollups of recent days. Rows that were committed late, or by a slow clock, are
        no difference once the rollups include them, so rollups are brought up to date before a second comparison."""
        first = hour_of(self._database.now_us()) - GAUGED_ROLLUP_HOURS
        differences = examine(self._database, should_continue, first)
        if not any(difference.right.startswith(ROWS) for difference in differences):
            return differences
        self._rollups.advance(should_continue, thorough=True)
        return examine(self._database, should_continue, first)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return name → (help text, value) of what was measured in the last day, and the lag of the rollups; {} when
        the store is down."""
        try:
            outcome = Job(_attempt, self._documents, self._database, self._rollups).result(READ_TIMEOUT_S)
        except TimeoutError:
            outcome = None
        if outcome is None:
            return {}
        gauges: dict[str, tuple[str, float]] = {}
        stored, watermark_us, now_us = outcome
        if watermark_us is not None:
            gauges["rollups_filling"] = ("1 while statistics are built from existing rows.", float(not watermark_us))
        if watermark_us:
            lag = max(0, now_us - watermark_us) / SECOND_US
            gauges["rollups_lag_seconds"] = ("Delay of the statistics behind the recorded usage.", lag)
        if stored is not None:
            nusd, at_us = stored
            gauges["ledger_drift_usd"] = ("Difference between the books at the last examination.", nusd / NANO)
            age = max(0, now_us - at_us) / SECOND_US
            gauges["ledger_drift_age_seconds"] = ("Time since that examination.", age)
        return gauges


def _attempt(
    documents: Documents, database: Database, rollups: Rollups
) -> tuple[list[int] | None, int | None, int] | None:
    """Return the last measurement, the watermark of the rollups (0 while they are first built), and the store's time.

    Errors become None, because an exception that leaves a greenlet is printed.
    """
    try:
        stored = documents.get(GAUGE_KIND, KEY)
        state = rollups.state()
        if state is None:
            watermark = None
        elif state.filling:
            watermark = 0
        else:
            watermark = state.watermark
        measured = orjson.loads(stored) if stored else None
        return measured, watermark, database.now_us()
    except GatewayError:
        return None
