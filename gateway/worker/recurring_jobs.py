"""Recurring jobs: the table of them, and the loops that run the table in each worker.

Not in the table are the loops that the jobs depend on (the worker's own row and the control version in `control`, the
leader's row in `leadership`), the commits of the journal, and the monitoring of the server itself.
"""

import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from gateway import errors
from gateway.accounts.spending_limits import SpendingLimits
from gateway.admin.sso_sign_in import KIND as SSO_FLOWS
from gateway.billing.old_limits import forget_limits
from gateway.billing.provider_objects import KIND as PROVIDER_OBJECTS
from gateway.billing.provider_objects import MAX_OBJECTS
from gateway.clock import HOUR_US, Clock
from gateway.configuration.file import SettingsError
from gateway.control.leadership import Leadership
from gateway.limits.limit_states import note_top_members
from gateway.metering.outcomes.outcome_table import forget_outcomes
from gateway.metering.rollups.queries import sum_tokens
from gateway.metering.route_usage import forget_route_usage
from gateway.oauth.clients import KIND as CLIENT_DOCUMENTS
from gateway.routing.candidates import MIN_OBSERVED_TOKENS, TokenMix, observe_mix
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import RESTING_TICK_S, TICK_S, ShouldContinue, until_tick
from gateway.runtime.threads import compute, pause, return_free_memory, spawn
from gateway.store.documents import Documents
from gateway.store.journal import forget_writers
from gateway.store.outage_journal import DEDUPLICATION_US
from gateway.telemetry.cache_watch import forget_losses
from gateway.worker.services import Services

# The schedule of the installation's jobs (rollups, polling of videos, purges), which APScheduler runs in the leading
# worker.

# Only the leading worker needs it.
scheduling = LazyImport("apscheduler.schedulers.gevent")
POLL_INTERVAL_S = 0.02
# Jobs of at most this interval share one run of APScheduler a second: each run of it takes as much as a short job.
MAX_FREQUENT_INTERVAL_S = 5.0
FREQUENT_JOBS = "frequent jobs"


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
            planned.append(ScheduledJob(FREQUENT_JOBS, self._tick_s, 0.0, self._tick))
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


log = logging.getLogger(__name__)

# The first run is soon, otherwise a job with an interval longer than the time between restarts would never run.
FIRST_RUN_S = 10.0
# Jobs start at these moments.
START_INTERVAL_S = 2 * TICK_S
# How long a stopping worker waits for runs in progress.
STOP_TIMEOUT_S = 5.0
# Reports of rarer jobs are published to the other processes, in documents.
PUBLISHED_FROM_S = 15.0
JOB_KIND = "job"
REPORT_TTL_S = 30 * 86_400.0


class Scope(Enum):
    """The workers that run a job: every worker, one worker of each node, or the leader of the installation."""

    WORKER = "worker"
    NODE = "node"
    INSTALLATION = "installation"


class RecurringJob(Struct, frozen=True):
    """A job: `function(services, should_continue)` runs every `every_s` seconds, never twice at once in a worker.

    A run must be safe to repeat. Jobs with many steps call `should_continue` between them: it returns False when the
    worker stops or another worker has taken over the job.
    """

    name: str
    every_s: float
    scope: Scope
    function: Callable[[Any, ShouldContinue], object]
    first_s: float = FIRST_RUN_S  # the first run is within this time


@dataclass(slots=True)
class JobReport:
    """The result of the last run; `error` is "" after a success, `at_us` is 0 before the first run.

    `good_us` is the end of the last successful run, 0 if there was none.
    """

    name: str
    at_us: int = 0
    seconds: float = 0.0
    error: str = ""
    good_us: int = 0


class NodeLock:
    """A lock that one process of a node holds; the kernel releases it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def held(self) -> bool:
        """Return whether this process has the lock; take it if it is free."""
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


def _first_delay_s(job: RecurringJob) -> float:
    """Return a random delay before the first run of a job: otherwise all processes would run it at the same moment."""
    return random.uniform(0, min(job.every_s, job.first_s))


class Background:
    """Runs a table of jobs: one loop starts those of a worker or a node, APScheduler those of the installation.

    Before each run it checks whether this worker is responsible for the job.
    """

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
        self._loop: Any = None
        self._schedule = LeaderSchedule(clock)
        self._due: dict[str, float] = {}  # job → when its next run starts, by the monotonic clock
        self._runs: dict[str, Any] = {}  # job → the greenlet of its last run

    def start(self) -> None:
        """Start running the jobs."""
        self._stopping.clear()
        self.leadership.start()
        self._loop = spawn(self._run_due)

    def stop(self) -> None:
        """Start no further runs, wait a moment for those in progress, and release leadership and lock."""
        self._stopping.set()
        end = time.monotonic() + STOP_TIMEOUT_S
        for task in [self._loop, *self._runs.values()]:
            if task is not None:
                task.join(max(0.0, end - time.monotonic()))
        self._schedule.wait_until(end)
        self._loop = None
        self._runs = {}
        self.leadership.stop()
        self._node_lock.release()

    def run(self, name: str) -> JobReport:
        """Run one job of a node or the installation now, whichever worker is responsible (operator commands).

        Return its report. Raise NotFound for an unknown name, InvalidRequest for a job that each worker runs for
        itself, and the job's own errors."""
        job = self._table.get(name)
        if job is None:
            raise errors.NotFound(f"There is no job {name}; the jobs are: {', '.join(self._table)}.")
        if job.scope is Scope.WORKER:
            raise errors.InvalidRequest(f"{name} runs in each worker for itself and cannot be run by a command.")
        start = self._clock.monotonic()
        job.function(self._services, self._is_running)
        now_us = self._clock.now_us()
        report = JobReport(name, now_us, self._clock.monotonic() - start, "", now_us)
        self._publish(report)
        return report

    def _is_running(self) -> bool:
        return not self._stopping.is_set()

    def reports(self) -> list[JobReport]:
        """Return the report of the last run of each job in this worker."""
        return list(self._reports.values())

    def is_responsible(self, job: RecurringJob) -> bool:
        """Return whether this worker is responsible for the job now."""
        if self._stopping.is_set():
            return False
        if job.scope is Scope.NODE:
            return self._node_lock.held()
        return job.scope is Scope.WORKER or self.leadership.leading()

    def _run_due(self) -> None:
        """Start the jobs that are due, at each tick. A run that is due while the last one continues is left out."""
        for job in self._table.values():
            if job.scope is not Scope.INSTALLATION:
                self._due[job.name] = time.monotonic() + _first_delay_s(job)
        while not self._stopping.is_set():
            if self.leadership.leading():  # it takes over rare jobs as well, which may not have run for long
                self._schedule.start(self._installation_jobs)
            else:
                self._schedule.end()
            now = time.monotonic()
            for name, due in self._due.items():
                if due <= now:
                    self._due[name] = now + self._table[name].every_s - TICK_S  # the tick nearest to the interval
                    self._start_run(self._table[name])
            self._stopping.wait(until_tick(START_INTERVAL_S))
        self._schedule.end()

    def _installation_jobs(self) -> Iterator[ScheduledJob]:
        for job in self._table.values():
            if job.scope is Scope.INSTALLATION:
                yield ScheduledJob(job.name, job.every_s, _first_delay_s(job), partial(self._run_as_leader, job))

    def _run_as_leader(self, job: RecurringJob) -> None:
        if self.is_responsible(job):
            self._run_once(job)

    def _start_run(self, job: RecurringJob) -> None:
        try:
            last = self._runs.get(job.name)
            if (last is None or last.dead) and self.is_responsible(job):
                self._runs[job.name] = spawn(self._run_once, job)
        except Exception:  # an error of one job must not end the loop of all jobs
            log.exception("the job %s could not be run", job.name)

    def _run_once(self, job: RecurringJob) -> None:
        """Run a job once and report the result. A persistent error is logged once."""
        last = self._reports[job.name]
        start = self._clock.monotonic()
        error = ""
        before = last.error
        try:
            job.function(self._services, partial(self.is_responsible, job))
        except errors.Unavailable as unavailable:
            error = unavailable.message
            if error != before:
                log.warning("the job %s is postponed: %s", job.name, error)
        except Exception as failure:  # a fault of one job must end neither this job nor others
            error = type(failure).__name__
            if error != before:
                log.exception("the job %s failed", job.name)
        now_us = self._clock.now_us()
        report = JobReport(job.name, now_us, self._clock.monotonic() - start, error, last.good_us if error else now_us)
        self._reports[job.name] = report
        if is_published(job):
            self._publish(report)

    def _publish(self, report: JobReport) -> None:
        try:
            if not report.good_us:  # keep the time of a previous leader's success
                known = read_report(self._documents, report.name)
                report.good_us = known.good_us if known else 0
            self._documents.put(JOB_KIND, report.name, orjson.dumps(report), REPORT_TTL_S)
        except errors.Unavailable:
            return  # the next run publishes a report


def is_published(job: RecurringJob) -> bool:
    """Return whether all processes can read the report of its last run."""
    return job.every_s >= PUBLISHED_FROM_S and job.scope is not Scope.WORKER


def read_reports(documents: Documents) -> dict[str, JobReport]:
    """Return the last published reports by job, from all workers; jobs without a run are missing. Raise Unavailable."""
    reports = {job.name: read_report(documents, job.name) for job in JOB_TABLE if is_published(job)}
    return {name: report for name, report in reports.items() if report is not None}


def read_report(documents: Documents, name: str) -> JobReport | None:
    """Return the last report of a rare job, from any worker; None before the first run. Raise Unavailable."""
    stored = documents.get(JOB_KIND, name)
    if stored:
        return JobReport(**orjson.loads(stored))
    return None


def make_background(services: Services) -> Background:
    """Create the runner of the product's table for a worker."""
    leadership = Leadership(services.store.database, services.store.control, services.clock)
    lock = NodeLock(Path(services.settings.database.data_dir) / "background.lock")
    return Background(JOB_TABLE, services, leadership, lock, services.clock, services.store.documents)


def _call(path: str) -> Callable[[Any, ShouldContinue], object]:
    """Return a job function that calls the method at this path of `Services`."""
    find = attrgetter(path)

    def run(services: Any, should_continue: ShouldContinue) -> object:
        return find(services)()

    return run


def _steps(path: str) -> Callable[[Any, ShouldContinue], object]:
    """Return a job function that calls the method at this path of `Services` with `should_continue`."""
    find = attrgetter(path)

    def run(services: Any, should_continue: ShouldContinue) -> object:
        return find(services)(should_continue)

    return run


def _sweep_documents(services: Services, should_continue: ShouldContinue) -> None:
    services.store.documents.sweep(DOCUMENTS, should_continue)


def _examine_books(services: Services, should_continue: ShouldContinue) -> None:
    """Close hours first, because summing up many rows takes minutes. The rollups then find rows that came late: a
    closed hour differs from its rows until these are booked."""
    began_us = services.store.database.now_us()
    services.billing.ledger_close.close(should_continue)
    services.billing.rollups.advance(should_continue)
    services.billing.ledger_close.close_late(began_us, should_continue)
    services.billing.reconciliation_gauge.measure(should_continue)


def _refresh_provider_keys(services: Services, should_continue: ShouldContinue) -> None:
    """Read the platform's keys again where their files have changed."""
    try:
        services.routing.planner.refresh_keys()
    except SettingsError as error:
        raise errors.Unavailable(str(error)) from None


def _observe_mixes(services: Services, should_continue: ShouldContinue) -> None:
    """Let the router compare prices for the tokens that projects had at each model in the last days."""
    hour = services.clock.now_us() // HOUR_US
    mixes: dict[str, dict[str, TokenMix]] = {}
    for sums in sum_tokens(services.store.database, hour, MIN_OBSERVED_TOKENS):
        mix = observe_mix(sums.input, sums.cached, sums.output)
        if mix is not None:
            mixes.setdefault(sums.project_id, {})[sums.model] = mix
    services.routing.planner.use_mixes(mixes)


def _tend_identities(services: Services, should_continue: ShouldContinue) -> None:
    """Renew tokens. The platform's credentials are read first: the first requests then find a token."""
    services.routing.credentials.platform()
    services.routing.identities.maintain()


def _watch_models(services: Services, should_continue: ShouldContinue) -> None:
    """Alert about models in use that end soon."""
    services.telemetry.model_watch.scan(services.routing.health, services.routing.catalogue.current())


def _report_presence(services: Services, should_continue: ShouldContinue) -> None:
    """Publish the state of this worker and the models that it serves."""
    routing = services.routing
    services.telemetry.presence.report(routing.catalogue.current(), routing.health, routing.credentials.identities())


def _forget_journals(services: Services, should_continue: ShouldContinue) -> None:
    """Remove the marks of journals that ended long ago."""
    forget_writers(services.store.database, services.store.database.now_us() - DEDUPLICATION_US)


def _forget_route_usage(services: Services, should_continue: ShouldContinue) -> None:
    forget_route_usage(services.store.database, services.settings.retention.outcome_days, should_continue)


def _forget_outcomes(services: Services, should_continue: ShouldContinue) -> None:
    days = services.settings.retention.outcome_days
    forget_outcomes(services.store.database, days, should_continue)
    forget_losses(services.store.database, days)


def _end_raises(services: Services, should_continue: ShouldContinue) -> None:
    SpendingLimits(services.store.database, services.store.control).end_raises(should_continue)


def _forget_limits(services: Services, should_continue: ShouldContinue) -> None:
    forget_limits(services.store.database, should_continue)
    note_top_members(services.store.database, should_continue)


# Kinds of documents that anyone can create, and how many are kept.
DOCUMENTS = {CLIENT_DOCUMENTS: 5_000, SSO_FLOWS: 20_000, PROVIDER_OBJECTS: MAX_OBJECTS}
JOB_TABLE = (
    # State that each worker holds or publishes for itself.
    RecurringJob("gossip", 0.5, Scope.WORKER, _call("routing.gossip.beat")),
    RecurringJob("budget_leases", 0.5, Scope.WORKER, _call("billing.settlements.maintain")),
    RecurringJob("rate_limits", 0.5, Scope.WORKER, _call("billing.settlements.rates.exchange")),
    RecurringJob("metrics", 10.0, Scope.WORKER, _call("background.counters.write")),
    RecurringJob("local_models", 30.0, Scope.WORKER, _call("routing.discovery.refresh"), first_s=0),
    RecurringJob("workload_identities", 1.0, Scope.WORKER, _tend_identities, first_s=0),
    RecurringJob("provider_keys", 30.0, Scope.WORKER, _refresh_provider_keys),
    RecurringJob("token_mixes", 600.0, Scope.WORKER, _observe_mixes),
    RecurringJob("response_cache", 600.0, Scope.WORKER, _call("engine.cache.trim")),
    RecurringJob("idempotency", 600.0, Scope.WORKER, _call("engine.idempotency.trim")),
    RecurringJob("request_log", 10.0, Scope.WORKER, _call("telemetry.request_log.flush")),
    RecurringJob("outcomes", 1.0, Scope.WORKER, _call("telemetry.outcomes.flush")),
    RecurringJob("presence", 5.0, Scope.WORKER, _report_presence, first_s=1.0),
    RecurringJob("batches", 1.0, Scope.WORKER, _steps("engine.batches.run")),
    RecurringJob("alerts_noted", 1.0, Scope.WORKER, _call("telemetry.alerts.spread")),
    RecurringJob("memory", 30.0, Scope.WORKER, lambda services, should_continue: return_free_memory()),
    # Files of the node.
    RecurringJob("file_contents", 3600.0, Scope.NODE, _steps("engine.files.sweep")),
    RecurringJob("recovery", 1.0, Scope.NODE, _call("billing.recovery.run")),
    # Rows of the installation.
    RecurringJob("lost_leases", 15.0, Scope.INSTALLATION, _steps("billing.recovery.sweep_lost")),
    RecurringJob("limit_members", 300.0, Scope.INSTALLATION, _forget_limits),
    RecurringJob("limit_raises", 5.0, Scope.INSTALLATION, _end_raises),
    RecurringJob("rollups", 20.0, Scope.INSTALLATION, _steps("billing.rollups.advance"), first_s=0.5),
    RecurringJob("usage_sink", 5.0, Scope.INSTALLATION, _steps("billing.usage_sink.run"), first_s=1.0),
    RecurringJob("usage_rows", 600.0, Scope.INSTALLATION, _steps("billing.usage_purge.run"), first_s=0.5),
    RecurringJob("documents", 600.0, Scope.INSTALLATION, _sweep_documents),
    RecurringJob("decisions", 600.0, Scope.INSTALLATION, _steps("routing.decisions.purge")),
    RecurringJob("payload_log", 600.0, Scope.INSTALLATION, _steps("engine.retention.purge")),
    RecurringJob("payload_room", 600.0, Scope.INSTALLATION, _steps("engine.payload_quota.keep")),
    RecurringJob("group_grants", 5.0, Scope.INSTALLATION, _steps("management.group_grants.refresh_all")),
    RecurringJob("sso_checks", 10.0, Scope.INSTALLATION, _steps("sso.checks.run")),
    RecurringJob("sso_logins", 600.0, Scope.INSTALLATION, _steps("sso.checks.forget")),
    RecurringJob("sessions", 600.0, Scope.INSTALLATION, _steps("accounts.cleanup.forget_sessions")),
    RecurringJob("devices", 60.0, Scope.INSTALLATION, _steps("accounts.cleanup.forget_devices")),
    RecurringJob("oauth", 600.0, Scope.INSTALLATION, _steps("accounts.oauth.cleanup.forget")),
    RecurringJob("old_outcomes", 3600.0, Scope.INSTALLATION, _forget_outcomes),
    RecurringJob("route_usage", 3600.0, Scope.INSTALLATION, _forget_route_usage),
    RecurringJob("guardrail_findings", 3600.0, Scope.INSTALLATION, _steps("accounts.cleanup.forget_findings")),
    RecurringJob("invitations", 3600.0, Scope.INSTALLATION, _steps("accounts.cleanup.forget_invitations")),
    RecurringJob("deleted_keys", 3600.0, Scope.INSTALLATION, _steps("accounts.deleted_keys.purge")),
    RecurringJob("erasures", 60.0, Scope.INSTALLATION, _steps("accounts.erasures.finish")),
    RecurringJob("audit_log", 3600.0, Scope.INSTALLATION, _steps("accounts.cleanup.shorten_audit")),
    RecurringJob("log_entries", 600.0, Scope.INSTALLATION, _steps("telemetry.request_log.purge")),
    RecurringJob("responses", 600.0, Scope.INSTALLATION, _steps("engine.responses.purge")),
    RecurringJob("journals", 600.0, Scope.INSTALLATION, _forget_journals),
    RecurringJob("videos", 1.0, Scope.INSTALLATION, _steps("engine.videos.poller.run"), first_s=1.0),
    RecurringJob("video_callbacks", 2.0, Scope.INSTALLATION, _steps("engine.videos.deliveries.run")),
    RecurringJob("video_jobs", 3600.0, Scope.INSTALLATION, _steps("engine.videos.purge")),
    RecurringJob("background_responses", 5.0, Scope.INSTALLATION, _steps("engine.response_jobs.recover")),
    RecurringJob("background_events", 600.0, Scope.INSTALLATION, _steps("engine.response_jobs.purge")),
    RecurringJob("job_callbacks", 2.0, Scope.INSTALLATION, _steps("engine.batches.deliveries.run")),
    RecurringJob("batch_jobs", 3600.0, Scope.INSTALLATION, _steps("engine.batches.purge")),
    RecurringJob("stored_files", 60.0, Scope.INSTALLATION, _steps("engine.files.purge")),
    RecurringJob("provider_files", 5.0, Scope.INSTALLATION, _steps("engine.provider_files.run")),
    RecurringJob("file_objects", 3600.0, Scope.INSTALLATION, _steps("engine.files.sweep_objects")),
    RecurringJob("weekly_views", 15.0, Scope.INSTALLATION, _steps("telemetry.weekly_views.run")),
    RecurringJob("mail", 2.0, Scope.INSTALLATION, _steps("telemetry.mail.deliver")),
    RecurringJob("alerts", 2.0, Scope.INSTALLATION, _steps("telemetry.alerts.deliver")),
    RecurringJob("past_alerts", 3600.0, Scope.INSTALLATION, _steps("telemetry.alert_history.forget")),
    RecurringJob("models_ending", 3600.0, Scope.INSTALLATION, _watch_models),
    RecurringJob("budgets_near_end", 15.0, Scope.INSTALLATION, _call("telemetry.budget_watch.scan")),
    RecurringJob("unusual_days", 300.0, Scope.INSTALLATION, _steps("telemetry.unusual_watch.scan")),
    RecurringJob("session_caches", 60.0, Scope.INSTALLATION, _steps("telemetry.cache_watch.scan")),
    RecurringJob("books", 600.0, Scope.INSTALLATION, _examine_books),
)
