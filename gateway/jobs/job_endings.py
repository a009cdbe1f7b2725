"""The end of a job: state, usage row, spending and callback, written in one transaction and only once."""

from typing import Any, Generic, NamedTuple, TypeVar

from gateway.billing.job_reservation import CALL_HOLD
from gateway.clock import Clock
from gateway.jobs.callbacks import Callbacks
from gateway.jobs.job_rows import JobRow, JobRows
from gateway.limits.holds import Holds, nothing
from gateway.limits.models import split_groups
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import RECORD, UsageRecord, write_groups
from gateway.store.database import Database

J = TypeVar("J", bound=JobRow)


class ConcurrentChange(Exception):
    """Another worker changed the job at the same time."""


class JobEnd(NamedTuple):
    """How a job ends: the new values of its columns, its usage row (None: no row), its cost, and whether a callback
    reports it (`has_callback`)."""

    values: dict[str, Any]
    record: UsageRecord | None = None
    cost_nusd: int = 0
    has_callback: bool = False


class JobEndings(Generic[J]):
    """Ends the jobs of one kind."""

    def __init__(self, jobs: JobRows[J], holds: Holds, callbacks: Callbacks, clock: Clock) -> None:
        self._jobs = jobs
        self._holds = holds
        self._callbacks = callbacks
        self._clock = clock
        self._database: Database = jobs.database

    def end(self, job: J, end: JobEnd) -> J | None:
        """Write the end of a job with its hold. Return the new job, None when another worker ended or changed it first.
        Unavailable."""
        ended: list[J] = []

        def write() -> None:
            ended.append(self._record(job, end))

        record = end.record
        charged = record is None or record.mode == CREDITS
        try:
            settled = self._holds.settle(job.id, end.cost_nusd, charged, write)
        except ConcurrentChange:
            return None
        if settled:
            return ended[-1]
        return None

    def _record(self, job: J, end: JobEnd) -> J:
        """Write the end; runs inside the transaction that ends the hold."""
        moved = self._jobs.change(job, **end.values)
        if moved is None:
            raise ConcurrentChange
        record = end.record
        cost_nusd = 0 if record is None else record.cost_nusd
        budgets = [*self._holds.budgets(job.id), *self._holds.budgets(job.id + CALL_HOLD)]
        self._holds.settle(job.id + CALL_HOLD, cost_nusd, True, nothing)
        if record is not None:
            teams, groups = split_groups(budgets if cost_nusd else ())
            self._database.execute(RECORD.sql, (*record, teams))
            for statement, params in write_groups(record.request, record.attempt, groups):
                self._database.execute(statement.sql, params)
        if end.has_callback:
            self._callbacks.begin(job.id, self._clock.now_us())
        return moved
