"""Video jobs as the surfaces and the recurring work see them."""

from collections.abc import Callable

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
from gateway.store.database import Database
from gateway.store.store_clock import StoreClock
from gateway.transport import Transport
from gateway.videos.callback_table import Callbacks
from gateway.videos.callbacks import Deliveries
from gateway.videos.content_proxy import VideoContent, VideoContents
from gateway.videos.creation import CallbackWish, Created, VideoCreation
from gateway.videos.ending import Endings
from gateway.videos.job_states import CANCELED, COMPLETED
from gateway.videos.job_table import PREFIX, JobOwner, VideoJob, VideoJobs, is_shown
from gateway.videos.links import Links
from gateway.videos.polling import Poller
from gateway.videos.shown import Presenter
from gateway.videos.tasks import Sealed, Targets

UNKNOWN = "There is no video {} in this project."
NOT_CANCELABLE = "The provider has begun with this video and goes on: it can be deleted once it has ended."
NOT_COMPLETED = "The video is {}: there is content once it is completed."
NOT_WRITTEN = "The provider canceled the video, which is not written down yet: look at it again in a moment."
MOVES_MEANWHILE = 10  # of a job while its end is written down
ACTIVE = "active"  # of organizations and projects
ECHOED = 80  # characters of an id that an error repeats


class Videos:
    """One per worker. Jobs belong to the project of the key that asked for them."""

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
        clock = StoreClock(database, clock)  # when jobs are due is told by one node and decided by another
        self._clock = clock
        self._settings = settings
        sealed = Sealed(vault)
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

    def create(self, context: RequestContext, request: VideosRequest, callback: CallbackWish, base_url: str) -> Created:
        """As VideoCreation.create. A callback without a secret is signed with the project's, which is made where it has
        none."""
        if callback.url and not callback.secret:
            caller = context.caller
            projects.ensure_callback_secret(
                self._database, self._control, self._vault, caller.project_id, actor=caller.user_id
            )
        return self._creation.create(context, request, callback, base_url)

    def find(self, caller: Caller, ident: str) -> VideoJob:
        """A job that the caller may see. NotFound, Unavailable."""
        job = self.jobs.find(ident)
        if job is None or not is_shown(job) or not owner_of(caller).owns(job):
            raise NotFound(UNKNOWN.format(ident[:ECHOED]))
        return job

    def page(self, caller: Caller, after: str, limit: int, newest_first: bool) -> list[VideoJob]:
        """So many jobs that the caller may see, behind the one named by `after` (""; the first ones)."""
        return self.jobs.page(owner_of(caller), after, limit, newest_first)

    def delete(self, caller: Caller, ident: str) -> None:
        """End a job that goes on, so that it costs nothing; forget one that has ended. Conflict
        (video_not_cancelable) where the provider goes on with it, which is charged then, or has finished it already;
        NotFound, Unavailable, errors of upstream calls."""
        job = self.find(caller, ident)
        if job.has_ended:
            self._database.write(lambda: self.jobs.delete(job.id))
            return
        task = self.sealed.task(job.task)
        if not self.calls.cancel(task.ident, self.targets.find(job.organization, task)):
            raise Conflict(NOT_CANCELABLE, code="video_not_cancelable", headers=NO_RETRY)
        for _ in range(MOVES_MEANWHILE):
            # The leading worker may move it at the same time; nothing is charged of what the provider canceled.
            message = "The video was canceled by its caller."
            job = self.endings.give_up(job, task, CANCELED, "canceled", message) or self.find(caller, ident)
            if job.has_ended:
                return
        raise Unavailable(NOT_WRITTEN)

    def content(self, job: VideoJob, ranged: dict[str, str]) -> VideoContent:
        """Its bytes, as VideoContents.open. Conflict (video_not_completed) while there are none."""
        if job.state != COMPLETED:
            raise Conflict(NOT_COMPLETED.format(job.state), code="video_not_completed", headers=NO_RETRY)
        return self._contents.open(job, ranged)

    def of_log(self, log_id: str) -> VideoJob | None:
        """The job that a log tells of, whoever asks; None without one. Unavailable."""
        job = self.jobs.find(PREFIX + log_id)
        if job is not None and is_shown(job):
            return job
        return None

    def check_open(self, job: VideoJob) -> None:
        """Gone (project_archived, organization_blocked) where the keys of a job's project open nothing any more: links
        that were signed before open its video no more either. Unavailable."""
        if organizations.find_organization(self._database, job.organization).status != ACTIVE:
            raise Gone("The organization of this video is blocked.", code="organization_blocked")
        if projects.find_project(self._database, job.project).status != ACTIVE:
            raise Gone("The project of this video is archived.", code="project_archived")

    def link_of_log(self, log_id: str, base_url: str) -> str:
        """The address that opens the video of a log without a key; "" while there is none. Unavailable."""
        job = self.of_log(log_id)
        if job is not None and job.state == COMPLETED:
            return self.presenter.link(log_id, base_url)
        return ""

    def purge(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Remove what ended long ago. Unavailable: the next round does it."""
        while self.jobs.purge(self._clock.now_us(), self._settings.keep_days) and go_on():
            continue


def owner_of(caller: Caller) -> JobOwner:
    """Whose jobs a caller may see: those of the project, with a customer's key only those of that key."""
    return JobOwner(caller.project_id, "" if caller.key_kind == "user" else caller.key_id)
