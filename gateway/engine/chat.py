"""Chat: plan, admit, then walk the plan for a whole or a streamed answer."""

import hashlib
import hmac
from collections.abc import Iterator
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import Clock
from gateway.engine import healing, streaming, whole
from gateway.engine.attempts import Walk
from gateway.engine.cache import ResponseCache
from gateway.engine.context import RequestContext
from gateway.engine.decisions import Decisions
from gateway.engine.outcome import Outcome
from gateway.engine.planning import Planned, Planner
from gateway.engine.run import Run
from gateway.engine.settlement import Settlements
from gateway.engine.sharing import Asking, Maker, Sharing
from gateway.neutral.chat import ChatRequest, ChatResult
from gateway.neutral.events import Batch
from gateway.providers.upstream import Upstreams
from gateway.settings import Settings


class Answer(Struct, frozen=True, eq=False):
    """A whole answer and what became of the request."""

    result: ChatResult
    outcome: Outcome


class Stream:
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
        self._sharing = Sharing(cache, settlements, decisions, clock, settings.timeouts.heartbeat_s)

    def generate(self, context: RequestContext, request: ChatRequest) -> Answer:
        """The whole answer, settled. Raises what the caller must be told."""
        planned, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.plain_s)
        if key := self._cache.key_of(context, request, planned.plan):
            asking = Asking(context, request, planned, key, deadline)
            return Answer(*self._sharing.generate(asking, self._maker(asking)))
        run = self._admit(context, request, planned, deadline)
        try:
            return Answer(_whole(run), run.outcome)
        finally:
            run.settlement.close()

    def stream(self, context: RequestContext, request: ChatRequest) -> Stream:
        """A streamed answer that has begun: providers that failed before the first content were passed over.

        Errors before the first batch are raised here; later ones come as a Failed event. A batch of Silent comes
        whenever nothing did for the heartbeat time; after one, failures come as events too.
        """
        planned, request = self._plan(context, request)
        deadline = min(context.deadline, context.started + self._timeouts.stream_s)
        if key := self._cache.key_of(context, request, planned.plan):
            asking = Asking(context, request, planned, key, deadline)
            batches, outcome = self._sharing.stream(asking, self._maker(asking))
        else:
            run = self._admit(context, request, planned, deadline)
            batches, outcome = _stream(run), run.outcome
        try:
            first = next(batches)
        except BaseException:
            batches.close()
            raise
        return Stream(first, batches, outcome)

    def _plan(self, context: RequestContext, request: ChatRequest) -> tuple[Planned, ChatRequest]:
        """Where the request may go, and the request as it goes there."""
        if context.payload is not None:
            context.payload.asks(request.asked, request.needs.stream)
        options = request.options
        if options.prompt_cache_key:
            request = self._veil_cache_key(context, request)
        if options.heal and healing.wanted_of(request) is not None:
            request = replace(request, native=None)
        planned = self._planner.plan(context, request)
        if request.needs.json_object and planned.tells_json and not request.options.heal:
            # Where the format has no word for it, what the model says around its JSON is taken off.
            request = replace(request, native=None, options=replace(request.options, heal=True))
        return planned, request

    def _maker(self, asking: Asking) -> Maker:
        return Maker(
            admit=lambda: self._admit(asking.context, asking.request, asking.planned, asking.deadline),
            whole=_whole,
            stream=_stream,
        )

    def _admit(self, context: RequestContext, request: ChatRequest, planned: Planned, deadline: float) -> Run:
        ask = planned.bounds.ask(request, self._default_output, context.at_us)
        needs = request.needs
        settlement = self._settlements.admit(
            context, ask, planned.platform_paid, needs.prompt_bytes, request.asked, needs.stream
        )
        return Run(
            context=context,
            request=request,
            outcome=Outcome(
                request,
                planned.plan.resolution.provider or None,
                standings=settlement.standings,
            ),
            planned=planned,
            walk=Walk(planned.groups, self._max_attempts),
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
    result = whole.answer(run)
    return healing.heal_result(run, result) if run.request.options.heal else result


def _stream(run: Run) -> Iterator[Batch]:
    return healing.heal_stream(run, streaming.events(run))
