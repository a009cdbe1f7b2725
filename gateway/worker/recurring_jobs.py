"""Recurring work: the one table of it, and what runs the table in each worker.

Loops that are not here are the clocks that this work depends on (the worker's own row and the control version in
`control`, the leader's row in `leadership`), the commits of the journal, and what watches the server itself.
"""

import fcntl
import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from gateway import errors
from gateway.clock import DAY_US, Clock
from gateway.control.leadership import Leadership
from gateway.oauth.client_documents import KIND as CLIENT_DOCUMENTS
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import pause, spawn
from gateway.store.documents import Documents
from gateway.store.journal import forget_writers
from gateway.worker.services import Services

# Only the one worker that leads needs it.
scheduling = LazyImport("apscheduler.schedulers.gevent")

log = logging.getLogger(__name__)

# The first round comes soon, or work slower than the time between restarts would never be done.
FIRST_S = 10.0
# How soon a worker that leads begins with the work of the installation, and one that leads no more ends it.
FOLLOW_S = 0.5
# How long a worker that leaves waits for the rounds in progress.
STOP_S = 5.0
POLL_S = 0.02
WRITERS_KEPT_US = 7 * DAY_US
# Reports of rarer work are published to the other processes, in documents.
RARE_S = 15.0
KIND = "job"
REPORT_KEPT_S = 30 * 86_400.0

GoOn = Callable[[], bool]


class Scope(Enum):
    """Who does a job: every worker, one worker of each node, or one worker of the installation, its leader."""

    WORKER = "worker"
    NODE = "node"
    INSTALLATION = "installation"


@dataclass(frozen=True, slots=True)
class RecurringJob:
    """`function(services, go_on)` every `every_s` seconds, never twice at once in a worker, safe to repeat. Work of
    many steps asks `go_on` between them: it turns False when the worker leaves or somebody else has the job now."""

    name: str
    every_s: float
    scope: Scope
    function: Callable[[Any, GoOn], object]
    first_s: float = FIRST_S  # the first round comes within that time


@dataclass(slots=True)
class JobReport:
    """How the last round went; `error` is "" after a good one, `at_us` 0 before the first. `good_us` is when the last
    good one ended, 0: none did."""

    name: str
    at_us: int = 0
    seconds: float = 0.0
    error: str = ""
    good_us: int = 0


class NodeLock:
    """Held by one process of a node; the kernel drops it when that one dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def held(self) -> bool:
        """Whether this process has the lock, which it takes where it is free."""
        if self._handle >= 0:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        handle = self._handle
        self._handle = -1
        if handle >= 0:
            os.close(handle)


class Background:
    """Runs a table: a greenlet for each job of a worker or a node, APScheduler for those of the installation while this
    worker leads. Before each round it is asked whether the job is this worker's."""

    def __init__(
        self,
        table: Sequence[RecurringJob],
        services: Any,
        leadership: Leadership,
        node_lock: NodeLock,
        clock: Clock,
        documents: Documents,
    ) -> None:
        self._table = {job.name: job for job in table}
        self._services = services
        self.leadership = leadership
        self._node_lock = node_lock
        self._clock = clock
        self._documents = documents
        self._reports = {job.name: JobReport(job.name) for job in table}
        self._stopping = threading.Event()
        self._tasks: list[Any] = []
        self._led = 0  # rounds of the installation's work in progress

    def start(self) -> None:
        """Run the table from now on."""
        self._stopping.clear()
        self.leadership.start()
        own = [job for job in self._table.values() if job.scope is not Scope.INSTALLATION]
        self._tasks = [spawn(self._follow), *(spawn(self._repeat, job) for job in own)]

    def stop(self) -> None:
        """Begin no round any more, wait a moment for those in progress, and leave what this worker led to others."""
        self._stopping.set()
        end = self._clock.monotonic() + STOP_S
        for task in self._tasks:
            task.join(max(0.0, end - self._clock.monotonic()))
        self._tasks = []
        while self._led and self._clock.monotonic() < end:
            pause(POLL_S)
        self.leadership.stop()
        self._node_lock.release()

    def run(self, name: str) -> JobReport:
        """Do one job of a node or the installation now, whoever else does it (operator commands), and tell how it went.
        NotFound for an unknown name, InvalidRequest for work that each worker does for itself; its errors pass."""
        job = self._table.get(name)
        if job is None:
            raise errors.NotFound(f"There is no job {name}; known: {', '.join(self._table)}.")
        if job.scope is Scope.WORKER:
            raise errors.InvalidRequest(f"{name} is done by each worker for itself; nobody else can do it.")
        start = self._clock.monotonic()
        job.function(self._services, lambda: not self._stopping.is_set())
        now_us = self._clock.now_us()
        report = JobReport(name, now_us, self._clock.monotonic() - start, "", now_us)
        self._publish(report)
        return report

    def reports(self) -> list[JobReport]:
        """How the last round of each job went in this worker."""
        return list(self._reports.values())

    def is_ours(self, job: RecurringJob) -> bool:
        """Whether this worker does the job at this moment."""
        if self._stopping.is_set():
            return False
        if job.scope is Scope.NODE:
            return self._node_lock.held()
        return job.scope is Scope.WORKER or self.leadership.leading()

    def _repeat(self, job: RecurringJob) -> None:
        wait_s = random.uniform(0, min(job.every_s, job.first_s))
        while not self._stopping.wait(wait_s):
            wait_s = job.every_s
            try:
                if self.is_ours(job):
                    self._round(job)
            except Exception:  # Without its loop a job would stand still until a restart.
                log.exception("the job %s could not be run", job.name)

    def _follow(self) -> None:
        """Schedule the work of the installation as long as this worker leads."""
        scheduler: Any = None
        while not self._stopping.wait(FOLLOW_S):
            leading = self.leadership.leading()
            if leading and scheduler is None:
                scheduler = self._schedule()
            elif scheduler is not None and not leading:
                scheduler.shutdown(wait=False)
                scheduler = None
        if scheduler is not None:
            scheduler.shutdown(wait=False)

    def _schedule(self) -> Any:
        """A running scheduler. Missed rounds count as one, and a long round delays the next."""
        scheduler = scheduling.GeventScheduler(timezone="UTC")
        for job in self._table.values():
            if job.scope is Scope.INSTALLATION:
                scheduler.add_job(
                    self._lead,
                    "interval",
                    args=(job,),
                    id=job.name,
                    seconds=job.every_s,
                    next_run_time=self._clock.now()
                    + timedelta(seconds=random.uniform(0, min(job.every_s, job.first_s))),
                    coalesce=True,
                    max_instances=1,
                    misfire_grace_time=None,
                )
        scheduler.start()
        return scheduler

    def _lead(self, job: RecurringJob) -> None:
        self._led += 1
        try:
            if self.is_ours(job):
                self._round(job)
        finally:
            self._led -= 1

    def _round(self, job: RecurringJob) -> None:
        """One round and its report. A trouble that lasts is logged once."""
        last = self._reports[job.name]
        start = self._clock.monotonic()
        error = ""
        before = last.error
        try:
            job.function(self._services, lambda: self.is_ours(job))
        except errors.Unavailable as trouble:
            error = trouble.message
            if error != before:
                log.warning("the job %s is done another time: %s", job.name, error)
        except Exception as trouble:  # A mistake in one job must not end it for good, nor another one.
            error = type(trouble).__name__
            if error != before:
                log.exception("the job %s failed", job.name)
        now_us = self._clock.now_us()
        report = JobReport(job.name, now_us, self._clock.monotonic() - start, error, last.good_us if error else now_us)
        self._reports[job.name] = report
        if is_published(job):
            self._publish(report)

    def _publish(self, report: JobReport) -> None:
        try:
            if not report.good_us:  # of the one who did it before
                known = read_report(self._documents, report.name)
                report.good_us = known.good_us if known else 0
            self._documents.put(KIND, report.name, orjson.dumps(report), REPORT_KEPT_S)
        except errors.Unavailable:
            return  # The next round publishes it.


def is_published(job: RecurringJob) -> bool:
    """Whether all processes can read how its last round went."""
    return job.every_s >= RARE_S and job.scope is not Scope.WORKER


def read_reports(documents: Documents) -> dict[str, JobReport]:
    """The last rounds of the jobs of the table, whoever did them; those that none did are not in it. Unavailable."""
    found = {job.name: read_report(documents, job.name) for job in TABLE if is_published(job)}
    return {name: report for name, report in found.items() if report is not None}


def read_report(documents: Documents, name: str) -> JobReport | None:
    """The last round of a rare job of the installation, whoever did it; None before the first. Unavailable."""
    stored = documents.get(KIND, name)
    if stored:
        return JobReport(**orjson.loads(stored))
    return None


def make_background(services: Services) -> Background:
    """The table of the product over what a worker has."""
    leadership = Leadership(services.store.database, services.store.control, services.clock)
    lock = NodeLock(Path(services.settings.database.data_dir) / "background.lock")
    return Background(TABLE, services, leadership, lock, services.clock, services.store.documents)


def _examine_books(services: Services, go_on: GoOn) -> None:
    """Rows are summed up and hours closed first: until a late row is booked, a closed hour and its rows differ."""
    services.billing.rollups.advance(go_on)
    services.billing.ledger_close.close(go_on)
    services.billing.reconciliation_gauge.measure(go_on)


def _watch_models(services: Services, go_on: GoOn) -> None:
    """Models in use that end soon."""
    services.telemetry.model_watch.look(services.routing.health, services.routing.catalogue.current())


def _report_presence(services: Services, go_on: GoOn) -> None:
    """What this worker is and serves."""
    services.telemetry.presence.report(services.routing.catalogue.current(), services.routing.health)


def _forget_journals(services: Services, go_on: GoOn) -> None:
    """The marks of journals long ended."""
    forget_writers(services.store.database, services.store.database.now_us() - WRITERS_KEPT_US)


# Kinds of documents that anybody can make more of, and how many are kept.
DOCUMENTS = {CLIENT_DOCUMENTS: 5_000}
TABLE = (
    # What a worker knows, holds or publishes, so each does its own.
    RecurringJob("gossip", 0.4, Scope.WORKER, lambda at, go_on: at.routing.gossip.beat()),
    RecurringJob("budget_leases", 0.4, Scope.WORKER, lambda at, go_on: at.billing.settlements.tend()),
    RecurringJob("rate_limits", 0.8, Scope.WORKER, lambda at, go_on: at.billing.settlements.rates.exchange()),
    RecurringJob("metrics", 2.0, Scope.WORKER, lambda at, go_on: at.background.counters.write()),
    RecurringJob("local_models", 30.0, Scope.WORKER, lambda at, go_on: at.routing.discovery.refresh(), first_s=0),
    RecurringJob("response_cache", 600.0, Scope.WORKER, lambda at, go_on: at.engine.cache.trim()),
    RecurringJob("idempotency", 600.0, Scope.WORKER, lambda at, go_on: at.engine.idempotency.trim()),
    RecurringJob("request_log", 10.0, Scope.WORKER, lambda at, go_on: at.telemetry.request_log.flush()),
    RecurringJob("presence", 5.0, Scope.WORKER, _report_presence, first_s=1.0),
    RecurringJob("alerts_noted", 1.0, Scope.WORKER, lambda at, go_on: at.telemetry.alerts.spread()),
    # Files of the node.
    RecurringJob("recovery", 0.8, Scope.NODE, lambda at, go_on: at.billing.recovery.run()),
    # Rows of the installation.
    RecurringJob("lost_leases", 15.0, Scope.INSTALLATION, lambda at, go_on: at.billing.recovery.sweep_lost(go_on)),
    RecurringJob(
        "rollups", 20.0, Scope.INSTALLATION, lambda at, go_on: at.billing.rollups.advance(go_on), first_s=FOLLOW_S
    ),
    RecurringJob(
        "usage_rows", 600.0, Scope.INSTALLATION, lambda at, go_on: at.billing.usage_purge.run(go_on), first_s=FOLLOW_S
    ),
    RecurringJob("documents", 600.0, Scope.INSTALLATION, lambda at, go_on: at.store.documents.sweep(DOCUMENTS, go_on)),
    RecurringJob("decisions", 600.0, Scope.INSTALLATION, lambda at, go_on: at.routing.decisions.purge(go_on)),
    RecurringJob("payload_log", 600.0, Scope.INSTALLATION, lambda at, go_on: at.engine.retention.purge(go_on)),
    RecurringJob("payload_room", 600.0, Scope.INSTALLATION, lambda at, go_on: at.engine.payload_quota.keep(go_on)),
    RecurringJob("sessions", 600.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.cleanup.forget_sessions(go_on)),
    RecurringJob("devices", 60.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.cleanup.forget_devices(go_on)),
    RecurringJob("oauth", 600.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.oauth.cleanup.forget(go_on)),
    RecurringJob(
        "invitations", 3600.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.cleanup.forget_invitations(go_on)
    ),
    RecurringJob("deleted_keys", 3600.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.deleted_keys.purge(go_on)),
    RecurringJob("audit_log", 3600.0, Scope.INSTALLATION, lambda at, go_on: at.accounts.cleanup.shorten_audit(go_on)),
    RecurringJob("log_entries", 600.0, Scope.INSTALLATION, lambda at, go_on: at.telemetry.request_log.purge(go_on)),
    RecurringJob("responses", 600.0, Scope.INSTALLATION, lambda at, go_on: at.engine.responses.purge(go_on)),
    RecurringJob("journals", 600.0, Scope.INSTALLATION, _forget_journals),
    RecurringJob("videos", 1.0, Scope.INSTALLATION, lambda at, go_on: at.engine.videos.poller.run(go_on), first_s=1.0),
    RecurringJob("video_callbacks", 2.0, Scope.INSTALLATION, lambda at, go_on: at.engine.videos.deliveries.run(go_on)),
    RecurringJob("video_jobs", 3600.0, Scope.INSTALLATION, lambda at, go_on: at.engine.videos.purge(go_on)),
    RecurringJob("mail", 2.0, Scope.INSTALLATION, lambda at, go_on: at.telemetry.mail.deliver(go_on)),
    RecurringJob("alerts", 2.0, Scope.INSTALLATION, lambda at, go_on: at.telemetry.alerts.deliver(go_on)),
    RecurringJob("models_ending", 3600.0, Scope.INSTALLATION, _watch_models),
    RecurringJob("budgets_near_end", 15.0, Scope.INSTALLATION, lambda at, go_on: at.telemetry.budget_watch.look()),
    RecurringJob("books", 600.0, Scope.INSTALLATION, _examine_books),
)
