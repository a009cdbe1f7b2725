"""Video jobs, as used by the surfaces and by recurring work."""

from functools import partial

from gateway.accounts import organizations, projects
from gateway.accounts.authentication import Caller
from gateway.accounts.vault import Vault
from gateway.billing.context import RequestContext
from gateway.clock import Clock
from gateway.configuration.settings import VideoSettings
from gateway.control.version import Control
from gateway.engine.executor import EngineParts
from gateway.engine.idempotency import NO_RETRY
from gateway.errors import Conflict, Gone, NotFound, Unavailable
from gateway.limits.holds import Holds
from gateway.neutral.videos import VideosRequest
from gateway.providers.job_calls import JobCalls
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.store_clock import StoreClock
from gateway.transport import Transport
from gateway.videos.callback_table import Callbacks
from gateway.videos.callbacks import Deliveries
from gateway.videos.content_proxy import VideoContent, VideoContents
from gateway.videos.creation import AcceptedVideo, CallbackOptions, VideoCreation
from gateway.videos.ending import Endings
from gateway.videos.job_states import CANCELED, COMPLETED
from gateway.videos.job_table import PREFIX, JobOwner, VideoJob, VideoJobs, is_shown
from gateway.videos.links import Links
from gateway.videos.polling import Poller
from gateway.videos.shown import Presenter
from gateway.videos.tasks import SealedColumns, Targets

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
        self.callbacks = Callbacks(database)
        self.links = links
        self.presenter = Presenter(sealed, links)
        holds = Holds(database)
        self.endings = Endings(self.jobs, holds, self.callbacks, sealed, parts.planner, clock)
        every_s = settings.poll_s
        longest_s = settings.job_timeout_s
        self._creation = VideoCreation(parts, self.jobs, holds, self.endings, sealed, calls, clock, every_s, longest_s)
        self._contents = VideoContents(sealed, targets, calls)
        self.poller = Poller(self.jobs, self.endings, sealed, targets, calls, clock, every_s)
        self.deliveries = Deliveries(self.callbacks, self.jobs, sealed, self.presenter, vault, transport, clock)

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
        task = self.sealed.task(job.task)
        if not self.calls.cancel(task.ident, self.targets.find(job.organization, task)):
            raise Conflict(NOT_CANCELABLE, code="video_not_cancelable", headers=NO_RETRY)
        for _ in range(MAX_RETRIES):
            # The leading worker may move the job at the same time; a canceled job is not charged.
            message = "The video was canceled by its caller."
            job = self.endings.end_without_video(job, task, CANCELED, "canceled", message) or self.find(caller, ident)
            if job.has_ended:
                return
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


def owner_of(caller: Caller) -> JobOwner:
    """Return the owner of the jobs that a caller may see: the project, or for a customer's key that key alone."""
    return JobOwner(caller.project_id, "" if caller.key_kind == "user" else caller.key_id)
