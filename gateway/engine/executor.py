"""The executor: plans and admits a request, then tries the plan's targets for a whole or a streamed answer."""

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.admission import Admission, Settlements
from gateway.billing.context import Outcome, RequestContext
from gateway.billing.likely_prompts import LARGE_BYTES
from gateway.billing.provider_objects import without_own_objects
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.engine import streaming, unary
from gateway.engine.attempts import Walk
from gateway.engine.cache import is_cacheable
from gateway.engine.coalescing import RequestCoalescing
from gateway.engine.free_answers import SharedRequest
from gateway.engine.guarding import KNOWN, NO_RULES, Guarding
from gateway.engine.limit_actions import apply_actions
from gateway.engine.planning import Planner, RoutePlan, with_choice
from gateway.engine.routing_decisions import Decisions
from gateway.engine.run import Run, RunSettings
from gateway.errors import OutOfCredits, SpendingLimitReached
from gateway.neutral.events import Batch
from gateway.neutral.request import Request
from gateway.providers.upstream import Upstreams
from gateway.runtime.allowances import Allowances
from gateway.runtime.disconnects import ReadingOn

R = TypeVar("R", bound=Request)
# Checks of callers who cannot pay that pass, because the cache may have the answer: of each organization, and of all of
# the worker (burst, per second).
UNPAID = (10, 0.5, 40, 4.0)


class Answer(Struct, frozen=True, eq=False):
    """A complete answer and the outcome of its request."""

    result: Any
    outcome: Outcome


def _guarded(context: RequestContext, answer: Answer) -> Answer:
    """Return the answer with its texts checked and masked values restored, for its caller only."""
    if context.guard is None:
        return answer
    return Answer(context.guard.answer(answer.result), answer.outcome)


class StreamedAnswer:
    """A streamed answer: iterate over its batches; `close()` ends the upstream call and settles.

    The first batch is fetched before this object exists, so that an earlier error can still become the response.
    """

    def __init__(self, first: Batch, rest: Generator[Batch, None, None], outcome: Outcome) -> None:
        self._batches = chain((first,), rest)
        self._rest = rest
        self.outcome = outcome

    def __iter__(self) -> Iterator[Batch]:
        return self._batches

    def close(self) -> None:
        self._rest.close()


class EngineParts(NamedTuple):
    """The objects that an executor needs."""

    planner: Planner
    settlements: Settlements
    upstreams: Upstreams
    clock: Clock
    settings: Settings
    decisions: Decisions
    coalescing: RequestCoalescing
    reading_on: ReadingOn
    guarding: Guarding


class Executor(Generic[R]):
    """Executes the requests of every operation. Operations with more steps (chat) derive from it."""

    def __init__(self, parts: EngineParts) -> None:
        self._planner = parts.planner
        self._settlements = parts.settlements
        self._upstreams = parts.upstreams
        self._clock = parts.clock
        self._decisions = parts.decisions
        self._reading_on = parts.reading_on
        self._guarding = parts.guarding
        self._cache = parts.coalescing.cache
        self._coalescing = parts.coalescing
        self._unpaid = Allowances(*UNPAID, parts.clock.monotonic)
        settings = parts.settings
        self._default_output = settings.limits.default_max_output
        self._max_attempts = settings.routing.max_attempts
        self._timeouts = settings.timeouts
        self._run_settings = RunSettings(settings.timeouts, settings.metering.drain_s, self._default_output)

    def generate(self, context: RequestContext, request: R, early: bool = False) -> Answer:
        """Return the complete, settled answer. Raises the error for the caller.

        `early`: the settlement may still be written; the caller must call `await_record` before it sends the answer.
        """
        route_plan, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.plain_s)
        if key := self._cache.key_of(context, request, route_plan.plan):
            shared = SharedRequest(context, request, route_plan, key, deadline)
            return _guarded(context, Answer(*self._coalescing.generate(shared, self)))
        run = self._admit(context, request, route_plan, deadline)
        # The repair of JSON, and guardrails, may end in an error after the settlement.
        context.settles_early = early and not request.options.heal and context.guard is None
        try:
            answer = Answer(self.answer(run), run.outcome)
        finally:
            run.settlement.close()
        return answer if context.guard is None else _guarded(context, answer)

    def await_record(self, context: RequestContext) -> None:
        """Wait until the settlement of an early answer is durable. Unavailable."""
        self._settlements.await_record(context)

    def stream(self, context: RequestContext, request: R) -> StreamedAnswer:
        """Return a streamed answer that has begun: providers that failed before the first content were skipped.

        Errors before the first batch are raised here; later ones arrive as a Failed event. When the provider is silent
        for the heartbeat interval, a Heartbeat batch is sent; after it, failures arrive as events too.
        """
        route_plan, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.stream_s)
        if key := self._cache.key_of(context, request, route_plan.plan):
            shared = SharedRequest(context, request, route_plan, key, deadline)
            batches, outcome = self._coalescing.stream(shared, self)
        else:
            run = self._admit(context, request, route_plan, deadline)
            batches = self.events(run)
            outcome = run.outcome
        if context.guard is not None:
            batches = context.guard.stream(batches)
        try:
            first = next(batches)
        except BaseException:
            batches.close()
            raise
        return StreamedAnswer(first, batches, outcome)

    def check(self, context: RequestContext, request: R) -> None:
        """Raise what refuses a request however much it contains: no model may serve it, or its caller is over a limit
        or out of credits. Nothing is counted or held.

        A caller who cannot pay passes as often as UNPAID says where the cache may have the answer.
        """
        if context.options.choice:
            request = with_choice(context, request)
        if request.requirements.hosted_uses:
            request = self._without_own_objects(context, request)
        route_plan = self._planner.plan(context, request)
        cost_bound = route_plan.bounds.compute(request, self._default_output, context.at_us)
        if cost_bound.input_tokens >= LARGE_BYTES:
            cost_bound = self._settlements.likely_prompts.apply(context, request, cost_bound, route_plan.mappings)
        admission = Admission(
            context, request, cost_bound, route_plan.platform_paid, route_plan.model, others=route_plan.others
        )
        try:
            self._settlements.check(admission)
        except (OutOfCredits, SpendingLimitReached):
            if not is_cacheable(context) or not self._unpaid.take(context.caller.organization_id):
                raise

    def _plan(self, context: RequestContext, request: R) -> tuple[RoutePlan, R]:
        """Return the plan, and the request as it will be sent."""
        if request.requirements.hosted_uses:
            request = self._without_own_objects(context, request)
        context.request = request
        if context.payload is not None:
            context.payload.note_request(request.requested_model, request.requirements.stream)
        route_plan = self._planner.plan(context, request)
        if self._settlements.limits.any:
            limits = self._settlements.limits
            route_plan, request = apply_actions(limits, context, request, route_plan, self._plan_substitute)
            context.request = request
        ignored = route_plan.plan.request.ignored
        if ignored:
            request = replace(request, warnings=(*request.warnings, *ignored))
        if context.caller.memo.get(KNOWN) is not NO_RULES:
            request = self._protect(context, request, route_plan)
        return route_plan, request

    def _plan_substitute(self, context: RequestContext, request: Request) -> RoutePlan:
        """Return the plan of a request for the model that a limit uses instead of the requested one."""
        return self._planner.plan(context, request)

    def _protect(self, context: RequestContext, request: R, route_plan: RoutePlan) -> R:
        """Return the request as the guardrails of its caller allow it to be sent. ContentRefused."""
        rules = self._guarding.rules_of(context.caller)
        if isinstance(rules, str) or context.is_check:
            return request
        return self._guarding.protect(context, request, route_plan, rules)

    def _without_own_objects(self, context: RequestContext, request: R) -> R:
        """Return the request without the use of containers that were made for its organization."""
        needs = request.requirements
        organization_id = context.caller.organization_id
        uses = without_own_objects(self._settlements.objects, organization_id, request)
        if uses is needs.hosted_uses:
            return request
        return replace(request, requirements=replace(needs, hosted_uses=uses))

    def admit(self, shared: SharedRequest) -> Run:
        """Admit a request that may share its answer with equal requests."""
        return self._admit(shared.context, shared.request, shared.route_plan, shared.deadline)

    def answer(self, run: Run) -> Any:
        """Return the complete answer of a run."""
        return unary.answer(run)

    def events(self, run: Run) -> Generator[Batch, None, None]:
        """Return the answer of a run in batches."""
        return streaming.events(run)

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        cost_bound = route_plan.bounds.compute(request, self._default_output, context.at_us)
        large = cost_bound.input_tokens >= LARGE_BYTES
        if large:
            likely = self._settlements.likely_prompts
            cost_bound = likely.apply(context, request, cost_bound, route_plan.mappings)
            if cost_bound.unlikely_nusd:
                likely.rely(context, route_plan.mappings)
        admission = Admission(
            context, request, cost_bound, route_plan.platform_paid, route_plan.model, others=route_plan.others
        )
        try:
            settlement = self._settlements.admit(admission)
        except BaseException:
            if large:
                self._settlements.likely_prompts.release(context)
            raise
        outcome = context.outcome = Outcome(
            request, route_plan.plan.resolution.provider or None, rate_limits=settlement.rate_limits
        )
        if route_plan.chosen:
            context.noted = True
            outcome.names = route_plan.names
        return Run(
            context=context,
            request=request,
            outcome=outcome,
            route_plan=route_plan,
            walk=Walk(route_plan.groups, self._max_attempts),
            settlement=settlement,
            planner=self._planner,
            upstreams=self._upstreams,
            clock=self._clock,
            deadline=deadline,
            settings=self._run_settings,
            decisions=self._decisions,
            reading_on=self._reading_on,
        )
