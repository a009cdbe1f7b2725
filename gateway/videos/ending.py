"""The end of a video job: its state, its usage row and its cost."""

from dataclasses import replace

from msgspec import json

from gateway.billing import job_reservation
from gateway.clock import Clock
from gateway.engine.planning import Planner
from gateway.jobs.callbacks import Callbacks
from gateway.jobs.job_endings import JobEnd, JobEndings
from gateway.limits.holds import Holds
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.videos import VideoStatus, finished_usage
from gateway.providers.protocol import Target
from gateway.videos.job_table import COMPLETED, TRANSITIONS, JobOutcome, VideoJob, VideoJobs, priced
from gateway.videos.tasks import SealedColumns, Task, kept

LOST = JobOutcome(
    code="creation_interrupted",
    message="The gateway was interrupted before a provider confirmed the video. It was not charged. Try again.",
)


class Endings(JobEndings[VideoJob]):
    """Ends jobs. Every method returns the new job, None when another worker ended or moved it first; Unavailable."""

    def __init__(
        self, jobs: VideoJobs, holds: Holds, callbacks: Callbacks, sealed: SealedColumns, planner: Planner, clock: Clock
    ) -> None:
        super().__init__(jobs, holds, callbacks, clock)
        self._sealed = sealed
        self._planner = planner

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
        return self._end(job, task, TRANSITIONS[job.state, state], JobOutcome(code=code, message=message), record, "")

    def end_lost(self, job: VideoJob, task: Task) -> VideoJob | None:
        """End a job after its worker died while it called providers: no provider is known to have accepted it."""
        return self._end(job, task, TRANSITIONS[job.state, "lost"], LOST, None, "")

    def _end(
        self, job: VideoJob, task: Task, state: str, outcome: JobOutcome, record: UsageRecord | None, files: str
    ) -> VideoJob | None:
        values = {
            "state": state,
            "progress": 100 if state == COMPLETED else job.progress,
            "completed_at": self._clock.now_us(),
            "due_at": None,
            "files": files,
            "outcome": json.encode(outcome).decode(),
        }
        return self.end(job, JobEnd(values, record, outcome.cost_nusd, bool(task.callback_url)))


def _with_original_terms(target: Target, task: Task) -> Target:
    """Return the target with the prices in force when the job began, and with the provider key that started it (its
    spending limit counts the cost), regardless of the current catalogue and key."""
    mapping = target.mapping if task.prices is None else replace(target.mapping, prices=(task.prices,))
    credential = replace(target.credential, ident=task.credential, bounded=task.bounded)
    return replace(target, mapping=mapping, credential=credential)
