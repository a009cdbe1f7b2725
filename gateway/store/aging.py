"""Deletes old requests from tables: whole partitions where the table has them, small steps otherwise."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.clock import DAY_US
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.partitions import Partitions, id_at

STEP_ROWS = 1_000
# Bound of the steps of one round; the next round continues.
ROUND_STEPS = 500
PAUSE_S = 0.02
WEEKS_FROM_DAYS = 60  # tables with a longer retention have partitions of a week, others of a day


class AgingTables:
    """Tables keyed by request id, from table name to primary key, deleted from in the given order after `keep_days`.

    `keep_days` None keeps rows for ever. `step(oldest)` deletes some rows of requests before `oldest` within an open
    transaction and returns how many; fewer than STEP_ROWS means that none are left.
    """

    def __init__(
        self,
        database: Database,
        tables: Mapping[str, Sequence[str]],
        keep_days: int | None,
        step: Callable[[bytes], int],
    ) -> None:
        width_us = (7 if keep_days is None or keep_days > WEEKS_FROM_DAYS else 1) * DAY_US
        self._database = database
        self._keep_days = keep_days
        self._step = step
        self.partitions = [Partitions(database, table, keys, width_us) for table, keys in tables.items()]

    def purge(self, now_us: int, should_continue: ShouldContinue = always) -> int:
        """Run one round: prepare partitions, drop old ones, and delete the remaining rows; returns how many of these.

        Safe to repeat. Unavailable: the next round does it.
        """
        for partitions in self.partitions:
            partitions.keep_ready(should_continue)
        if self._keep_days is None:
            return 0
        oldest = id_at(now_us - self._keep_days * DAY_US)
        deleted = 0
        for partitions in self.partitions:
            self._drop(partitions, oldest, should_continue)
        minimum = self._minimum(oldest)
        for _ in range(ROUND_STEPS):
            if not should_continue():
                break
            count = self._database.write(partial(self._step, minimum))
            deleted += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return deleted

    def _minimum(self, oldest: bytes) -> bytes:
        """Return the id before which rows are deleted singly; rows of an ordinary partition wait for its end."""
        ranges = self.partitions[0].ranges()
        extra = [part.high for part in ranges if part.high is not None and part.name.endswith(("_first", "_past"))]
        if extra or not ranges:
            return min([oldest, *extra])
        return b""

    def _drop(self, partitions: Partitions, oldest: bytes, should_continue: ShouldContinue) -> None:
        for partition in partitions.ended(oldest):
            if not should_continue():
                return
            self._database.write(partial(partitions.drop, partition), patient=True)
