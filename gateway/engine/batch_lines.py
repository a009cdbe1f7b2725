"""The lines of batches that a provider's batch API serves: each passes the engine twice, like any request.

The first time its call is written for one target and collected instead of sent (`CollectedLine`); the second time,
hours later, the provider's result is read in the place of a response (`DeliveredLine`). Lines thereby
have the plans, guardrails, prices, usage rows and retained payloads of every request. This module has the executors of
lines; those of requests do not depend on it.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, get_args

from msgspec.structs import replace

from gateway.billing.batch_reservation import NATIVE, CollectedLine, DeliveredLine, MeasuredLine
from gateway.billing.bounds import Bounds
from gateway.billing.context import Attempt, RequestContext, error_type
from gateway.catalogue.entries import BATCH_TIER, Mapping
from gateway.catalogue.prices import ORDINARY_TIERS
from gateway.engine import split_calls
from gateway.engine.chat_engine import ChatEngine
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.model_routes import ModelRoutes
from gateway.engine.planning import Planner, RoutePlan, place_of
from gateway.engine.run import Run
from gateway.errors import GatewayError, InvalidRequest, NotSupported
from gateway.limits.cost_bound import CostBound
from gateway.neutral.chat import NO_OPTIONS
from gateway.neutral.parameters import ServiceTier
from gateway.neutral.request import TIERS_JOINED, Request
from gateway.providers.batches.batch_calls import BatchCalls
from gateway.providers.protocol import Call, Target
from gateway.providers.upstream import Upstreams

SPEED_TIERS = frozenset(get_args(ServiceTier))
ABSENT_S = 600.0  # a target that turned out to have no batch API gets no batches for this long
NO_BATCH_API = "No provider of {} has a batch API that takes this request; leave out batch: native."


class NotBatched(Exception):
    """Ends a line that is only collected: it must be sent as a request."""


class LineWritten(NotSupported):
    """Ends a line that is only collected: its call for the target of its batch."""

    def __init__(self, call: Call, target: Target) -> None:
        super().__init__("The line is collected.")
        self.call = call
        self.target = target


class CollectingOpener:
    """Collects the call of a line instead of sending it."""

    def send(self, call: Call, target: Target, deadline: float) -> NoReturn:
        """Raise LineWritten."""
        raise LineWritten(call, target)

    def connect(self, call: Call, target: Target, deadline: float) -> NoReturn:
        """Raise NotSupported."""
        raise NotSupported("A session cannot be the line of a batch.")


class LineReply:
    """The result of a line in the form of a response."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers = {"content-type": "application/json"}
        self._body = body

    def read_all(self) -> bytes:
        return self._body

    def chunks(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        return


class ReplyingOpener:
    """Answers the call of a line with its result."""

    def __init__(self, reply: LineReply) -> None:
        self._reply = reply

    def send(self, call: Call, target: Target, deadline: float) -> "ReplyingOpener":
        return self

    def connect(self, call: Call, target: Target, deadline: float) -> NoReturn:
        """Raise NotSupported."""
        raise NotSupported("A session cannot be the line of a batch.")

    def wait(self, seconds: float | None = None) -> Any:
        return self._reply

    def close(self) -> None:
        return


COLLECTING: Any = CollectingOpener()


class BatchBounds(Bounds):
    """Bounds at the price of a provider's batch API."""

    def compute(self, request: Request, default_output: int, at_us: int) -> CostBound:
        """Return the highest cost of `request` in a batch of the provider."""
        options = replace(request.options, service_tier=BATCH_TIER)
        return super().compute(replace(request, options=options), default_output, at_us)


class LinePlanner(Planner):
    """Plans lines: for one target with a batch API where there is one. It shares all parts of the planner of requests;
    what happens to lines says nothing about the health of a provider."""

    def __init__(self, planner: Planner, upstreams: Upstreams, calls: BatchCalls, default_output: int) -> None:
        vars(self).update(vars(planner))
        self._inner = planner
        self._upstreams = upstreams
        self._calls = calls
        self._default_output = default_output
        self._absent: dict[tuple[str, str], float] = {}

    def plan(self, context: RequestContext, request: Request) -> RoutePlan:
        """Return the plan of a line: for its provider's batch, or for the target of its result. NotBatched where it
        can only be sent as a request; InvalidRequest where that was not wanted."""
        job = context.job
        if isinstance(job, DeliveredLine):
            return self._plan_delivered(context, request, job)
        route_plan = self._inner.plan(context, request)
        if not isinstance(job, MeasuredLine | CollectedLine) or not job.mode:
            return route_plan
        target = self._choose(context, request, route_plan, job)
        if target is not None:
            if isinstance(job, CollectedLine):
                target = self._upstreams.through(COLLECTING, target, request.operation)
            return _only(route_plan, target)
        if job.mode == NATIVE:
            raise InvalidRequest(NO_BATCH_API.format(request.requested_model), param="model", code="no_batch_api")
        if isinstance(job, CollectedLine):
            raise NotBatched
        return route_plan

    def note_absence(self, target: Target) -> None:
        """Note that a target has no batch API, such as an OpenAI-compatible server."""
        self._absent[target.address, target.credential.ident] = time.monotonic() + ABSENT_S

    def begun(self, target: Target) -> None:
        """Count nothing: no call is sent."""

    def succeeded(self, attempt: Attempt, streamed: bool, operation: str) -> None:
        """Count the answer of a line."""
        place = place_of(attempt.target, operation)
        totals = self._totals_of(place)
        totals.succeeded.value += 1
        if attempt.usage is not None:
            totals.input.value += attempt.usage.input_total
            totals.output.value += attempt.usage.output_total
            totals.cost.value += attempt.charge.total

    def failed(self, attempt: Attempt, error: GatewayError, organization: str, operation: str) -> None:
        """Count the error of a line."""
        place = place_of(attempt.target, operation)
        self._counters.add("attempts_total", (*place, error_type(error)))

    def _choose(
        self, context: RequestContext, request: Request, route_plan: RoutePlan, job: MeasuredLine | CollectedLine
    ) -> Target | None:
        """Return the target for the line: the planned provider, or another one of the same model if its batch API costs
        no more; None if no batch API takes the line."""
        if not _can_be_batched(request):
            return None
        first = route_plan.groups[0][0].mapping
        listed = Bounds((first,)).compute(request, self._default_output, context.at_us).bound_nusd
        for group in route_plan.groups:
            target = _preferred(group, job)
            mapping = target.mapping
            if mapping.model != first.model or not self._takes(request, route_plan, target, job):
                continue
            bound = BatchBounds((mapping,)).compute(request, self._default_output, context.at_us).bound_nusd
            if mapping is first or job.mode == NATIVE or bound <= listed:
                return target
        return None

    def _takes(
        self, request: Request, route_plan: RoutePlan, target: Target, job: MeasuredLine | CollectedLine
    ) -> bool:
        """Return whether the batch API of a target takes a request."""
        codec = self._calls.codec_of(target)
        if codec is None or request.operation not in codec.operations or target.credential.bounded:
            return False
        place = target.address, target.credential.ident
        if place in job.refused or self._absent.get(place, 0.0) > time.monotonic():
            return False
        choices = route_plan.choices_a_call(request, target.mapping) if route_plan.adapts else 0
        return len(split_calls.parts_of(request, target, choices)) < 2

    def _plan_delivered(self, context: RequestContext, request: Request, job: DeliveredLine) -> RoutePlan:
        """Return the plan of the target that served a line, whatever rules, preferences and health say now."""
        target: Target = job.target
        mapping = target.mapping

        def usable(other: Mapping) -> tuple[Any, ...]:
            return (target.credential,) if other.key == mapping.key else ()

        caller = context.caller
        plan = self._router.plan(
            mapping.model,
            request.requirements,
            NO_OPTIONS,
            None,
            usable,
            True,
            scope=caller.project_id,
            operation=context.operation,
            explore=0.0,
            organization=caller.organization_id,
        )
        opener: Any = ReplyingOpener(job.reply)
        return _only(RoutePlan(plan, ()), self._upstreams.through(opener, target, request.operation))


class LineRun(Run):
    """A line in progress. Its usage has the price of the provider's batch API."""

    def finished(self, attempt: Attempt) -> None:
        """Settle a line at the price of the batch."""
        attempt.service_tier = tier_of(attempt.service_tier)
        super().finished(attempt)

    def note(self, attempt: Attempt, finish: str, error: GatewayError) -> None:
        """Note an error. Its usage has the price of the batch."""
        super().note(attempt, finish, error)
        attempt.service_tier = tier_of(attempt.service_tier)


class LineExecutor(Executor[Request]):
    """The executor of lines."""

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        return _as_line(context, super()._admit(context, request, route_plan, deadline))


class LineChatEngine(ChatEngine):
    """The chat engine of lines."""

    def _admit(self, context: RequestContext, request: Request, route_plan: RoutePlan, deadline: float) -> Run:
        return _as_line(context, super()._admit(context, request, route_plan, deadline))


class LineEngines(NamedTuple):
    """The executors of lines, their planner, and the calls about batches of providers."""

    executor: LineExecutor
    chat: LineChatEngine
    planner: LinePlanner
    calls: BatchCalls


def make_line_engines(
    parts: EngineParts, fingerprint_key: bytes, routes: ModelRoutes, calls: BatchCalls
) -> LineEngines:
    """Return the executors of lines, with the parts of those of requests."""
    planner = LinePlanner(parts.planner, parts.upstreams, calls, parts.settings.limits.default_max_output)
    parts = parts._replace(planner=planner)
    return LineEngines(LineExecutor(parts), LineChatEngine(parts, fingerprint_key, routes), planner, calls)


def tier_of(reported: str) -> str:
    """Return the service tier of a line: that of batches, with what its provider reports besides a speed, such as a
    region."""
    others = (name for name in reported.split(TIERS_JOINED) if name not in ORDINARY_TIERS)
    kept = [name for name in others if name not in SPEED_TIERS and name != BATCH_TIER]
    return TIERS_JOINED.join((BATCH_TIER, *kept))


def _as_line(context: RequestContext, run: Run) -> Run:
    job = context.job
    if not isinstance(job, CollectedLine | DeliveredLine):
        return run
    if isinstance(job, CollectedLine) and run.settlement.reserves_call(run.walk.first()):
        # A limit of its provider or model is reserved with each call, which only an ordinary request can do.
        run.settlement.close()
        raise NotBatched
    return LineRun(*(getattr(run, name) for name in run.__struct_fields__))


def _only(route_plan: RoutePlan, target: Target) -> RoutePlan:
    """Return the plan with a single target, and bounds at the price of its batch API."""
    plan = route_plan.plan
    key = target.mapping.key
    order = tuple(scored for scored in plan.order if scored.key == key)
    chosen = RoutePlan(plan._replace(order=order), ((target,),))
    chosen.bounds = BatchBounds(chosen.mappings)
    chosen.remembered = False
    return chosen


def _preferred(group: tuple[Target, ...], job: MeasuredLine | CollectedLine) -> Target:
    """Return the target of a group with the key that other lines of the batch use, so that they are in one batch of its
    provider."""
    ident = job.credentials.setdefault(group[0].provider.id, group[0].credential.ident)
    return next((target for target in group if target.credential.ident == ident), group[0])


def _can_be_batched(request: Request) -> bool:
    """Return whether a batch of a provider may have the request: it has no service tier that the caller chose, and no
    tools that a provider runs, because these have no token prices."""
    needs = request.requirements
    if request.options.service_tier not in ORDINARY_TIERS:
        return False
    return not (needs.stream or needs.hosted_uses or needs.web_search or needs.hosted)
