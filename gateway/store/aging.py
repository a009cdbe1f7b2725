"""Old ranges of tables of requests: dropped whole where they lie in partitions, deleted in small steps where not."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.clock import DAY_US
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.partitions import Partitions, id_at

STEP_ROWS = 1_000
# A round ends after so many steps; the next one goes on.
ROUND_STEPS = 500
PAUSE_S = 0.02
WEEKS_FROM_DAYS = 60  # what is kept for longer lies in partitions of a week, else of a day

GoOn = Callable[[], bool]


class AgingTables:
    """Tables by the request id whose rows go after `keep_days` (None: never), in the order in which they are given:
    table to primary key. `step(oldest)` deletes some rows of requests before `oldest`, within an open transaction, and
    says how many; fewer than STEP_ROWS: no more are there."""

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

    def purge(self, now_us: int, go_on: GoOn = lambda: True) -> int:
        """One round: partitions are kept ready, old ones are dropped, what is left goes row by row; how many of these.
        Safe to repeat. Unavailable: the next round does it."""
        for partitions in self.partitions:
            partitions.keep_ready(go_on)
        if self._keep_days is None:
            return 0
        oldest = id_at(now_us - self._keep_days * DAY_US)
        gone = 0
        for partitions in self.partitions:
            self._drop(partitions, oldest, go_on)
        least = self._least(oldest)
        for _ in range(ROUND_STEPS):
            if go_on():
                count = self._database.write(lambda: self._step(least))
            else:
                count = 0
            gone += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return gone

    def _least(self, oldest: bytes) -> bytes:
        """Up to where rows go one by one: those of an ordinary partition wait for its end."""
        ranges = self.partitions[0].ranges()
        apart = [one.high for one in ranges if one.high is not None and one.name.endswith(("_first", "_past"))]
        if apart or not ranges:
            return min([oldest, *apart])
        return b""

    def _drop(self, partitions: Partitions, oldest: bytes, go_on: GoOn) -> None:
        for one in partitions.ended(oldest):
            if not go_on():
                return
            self._database.write(partial(partitions.drop, one), patient=True)
