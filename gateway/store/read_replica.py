"""A read replica: a copy of the database that reports, statistics and the request log read.

It serves while it answers and repeats the primary's changes within `lag_s`; otherwise the primary does. No figure that
decides about money is read from it.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import peewee

from gateway.clock import SECOND_US, Clock
from gateway.errors import Unavailable
from gateway.runtime.state_changes import INFO, WARNING, StateChange, StateLog
from gateway.store.faults import Verdict, is_locked, judge
from gateway.store.pool import DRIVER_ERRORS

T = TypeVar("T")

SUBJECT = "database replica"
REMEDY = "check database.replica_url and the replication; meanwhile reports are read from the primary"
REPLICA_BACK = StateChange("replica.back", SUBJECT, "reports are read from the replica again", INFO)
LAG_CACHE_S = 2.0  # how long a measured lag counts
RETRY_AFTER_S = 5.0  # how long after a failure no query goes to the replica
# A replica repeats the locks of the primary's table changes and holds them while its replay is paused or behind.
LOCK_TIMEOUT_S = 2
RETRY_AFTER_LOCK_S = 30.0  # as RETRY_AFTER_S, after a query waited for a locked table
BOUND_LOCKS = f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"  # a session belongs to the pooler, if there is one
# The leader's row is renewed every two seconds, by the primary's clock: the age of its copy is the replica's lag.
HEARTBEAT = "SELECT COALESCE(MAX(expires_at), 0), {now} FROM leader"


class ReplicaBackend(Protocol):
    """The part of a backend that a replica needs."""

    @property
    def peewee(self) -> peewee.Database: ...
    def read(self, work: Callable[[], T], timeout_s: float | None) -> T: ...
    def report(self, work: Callable[[], T]) -> T: ...
    def moment_sql(self) -> str: ...
    def close(self) -> None: ...


class ReadReplica:
    """A replica of the database. `lag_s` is the highest acceptable lag, `term_us` the time for which the leader's row
    is renewed, `timeout_s` how long a measurement of the lag may take."""

    def __init__(
        self, backend: ReplicaBackend, lag_s: float, term_us: int, timeout_s: float, clock: Clock, states: StateLog
    ) -> None:
        self._backend = backend
        self.peewee = backend.peewee
        self._lag_s = lag_s
        self._term_us = term_us
        self._timeout_s = timeout_s
        self._clock = clock
        self._states = states
        self._asked_at = float("-inf")  # the end of the time for which the last decision counts
        self._usable = False
        self.measured_s: float | None = None

    def is_reading(self) -> bool:
        """Return whether the running greenlet is inside a report that the replica serves."""
        return not self.peewee.is_closed()

    def report(self, work: Callable[[], T], otherwise: Callable[[Callable[[], T]], T]) -> T:
        """Return the result of `work` from the replica, or that of `otherwise(work)` if the replica cannot serve it."""
        if not self.is_usable():
            return otherwise(work)
        try:
            return self._backend.report(partial(self._bound_locks, work))
        except Unavailable:  # every connection is busy
            return otherwise(work)
        except peewee.PeeweeException as error:
            # Not only a lost connection: a replica cancels queries that conflict with changes, and it may still lack a
            # new column. A fault of the query itself is repeated, and reported, by the primary.
            if is_locked(error):
                self._leave_locked()
            elif judge(error) is Verdict.AWAY:
                self._leave(error)
            return otherwise(work)

    def is_usable(self) -> bool:
        """Return whether reports should be read from the replica; measured at most every few seconds."""
        now = self._clock.monotonic()
        if now < self._asked_at:
            return self._usable
        self._asked_at = now + LAG_CACHE_S  # other greenlets do not wait for this measurement
        try:
            lag_s = self.measured_s = self.measure_lag_s()
        except (Unavailable, peewee.PeeweeException) as error:
            self._leave(error)
            return False
        self._usable = lag_s <= self._lag_s
        if self._usable:
            self._states.resolve(REPLICA_BACK)
        else:
            message = f"the database replica is {lag_s:.0f} s behind, more than database.replica_lag_s"
            self._states.fire(StateChange("replica.lags", SUBJECT, message, WARNING, REMEDY))
        return self._usable

    def measure_lag_s(self) -> float:
        """Return the age of the newest heartbeat that the replica has. Unavailable, or an error of the driver."""
        expires_us, now_us = self._backend.read(self._read_heartbeat, self._timeout_s)
        return max(0, now_us - (expires_us - self._term_us)) / SECOND_US

    def close(self) -> None:
        self._backend.close()

    def _read_heartbeat(self) -> tuple[int, int]:
        with DRIVER_ERRORS:
            row = self.peewee.execute_sql(HEARTBEAT.format(now=self._backend.moment_sql())).fetchone()
        return int(row[0]), int(row[1])

    def _bound_locks(self, work: Callable[[], T]) -> T:
        with self.peewee.transaction():
            self.peewee.execute_sql(BOUND_LOCKS)
            return work()

    def _leave(self, error: Exception) -> None:
        self._stop_asking(RETRY_AFTER_S)
        message = f"the database replica is unavailable: {str(error).strip()}"
        self._states.fire(StateChange("replica.away", SUBJECT, message, WARNING, REMEDY))

    def _leave_locked(self) -> None:
        self._stop_asking(RETRY_AFTER_LOCK_S)
        message = f"a report waited for {LOCK_TIMEOUT_S} s for a table that the database replica has locked"
        self._states.fire(StateChange("replica.locked", SUBJECT, message, WARNING, REMEDY))

    def _stop_asking(self, seconds: float) -> None:
        self._usable = False
        self.measured_s = None
        self._asked_at = self._clock.monotonic() + seconds
