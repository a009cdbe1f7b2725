"""Gauges of the reconciliation: one worker measures what `doctor` finds at intervals, every worker reports it."""

from collections.abc import Sequence

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
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.runtime.threads import Job
from gateway.store.database import Database
from gateway.store.documents import Documents

KIND = "gauge"
KEY = "ledger_drift"
TTL_S = 24 * 3600
# Reading all usage rows takes long on a large installation: at most this share of the store's time is spent on it.
MAX_LOAD = 1 / 20
# The gauge compares this many hours of rollups; `doctor` compares all.
ROLLUP_HOURS = 48
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
            self._backoff_until = end + (end - start) / MAX_LOAD
        self._report(differences)
        nusd = sum(difference.nusd for difference in differences)
        self._documents.put(KIND, KEY, orjson.dumps((nusd, self._database.now_us())), TTL_S)

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
            message = f"the books differ in {len(confirmed)} places by {format_usd(nusd)} USD"
            facts: dict[str, object] = {"places": len(confirmed), "usd": format_usd(nusd)}
            self._states.fire(StateChange("books.differ", SUBJECT, message, ERROR, REMEDY, facts))
        elif not differences:
            self._states.resolve(StateChange("books.agree", SUBJECT, "the books agree again", INFO))

    def _examine(self, should_continue: ShouldContinue) -> list[Difference]:
        """Compare the books, with the rollups of recent days. Rows that were committed late, or by a slow clock, are
        no difference once the rollups include them, so rollups are brought up to date before a second comparison."""
        first = hour_of(self._database.now_us()) - ROLLUP_HOURS
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
        stored = documents.get(KIND, KEY)
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
