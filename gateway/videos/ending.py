"""The end of a job: state, usage row, spending and callback, written in one transaction and only once."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, json

from gateway.billing import job_reservation
from gateway.billing.job_reservation import CALL_HOLD
from gateway.clock import Clock
from gateway.engine.planning import Planner
from gateway.limits.holds import Holds
from gateway.limits.models import split_groups
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import RECORD, UsageRecord, write_groups
from gateway.neutral.videos import VideoStatus, finished_usage
from gateway.providers.protocol import Target
from gateway.store.database import Database
from gateway.videos.job_table import CALLBACK as PREFIX
from gateway.videos.job_table import COMPLETED, MOVES, JobOutcome, VideoJob, VideoJobs, priced
from gateway.videos.tasks import SealedColumns, Task, kept

# Callbacks (webhooks) that wait for delivery, and the results of their attempts.

PENDING = "pending"
RETRYING = "retrying"
DELIVERED = "delivered"
FAILED = "failed"


class DeliveryAttempt(Struct, frozen=True):
    """A delivery attempt: its time, the HTTP status of the response (0: none), and why it failed."""

    at: int
    status: int
    problem: str


class Callback(NamedTuple):
    """A row of `video_callback`, in the order of its columns. `due_at` None: no further attempts; `attempts` is
    JSON."""

    id: str
    job: str
    state: str
    due_at: int | None
    attempts: str

    @property
    def tried(self) -> list[DeliveryAttempt]:
        return json.decode(self.attempts, type=list[DeliveryAttempt])


COLUMNS = ", ".join(Callback._fields)
DUE_CALLBACKS = f"""SELECT project, {COLUMNS} FROM video_callback JOIN (
    SELECT sent.id AS due, project, ROW_NUMBER() OVER (PARTITION BY project ORDER BY sent.due_at) AS place
    FROM video_callback AS sent LEFT JOIN video_job ON video_job.id = job
    WHERE sent.due_at IS NOT NULL AND sent.due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""


class Callbacks:
    """The table of callbacks. Every method may raise Unavailable; `begin` and `change` run inside a write."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def begin(self, job_id: str, now_us: int) -> None:
        """Insert the callback of an ended job; a job has one callback."""
        sql = f"INSERT INTO video_callback ({COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        self.database.execute(sql, (PREFIX + job_id, job_id, PENDING, now_us, "[]"))

    def of(self, job_id: str) -> Callback | None:
        """Return the callback of a job; None without one."""
        rows = self._fetch(f"SELECT {COLUMNS} FROM video_callback WHERE id = ?", (PREFIX + job_id,))
        if rows:
            return Callback(*rows[0])
        return None

    def due(self, now_us: int, of_one: int, limit: int) -> list[tuple[str, Callback]]:
        """Return due callbacks with their projects ("": the job was deleted), at most `of_one` per project. Projects
        take turns: first the oldest callback of each, then the second of each."""
        return [(row[0] or "", Callback(*row[1:])) for row in self._fetch(DUE_CALLBACKS, (now_us, of_one, limit))]

    def change(self, callback: Callback, **values: Any) -> Callback | None:
        """Set columns of a callback with an unchanged `due_at`; None when another worker has claimed it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE video_callback SET {columns} WHERE id = ? AND due_at = ?"
        changed = self.database.execute(sql, (*values.values(), callback.id, callback.due_at)).rowcount
        if changed:
            return callback._replace(**values)
        return None

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self.database.read(partial(self.database.fetch, sql, params))


LOST = JobOutcome(
    code="creation_interrupted",
    message="The gateway was interrupted before a provider confirmed the video. It was not charged. Try again.",
)


class ConcurrentMove(Exception):
    """Another worker moved the job meanwhile."""


class Endings:
    """Ends jobs. Every method returns the new job, None when another worker ended or moved it first; Unavailable."""

    def __init__(
        self, jobs: VideoJobs, holds: Holds, callbacks: Callbacks, sealed: SealedColumns, planner: Planner, clock: Clock
    ) -> None:
        self._jobs = jobs
        self._holds = holds
        self._callbacks = callbacks
        self._sealed = sealed
        self._planner = planner
        self._clock = clock
        self._database: Database = jobs.database

    def complete(self, job: VideoJob, task: Task, target: Target, status: VideoStatus) -> VideoJob | None:
        """End a job successfully and charge it."""
        hold = self._holds.find(job.id)
        now = self._clock.now_us()
        if hold is None or task.record is None:
            return None
        usage = finished_usage(task.reserved, status)
        billed = _with_original_terms(target, task)
        record, charge = job_reservation.completed(task.record, billed, usage, task.discount_ppm, hold.amount_nusd, now)
        files = self._sealed.write(kept(status.files))
        ended = self._end(job, task, COMPLETED, priced(charge), record, files)
        if ended is not None:
            self._planner.charged(target, record.operation, charge.total)
        return ended

    def refuse(self, job: VideoJob, task: Task, status: VideoStatus) -> VideoJob | None:
        """End a job that the provider reports as failed."""
        code = status.error_code or f"video_{status.state}"
        message = status.error_message or f"The provider reports that the video is {status.state}."
        return self.end_without_video(job, task, status.state, code, message)

    def end_without_video(self, job: VideoJob, task: Task, state: str, code: str, message: str) -> VideoJob | None:
        """End a job without a video, and release its reservations."""
        record = None
        if task.record is not None:
            record = job_reservation.failed(task.record, code, self._clock.now_us())
        return self._end(job, task, MOVES[job.state, state], JobOutcome(code=code, message=message), record, "")

    def end_lost(self, job: VideoJob, task: Task) -> VideoJob | None:
        """End a job after its worker died while it called providers: no provider is known to have accepted it."""
        return self._end(job, task, MOVES[job.state, "lost"], LOST, None, "")

    def _end(
        self, job: VideoJob, task: Task, state: str, outcome: JobOutcome, record: UsageRecord | None, files: str
    ) -> VideoJob | None:
        now = self._clock.now_us()
        values = {
            "state": state,
            "progress": 100 if state == COMPLETED else job.progress,
            "completed_at": now,
            "due_at": None,
            "files": files,
            "outcome": json.encode(outcome).decode(),
        }
        ended: list[VideoJob] = []
        write = partial(self._record, job, task, record, values, ended)
        charged = record is None or record.mode == CREDITS
        try:
            settled = self._holds.settle(job.id, outcome.cost_nusd, charged, write)
        except ConcurrentMove:
            return None
        if settled:
            return ended[-1]
        return None

    def _record(
        self,
        job: VideoJob,
        task: Task,
        record: UsageRecord | None,
        values: dict[str, object],
        ended: list[VideoJob],
    ) -> None:
        """Write the end; runs inside the transaction that ends the hold."""
        moved = self._jobs.change(job, **values)
        if moved is None:
            raise ConcurrentMove
        cost_nusd = 0 if record is None else record.cost_nusd
        budgets = [*self._holds.budgets(job.id), *self._holds.budgets(job.id + CALL_HOLD)]
        self._holds.settle(job.id + CALL_HOLD, cost_nusd, True, _nothing)
        if record is not None:
            teams, groups = split_groups(budgets if cost_nusd else ())
            self._database.execute(RECORD.sql, (*record, teams))
            for statement, params in write_groups(record.request, record.attempt, groups):
                self._database.execute(statement.sql, params)
        if task.callback_url:
            self._callbacks.begin(job.id, self._clock.now_us())
        ended.append(moved)


def _with_original_terms(target: Target, task: Task) -> Target:
    """Return the target with the prices in force when the job began, and with the provider key that started it (its
    spending limit counts the cost), regardless of the current catalogue and key."""
    mapping = target.mapping if task.prices is None else replace(target.mapping, prices=(task.prices,))
    credential = replace(target.credential, ident=task.credential, bounded=task.bounded)
    return replace(target, mapping=mapping, credential=credential)


def _nothing() -> None:
    return
