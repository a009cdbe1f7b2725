"""Reconciliation: ledger, balances, counters and usage rows must agree exactly, to the nano-dollar.

The comparison runs in the store and returns only differences, so that books of any size need little memory here.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gateway.billing.hour_sums import CLOSED, DIGITS, LATE_REF, hour_sums
from gateway.billing.ledger_close import closed_until_us
from gateway.billing.usage_rows import BOUNDED
from gateway.clock import HOUR_US
from gateway.errors import Unavailable
from gateway.metering.rollups.proof import compare_rollups
from gateway.metering.rollups.row_sums import HEX
from gateway.money import format_usd
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.store.database import Database

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
SELECT {DIGITS.format("b.scope_id")} AS id, b.settled_nusd + COALESCE((SELECT SUM(l.spent_nusd) FROM lease l
    WHERE l.budget = b.id AND l.generation = b.generation), 0) AS nusd FROM budget b WHERE b.kind = '{{kind}}'
"""
USED = "SELECT id, nusd FROM rows"
COUNTED_SUMS = (
    "SELECT {api_key} AS id, nusd FROM (SELECT api_key, SUM(cost_nusd) AS nusd FROM usage GROUP BY api_key) k",
    "SELECT {member} AS id, nusd FROM (SELECT member, SUM(cost_nusd) AS nusd FROM usage GROUP BY member) m",
    "SELECT {team} AS id, nusd FROM (SELECT t.team, SUM(u.cost_nusd) AS nusd FROM team_usage t JOIN usage u "
    "ON u.request = t.request AND u.attempt = t.attempt AND u.kind = t.kind GROUP BY t.team) t",
    # Spending through provider keys with a spending limit; a mark in the row's details identifies them.
    f"SELECT {DIGITS.format('ident')} AS id, nusd FROM "
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
    if database.kind == "sqlite":
        level = "DEFERRED"
    else:
        level = "REPEATABLE READ"

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
        yield from self._compare_sums(self._hours + CLOSED, "ledger usage", "usage rows", closed)
        settled = SETTLED.format(kind="credits")
        used = self._hours + DIFFERENT_SUMS.format(mine=USED, theirs=settled)
        yield from self._compare_sums(used, "usage", "credits settled")
        counted = " UNION ALL ".join(COUNTED_SUMS).format(**self._columns)
        counters = SETTLED.format(kind="total")
        sql = DIFFERENT_SUMS.format(
            mine=f"SELECT id, nusd FROM ({counted}) r WHERE id <> ''",
            theirs=counters,
        )
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

    def _rows(self, sql: str, *params: Any) -> list[tuple]:
        if not self._go_on():
            raise Unavailable("The reconciliation was interrupted.")
        return self._database.execute(self._database.exact_sums(sql), params).fetchall()


def _spare_memory(database: Database) -> None:
    """Let SQLite sort on disk, since the sums of millions of rows would take much memory, and forget the statements,
    which would take 2 MB until the next reconciliation."""
    if database.kind == "sqlite":
        database.retire_connection()
        database.execute("PRAGMA temp_store = file")
