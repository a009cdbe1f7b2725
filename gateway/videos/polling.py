"""Polling of providers for the status of jobs: recurring work of the leading worker.

A job is polled when it is due, by the worker that claims it first; every poll sets the time of the next one. Nothing is
kept in memory, so any worker can continue.
"""

import logging
from functools import partial

from gateway.clock import SECOND_US, Clock
from gateway.errors import (
    GatewayError,
    Internal,
    Unavailable,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.neutral.videos import VideoStatus
from gateway.providers.job_calls import CALL_TIMEOUT_S, JobCalls
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.videos.ending import Endings
from gateway.videos.job_states import COMPLETED, CREATING, FAILED, MOVES
from gateway.videos.job_table import VideoJob, VideoJobs
from gateway.videos.rounds import Rounds
from gateway.videos.tasks import SealedColumns, Targets, Task

# Concurrent polls per organization (its custom provider may never answer) and in total.
OF_ONE = 16
OF_ALL = 256
# A worker claims a job for this long; afterwards another worker may poll it.
CLAIM_US = round((CALL_TIMEOUT_S + 5) * SECOND_US)
# The wait after a failed poll doubles up to the longest. A job is abandoned after this many consecutive failures,
# except during an outage: the provider continues then, and bills the video.
FIRST_INTERVAL_S = 10.0
MAX_INTERVAL_S = 300.0
MAX_FAILURES = 5
OUTAGES = (UpstreamUnreachable, UpstreamTimeout, UpstreamRateLimited, UpstreamOverloaded)
MAX_PROGRESS = 99  # percent, for a video that is not ready

log = logging.getLogger("gateway")


class Poller:
    """Polls due jobs; `every_s` is the interval."""

    def __init__(
        self,
        jobs: VideoJobs,
        endings: Endings,
        sealed: SealedColumns,
        targets: Targets,
        calls: JobCalls,
        clock: Clock,
        every_s: float,
    ) -> None:
        self._jobs = jobs
        self._endings = endings
        self._sealed = sealed
        self._targets = targets
        self._calls = calls
        self._clock = clock
        self._every_us = round(every_s * SECOND_US)
        self._rounds = Rounds(OF_ONE, OF_ALL, clock)

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Run one round. Unavailable when the store is down."""
        due = self._jobs.due(self._clock.now_us(), OF_ONE, OF_ALL)
        self._rounds.run(((job.organization, partial(self._follow, job)) for job in due), should_continue)

    def _follow(self, job: VideoJob) -> None:
        try:
            self._look(job)
        except Unavailable as error:
            log.warning("the poll of video %s will be retried: %s", job.id, error.message)
        except Exception:  # One job must not block the others.
            log.exception("the video %s could not be polled", job.id)

    def _look(self, job: VideoJob) -> None:
        task = self._sealed.task(job.task)
        now = self._clock.now_us()
        if job.state == CREATING:
            self._endings.end_lost(job, task)
            return
        claimed = self._move(job, due_at=now + CLAIM_US)
        if claimed is None:
            return
        late = now >= job.deadline_at
        try:
            target = self._targets.find(job.organization, task)
            status = self._calls.status(task.ident, target)
        except Unavailable:
            raise
        except GatewayError as error:
            if late:
                self._time_out(claimed, task)
            else:
                self._fail(claimed, task, error)
            return
        except Exception as error:  # An error of the gateway: the job must still end, and its reservations with it.
            log.exception("the video %s could not be polled", job.id)
            self._fail(claimed, task, Internal(f"the gateway failed ({type(error).__name__})."))
            return
        if status.state == COMPLETED:
            self._endings.complete(claimed, task, target, status)
        elif status.is_final:
            self._endings.refuse(claimed, task, status)
        elif late:
            self._time_out(claimed, task)
        else:
            self._go_on(claimed, status)

    def _go_on(self, job: VideoJob, status: VideoStatus) -> None:
        progress = max(job.progress, min(status.progress, MAX_PROGRESS))
        due_at = self._clock.now_us() + self._every_us
        self._move(job, state=MOVES[job.state, status.state], progress=progress, due_at=due_at, failures=0)

    def _fail(self, job: VideoJob, task: Task, error: GatewayError) -> None:
        failures = job.failures + 1
        if failures >= MAX_FAILURES and not _is_outage(error):
            message = f"The status of the video could not be read: {error.message}"
            self._endings.end_without_video(job, task, FAILED, "poll_error", message)
            return
        wait_s = min(FIRST_INTERVAL_S * 2 ** min(failures - 1, MAX_FAILURES), MAX_INTERVAL_S)
        self._move(job, due_at=self._clock.now_us() + round(wait_s * SECOND_US), failures=failures)

    def _time_out(self, job: VideoJob, task: Task) -> None:
        try:
            self._calls.cancel(task.ident, self._targets.find(job.organization, task))
        except GatewayError as error:
            log.info("the video %s timed out and could not be canceled: %s", job.id, error.message)
        self._endings.end_without_video(job, task, FAILED, "timeout", "The video was not ready in time.")

    def _move(self, job: VideoJob, **values: object) -> VideoJob | None:
        return self._jobs.database.write(partial(self._jobs.change, job, **values))


def _is_outage(error: GatewayError) -> bool:
    """Return whether the provider cannot be reached at present, which is no statement about the job."""
    return isinstance(error, OUTAGES) or error.upstream_status >= 500
