"""Creation of a job: its row and its hold, then provider after provider until one accepts it.

The row comes first, so that the hold is found and released if this process dies. Once a provider has accepted the job,
it continues even if the caller disconnects.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.billing.context import Outcome, RequestContext
from gateway.billing.job_reservation import AcceptedCall, PendingJob
from gateway.callers.access import keeps_nothing
from gateway.catalogue.prices import cost_of, prices_at, reduced
from gateway.catalogue.video_shapes import VideoShape, fit, max_usage
from gateway.clock import SECOND_US, Clock
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.planning import RoutePlan
from gateway.engine.run import Run
from gateway.errors import GatewayError, Internal, NotSupported, Unavailable
from gateway.jobs.callbacks import CallbackOptions
from gateway.limits.holds import Holds
from gateway.neutral.request import Request
from gateway.neutral.videos import VideosInput, VideosRequest, VideoTask
from gateway.providers.job_calls import JobCalls
from gateway.runtime.threads import Job
from gateway.videos.ending import Endings
from gateway.videos.job_table import (
    COMPLETED,
    CREATING,
    PREFIX,
    RUNNING,
    TRANSITIONS,
    VideoJob,
    VideoJobs,
)
from gateway.videos.tasks import SealedColumns, Task

# A job without an accepting provider counts as lost this long after the deadline of its request.
GRACE_US = 60 * SECOND_US
SHOWN_PROMPT = 10_000  # stored characters of a prompt: more than any provider uses; lists show a hundred jobs


class AcceptedVideo(NamedTuple):
    """An accepted job, the attempts until then, and its estimated cost."""

    job: VideoJob
    outcome: Outcome
    estimate_nusd: int


class VideoExecutor(Executor[VideosRequest]):
    """The executor of requests that create a video."""

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        """Admit the request. NotSupported when no mapping of the plan supports such a video."""
        refusals = []
        for mapping in route_plan.mappings:
            try:
                fit(request.content(), mapping)
            except NotSupported as error:
                refusals.append(error)
        if len(refusals) == len(route_plan.mappings):
            raise refusals[0]
        return super()._admit(context, request, route_plan, deadline)


class VideoCreation:
    """Creates jobs. `every_s` is the interval between status polls, `longest_s` the timeout of a job."""

    def __init__(
        self,
        parts: EngineParts,
        jobs: VideoJobs,
        holds: Holds,
        endings: Endings,
        sealed: SealedColumns,
        calls: JobCalls,
        clock: Clock,
        every_s: float,
        longest_s: float,
    ) -> None:
        self._executor = VideoExecutor(parts)
        self._jobs = jobs
        self._holds = holds
        self._endings = endings
        self._sealed = sealed
        self._calls = calls
        self._clock = clock
        self._every_us = round(every_s * SECOND_US)
        self._longest_us = round(longest_s * SECOND_US)

    def create(
        self, context: RequestContext, request: VideosRequest, callback: CallbackOptions, base_url: str
    ) -> AcceptedVideo:
        """Create a job and return it once a provider has accepted it. Raises the errors of every paid operation;
        nothing is held then, and the job is removed."""
        outcome = Job(_caught, partial(self._create, context, request, callback, base_url)).result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _create(
        self, context: RequestContext, request: VideosRequest, callback: CallbackOptions, base_url: str
    ) -> AcceptedVideo:
        video: VideosInput = request.content()
        task = Task(base_url=base_url, callback_url=callback.url, callback_secret=callback.secret)
        job = self._draft(context, request, video, task)
        pending = PendingJob(self._holds, job.id, self._jobs.insert_rows(job), self._jobs.delete_rows(job.id))
        context.job = pending
        answer = self._executor.generate(context, request)
        if pending.accepted is None:
            raise Internal("No provider has accepted the video.")
        accepted: VideoTask = answer.result
        task = _accept(task, accepted, pending.accepted, answer.outcome, video)
        mapping = answer.outcome.serving.target.mapping
        estimate = reduced(cost_of(task.reserved, mapping, context.at_us).total, task.discount_ppm)
        started = self._start(job, task, fit(video, mapping), accepted, answer.outcome)
        return AcceptedVideo(started, answer.outcome, estimate)

    def _draft(self, context: RequestContext, request: VideosRequest, video: VideosInput, task: Task) -> VideoJob:
        caller = context.caller
        now = self._clock.now_us()
        left_us = round(max(0.0, context.deadline - self._clock.monotonic()) * SECOND_US)
        prompt = "" if keeps_nothing(caller.rules) else video.prompt[:SHOWN_PROMPT]
        return VideoJob(
            id=PREFIX + context.request_id,
            organization=caller.organization_id,
            project=caller.project_id,
            state=CREATING,
            progress=0,
            model=request.requested_model[:255],
            seconds=video.seconds,
            size=video.size,
            created_at=now,
            completed_at=None,
            expires_at=None,
            due_at=now + left_us + GRACE_US,
            deadline_at=now + self._longest_us,
            failures=0,
            wish=self._sealed.write(prompt),
            task=self._sealed.write(task),
            files="",
            outcome="",
            api_key=caller.key_id,
        )

    def _start(self, job: VideoJob, task: Task, shape: VideoShape, accepted: VideoTask, outcome: Outcome) -> VideoJob:
        """Record that a provider accepted the job, and its end if the provider reports that at once."""
        target = outcome.serving.target
        values = {
            "state": TRANSITIONS[job.state, "accepted"],
            "seconds": shape.seconds,
            "size": shape.size,
            "task": self._sealed.write(task),
        }
        try:
            due_at = self._clock.now_us() + self._every_us
            moved = self._jobs.database.write(lambda: self._jobs.change(job, **values, due_at=due_at))
        except Unavailable:
            moved = self._find_running(job)
            if moved is None:
                self._cancel(task, outcome)
                raise
        if moved is None:
            self._cancel(task, outcome)
            raise Unavailable("The video took too long to start and was canceled. Try again.")
        status = accepted.status
        if status is None or not status.is_final:
            return moved
        if status.state == COMPLETED:
            return self._endings.complete(moved, task, target, status) or moved
        return self._endings.refuse(moved, task, status) or moved

    def _find_running(self, job: VideoJob) -> VideoJob | None:
        """Return the job after a commit of unknown outcome; None if it was not committed, or cannot be read."""
        try:
            stored = self._jobs.find(job.id)
        except Unavailable:
            return None
        if stored is not None and stored.state in RUNNING:
            return stored
        return None

    def _cancel(self, task: Task, outcome: Outcome) -> None:
        """Cancel the task at the provider if possible, because its job does not exist any more."""
        try:
            self._calls.cancel(task.ident, outcome.serving.target)
        except GatewayError:
            return


def _accept(task: Task, accepted: VideoTask, call: AcceptedCall, outcome: Outcome, video: VideosInput) -> Task:
    """Return the task with everything that later steps need."""
    attempt = outcome.serving
    target = attempt.target
    mapping = target.mapping
    credential = target.credential
    return Task(
        base_url=task.base_url,
        callback_url=task.callback_url,
        callback_secret=task.callback_secret,
        ident=accepted.ident,
        provider=target.provider.id,
        model=mapping.model,
        region=mapping.region,
        credential=credential.ident,
        source=credential.source,
        bounded=credential.bounded,
        discount_ppm=call.discount_ppm,
        reserved=max_usage(video, mapping),
        prices=prices_at(mapping.prices, attempt.at_us),
        record=call.record,
    )


def _caught(work: Callable[[], AcceptedVideo]) -> AcceptedVideo | Exception:
    """Return an error as a value, because an exception that leaves its greenlet is printed."""
    try:
        return work()
    except Exception as error:
        return error
