"""Closing of hours: posts to the ledger the credits that each organization spent in a past hour."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import NamedTuple

from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.errors import Unavailable
from gateway.limits.ledger import LATE_PREFIX, LedgerBook
from gateway.metering.models import CREDITS
from gateway.metering.rollups.row_sums import HEX
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.documents import Documents

# SQL that sums credits by organization and hour: spending in usage rows and postings in the ledger.

# The 32 hex digits of an id without its prefix. Budgets and ledger store the id as text, usage rows as bytes.
ID_DIGITS = "substr({0}, length({0}) - 31)"
LATE_REF = f"substr(ref, 1, {len(LATE_PREFIX)}) = '{LATE_PREFIX}'"
MOMENT_HOUR = "substr(moment, 1, 10) || ' ' || substr(moment, 12, 2) || ':00:00'"
HOUR = {
    "sqlite": f"CAST(strftime('%s', {MOMENT_HOUR}) AS INTEGER) / 3600",
    "postgresql": f"CAST(EXTRACT(EPOCH FROM CAST({MOMENT_HOUR} AS timestamp)) AS BIGINT) / 3600",
}
# Hours are counted since the epoch. `rows` sums usage rows and removed rows, `booked` sums the ledger: entries of usage
# and storage, and adjustments of closed hours. Their ref is [usage:]<organization>:<hour>[:n].
HOUR_SUMS = f"""
WITH spent AS (
    SELECT organization, at / {HOUR_US} AS hour,
        SUM(COALESCE(storage_nusd, 0) + CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END) AS nusd FROM usage
    WHERE mode = {CREDITS} OR storage_nusd IS NOT NULL GROUP BY organization, at / {HOUR_US}
), rows AS (
    SELECT id, hour, SUM(nusd) AS nusd FROM (
        SELECT {{organization}} AS id, hour, nusd FROM spent
        UNION ALL SELECT owner, hour, nusd FROM removed_spend WHERE kind IN ('credits', 'storage')
    ) s GROUP BY id, hour
), entries AS (
    SELECT {ID_DIGITS.format("organization")} AS id, amount_nusd,
        substr(ref, length(organization) + CASE WHEN {LATE_REF} THEN {len(LATE_PREFIX) + 2} ELSE 2 END, 13) AS moment
    FROM ledger WHERE kind IN ('usage', 'storage') OR (kind = 'adjustment' AND {LATE_REF})
), booked AS (SELECT id, {{hour}} AS hour, -SUM(amount_nusd) AS nusd FROM entries GROUP BY 1, 2)
"""
DIFFERENT_SUMS = """
SELECT id, hour, SUM(mine) AS posted, SUM(theirs) AS used, MAX(entries) AS has_entry FROM (
    SELECT id, hour, nusd AS mine, 0 AS theirs, 1 AS entries FROM booked UNION ALL SELECT id, hour, 0, nusd, 0 FROM rows
) h GROUP BY id, hour HAVING SUM(mine) <> SUM(theirs)
"""
# Hours that differ and are closed or have an entry.
CLOSED_HOURS = f"""
SELECT id || ' hour ' || hour, posted, used FROM ({DIFFERENT_SUMS}) x WHERE hour < ? OR has_entry = 1 ORDER BY 1
"""
# Closed hours that differ and had rows removed.
HOURS_WITH_REMOVED_ROWS = f"""
SELECT DISTINCT hour FROM ({DIFFERENT_SUMS}) x WHERE hour < ?
AND hour IN (SELECT hour FROM removed_spend WHERE kind IN ('credits', 'storage'))
"""


def hour_sums(kind: str) -> str:
    """Return the start of an SQL statement for a kind of store. It defines `rows` and `booked`, each (id, hour,
    nusd)."""
    return HOUR_SUMS.format(organization=HEX[kind].format("organization"), hour=HOUR[kind])


# Attempts that began in an hour may be recorded until this long after its end; later rows become adjustments.
GRACE_US = HOUR_US
# Rows recorded up to this long before the last round are read again: their hour may have been open then, and a node's
# clock may be slow. The rollups detect rows that a disconnected node commits even later, and mark their hour.
REPEAT_AFTER_US = 3 * HOUR_US
KIND = "mark"
KEY = "closed_hours"
# Stored once all hours with removed rows have been compared with the ledger: early releases removed rows before they
# were posted.
COMPARED_KEY = "compared_removed_hours"
FOREVER_S = 100 * 366 * 86_400.0
FOREVER_US = 2**62

SPENT_CREDITS = f"(mode = {CREDITS} OR storage_nusd IS NOT NULL)"
# Hours in which the rollups found late rows.
FOUND_LATE = "SELECT hour FROM rollup_hour WHERE late_at >= ? AND hour < ?"
TOUCHED_HOURS = f"""
SELECT at / {HOUR_US} FROM usage WHERE posted_at >= ? AND at < ? AND {SPENT_CREDITS}
UNION {FOUND_LATE}
"""
# The sums of usage rows with credits or a storage fee, by hour and organization.
CREDIT_SUMS = f"""
SELECT at / {HOUR_US}, {{organization}}, SUM(CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END),
    SUM(COALESCE(storage_nusd, 0))
FROM usage WHERE posted_at >= ? AND posted_at < ? AND at >= ? AND at < ? AND {SPENT_CREDITS}{{late}}
GROUP BY at / {HOUR_US}, {{organization}}
"""
# Only an index on `posted_at` finds rows. Those of a day are searched among the rows that were recorded until
# REPEAT_AFTER_US after its end, and later ones in one pass for all days: the time to close many hours grows linearly
# with the rows.
LATE_ROWS = f" AND posted_at >= (at / {DAY_US} + 1) * {DAY_US} + {REPEAT_AFTER_US}"
# Removed rows are included: otherwise a late row would reverse their postings.
REMOVED_SUMS = f"""
SELECT hour, owner, SUM(CASE WHEN kind = 'credits' THEN nusd ELSE 0 END),
    SUM(CASE WHEN kind = 'storage' THEN nusd ELSE 0 END)
FROM removed_spend WHERE kind IN ('credits', 'storage')
    AND owner IN (SELECT {ID_DIGITS.format("scope_id")} FROM budget WHERE kind = 'credits') AND hour >= ? AND hour < ?
GROUP BY hour, owner
"""

# Nano-dollars of inference and of storage by organization (the digits of its id), by hour since the epoch.
Spending = dict[int, dict[str, tuple[int, int]]]


class HourSum(NamedTuple):
    """The spending of an organization (the digits of its id) in an hour since the epoch, on inference and storage."""

    hour: int
    owner: str
    spent_nusd: int
    storage_nusd: int


class LedgerClose:
    """Closes the hours of the ledger, in any worker. Closing an hour again posts only the difference."""

    def __init__(self, database: Database, documents: Documents, ledger: LedgerBook) -> None:
        self._database = database
        self._documents = documents
        self._ledger = ledger

    def close(self, should_continue: ShouldContinue = always) -> int:
        """Close every past hour and adjust closed hours that received late rows; return the nano-dollars posted.

        `should_continue` is called between hours. Unavailable when it returns False or the store is down; the next
        round continues.
        """
        now = self._database.now_us()
        stored = self._documents.get(KIND, KEY)
        # A clock that ran ahead for a while has left a mark in the future.
        since = min(int(stored), now) - REPEAT_AFTER_US if stored else 0
        until = _end_of_closed(now)
        params = (since, until, since, until // HOUR_US)
        hours = set(self._database.report(partial(self._database.fetch, TOUCHED_HOURS, params)))
        compared = self._documents.get(KIND, COMPARED_KEY) is not None
        if not compared:
            hours.update(self._removed_unposted(until // HOUR_US))
        booked = self._close_hours(hours, now, should_continue)
        self._documents.put(KIND, KEY, str(now).encode(), FOREVER_S)
        if not compared:
            self._documents.put(KIND, COMPARED_KEY, b"", FOREVER_S)
        return booked

    def close_late(self, since_us: int, should_continue: ShouldContinue = always) -> int:
        """Adjust the closed hours in which the rollups found late rows since then, as `close` does in its next
        round."""
        now = self._database.now_us()
        params = (since_us, _end_of_closed(now) // HOUR_US)
        hours = self._database.report(partial(self._database.fetch, FOUND_LATE, params))
        return self._close_hours(hours, now, should_continue)

    def _close_hours(self, hours: Iterable[tuple[int]], now_us: int, should_continue: ShouldContinue) -> int:
        owners = {ident[-32:]: ident for (ident,) in self._database.read(self._select_owners)}
        numbers = sorted(int(hour) for (hour,) in hours)
        removed = self._sum_removed(numbers)
        late = self._sum_late(numbers, now_us)
        booked = 0
        for day, of_day in groupby(numbers, _day_of):
            listed = list(of_day)
            spending = self._sum_day(day, listed, late, removed)
            for hour in listed:
                if not should_continue():
                    raise Unavailable("The closing of hours was interrupted.")
                booked += self._close(hour, spending[hour], owners)
        return booked

    def _removed_unposted(self, end_hour: int) -> list[tuple[int]]:
        """Return hours before `end_hour` with removed rows that are missing in the ledger."""
        sql = self._database.exact_sums(hour_sums(self._database.kind) + HOURS_WITH_REMOVED_ROWS)
        return self._database.report(partial(self._database.fetch, sql, (end_hour,)))

    def _close(self, hour: int, spending: dict[str, tuple[int, int]], owners: dict[str, str]) -> int:
        name = datetime.fromtimestamp(hour * HOUR_US / SECOND_US, UTC).strftime("%Y-%m-%dT%H")
        return sum(
            [
                self._ledger.close_hour(owners[digits], name, spent, storage)
                for digits, (spent, storage) in spending.items()
                if digits in owners
            ]
        )

    def _sum_removed(self, hours: Sequence[int]) -> Spending:
        """Return what removed rows spent in these hours."""
        if not hours:
            return {}
        return _add_up(hours, self._fetch(REMOVED_SUMS, (hours[0], hours[-1] + 1)))

    def _sum_late(self, hours: Sequence[int], now_us: int) -> Spending:
        """Return what rows spent in these hours that were recorded more than REPEAT_AFTER_US after the end of their
        day."""
        if not hours:
            return {}
        at = (hours[0] * HOUR_US, (hours[-1] + 1) * HOUR_US)
        begin_us = (at[0] // DAY_US + 1) * DAY_US + REPEAT_AFTER_US
        found: list[HourSum] = []
        while begin_us < FOREVER_US:
            end_us = FOREVER_US
            if begin_us < now_us:
                end_us = begin_us + DAY_US
            found += self._fetch(CREDIT_SUMS, (begin_us, end_us, *at), LATE_ROWS)
            begin_us = end_us
        return _add_up(hours, found)

    def _sum_day(self, day: int, hours: Sequence[int], late: Spending, removed: Spending) -> Spending:
        """Return what was spent in these hours of a day, with late and removed rows. Unavailable if rows of these hours
        were removed since `removed` was read: the same row would count as late and as removed."""
        start_us = day * DAY_US
        end_us = start_us + DAY_US
        # A row is recorded after its attempt began, or slightly before when a fast clock was corrected in between.
        found = self._fetch(CREDIT_SUMS, (start_us - REPEAT_AFTER_US, end_us + REPEAT_AFTER_US, start_us, end_us))
        if self._sum_removed(hours) != {hour: removed[hour] for hour in hours}:
            raise Unavailable("Usage rows of the hours to be closed were removed meanwhile.")
        for sums in (late, removed):
            found += [HourSum(hour, owner, *nusd) for hour in hours for owner, nusd in sums[hour].items()]
        return _add_up(hours, found)

    def _fetch(self, sql: str, params: Sequence[int], late: str = "") -> list[HourSum]:
        organization = HEX[self._database.kind].format("organization")
        exact = self._database.exact_sums(sql.format(organization=organization, late=late))
        rows = self._database.report(partial(self._database.fetch, exact, params))
        return [HourSum(int(hour), owner, int(spent), int(storage)) for hour, owner, spent, storage in rows]

    def _select_owners(self) -> list[tuple[str]]:
        """Return the ids of all organizations that ever had credits; usage rows hold only the digits of an id."""
        return self._database.execute("SELECT scope_id FROM budget WHERE kind = 'credits'").fetchall()


def closed_until_us(database: Database) -> int:
    """Return the end of the closed hours; 0 before the first round. Takes part in an open transaction. Unavailable."""
    stored = Documents(database).get(KIND, KEY)
    if stored:
        return _end_of_closed(min(int(stored), database.now_us()))
    return 0


def _day_of(hour: int) -> int:
    return hour * HOUR_US // DAY_US


def _add_up(hours: Iterable[int], found: Iterable[HourSum]) -> Spending:
    """Return the sums of these hours; those of other hours are left out."""
    spending: Spending = {hour: {} for hour in hours}
    for hour, owner, spent, storage in found:
        if hour in spending:
            known = spending[hour].get(owner, (0, 0))
            spending[hour][owner] = (known[0] + spent, known[1] + storage)
    return spending


def _end_of_closed(now_us: int) -> int:
    """Return the end of the hours that a round at `now_us` closes."""
    return (now_us - GRACE_US) // HOUR_US * HOUR_US
