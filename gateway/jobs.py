"""Recurring work, done by the one worker that holds the leadership; every job is safe to repeat."""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gateway import errors
from gateway.clock import SECOND_US, Clock
from gateway.control import Control
from gateway.lazy_import import LazyImport
from gateway.services import Services
from gateway.store.database import Database
from gateway.threads import spawn

# Only the one worker that leads needs it.
scheduling = LazyImport("apscheduler.schedulers.gevent")

log = logging.getLogger(__name__)

# No job is in a hurry, and each beat of the leader is a commit.
BEAT_S = 2.0
TERM_S = 6.0
# A leader's first round comes soon, or work slower than the time between restarts would never be done.
FIRST_S = 10.0


@dataclass(frozen=True, slots=True)
class RecurringJob:
    """`function(services)` every `every_s` seconds; never twice at once, missed rounds count as one."""

    name: str
    every_s: float
    function: Callable[[Any], object]


class Jobs:
    """Runs the table while this worker leads. The leader row is fenced: taking it over raises its epoch, and a
    worker that lost it or cannot renew it stops its jobs before the row expires.
    """

    def __init__(
        self,
        database: Database,
        control: Control,
        clock: Clock,
        table: Sequence[RecurringJob],
        services: Any,
        name: str = "jobs",
    ) -> None:
        self._database, self._control, self._clock = database, control, clock
        self._table, self._services, self._name = {job.name: job for job in table}, services, name
        self._until = float("-inf")
        self.epoch = 0
        self._scheduler: Any = None
        self._stopping = threading.Event()
        self._task: Any = None

    def start(self) -> None:
        """Stand for leadership from now on."""
        self._stopping.clear()
        self._task = spawn(self._stand)

    def stop(self) -> None:
        """Stop the jobs and give the leadership to whoever wants it."""
        self._stopping.set()
        if self._task is not None:
            self._task.join(TERM_S)
            self._task = None
        if self._resign():
            self._release()

    def leading(self) -> bool:
        """Whether the row is surely held; a job of many steps asks before each."""
        return self._clock.monotonic() < self._until and self._control.epoch != 0

    def run(self, name: str) -> None:
        """Do one job now, whoever leads (operator commands). NotFound for an unknown name; its errors pass."""
        job = self._table.get(name)
        if job is None:
            raise errors.NotFound(f"There is no job {name}; known: {', '.join(self._table)}.")
        job.function(self._services)

    def _stand(self) -> None:
        while True:
            try:
                self._campaign()
            except errors.Unavailable:
                if not self.leading():
                    self._resign()
            if self._stopping.wait(BEAT_S):
                return

    def _campaign(self) -> None:
        start = self._clock.monotonic()
        held = self._database.write(self._hold) if self.epoch else False
        if not held:
            self._resign()
            held = self._database.read(self._is_vacant) and self._database.write(self._take)
        if held:
            self._until = start + TERM_S
            self._begin()

    def _hold(self) -> bool:
        sql = f"UPDATE leader SET expires_at = {self._end()} WHERE name = ? AND worker = ? AND epoch = ?"
        return bool(self._database.execute(sql, (self._name, self._control.epoch, self.epoch)).rowcount)

    def _is_vacant(self) -> bool:
        sql = f"SELECT 1 FROM leader WHERE name = ? AND expires_at > {self._database.moment_sql()}"
        return self._control.epoch != 0 and self._database.execute(sql, (self._name,)).fetchone() is None

    def _take(self) -> bool:
        """Take the row over where it has expired, under the next epoch."""
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
            self._database.write(lambda: self._database.execute(sql, params))
        except errors.Unavailable:
            log.info("the leadership expires by itself: the database is away")
        self.epoch = 0

    def _end(self) -> str:
        return f"{self._database.moment_sql()} + {round(TERM_S * SECOND_US)}"

    def _begin(self) -> None:
        if self._scheduler is not None:
            return
        self._scheduler = scheduling.GeventScheduler(timezone="UTC")
        for job in self._table.values():
            self._scheduler.add_job(
                self._run_led,
                "interval",
                args=(job,),
                id=job.name,
                seconds=job.every_s,
                next_run_time=self._clock.now() + timedelta(seconds=random.uniform(0, min(job.every_s, FIRST_S))),
                coalesce=True,
                max_instances=1,
                misfire_grace_time=max(1, round(job.every_s)),
            )
        self._scheduler.start()

    def _resign(self) -> bool:
        """Stop scheduling; whether there was anything to stop. A job under way ends by itself."""
        self._until = float("-inf")
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return False
        scheduler.shutdown(wait=False)
        return True

    def _run_led(self, job: RecurringJob) -> None:
        if not self.leading():
            return
        try:
            job.function(self._services)
        except errors.Unavailable as error:
            log.warning("the job %s is done another time: %s", job.name, error.message)


def _examine_books(services: Services) -> None:
    """Hours are closed first: until a late row is booked, a closed hour and its rows differ."""
    services.hours.close(lambda: not services.leaving)
    services.drift.measure()


TABLE = (RecurringJob("books", 600.0, _examine_books),)
