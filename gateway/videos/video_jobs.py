"""Video jobs, as used by the surfaces; the polling of providers and the delivery of callbacks are recurring work."""

import logging
from functools import partial

from gateway.accounts import organizations, projects
from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import VideoSettings
from gateway.control.version import Control
from gateway.engine.executor import EngineParts
from gateway.engine.idempotency import NO_RETRY
from gateway.errors import (
    Conflict,
    GatewayError,
    Gone,
    Internal,
    NotFound,
    Unavailable,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.jobs.callbacks import CallbackEvent, CallbackOptions, Callbacks, Deliveries
from gateway.jobs.job_rows import owner_of
from gateway.jobs.rounds import Rounds, StoreClock
from gateway.limits.holds import Holds
from gateway.neutral.videos import VideosRequest, VideoStatus
from gateway.providers.job_calls import CALL_TIMEOUT_S, JobCalls
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.transport import Transport
from gateway.videos.content_proxy import VideoContent, VideoContents
from gateway.videos.creation import AcceptedVideo, VideoCreation
from gateway.videos.ending import Endings
from gateway.videos.job_table import (
    CALLBACK_TABLE,
    CANCELED,
    COMPLETED,
    CREATING,
    FAILED,
    PREFIX,
    TABLE,
    TRANSITIONS,
    VideoJob,
    VideoJobs,
    is_shown,
)
from gateway.videos.shown import Links, Presenter
from gateway.videos.tasks import SealedColumns, Targets, Task

# Polling of providers for the status of jobs: recurring work of the leading worker.
#
# A job is polled when it is due, by the worker that claims it first; every poll sets the time of the next one.
# Nothing is kept in memory, so any worker can continue.

# Concurrent polls per organization (its custom provider may never answer) and in total.
MAX_POLLS_PER_ORGANIZATION = 16
MAX_POLLS = 256
# A worker claims a job for this long; afterwards another worker may poll it.
POLLING_CLAIM_US = round((CALL_TIMEOUT_S + 5) * SECOND_US)
# The wait after a failed poll doubles up to the longest. A job is abandoned after this many consecutive failures,
# except during an outage: the provider continues then, and bills the video.
FIRST_POLL_INTERVAL_S = 10.0
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
        self._rounds = Rounds(MAX_POLLS_PER_ORGANIZATION, MAX_POLLS, clock)

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Run one round. Unavailable when the store is down."""
        due = self._jobs.due(self._clock.now_us(), MAX_POLLS_PER_ORGANIZATION, MAX_POLLS)
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
        claimed = self._move(job, due_at=now + POLLING_CLAIM_US)
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
        self._move(job, state=TRANSITIONS[job.state, status.state], progress=progress, due_at=due_at, failures=0)

    def _fail(self, job: VideoJob, task: Task, error: GatewayError) -> None:
        failures = job.failures + 1
        if failures >= MAX_FAILURES and not _is_outage(error):
            message = f"The status of the video could not be read: {error.message}"
            self._endings.end_without_video(job, task, FAILED, "poll_error", message)
            return
        wait_s = min(FIRST_POLL_INTERVAL_S * 2 ** min(failures - 1, MAX_FAILURES), MAX_INTERVAL_S)
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


UNKNOWN = "There is no video {} in this project."
NOT_CANCELABLE = "The provider has started this video and cannot cancel it. Delete it once it has ended."
NOT_COMPLETED = "The video is {}. Its content is available once it is completed."
NOT_WRITTEN = "The provider canceled the video, but this is not recorded yet. Check again in a moment."
MAX_RETRIES = 10  # concurrent changes of a job while its end is recorded
ACTIVE = "active"  # status of organizations and projects
ECHOED_ID_LENGTH = 80  # characters of an id that an error repeats


class Videos:
    """The video jobs of a worker. A job belongs to the project of the key that requested it."""

    def __init__(
        self,
        parts: EngineParts,
        database: Database,
        control: Control,
        vault: Vault,
        transport: Transport,
        targets: Targets,
        calls: JobCalls,
        clock: Clock,
        settings: VideoSettings,
        links: Links,
    ) -> None:
        self._database = database
        self._control = control
        self._vault = vault
        clock = StoreClock(
            database, clock
        )  # one node sets due times and another compares them, so both use the store's time
        self._clock = clock
        self._settings = settings
        sealed = SealedColumns(vault)
        self.sealed = sealed
        self.targets = targets
        self.calls = calls
        self.jobs = VideoJobs(database)
        self.callbacks = Callbacks(database, CALLBACK_TABLE, TABLE)
        self.links = links
        self.presenter = Presenter(sealed, links)
        holds = Holds(database)
        self.endings = Endings(self.jobs, holds, self.callbacks, sealed, parts.planner, clock)
        every_s = settings.poll_s
        longest_s = settings.job_timeout_s
        self._creation = VideoCreation(parts, self.jobs, holds, self.endings, sealed, calls, clock, every_s, longest_s)
        self._contents = VideoContents(sealed, targets, calls)
        self.poller = Poller(self.jobs, self.endings, sealed, targets, calls, clock, every_s)
        self.deliveries = Deliveries(self.callbacks, self, vault, transport, clock)

    def create(
        self, context: RequestContext, request: VideosRequest, callback: CallbackOptions, base_url: str
    ) -> AcceptedVideo:
        """Create a job as VideoCreation.create. A callback without a secret is signed with the project's secret, which
        is created if necessary."""
        if callback.url and not callback.secret:
            caller = context.caller
            projects.ensure_callback_secret(
                self._database, self._control, self._vault, caller.project_id, actor=caller.user_id
            )
        return self._creation.create(context, request, callback, base_url)

    def find(self, caller: Caller, ident: str) -> VideoJob:
        """Return a job that the caller may see. NotFound, Unavailable."""
        job = self.jobs.find(ident)
        if job is None or not is_shown(job) or not owner_of(caller).owns(job):
            raise NotFound(UNKNOWN.format(ident[:ECHOED_ID_LENGTH]))
        return job

    def page(self, caller: Caller, after: str, limit: int, newest_first: bool) -> list[VideoJob]:
        """Return up to `limit` jobs that the caller may see, after the id `after` ("": from the start)."""
        return self.jobs.page(owner_of(caller), after, limit, newest_first)

    def delete(self, caller: Caller, ident: str) -> None:
        """Cancel a running job, so that it costs nothing, or delete one that has ended. Conflict (video_not_cancelable)
        if the provider continues, and charges for it, or has finished already; NotFound, Unavailable, errors of
        upstream calls."""
        job = self.find(caller, ident)
        if job.has_ended:
            self._database.write(partial(self.jobs.delete, job.id))
            return
        self.cancel_job(job)

    def cancel_job(self, job: VideoJob) -> None:
        """Cancel a running job, as `delete` does."""
        task = self.sealed.task(job.task)
        if not self.calls.cancel(task.ident, self.targets.find(job.organization, task)):
            raise Conflict(NOT_CANCELABLE, code="video_not_cancelable", headers=NO_RETRY)
        for _ in range(MAX_RETRIES):
            # The leading worker may move the job at the same time; a canceled job is not charged.
            message = "The video was canceled by its caller."
            ended = self.endings.end_without_video(job, task, CANCELED, "canceled", message) or self.jobs.find(job.id)
            if ended is None or ended.has_ended:
                return
            job = ended
        raise Unavailable(NOT_WRITTEN)

    def content(self, job: VideoJob, ranged: dict[str, str]) -> VideoContent:
        """Return the content as VideoContents.open. Conflict (video_not_completed) before the job is completed."""
        if job.state != COMPLETED:
            raise Conflict(NOT_COMPLETED.format(job.state), code="video_not_completed", headers=NO_RETRY)
        return self._contents.open(job, ranged)

    def of_log(self, log_id: str) -> VideoJob | None:
        """Return the job of a log without an access check; None without one. Unavailable."""
        job = self.jobs.find(PREFIX + log_id)
        if job is not None and is_shown(job):
            return job
        return None

    def event_of(self, job_id: str) -> CallbackEvent | None:
        """Return the event for the end of a job; None when it was deleted. Unavailable."""
        job = self.jobs.find(job_id)
        if job is None:
            return None
        task = self.sealed.task(job.task)
        return CallbackEvent(
            job.project,
            CallbackOptions(task.callback_url, task.callback_secret),
            "video.completed" if job.state == COMPLETED else "video.failed",
            job.completed_at or job.created_at,
            self.presenter.show(job, task.base_url),
        )

    def check_open(self, job: VideoJob) -> None:
        """Check that a job's organization and project are active; signed links of inactive ones are invalid. Raises
        Gone (project_archived, organization_blocked) or Unavailable."""
        if organizations.find_organization(self._database, job.organization).status != ACTIVE:
            raise Gone("The organization of this video is blocked.", code="organization_blocked")
        if projects.find_project(self._database, job.project).status != ACTIVE:
            raise Gone("The project of this video is archived.", code="project_archived")

    def link_of_log(self, log_id: str, base_url: str) -> str:
        """Return the URL that opens the video of a log without a key; "" before it is completed. Unavailable."""
        job = self.of_log(log_id)
        if job is not None and job.state == COMPLETED:
            return self.presenter.link(log_id, base_url)
        return ""

    def purge(self, should_continue: ShouldContinue = always) -> None:
        """Delete jobs that ended long ago. Unavailable: the next round continues."""
        while self.jobs.purge(self._clock.now_us(), self._settings.keep_days) and should_continue():
            continue
