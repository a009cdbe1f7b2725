"""The schedule of the installation's jobs (rollups, polling of videos, purges), which APScheduler runs in the leading
worker."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from gateway.clock import Clock
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute, pause, spawn
from gateway.runtime.ticks import RESTING_TICK_S, until_tick

# Only the leading worker needs it.
scheduling = LazyImport("apscheduler.schedulers.gevent")
POLL_INTERVAL_S = 0.02
# Jobs of at most this interval share one run of APScheduler a second: each run of it takes as much as a short job.
MAX_FREQUENT_INTERVAL_S = 5.0
TICK = "frequent jobs"


class ScheduledJob(NamedTuple):
    """A job by its name. It runs every `every_s` seconds, first after `delay_s`."""

    name: str
    every_s: float
    delay_s: float
    run: Callable[[], None]


class LeaderSchedule:
    """Starts and ends with this worker's leadership; safe to repeat. Missed runs count as one, and a long run delays
    the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduler: Any = None
        self._running: set[str] = set()
        self._frequent: list[ScheduledJob] = []
        self._tick_s = 1.0
        self._ticks = 0

    def start(self, make_jobs: Callable[[], Iterable[ScheduledJob]]) -> None:
        """Schedule the jobs, if they are not scheduled yet."""
        if self._scheduler is not None:
            return
        # The first use imports the package, which takes 30 ms: not in the event loop, which serves requests by now.
        scheduler = compute(getattr, scheduling, "GeventScheduler")(timezone="UTC")
        # Jobs wake the process only at its ticks.
        first = self._clock.now() + timedelta(seconds=until_tick(RESTING_TICK_S))
        jobs = list(make_jobs())
        self._frequent = [job for job in jobs if job.every_s <= MAX_FREQUENT_INTERVAL_S]
        planned = [job for job in jobs if job.every_s > MAX_FREQUENT_INTERVAL_S]
        if self._frequent:
            self._tick_s = min(1.0, *(job.every_s for job in self._frequent))
            planned.append(ScheduledJob(TICK, self._tick_s, 0.0, self._tick))
        for job in planned:
            scheduler.add_job(
                partial(self._run, job),
                "interval",
                id=job.name,
                seconds=job.every_s,
                start_date=first + timedelta(seconds=int(job.delay_s)),
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,
            )
        scheduler.start()
        self._scheduler = scheduler

    def end(self) -> None:
        """Start no further runs."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None

    def wait_until(self, end: float) -> None:
        """Wait for the runs in progress, at most until `end` on the monotonic clock."""
        while self._running and time.monotonic() < end:
            pause(POLL_INTERVAL_S)

    def _tick(self) -> None:
        """Start the frequent jobs that are due. A run that is due while the last one continues is left out."""
        self._ticks += 1
        for job in self._frequent:
            delay = round(job.delay_s / self._tick_s)
            due = (self._ticks - delay) % round(job.every_s / self._tick_s) == 0
            if due and job.name not in self._running:
                spawn(self._run, job)

    def _run(self, job: ScheduledJob) -> None:
        self._running.add(job.name)
        try:
            job.run()
        finally:
            self._running.discard(job.name)
