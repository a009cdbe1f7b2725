"""Chat: plan, admit, then walk the plan for a whole or a streamed answer."""

import hashlib
import hmac
from collections.abc import Iterator
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.billing.outcome import Outcome
from gateway.billing.settlement import Settlements
from gateway.clock import Clock
from gateway.engine import healing, streaming, unary
from gateway.engine.attempts import Walk
from gateway.engine.cache import ResponseCache
from gateway.engine.coalescing import AnswerSource, RequestCoalescing, SharedRequest
from gateway.engine.decisions import Decisions
from gateway.engine.planning import Planner, RoutePlan
from gateway.engine.run import Run
from gateway.neutral.chat import ChatRequest, ChatResult
from gateway.neutral.events import Batch
from gateway.providers.upstream import Upstreams
from gateway.settings import Settings


class ChatAnswer(Struct, frozen=True, eq=False):
    """A whole answer and what became of the request."""

    result: ChatResult
    outcome: Outcome


class ChatStream:
    """A streamed answer: iterate over its batches; `close()` ends the upstream call and settles.

    The first batch was already fetched, so that an error before it was raised where it can still be the answer.
    """

    def __init__(self, first: Batch, rest: Iterator[Batch], outcome: Outcome) -> None:
        self._batches = chain((first,), rest)
        self._rest = rest
        self.outcome = outcome

    def __iter__(self) -> Iterator[Batch]:
        return self._batches

    def close(self) -> None:
        self._rest.close()


class ChatEngine:
    """One object serves all requests."""

    def __init__(
        self,
        planner: Planner,
        settlements: Settlements,
        upstreams: Upstreams,
        clock: Clock,
        settings: Settings,
        fingerprint_key: bytes,
        decisions: Decisions,
        cache: ResponseCache,
    ) -> None:
        """`fingerprint_key` is a secret of the installation: what callers name goes upstream as its HMAC only."""
        self._planner = planner
        self._settlements = settlements
        self._upstreams = upstreams
        self._clock = clock
        self._default_output = settings.limits.default_max_output
        self._max_attempts = settings.routing.max_attempts
        self._drain_s = settings.metering.drain_s
        self._timeouts = settings.timeouts
        self._fingerprint_key = fingerprint_key
        self._decisions = decisions
        self._cache = cache
        self._sharing = RequestCoalescing(cache, settlements, decisions, clock, settings.timeouts.heartbeat_s)

    def generate(self, context: RequestContext, request: ChatRequest) -> ChatAnswer:
        """The whole answer, settled. Raises what the caller must be told."""
        route_plan, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.plain_s)
        if key := self._cache.key_of(context, request, route_plan.plan):
            asking = SharedRequest(context, request, route_plan, key, deadline)
            return ChatAnswer(*self._sharing.generate(asking, self._source(asking)))
        run = self._admit(context, request, route_plan, deadline)
        try:
            return ChatAnswer(_whole(run), run.outcome)
        finally:
            run.settlement.close()

    def stream(self, context: RequestContext, request: ChatRequest) -> ChatStream:
        """A streamed answer that has begun: providers that failed before the first content were passed over.

        Errors before the first batch are raised here; later ones come as a Failed event. A batch of Heartbeat comes
        whenever nothing did for the heartbeat time; after one, failures come as events too.
        """
        route_plan, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.stream_s)
        if key := self._cache.key_of(context, request, route_plan.plan):
            asking = SharedRequest(context, request, route_plan, key, deadline)
            batches, outcome = self._sharing.stream(asking, self._source(asking))
        else:
            run = self._admit(context, request, route_plan, deadline)
            batches, outcome = _stream(run), run.outcome
        try:
            first = next(batches)
        except BaseException:
            batches.close()
            raise
        return ChatStream(first, batches, outcome)

    def _plan(self, context: RequestContext, request: ChatRequest) -> tuple[RoutePlan, ChatRequest]:
        """Where the request may go, and the request as it goes there."""
        if context.payload is not None:
            context.payload.asks(request.requested_model, request.requirements.stream)
        options = request.options
        if options.prompt_cache_key:
            request = self._veil_cache_key(context, request)
        if options.heal and healing.wanted_of(request) is not None:
            request = replace(request, native=None)
        route_plan = self._planner.plan(context, request)
        if request.requirements.json_object and route_plan.tells_json and not request.options.heal:
            # Where the format has no word for it, what the model says around its JSON is taken off.
            request = replace(request, native=None, options=replace(request.options, heal=True))
        return route_plan, request

    def _source(self, asking: SharedRequest) -> AnswerSource:
        return AnswerSource(
            admit=lambda: self._admit(asking.context, asking.request, asking.route_plan, asking.deadline),
            unary=_whole,
            stream=_stream,
        )

    def _admit(self, context: RequestContext, request: ChatRequest, route_plan: RoutePlan, deadline: float) -> Run:
        ask = route_plan.bounds.ask(request, self._default_output, context.at_us)
        needs = request.requirements
        settlement = self._settlements.admit(
            context,
            ask,
            route_plan.platform_paid,
            needs.prompt_bytes,
            request.requested_model,
            needs.stream,
            context.payload,
        )
        return Run(
            context=context,
            request=request,
            outcome=Outcome(
                request,
                route_plan.plan.resolution.provider or None,
                rate_limits=settlement.rate_limits,
            ),
            route_plan=route_plan,
            walk=Walk(route_plan.groups, self._max_attempts),
            settlement=settlement,
            planner=self._planner,
            upstreams=self._upstreams,
            clock=self._clock,
            deadline=deadline,
            drain_s=self._drain_s,
            timeouts=self._timeouts,
            decisions=self._decisions,
            default_output=self._default_output,
        )

    def _veil_cache_key(self, context: RequestContext, request: ChatRequest) -> ChatRequest:
        """The caller's prompt cache key as a keyed hash, so that tenants never share one by choosing alike."""
        text = f"{context.caller.project_id}\n{request.options.prompt_cache_key}"
        veiled = hmac.new(self._fingerprint_key, text.encode(), hashlib.sha256).hexdigest()
        return replace(request, options=replace(request.options, prompt_cache_key=veiled))


def _whole(run: Run) -> ChatResult:
    result = unary.answer(run)
    return healing.heal_result(run, result) if run.request.options.heal else result


def _stream(run: Run) -> Iterator[Batch]:
    return healing.heal_stream(run, streaming.events(run))
