"""The chat engine: the executor plus hashed prompt cache keys and repair of JSON answers."""

import dataclasses
import hashlib
import hmac
from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from typing import Protocol, TypeVar

from msgspec import structs
from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.engine import streaming, unary
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.model_routes import ModelRoutes, use_models
from gateway.engine.planning import RoutePlan, with_choice
from gateway.engine.run import Run
from gateway.errors import GatewayError
from gateway.media.token_counting import counted
from gateway.neutral.cache_marks import AUTOMATIC
from gateway.neutral.chat import ChatRequest, ChatResult, Choice, FinishReason, ResponseFormat
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Notice,
    Progress,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.json_extraction import MAX_LENGTH, Healed, heal
from gateway.neutral.parts import Part, Refusal, Source, Text, ToolCall
from gateway.neutral.request import Request
from gateway.providers.upstream import Upstreams
from gateway.routes.choices import describe
from gateway.routing.model_fallbacks import NEXT_MODEL_ERRORS
from gateway.routing.record import RoutingDecision
from gateway.routing.score import Weights
from gateway.runtime.threads import compute_if

T = TypeVar("T")

# JSON healing: repairs the JSON of answers; the text of a stream is buffered until it is complete.
#
# Repaired answers are always read in the neutral form, never relayed, so that their text is in one place.

HEARTBEAT_INTERVAL_S = 2.0  # how often a caller waiting for buffered text gets a heartbeat
REFUSAL_REASONS: tuple[FinishReason, ...] = ("content_filter", "refusal")
UNBUFFERED_EVENTS = (Started, Notice, Progress, Heartbeat)


def requested_format(request: Request) -> ResponseFormat | None:
    """Return the format to repair answers to, None when it was not requested or cannot be done.

    It cannot be done for several streamed choices, since the text of all would have to be buffered at once. Raises
    InvalidRequest for an invalid conversation.
    """
    if not request.options.heal or not isinstance(request, ChatRequest):
        return None
    requirements = request.requirements
    if not (requirements.json_object or requirements.json_schema) or (requirements.stream and requirements.n > 1):
        return None
    return request.conversation().response_format


def heal_result(run: Run, result: ChatResult) -> ChatResult:
    """Return the result with the JSON of its answers repaired; the strategies are recorded in the outcome."""
    response_format = requested_format(run.request)
    if response_format is None:
        return result
    return dataclasses.replace(
        result, choices=tuple(_heal_choice(run, choice, response_format) for choice in result.choices)
    )


def _heal_choice(run: Run, choice: Choice, response_format: ResponseFormat) -> Choice:
    if choice.finish in REFUSAL_REASONS or any(isinstance(part, Refusal | ToolCall) for part in choice.parts):
        return choice
    texts = [part for part in choice.parts if isinstance(part, Text)]
    healed = _heal(run, "".join(part.text for part in texts), response_format)
    if healed is None:
        return choice
    # Annotations of the old text, such as positions and signatures, do not apply to the new text.
    sources = tuple(_loosen(source) for part in texts for source in part.sources)
    parts: list[Part] = []
    for part in choice.parts:
        if part is texts[0]:
            parts.append(Text(healed.text, sources=sources))
        elif not isinstance(part, Text):
            parts.append(part)
    return structs.replace(choice, parts=tuple(parts))


def _heal(run: Run, text: str, response_format: ResponseFormat) -> Healed | None:
    healed = heal(text, response_format)
    if healed is not None:
        known = run.outcome.healing
        run.outcome.healing = known + tuple(name for name in healed.strategies if name not in known)
    return healed


def _loosen(source: Source) -> Source:
    return structs.replace(source, start=-1, end=-1)


def heal_stream(run: Run, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
    """Return the batches with the text as one delta before the end. Closing the result closes `batches`."""
    response_format = requested_format(run.request)
    if response_format is None:
        return batches
    return _heal_batches(run, batches, response_format)


def _heal_batches(
    run: Run, batches: Generator[Batch, None, None], response_format: ResponseFormat
) -> Generator[Batch, None, None]:
    """Buffer everything from the first text on, so that blocks stay in order."""
    held: Batch = []
    size = 0
    last_sent = run.clock.monotonic()
    try:
        for batch in batches:
            sent: Batch = []
            for event in batch:
                if isinstance(event, Finished | Failed):
                    sent += [*_release(run, held, event, response_format), event]
                    held = []
                elif size > MAX_LENGTH:
                    sent.append(event)
                elif isinstance(event, TextDelta) or (held and not isinstance(event, UNBUFFERED_EVENTS)):
                    held.append(event)
                    size += len(event.text) if isinstance(event, TextDelta) else 0
                    if size > MAX_LENGTH:  # too long to be repaired
                        sent += _merge(held)
                        held = []
                else:
                    sent.append(event)
            if not sent and run.clock.monotonic() - last_sent >= HEARTBEAT_INTERVAL_S:
                sent.append(Heartbeat())
            if sent:
                last_sent = run.clock.monotonic()
                yield sent
    finally:
        batches.close()


def _release(run: Run, held: Batch, end: Finished | Failed, response_format: ResponseFormat) -> Batch:
    """Return the buffered events, with one delta per text block, or a single delta if the text was repaired."""
    merged = _merge(held)
    if not held or isinstance(end, Failed) or end.reason in REFUSAL_REASONS:
        return merged
    if any(isinstance(event, RefusalDelta | ToolCallDelta) for event in held):
        return merged
    texts = [event for event in merged if isinstance(event, TextDelta)]
    healed = _heal(run, "".join(event.text for event in texts), response_format)
    if healed is None:
        return merged
    first = texts[0]
    others = {event.block for event in texts[1:]}
    return list(_replace(merged, TextDelta(healed.text, first.block, first.choice), others))


def _merge(held: Iterable[Event]) -> Batch:
    """Merge the deltas of each text block into one, at the position of the first."""
    merged: Batch = []
    blocks: dict[int, list[TextDelta]] = {}
    for event in held:
        if not isinstance(event, TextDelta):
            merged.append(event)
        elif event.block in blocks:
            blocks[event.block].append(event)
        else:
            merged.append(event)
            blocks[event.block] = [event]
    wholes = {id(deltas[0]): _join(deltas) for deltas in blocks.values()}
    return [wholes.get(id(event), event) for event in merged]


def _join(deltas: list[TextDelta]) -> TextDelta:
    return structs.replace(
        deltas[0],
        text="".join([delta.text for delta in deltas]),
        signature="".join([delta.signature for delta in deltas]),
        vendor=next((delta.vendor for delta in deltas if delta.vendor), ""),
    )


def _replace(merged: Iterable[Event], whole: TextDelta, others: set[int]) -> Iterator[Event]:
    """Yield the events with `whole` in place of the first text and without the other text blocks."""
    for event in merged:
        if isinstance(event, TextDelta):
            if event.block == whole.block:
                yield whole
        elif isinstance(event, SourceFound):
            block = whole.block if event.block in others else event.block
            yield structs.replace(event, source=_loosen(event.source), block=block)
        elif not (isinstance(event, BlockDone) and event.block in others):
            yield event


class StoredInputs(Protocol):
    """The stored files of one request, whose contents are not in it. `read` returns the request with the kinds and
    tokens of its media, `through` the upstreams that send them."""

    def read(self, request: ChatRequest) -> ChatRequest: ...
    def through(self, upstreams: Upstreams) -> Upstreams: ...


class ChatEngine(Executor[ChatRequest]):
    """The executor of chat requests."""

    _files: StoredInputs | None = None

    def __init__(self, parts: EngineParts, fingerprint_key: bytes, routes: ModelRoutes) -> None:
        """`fingerprint_key` is a secret of the installation; cache keys are hashed with it before they are sent.
        `routes` choose the models of requests that name one."""
        super().__init__(parts)
        self.routes = routes
        self._route_book = routes.book
        self._fingerprint_key = fingerprint_key

    def with_files(self, files: StoredInputs) -> "ChatEngine":
        """Return the engine for a request with stored files. It shares all parts of this one."""
        engine = copy(self)
        engine._files = files
        engine._upstreams = files.through(self._upstreams)
        return engine

    def _plan(self, context: RequestContext, request: ChatRequest) -> tuple[RoutePlan, ChatRequest]:
        """Plan as for every request, with the caller's cache key hashed, or that of the session in its place, and the
        response format prepared for JSON repair. The request keeps the name of a route; the models of the
        route are planned."""
        if request.requested_model in self._route_book.names and context.routed is not request:
            routed = self.routes.apply(context, request)
            if routed is not None:
                return self._plan_route(context, request, routed)
        if context.options.choice:
            request = with_choice(context, request)
        options = request.options
        if request.requirements.media:
            request = counted(request) if self._files is None else self._files.read(request)
        if options.prompt_cache_key:
            request = self._hash_cache_key(context, request)
        elif context.session and context.caller.cache_markers == AUTOMATIC:
            key = self._hash(f"{context.caller.project_id}\nsession\n{context.session}")
            request = replace(request, options=replace(options, session_cache_key=key))
        if options.heal and requested_format(request) is not None:
            request = replace(request, native=None)
        route_plan, request = Executor._plan(self, context, request)
        if request.requirements.json_object and route_plan.json_by_prompt and not request.options.heal:
            # Without a JSON mode models write text around the JSON, which the repair removes.
            request = replace(request, native=None, options=replace(request.options, heal=True))
        return route_plan, request

    def check(self, context: RequestContext, request: ChatRequest) -> None:
        """Check as for every request, for the models of a route that the request names."""
        super_check = super().check
        routed = self._without_route(context, request)
        self._try_models(context, request, routed, lambda models: super_check(context, models))

    def explain(self, context: RequestContext, request: ChatRequest, weights: Weights | None = None) -> RoutingDecision:
        """Return the decision as `Planner.explain` does, with the choice of a route that the request names."""
        routed = self._without_route(context, request)
        record = self._try_models(
            context, request, routed, lambda models: self._planner.explain(context, models, weights)
        )
        if routed is not request and context.route is not None:
            record["requestedModel"] = request.requested_model
            record["route"] = describe(context.route)
        return record

    def _without_route(self, context: RequestContext, request: ChatRequest) -> ChatRequest:
        """Return the request for the models of its route, without a change of the models that the session keeps."""
        if request.requested_model in self._route_book.names:
            return self.routes.apply(context, request, remember=False) or request
        return request

    def _plan_route(
        self, context: RequestContext, request: ChatRequest, routed: ChatRequest
    ) -> tuple[RoutePlan, ChatRequest]:
        context.attribute()
        planned = request

        def plan(models: ChatRequest) -> tuple[RoutePlan, ChatRequest]:
            context.routed = models
            return self._plan(context, models)

        try:
            route_plan, planned = self._try_models(context, request, routed, plan)
        finally:
            context.routed = None
            planned = context.request = replace(planned, requested_model=request.requested_model)
            if context.payload is not None:
                context.payload.note_request(request.requested_model, request.requirements.stream)
        return route_plan, planned

    def _try_models(
        self, context: RequestContext, request: ChatRequest, routed: ChatRequest, run: Callable[[ChatRequest], T]
    ) -> T:
        """Return the result for the models of a route, or for its last resort if none of them can serve."""
        try:
            return run(routed)
        except NEXT_MODEL_ERRORS:
            choice = context.route
            if routed is request or choice is None or not choice.last_resort:
                raise
            return run(use_models(request, (choice.last_resort,)))

    def _plan_substitute(self, context: RequestContext, request: Request) -> RoutePlan:
        """Plan as for every request; the model that a limit names may be a route."""
        before = context.route
        routed = None
        try:
            if isinstance(request, ChatRequest) and request.requested_model in self._route_book.names:
                routed = self.routes.apply(context, request)
            route_plan = self._planner.plan(context, routed or request)
        except GatewayError:
            context.route = before
            raise
        if routed is None:
            context.route = None
        context.attribute()
        return route_plan

    def answer(self, run: Run) -> ChatResult:
        result: ChatResult = unary.answer(run)
        if run.request.options.heal:
            return heal_result(run, result)
        return result

    def events(self, run: Run) -> Generator[Batch, None, None]:
        return heal_stream(run, streaming.events(run))

    def _hash_cache_key(self, context: RequestContext, request: ChatRequest) -> ChatRequest:
        """Replace the caller's prompt cache key by a keyed hash, so that tenants never share a provider's cache by
        choosing the same key."""
        text = f"{context.caller.project_id}\n{request.options.prompt_cache_key}"
        hashed = compute_if(request.large, self._hash, text)
        return replace(request, options=replace(request.options, prompt_cache_key=hashed))

    def _hash(self, text: str) -> str:
        return hmac.new(self._fingerprint_key, text.encode(), hashlib.sha256).hexdigest()
