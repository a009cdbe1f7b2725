"""Gauges of the reconciliation: what `doctor` finds, measured by one worker now and then, reported by every one."""

from collections.abc import Callable

import orjson

from gateway.billing.reconciliation import Difference, examine
from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import ROWS
from gateway.metering.rollups.rollup_table import hour_of
from gateway.money import NANO, format_usd
from gateway.runtime.state_changes import ERROR, INFO, StateChange, StateLog
from gateway.runtime.threads import Job
from gateway.store.database import Database
from gateway.store.documents import Documents

KIND = "gauge"
KEY = "ledger_drift"
TTL_S = 24 * 3600
# Reading all usage rows takes time where there are many: at most this share of the store's day goes into it.
SHARE = 1 / 20
# So many hours of rollups are compared; `doctor` compares all.
ROLLUP_HOURS = 48
READ_S = 0.5  # the longest that a scrape waits for the store

SUBJECT = "books"
REMEDY = f"run {MANAGE} doctor and keep the database as it is until the cause is known"


class ReconciliationGauge:
    """`measure` is for the one worker that leads; what it found is a document, so that any worker can tell it."""

    def __init__(
        self, database: Database, documents: Documents, clock: Clock, rollups: Rollups, states: StateLog | None = None
    ) -> None:
        self._database = database
        self._documents = documents
        self._clock = clock
        self._rollups = rollups
        self._backoff_until = float("-inf")
        self._states = states or StateLog()

    def measure(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Examine the books and keep by how much they differ. Does nothing while the last examination, for how long it
        took, is too recent. Unavailable when the store is away, or when `go_on` says no,
        which is asked before each question to the store."""
        start = self._clock.monotonic()
        if start < self._backoff_until:
            return
        try:
            found = self._examine(go_on)
        finally:
            end = self._clock.monotonic()
            self._backoff_until = end + (end - start) / SHARE
        nusd = sum(one.nusd for one in found)
        if found:
            message = f"the books differ in {len(found)} places by {format_usd(nusd)} USD"
            facts: dict[str, object] = {"places": len(found), "usd": format_usd(nusd)}
            self._states.fire(StateChange("books.differ", SUBJECT, message, ERROR, REMEDY, facts))
        else:
            self._states.resolve(StateChange("books.agree", SUBJECT, "the books agree again", INFO))
        self._documents.put(KIND, KEY, orjson.dumps((nusd, self._database.now_us())), TTL_S)

    def _examine(self, go_on: Callable[[], bool]) -> list[Difference]:
        """Of rollups the last days: `doctor` compares them all. A row that was committed late, or by a slow clock, is
        no difference once the rollups know of it."""
        first = hour_of(self._database.now_us()) - ROLLUP_HOURS
        found = examine(self._database, go_on, first)
        if not any(one.right.startswith(ROWS) for one in found):
            return found
        self._rollups.advance(go_on, thorough=True)
        return examine(self._database, go_on, first)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Name → (help text, value): what was measured within a day, and how far the rollups are behind; {} when the
        store is away."""
        try:
            outcome = Job(_attempt, self._documents, self._database, self._rollups).result(READ_S)
        except TimeoutError:
            outcome = None
        if outcome is None:
            return {}
        found: dict[str, tuple[str, float]] = {}
        stored, watermark_us, now_us = outcome
        if watermark_us is not None:
            found["rollups_filling"] = ("1 while statistics are made of the rows of before.", float(not watermark_us))
        if watermark_us:
            lag = max(0, now_us - watermark_us) / SECOND_US
            found["rollups_lag_seconds"] = ("How far statistics are behind what was posted.", lag)
        if stored is not None:
            nusd, at_us = stored
            found["ledger_drift_usd"] = ("By how much the books differed when they were last examined.", nusd / NANO)
            age = max(0, now_us - at_us) / SECOND_US
            found["ledger_drift_age_seconds"] = ("Time since that examination.", age)
        return found


def _attempt(
    documents: Documents, database: Database, rollups: Rollups
) -> tuple[list[int] | None, int | None, int] | None:
    """What was measured last, up to when usage is summed up (0: what was there before is not yet), and the store's
    time; None for an error, which would be printed on leaving a greenlet."""
    try:
        stored = documents.get(KIND, KEY)
        state = rollups.state()
        if state is None:
            done = None
        else:
            done = 0 if state.filling else state.watermark
        return (orjson.loads(stored) if stored else None, done, database.now_us())
    except GatewayError:
        return None
