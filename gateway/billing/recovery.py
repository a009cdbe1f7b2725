"""Crash recovery: the intents of a dead worker become usage rows, then its budget leases are returned."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gateway.billing.usage_rows import IntentDetails, interrupted, read_intent
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control
from gateway.limits.lease_sweep import charge, forget_returned, give_up, list_lost
from gateway.limits.models import team_of
from gateway.metering.rollups.rollup_table import read_state
from gateway.metering.usage_table import RECORD, UsageRecord, known, write_teams
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.store.database import Database
from gateway.store.intents import Intent, Orphan, orphans

AT_ONCE = 200
DIED = "see the log around its end; those requests are in the usage as interrupted"
LOST = "keep GATEWAY_DATA_DIR of a node over restarts: without it requests under way then have no rows"

log = logging.getLogger(__name__)


class Recovery:
    """Settles what dead workers left, one object per worker; the lock of each file lets one of them do it.

    An attempt without a settlement is recorded as interrupted, at what reading its prompt cost by estimate (four bytes
    a token), never above its reservation; nothing is billed for an answer that reached nobody. Leases of a lost node,
    whose files are out of reach, go back once no request of it can be running any more.
    """

    def __init__(
        self,
        database: Database,
        directory: Path,
        control: Control,
        clock: Clock,
        longest_request_s: float,
        states: StateLog | None = None,
    ) -> None:
        self._database = database
        self._directory = directory
        self._control = control
        self._clock = clock
        self._longest_us = round(longest_request_s * SECOND_US)
        self._states = states or StateLog()

    def run(self) -> int:
        """Recover what can be recovered now; how many attempts became rows. Unavailable: it is done the next time."""
        count = 0
        for orphan in orphans(self._directory):
            count += self._replay(orphan)
            for epoch in sorted(orphan.epochs - {self._control.epoch}):
                give_up(self._database, epoch, keep_rows=False)
            orphan.discard()
        return count

    def _replay(self, orphan: Orphan) -> int:
        intents = list(orphan.intents.values())
        count = 0
        for start in range(0, len(intents), AT_ONCE):
            part = intents[start : start + AT_ONCE]
            count += self._database.write(partial(self._record, part))
        if count:
            message = f"{count} interrupted attempts were recorded for a worker that ended"
            facts: dict[str, object] = {"attempts": count}
            self._states.publish(StateChange("recovery.done", "recovery", message, remedy=DIED, facts=facts))
        return count

    def _record(self, intents: Sequence[Intent]) -> int:
        """Rows and spends of the attempts that have none, all or none."""
        now = self._clock.now_us()
        missing = self._select_missing(intents)
        costs: list[tuple[int, str, int]] = []
        count = 0
        for intent in sorted(missing):
            found = _read(intent.payload)
            if found is None:
                continue
            record = interrupted(found, intent.request, intent.attempt, now)
            # A server may still be at the commit of who died: it is waited for here, and if it came the row stands.
            if not self._database.execute(RECORD.sql, record).rowcount:
                continue
            count += 1
            if record.cost_nusd:
                self._write_teams(record, found)
                costs += [(lease, budget, record.cost_nusd) for lease, budget in found.leases]
        charge(self._database, costs)
        return count

    def _select_missing(self, intents: Sequence[Intent]) -> list[Intent]:
        """Those without a row. Files name calls that ended long ago too: where usage rows were removed nobody can tell
        any more, and nothing is billed twice."""
        state = read_state(self._database)
        if state is not None:
            purged = bytes.fromhex(state.purged)
        else:
            purged = b""
        recent = [intent for intent in intents if intent.request >= purged]
        settled = known(self._database, [(intent.request, intent.attempt) for intent in recent])
        return [intent for intent in recent if (intent.request, intent.attempt) not in settled]

    def _write_teams(self, record: UsageRecord, intent: IntentDetails) -> None:
        paying = filter(None, (team_of(budget) for _, budget in intent.leases))
        for statement, params in write_teams(record.request, record.attempt, paying):
            self._database.execute(statement.sql, params)

    def sweep_lost(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Give back what lost nodes leased. Unavailable: it is done the next time."""
        for epoch in list_lost(self._database, self._longest_us):
            if not go_on():
                return
            if epoch != self._control.epoch:
                give_up(self._database, epoch, keep_rows=True, after_us=self._longest_us)
                message = f"what worker {epoch} of a lost node had leased of budgets went back"
                facts: dict[str, object] = {"worker": epoch}
                self._states.publish(StateChange("leases.swept", "leases", message, remedy=LOST, facts=facts))
        forget_returned(self._database)


def _read(payload: bytes) -> IntentDetails | None:
    try:
        return read_intent(payload)
    except (ValueError, TypeError):
        log.error("an intent could not be read; the attempt behind it has no record")
        return None
