"""The making of a job: its row and its hold, then the walk over providers until one takes it.

The row comes first, so that whatever happens to this process, somebody finds the hold and ends it. Once a provider has
the job it goes on, whether or not its caller still waits for the answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from gateway.accounts.access import keeps_nothing
from gateway.billing.context import RequestContext
from gateway.billing.held_settlement import HeldSettlement, HeldSettlements
from gateway.billing.outcome import Outcome
from gateway.billing.usage_rows import mode_of, record_of
from gateway.catalogue.entries import Mapping
from gateway.catalogue.price_rates import prices_at
from gateway.catalogue.prices import cost_of, reduced
from gateway.catalogue.videos import VideoShape, fit, most_cost, most_usage
from gateway.clock import SECOND_US, Clock
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.planning import RoutePlan
from gateway.engine.run import Run
from gateway.errors import GatewayError, NotSupported, Unavailable
from gateway.limits.cost_bound import CostBound
from gateway.limits.holds import Holds
from gateway.neutral.request import Request
from gateway.neutral.videos import VideosInput, VideosRequest, VideoTask
from gateway.providers.job_calls import JobCalls
from gateway.runtime.threads import Job
from gateway.videos.ending import Endings
from gateway.videos.job_states import COMPLETED, CREATING, MOVES, RUNNING
from gateway.videos.job_table import PREFIX, VideoJob, VideoJobs
from gateway.videos.tasks import Sealed, Task

# How long after the last moment of its request a job that no provider was heard of counts as lost.
GRACE_US = 60 * SECOND_US
SHOWN_PROMPT = 10_000  # characters that a job shows again: more than any provider films, and lists show a hundred


class CallbackWish(NamedTuple):
    """Whom to tell of the end ("": nobody), and what it is signed with ("": the project's secret)."""

    url: str = ""
    secret: str = ""


class Created(NamedTuple):
    """A job that a provider has, the attempts that it took, and what it costs if all goes as foreseen."""

    job: VideoJob
    outcome: Outcome
    estimate_nusd: int


class JobExecutor(Executor[VideosRequest]):
    """The executor of one job: what it may cost at each mapping is exactly known."""

    def __init__(self, parts: EngineParts, held: HeldSettlements, wanted: VideosInput) -> None:
        super().__init__(parts._replace(settlements=held))
        self._held = held
        self._wanted = wanted

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        """NotSupported where no mapping of the plan makes such a video."""
        costs: list[int] = []
        refusals: list[NotSupported] = []
        for mapping in route_plan.mappings:
            try:
                costs.append(most_cost(self._wanted, mapping, context.at_us))
            except NotSupported as error:
                refusals.append(error)
        if not costs:
            raise refusals[0]
        self._held.cost_bound = CostBound(max(costs), 0, 0, True)
        return super()._admit(context, request, route_plan, deadline)


class VideoCreation:
    """Makes jobs. `every_s` between two questions how far one is, `longest_s` until it is given up."""

    def __init__(
        self,
        parts: EngineParts,
        jobs: VideoJobs,
        holds: Holds,
        endings: Endings,
        sealed: Sealed,
        calls: JobCalls,
        clock: Clock,
        every_s: float,
        longest_s: float,
    ) -> None:
        self._parts = parts
        self._jobs = jobs
        self._holds = holds
        self._endings = endings
        self._sealed = sealed
        self._calls = calls
        self._clock = clock
        self._every_us = round(every_s * SECOND_US)
        self._longest_us = round(longest_s * SECOND_US)

    def create(self, context: RequestContext, request: VideosRequest, callback: CallbackWish, base_url: str) -> Created:
        """The job, once a provider has it. Raises the errors of every paid operation for the caller; nothing is held
        then, and there is no job."""
        outcome = Job(_caught, lambda: self._create(context, request, callback, base_url)).result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _create(
        self, context: RequestContext, request: VideosRequest, callback: CallbackWish, base_url: str
    ) -> Created:
        wanted: VideosInput = request.content()
        task = Task(base_url=base_url, callback_url=callback.url, callback_secret=callback.secret)
        job = self._draft(context, request, wanted, task)
        held = HeldSettlements(
            self._parts.settlements,
            self._holds,
            job.id,
            lambda mapping: _bound(wanted, mapping, context.at_us),
            lambda: self._jobs.insert(job),
            lambda: self._jobs.delete(job.id),
        )
        answer = JobExecutor(self._parts, held, wanted).generate(context, request)
        made: VideoTask = answer.result
        task = self._accepted(task, made, held.settlement, answer.outcome, wanted)
        mapping = answer.outcome.serving.target.mapping
        estimate = reduced(cost_of(task.reserved, mapping, context.at_us).total, task.discount_ppm)
        going_on = self._go_on(job, task, fit(wanted, mapping), made, answer.outcome)
        return Created(going_on, answer.outcome, estimate)

    def _draft(self, context: RequestContext, request: VideosRequest, wanted: VideosInput, task: Task) -> VideoJob:
        caller = context.caller
        now = self._clock.now_us()
        left_us = round(max(0.0, context.deadline - self._clock.monotonic()) * SECOND_US)
        if keeps_nothing(caller.rules):
            prompt = ""
        else:
            prompt = wanted.prompt[:SHOWN_PROMPT]
        return VideoJob(
            id=PREFIX + context.request_id,
            organization=caller.organization_id,
            project=caller.project_id,
            state=CREATING,
            progress=0,
            model=request.requested_model[:255],
            seconds=wanted.seconds,
            size=wanted.size,
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

    def _accepted(
        self, task: Task, made: VideoTask, settlement: HeldSettlement, outcome: Outcome, wanted: VideosInput
    ) -> Task:
        """What is kept of the job from now on."""
        attempt = outcome.serving
        call = settlement.accepted
        target = attempt.target
        mapping = target.mapping
        credential = target.credential
        return Task(
            base_url=task.base_url,
            callback_url=task.callback_url,
            callback_secret=task.callback_secret,
            ident=made.ident,
            provider=target.provider.id,
            model=mapping.model,
            region=mapping.region,
            credential=credential.ident,
            source=credential.source,
            bounded=credential.bounded,
            discount_ppm=call.discount_ppm if call is not None else 0,
            reserved=most_usage(wanted, mapping),
            prices=prices_at(mapping.prices, attempt.at_us),
            record=record_of(settlement.terms, attempt, mode_of(target), attempt.at_us),
        )

    def _go_on(self, job: VideoJob, task: Task, shape: VideoShape, made: VideoTask, outcome: Outcome) -> VideoJob:
        """Write down that a provider has it, and its end where that is there at once."""
        target = outcome.serving.target
        values = {
            "state": MOVES[job.state, "accepted"],
            "seconds": shape.seconds,
            "size": shape.size,
            "task": self._sealed.write(task),
        }
        try:
            due_at = self._clock.now_us() + self._every_us
            moved = self._jobs.database.write(lambda: self._jobs.change(job, **values, due_at=due_at))
        except Unavailable:
            moved = self._written(job)
            if moved is None:
                self._cancel(task, outcome)
                raise
        if moved is None:
            self._cancel(task, outcome)
            raise Unavailable("The video took too long to begin, and was given up; ask for it again.")
        status = made.status
        if status is None or not status.is_final:
            return moved
        if status.state == COMPLETED:
            return self._endings.complete(moved, task, target, status) or moved
        return self._endings.refuse(moved, task, status) or moved

    def _written(self, job: VideoJob) -> VideoJob | None:
        """The job as it is after a commit whose end nobody heard of; None where it was not made, or is not known."""
        try:
            found = self._jobs.find(job.id)
        except Unavailable:
            return None
        if found is not None and found.state in RUNNING:
            return found
        return None

    def _cancel(self, task: Task, outcome: Outcome) -> None:
        """Nobody will ever ask for it: end it where that can be done."""
        try:
            self._calls.cancel(task.ident, outcome.serving.target)
        except GatewayError:
            return


def _bound(wanted: VideosInput, mapping: Mapping, at_us: int) -> int:
    """The most that the video costs at a mapping; nothing where it makes none such, which its codec then says."""
    try:
        return most_cost(wanted, mapping, at_us)
    except NotSupported:
        return 0


def _caught(work: Callable[[], Created]) -> Created | Exception:
    """An error as a value: one that left its greenlet would be printed."""
    try:
        return work()
    except Exception as error:
        return error
