"""Leadership: a fenced lease in the database that decides which worker runs the installation's jobs."""

import logging
import threading
from functools import partial
from typing import Any

from gateway import errors
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control
from gateway.runtime.loop_turns import until_tick
from gateway.runtime.threads import spawn
from gateway.store.database import Database

log = logging.getLogger(__name__)

# No job is urgent, and each renewal by the leader is a commit.
RENEWAL_INTERVAL_S = 2.0
TERM_DURATION_S = 6.0


class Leadership:
    """A worker's candidacy for leadership, for as long as it runs.

    Taking over the row raises its epoch; a worker that lost the row or cannot renew it stops leading before the row
    expires. The loop is separate from the table of recurring jobs, which depends on it.
    """

    def __init__(self, database: Database, control: Control, clock: Clock, name: str = "jobs") -> None:
        self._database = database
        self._control = control
        self._clock = clock
        self._name = name
        self._until = float("-inf")
        self.epoch = 0
        self._stopping = threading.Event()
        self._task: Any = None

    def start(self) -> None:
        """Start to stand for leadership."""
        self._stopping.clear()
        self._task = spawn(self._run_campaigns)

    def stop(self) -> None:
        """Release the leadership; safe to repeat."""
        self._stopping.set()
        if self._task is not None:
            self._task.join(TERM_DURATION_S)
            self._task = None
        if self.leading():
            self._until = float("-inf")
            self._release()

    def leading(self) -> bool:
        """Return whether this worker certainly holds the row."""
        return self._clock.monotonic() < self._until and self._control.epoch != 0

    def campaign(self) -> None:
        """Renew the row, or take it if it has expired. Raise Unavailable."""
        start = self._clock.monotonic()
        held = self._database.write(self._hold) if self.epoch else False
        if not held:
            self._until = float("-inf")
            held = self._database.read(self._is_vacant) and self._database.write(self._take)
        if held:
            self._until = start + TERM_DURATION_S

    def _run_campaigns(self) -> None:
        while True:
            try:
                self.campaign()
            except errors.Unavailable:
                pass  # the lease expires, and `leading` returns False
            except Exception:  # without this loop the installation's jobs would stop until a restart
                log.exception("the leadership could not be renewed")
            if self._stopping.wait(until_tick(RENEWAL_INTERVAL_S)):
                return

    def _hold(self) -> bool:
        sql = f"UPDATE leader SET expires_at = {self._end()} WHERE name = ? AND worker = ? AND epoch = ?"
        return bool(self._database.execute(sql, (self._name, self._control.epoch, self.epoch)).rowcount)

    def _is_vacant(self) -> bool:
        sql = f"SELECT 1 FROM leader WHERE name = ? AND expires_at > {self._database.moment_sql()}"
        return self._control.epoch != 0 and self._database.execute(sql, (self._name,)).fetchone() is None

    def _take(self) -> bool:
        """Take the row if it has expired, under the next epoch."""
        run = self._database.execute
        taken = run(
            f"INSERT INTO leader (name, worker, epoch, expires_at) VALUES (?, ?, 1, {self._end()}) "
            "ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, epoch = leader.epoch + 1, "
            f"expires_at = excluded.expires_at WHERE leader.expires_at <= {self._database.moment_sql()}",
            (self._name, self._control.epoch),
        )
        if not taken.rowcount:
            return False
        self.epoch = run("SELECT epoch FROM leader WHERE name = ?", (self._name,)).fetchone()[0]
        return True

    def _release(self) -> None:
        sql = "UPDATE leader SET expires_at = 0 WHERE name = ? AND worker = ? AND epoch = ?"
        params = (self._name, self._control.epoch, self.epoch)
        try:
            self._database.write(partial(self._database.execute, sql, params))
        except errors.Unavailable:
            log.info("the leadership will expire: the database is unavailable")
        self.epoch = 0

    def _end(self) -> str:
        return f"{self._database.moment_sql()} + {round(TERM_DURATION_S * SECOND_US)}"
