"""Closing of hours: posts to the ledger the credits that each organization spent in a past hour."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from gateway.billing.hour_sums import REMOVED, hour_sums
from gateway.clock import HOUR_US, SECOND_US
from gateway.errors import Unavailable
from gateway.limits.ledger import LedgerBook
from gateway.metering.models import CREDITS
from gateway.metering.rollups.row_sums import HEX
from gateway.store.database import Database
from gateway.store.documents import Documents

# Attempts that began in an hour may be recorded until this long after its end; later rows become adjustments.
GRACE_US = HOUR_US
# Rows recorded up to this long before the last round are read again: their hour may have been open then, and a node's
# clock may be slow. The rollups detect rows that a disconnected node commits even later, and mark their hour.
AGAIN_US = 3 * HOUR_US
KIND = "mark"
KEY = "closed_hours"
# Stored once all hours with removed rows have been compared with the ledger: early releases removed rows before they
# were posted.
COMPARED = "compared_removed_hours"
FOREVER_S = 100 * 366 * 86_400.0

SPENT = f"(mode = {CREDITS} OR storage_nusd IS NOT NULL)"
TOUCHED = f"""
SELECT at / {HOUR_US} FROM usage WHERE posted_at >= ? AND at < ? AND {SPENT}
UNION SELECT hour FROM rollup_hour WHERE late_at >= ? AND hour < ?
"""
# A row is recorded after its attempt began (or slightly before, when a fast clock was corrected in between), so the
# index on `posted_at` finds it. Removed rows of the hour are included: otherwise a late row would reverse their
# postings.
SUMS = f"""
SELECT owner, SUM(spent), SUM(storage) FROM (
    SELECT {{organization}} AS owner, CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END AS spent,
        COALESCE(storage_nusd, 0) AS storage
    FROM usage WHERE posted_at >= ? AND at >= ? AND at < ? AND {SPENT}
    UNION ALL SELECT owner, CASE WHEN kind = 'credits' THEN nusd ELSE 0 END,
        CASE WHEN kind = 'storage' THEN nusd ELSE 0 END
    FROM removed_spend WHERE hour = ? AND kind IN ('credits', 'storage')
) s GROUP BY owner
"""


class LedgerClose:
    """Closes the hours of the ledger, in any worker. Closing an hour again posts only the difference."""

    def __init__(self, database: Database, documents: Documents, ledger: LedgerBook) -> None:
        self._database = database
        self._documents = documents
        self._ledger = ledger

    def close(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Close every past hour and adjust closed hours that received late rows; return the nano-dollars posted.

        `go_on` is called between hours. Unavailable when it returns False or the store is down; the next round
        continues.
        """
        now = self._database.now_us()
        stored = self._documents.get(KIND, KEY)
        # A clock that ran ahead for a while has left a mark in the future.
        if stored:
            since = min(int(stored), now) - AGAIN_US
        else:
            since = 0
        until = _end_of_closed(now)
        params = (since, until, since, until // HOUR_US)
        hours = set(self._database.report(partial(self._database.fetch, TOUCHED, params)))
        compared = self._documents.get(KIND, COMPARED) is not None
        if not compared:
            hours.update(self._removed_unposted(until // HOUR_US))
        owners = {ident[-32:]: ident for (ident,) in self._database.read(self._select_owners)}
        booked = 0
        for (hour,) in sorted(hours):
            if not go_on():
                raise Unavailable("The closing of hours was interrupted.")
            booked += self._close(int(hour) * HOUR_US, owners)
        self._documents.put(KIND, KEY, str(now).encode(), FOREVER_S)
        if not compared:
            self._documents.put(KIND, COMPARED, b"", FOREVER_S)
        return booked

    def _removed_unposted(self, end_hour: int) -> list[tuple[int]]:
        """Return hours before `end_hour` with removed rows that are missing in the ledger."""
        sql = self._database.exact_sums(hour_sums(self._database.kind) + REMOVED)
        return self._database.report(partial(self._database.fetch, sql, (end_hour,)))

    def _close(self, start_us: int, owners: dict[str, str]) -> int:
        params = (start_us - AGAIN_US, start_us, start_us + HOUR_US, start_us // HOUR_US)
        organization = HEX[self._database.kind].format("organization")
        sql = self._database.exact_sums(SUMS.format(organization=organization))
        sums = self._database.report(partial(self._database.fetch, sql, params))
        name = datetime.fromtimestamp(start_us / SECOND_US, UTC).strftime("%Y-%m-%dT%H")
        return sum(
            [
                self._ledger.close_hour(owners[digits], name, int(spent), int(storage))
                for digits, spent, storage in sums
                if digits in owners
            ]
        )

    def _select_owners(self) -> list[tuple[str]]:
        """Return the ids of all organizations that ever had credits; usage rows hold only the digits of an id."""
        return self._database.execute("SELECT scope_id FROM budget WHERE kind = 'credits'").fetchall()


def closed_until_us(database: Database) -> int:
    """Return the end of the closed hours; 0 before the first round. Takes part in an open transaction. Unavailable."""
    stored = Documents(database).get(KIND, KEY)
    if stored:
        return _end_of_closed(min(int(stored), database.now_us()))
    return 0


def _end_of_closed(now_us: int) -> int:
    """Return the end of the hours that a round at `now_us` closes."""
    return (now_us - GRACE_US) // HOUR_US * HOUR_US
