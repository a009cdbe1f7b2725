"""Closing of hours: what each organization spent of its credits in a past hour is posted to the ledger."""

from collections.abc import Callable
from datetime import UTC, datetime

from gateway.billing.hour_sums import REMOVED, hour_sums
from gateway.clock import HOUR_US, SECOND_US
from gateway.errors import Unavailable
from gateway.limits.ledger import LedgerBook
from gateway.metering.models import CREDITS
from gateway.metering.rollups.row_sums import HEX
from gateway.store.database import Database
from gateway.store.documents import Documents

# Attempts that began in an hour may be recorded so long after its end; what comes later still is an adjustment.
GRACE_US = HOUR_US
# Rows recorded so long before the last round are looked at again: their hour may have been open then, and a node's
# clock may be slow. What waited for longer, on a node that was cut off, the rollups notice and mark its hour.
AGAIN_US = 3 * HOUR_US
KIND = "mark"
KEY = "closed_hours"
# Stored when hours of which rows were removed have been compared with the ledger once: earlier releases removed rows
# before they were posted.
COMPARED = "compared_removed_hours"
FOREVER_S = 100 * 366 * 86_400.0

SPENT = f"(mode = {CREDITS} OR storage_nusd IS NOT NULL)"
TOUCHED = f"""
SELECT at / {HOUR_US} FROM usage WHERE posted_at >= ? AND at < ? AND {SPENT}
UNION SELECT hour FROM rollup_hour WHERE late_at >= ? AND hour < ?
"""
# No row is recorded long before its attempt began (a little, where a clock that was ahead was set right between the
# two), so the index of `posted_at` finds them. What was removed of an hour's rows counts too: a late row must not book
# it back.
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
    """Closes the hours of the ledger, in any worker; closing an hour again books only what is new of it."""

    def __init__(self, database: Database, documents: Documents, ledger: LedgerBook) -> None:
        self._database = database
        self._documents = documents
        self._ledger = ledger

    def close(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Close every hour that is over, and correct closed ones of which rows came later; nano-dollars that were
        booked now. Between two hours `go_on` is asked. Unavailable when it says no, or the
        store is away: the next round does the rest."""
        now = self._database.now_us()
        stored = self._documents.get(KIND, KEY)
        # A clock that ran ahead for a while has left a mark that is still to come.
        if stored:
            since = min(int(stored), now) - AGAIN_US
        else:
            since = 0
        until = _end_of_closed(now)
        params = (since, until, since, until // HOUR_US)
        found = self._database.report(lambda: self._database.execute(TOUCHED, params).fetchall())
        compared = self._documents.get(KIND, COMPARED) is not None
        if not compared:
            found = {*found, *self._removed_unposted(until // HOUR_US)}
        owners = {ident[-32:]: ident for (ident,) in self._database.read(self._select_owners)}
        booked = 0
        for (hour,) in sorted(found):
            if not go_on():
                raise Unavailable("The closing of hours was interrupted.")
            booked += self._close(int(hour) * HOUR_US, owners)
        self._documents.put(KIND, KEY, str(now).encode(), FOREVER_S)
        if not compared:
            self._documents.put(KIND, COMPARED, b"", FOREVER_S)
        return booked

    def _removed_unposted(self, end_hour: int) -> list[tuple[int]]:
        """Hours before `end_hour` of which rows were removed, and of which the ledger has not what they spent."""
        sql = self._database.exact_sums(hour_sums(self._database.kind) + REMOVED)
        return self._database.report(lambda: self._database.execute(sql, (end_hour,)).fetchall())

    def _close(self, start_us: int, owners: dict[str, str]) -> int:
        params = (start_us - AGAIN_US, start_us, start_us + HOUR_US, start_us // HOUR_US)
        organization = HEX[self._database.kind].format("organization")
        sql = self._database.exact_sums(SUMS.format(organization=organization))
        sums = self._database.report(lambda: self._database.execute(sql, params).fetchall())
        name = datetime.fromtimestamp(start_us / SECOND_US, UTC).strftime("%Y-%m-%dT%H")
        return sum(
            [
                self._ledger.close_hour(owners[digits], name, int(spent), int(storage))
                for digits, spent, storage in sums
                if digits in owners
            ]
        )

    def _select_owners(self) -> list[tuple[str]]:
        """Whoever ever had credits: usage rows have the digits of an id only."""
        return self._database.execute("SELECT scope_id FROM budget WHERE kind = 'credits'").fetchall()


def closed_until_us(database: Database) -> int:
    """Before when every hour is closed; 0 before the first round. Inside a read it is part of that. Unavailable."""
    stored = Documents(database).get(KIND, KEY)
    if stored:
        return _end_of_closed(min(int(stored), database.now_us()))
    return 0


def _end_of_closed(now_us: int) -> int:
    """The end of the hours that a round at this moment closes."""
    return (now_us - GRACE_US) // HOUR_US * HOUR_US
