"""Crash recovery: the intents of a dead worker become usage rows, then its budget leases are returned."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gateway.billing.session_budgets import forget_old
from gateway.billing.usage_rows import IntentDetails, interrupted, read_intent
from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.control.version import Control
from gateway.limits.lease_folding import charge, forget_returned, list_lost, return_leases
from gateway.limits.models import split_groups
from gateway.metering.rollups.rollup_table import read_state
from gateway.metering.route_usage import ROUTE, row_of_route
from gateway.metering.usage_table import RECORD, UsageRecord, known, write_groups
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.plurals import many, plural
from gateway.runtime.state_changes import ERROR, StateChange, StateLog
from gateway.store.database import Database
from gateway.store.intents import Intent, Orphan, orphans
from gateway.store.outage_journal import RETENTION_US, path_of, post_orphans

BATCH_SIZE = 200
EXPIRED = "compare the file with your providers' invoices, credit or charge the difference, and delete it"
CRASH_REMEDY = "see the log from before it ended; its open requests are recorded as interrupted"
LOST = "keep GATEWAY_DATA_DIR of each node across restarts: without it, requests in progress are lost from the records"

log = logging.getLogger(__name__)


class Recovery:
    """Settles the open attempts of dead workers. Every worker has one; a lock on each file lets one of them recover it.

    An attempt without a settlement is recorded as interrupted, at the estimated cost of its prompt (four bytes per
    token) and of the output that its intent records, never above its reservation. The files of a lost node cannot be
    read; its leases are returned once none of its requests can still be running.
    """

    def __init__(
        self,
        database: Database,
        directory: Path,
        control: Control,
        clock: Clock,
        max_request_s: float,
        states: StateLog | None = None,
    ) -> None:
        self._database = database
        self._directory = directory
        self._control = control
        self._clock = clock
        self._longest_us = round(max_request_s * SECOND_US)
        self._states = states or StateLog()

    def run(self) -> int:
        """Recover all files of dead workers; return the number of attempts recorded. Unavailable: the next run
        retries."""
        self._post_kept()
        count = 0
        for orphan in orphans(self._directory):
            # An answer may have ended with its record in the outage journal alone, and its intent still open.
            if path_of(self._directory, orphan.owner).exists():
                self._post_kept()
                if path_of(self._directory, orphan.owner).exists():
                    continue  # its owner is just ending; the next run recovers both
            count += self._replay(orphan)
            for epoch in sorted(orphan.epochs - {self._control.epoch}):
                return_leases(self._database, epoch, keep_rows=False)
            orphan.discard()
        return count

    def _post_kept(self) -> None:
        """Post what ended workers kept while the database was down."""
        count = post_orphans(self._database, self._directory, self._clock.now_us(), self._note_expired)
        if count:
            was = plural(count, "was", "were")
            message = f"{many(count, 'record')} that ended workers kept while the database was down {was} posted"
            facts: dict[str, object] = {"records": count}
            self._states.publish(StateChange("recovery.posted", "recovery", message, remedy=CRASH_REMEDY, facts=facts))

    def _note_expired(self, path: Path) -> None:
        message = f"records that waited for more than {RETENTION_US // DAY_US} days were not posted: {path}"
        self._states.publish(StateChange("recovery.expired", "recovery", message, ERROR, EXPIRED))

    def _replay(self, orphan: Orphan) -> int:
        intents = list(orphan.intents.values())
        count = 0
        for start in range(0, len(intents), BATCH_SIZE):
            part = intents[start : start + BATCH_SIZE]
            count += self._database.write(partial(self._record, part))
        if count:
            message = f"{count} interrupted attempts were recorded for a worker that ended"
            facts: dict[str, object] = {"attempts": count}
            self._states.publish(StateChange("recovery.done", "recovery", message, remedy=CRASH_REMEDY, facts=facts))
        return count

    def _record(self, intents: Sequence[Intent]) -> int:
        """Write rows and spending of the attempts that have none; one transaction."""
        now = self._clock.now_us()
        missing = self._select_missing(intents)
        costs: list[tuple[int, str, int]] = []
        count = 0
        for intent in sorted(missing):
            read = _read(intent, now)
            if read is None:
                continue
            details, record = read
            teams, groups = split_groups(budget for _, budget in details.leases if record.cost_nusd)
            # The store may still be committing a row of the dead process: this insert waits for it, and keeps that row.
            if not self._database.execute(RECORD.sql, (*record, teams)).rowcount:
                continue
            count += 1
            if ROUTE in record.details:
                statement, params = row_of_route((RECORD, (*record, teams)))
                self._database.execute(statement.sql, params)
            if record.cost_nusd:
                for statement, params in write_groups(record.request, record.attempt, groups):
                    self._database.execute(statement.sql, params)
                costs += [(lease, budget, record.cost_nusd) for lease, budget in details.leases]
        charge(self._database, costs)
        return count

    def _select_missing(self, intents: Sequence[Intent]) -> list[Intent]:
        """Return the intents without a row. Files may name calls that ended long ago: once usage rows of that age were
        removed, it is unknown whether they had one, so they are left out and nothing is billed twice."""
        state = read_state(self._database)
        purged = bytes.fromhex(state.purged) if state is not None else b""
        recent = [intent for intent in intents if intent.request >= purged]
        settled = known(self._database, [(intent.request, intent.attempt) for intent in recent])
        return [intent for intent in recent if (intent.request, intent.attempt) not in settled]

    def sweep_lost(self, should_continue: ShouldContinue = always) -> None:
        """Return what lost nodes leased, and forget old budgets of sessions. Unavailable: the next sweep retries."""
        for epoch in list_lost(self._database, self._longest_us):
            if not should_continue():
                return
            if epoch != self._control.epoch:
                return_leases(self._database, epoch, keep_rows=True, after_us=self._longest_us)
                message = f"budget leases of worker {epoch} on a lost node were returned"
                facts: dict[str, object] = {"worker": epoch}
                self._states.publish(StateChange("leases.swept", "leases", message, remedy=LOST, facts=facts))
        forget_returned(self._database)
        forget_old(self._database, should_continue)


def _read(intent: Intent, now_us: int) -> tuple[IntentDetails, UsageRecord] | None:
    """Return the details of an intent and its usage row, None where it cannot be read."""
    try:
        details = read_intent(intent.payload)
        return details, interrupted(details, intent.request, intent.attempt, now_us)
    except (ValueError, TypeError):
        log.error("an intent could not be parsed; its attempt has no usage record")
        return None
