"""Asking providers how far jobs are: the leading worker's recurring work.

A job is asked for when it is due, by whoever moved that moment first; every answer sets the next one. Nothing is kept
in memory, so another worker goes on where this one ended.
"""

import logging
from collections.abc import Callable
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
from gateway.providers.job_calls import CALL_S, JobCalls
from gateway.videos.ending import Endings
from gateway.videos.job_states import COMPLETED, CREATING, FAILED, MOVES
from gateway.videos.job_table import VideoJob, VideoJobs
from gateway.videos.rounds import Rounds
from gateway.videos.tasks import Sealed, Targets, Task

# Jobs that are asked about at once, of one organization (a provider that never answers may be its own) and of all.
OF_ONE = 16
OF_ALL = 256
# Whoever asks for a job has it for so long; then another worker may.
CLAIM_US = round((CALL_S + 5) * SECOND_US)
# The wait after a failed poll doubles, up to the longest. A job is given up after so many failures in a row, except
# those of an outage: the provider goes on meanwhile, and bills the video.
FIRST_S = 10.0
LONGEST_S = 300.0
MOST_FAILURES = 5
OUTAGES = (UpstreamUnreachable, UpstreamTimeout, UpstreamRateLimited, UpstreamOverloaded)
MOST_PROGRESS = 99  # of a video that is not there yet

log = logging.getLogger("gateway")


class Poller:
    """Looks at what is due. `every_s`: between two questions."""

    def __init__(
        self,
        jobs: VideoJobs,
        endings: Endings,
        sealed: Sealed,
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

    def run(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """One round. Unavailable when the store is away."""
        due = self._jobs.due(self._clock.now_us(), OF_ONE, OF_ALL)
        self._rounds.run(((job.organization, partial(self._follow, job)) for job in due), go_on)

    def _follow(self, job: VideoJob) -> None:
        try:
            self._look(job)
        except Unavailable as error:
            log.warning("the video %s is looked at another time: %s", job.id, error.message)
        except Exception:  # One job must not hold up the others.
            log.exception("the video %s could not be looked at", job.id)

    def _look(self, job: VideoJob) -> None:
        task = self._sealed.task(job.task)
        now = self._clock.now_us()
        if job.state == CREATING:
            self._endings.lose(job, task)
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
            (self._time_out if late else partial(self._fail, error=error))(claimed, task)
            return
        except Exception as error:  # Ours: what it reserves must not be held for ever.
            log.exception("the video %s could not be looked at", job.id)
            self._fail(claimed, task, Internal(f"it failed on our side ({type(error).__name__})."))
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
        progress = max(job.progress, min(status.progress, MOST_PROGRESS))
        due_at = self._clock.now_us() + self._every_us
        self._move(job, state=MOVES[job.state, status.state], progress=progress, due_at=due_at, failures=0)

    def _fail(self, job: VideoJob, task: Task, error: GatewayError) -> None:
        failures = job.failures + 1
        if failures >= MOST_FAILURES and not _is_outage(error):
            message = f"The provider could not be asked for the video any more: {error.message}"
            self._endings.give_up(job, task, FAILED, "poll_error", message)
            return
        wait_s = min(FIRST_S * 2 ** min(failures - 1, MOST_FAILURES), LONGEST_S)
        self._move(job, due_at=self._clock.now_us() + round(wait_s * SECOND_US), failures=failures)

    def _time_out(self, job: VideoJob, task: Task) -> None:
        try:
            self._calls.cancel(task.ident, self._targets.find(job.organization, task))
        except GatewayError as error:
            log.info("the video %s, which took too long, could not be canceled: %s", job.id, error.message)
        self._endings.give_up(job, task, FAILED, "timeout", "The video was not ready in time, and is given up.")

    def _move(self, job: VideoJob, **values: object) -> VideoJob | None:
        return self._jobs.database.write(lambda: self._jobs.change(job, **values))


def _is_outage(error: GatewayError) -> bool:
    """Whether the provider could not be asked at present, which says nothing of the job."""
    return isinstance(error, OUTAGES) or error.upstream_status >= 500
