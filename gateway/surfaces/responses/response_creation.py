"""Creates a response: a POST of /v1/responses, or a turn of a WebSocket."""

import logging
from bisect import bisect, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
from msgspec import Struct, structs

from gateway.billing.context import RequestContext
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.clock import SECOND_US
from gateway.configuration.settings import LimitSettings
from gateway.dialects import openai
from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.field_names import restate
from gateway.engine.executor import Answer, StreamedAnswer
from gateway.engine.stored_responses import ConversationLoad, PastTurn, StoredResponse, storage_conflict
from gateway.errors import GatewayError, InvalidRequest, NotSupported
from gateway.jobs.response_jobs import QUEUED
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, NativeChunk, Notice, Started
from gateway.neutral.long_json import dumps_in_pieces
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.runtime.threads import compute, compute_if
from gateway.surfaces.responses import background, reader, schema, store, writer
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses.assembler import COMPLETED, INCOMPLETE, RUNNING, Assembler
from gateway.surfaces.responses.reader import ResponseTurn
from gateway.surfaces.responses.response_answers import ResponseEvent, ResponseItem, ResponseObject
from gateway.surfaces.responses.socket_memory import TurnMemory
from gateway.surfaces.responses.store import conceal, is_mark, is_reasoning, item_id
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.http_responses import write_frames
from gateway.worker.services import Services

# The frames of a streamed response: numbered events, in the order that clients rely on.

KEEP_ALIVE = b": keep-alive\n\n"
LARGE = 1 << 20  # bytes of a stream; the end of a longer one, which repeats all of it, is written in a thread
# Events without content: `created` is sent with the first event that has content.
EVENTS_WITHOUT_CONTENT = (Heartbeat, Finished, Failed, Started, Notice)
Json = dict[str, Any]


def stream_frames(
    batches: Iterable[Batch], turn: ResponseTurn, facts: writer.ResponseFacts, keep: writer.Keep
) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with response.completed or
    response.incomplete; a failed one with response.failed, whose member `error` makes SDKs raise, so that no client
    takes it for complete."""
    stream = _Stream(turn, facts, keep)
    return write_frames(batches, stream.write, lambda error: stream.fail(error, None))


class _Stream:
    """The state of one stream. Items come from the assembler, or unchanged from a server of this dialect."""

    def __init__(self, turn: ResponseTurn, facts: writer.ResponseFacts, keep: writer.Keep) -> None:
        self._turn = turn
        self._facts = facts
        self._keep = keep
        self._sequence = 0
        self._begun = False
        self._assembler: Assembler | None = None
        self._relayed: dict[int, ResponseItem] = {}
        self._relayed_ids: dict[int, str] = {}
        # Output indexes of hidden reasoning, in order: later items move up.
        self._hidden: set[int] = set()
        self._hidden_order: list[int] = []
        self._size = 0
        self._dumps: Callable[[Any], bytes] = orjson.dumps

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                sent += (self._begin(), self._relay(event.body))
            elif type(event) not in EVENTS_WITHOUT_CONTENT:
                sent += (self._begin(), self._emit_all(self._assembled().add(event)))
            elif type(event) is Heartbeat:
                sent.append(KEEP_ALIVE)
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(self.fail(event.error, event.usage))
        frames = b"".join(sent)
        self._size += len(frames)
        return frames

    def _begin(self) -> bytes:
        """Return the two opening events; written with the first content, since only then the serving model is
        certain."""
        if self._begun:
            return b""
        self._begun = True
        response = writer.opening(self._turn, self._facts)
        return self._emit({"type": "response.created", "response": response}) + self._emit(
            {"type": "response.in_progress", "response": response}
        )

    def _assembled(self) -> Assembler:
        if self._assembler is None:
            self._assembler = writer.assembler_of(self._turn, self._facts)
        return self._assembler

    def _emit_all(self, events: list[ResponseEvent]) -> bytes:
        return b"".join(self._emit(event) for event in events)

    def _emit(self, event: ResponseEvent) -> bytes:
        """Return one frame, or none for hidden reasoning. Encrypted content is only shown if the request included it;
        opaque tokens of other parts are encrypted content only."""
        item = event.get("item")
        index = event.get("output_index")
        if not self._turn.reasoned and index is not None:
            if item is not None and is_reasoning(item) and index not in self._hidden:
                self._hidden.add(index)
                insort(self._hidden_order, index)
            if index in self._hidden:
                return b""
            if self._hidden:
                event = {**event, "output_index": index - bisect(self._hidden_order, index)}
        if item is not None and not self._turn.sealed:
            if is_mark(item):
                return b""
            event = {**event, "item": conceal(item)}
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), self._dumps(event))

    def _relay(self, body: Json) -> bytes:
        """Return an event of a server of this dialect with the gateway's ids. It is copied because other readers may
        share the batch."""
        event: Any = body.copy()
        index = event.get("output_index")
        item = event.get("item")
        if isinstance(item, dict) and type(index) is int:
            own = event["item"] = writer.own_item(item, index, self._facts)
            self._relayed_ids[index] = own["id"]
            if event["type"] == "response.output_item.done":
                self._relayed[index] = own
        elif "item_id" in event and type(index) is int:
            event["item_id"] = self._relayed_ids.get(index) or item_id("", self._facts.answer_id, index)
        return self._emit(event)

    def _output(self) -> list[ResponseItem]:
        made = self._assembler.items if self._assembler is not None else []
        return made or [self._relayed[index] for index in sorted(self._relayed)]

    def _finish(self, event: Finished) -> bytes:
        sent = self._begin()
        large = self._size >= LARGE
        if large:
            self._dumps = dumps_in_pieces
        try:
            if self._assembler is not None:
                events = self._assembler.finish(writer.status_of(event.reason))
                sent += compute_if(large, self._emit_all, events)
            output = self._output()
            response = writer.conclude(self._turn, self._facts, output, event.reason, self._keep, event.native)
        except GatewayError as error:
            return sent + self.fail(error, event.usage)
        last: ResponseEvent = {"type": f"response.{response['status']}", "response": response}
        return compute_if(large, lambda: sent + self._emit(last))

    def fail(self, error: GatewayError, usage: Usage | None) -> bytes:
        """Return response.failed, which ends the response: the only event after the content.

        openai-python and openai-node raise on any event with a member `error` (their `_streaming.py` and
        `core/streaming.ts`); clients that read events by type find the error in the response.
        """
        if self._assembler is not None:
            self._assembler.finish(
                INCOMPLETE
            )  # the failed response has the partial output; no event reports it as done
        response = writer.failure(self._turn, self._facts, error, self._output(), usage)
        body = openai.error_body(error)["error"]
        return self._begin() + self._emit({"type": "response.failed", "response": response, "error": body})


log = logging.getLogger("gateway")

DIALECT = dialect.NAME


class SocketTurn(Struct, frozen=True):
    """The WebSocket side of a turn: the conversations that the socket keeps, and whether the model generates output
    (`generate: false` only prepares a turn)."""

    memory: TurnMemory
    generate: bool = True


def create(services: Services, inbound: Inbound, turn: SocketTurn | None = None) -> Outbound:
    """Create a response, complete or streamed; a turn of a socket is always streamed."""
    try:
        return _create(services, inbound, turn)
    except NotSupported as error:
        raise restate(error, DIALECT) from error


def _create(services: Services, inbound: Inbound, socket: SocketTurn | None) -> Outbound:
    context = auth_module.admit(services, inbound, "chat", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    body = caps_module.read(limits, raw, schema.decode, raw)
    attribution_module.add_body(context, body.user or body.safety_identifier, body.metadata)
    if body.prompt_cache_key:
        attribution_module.add_cache_key(context, body.prompt_cache_key)
    if keeps_nothing(context.caller.rules):
        if body.store or body.background:
            raise storage_conflict("store" if body.store else "background")
        body.store = False  # fields that the client sets by default are left out
    source: store.ResponseSource = services.engine.responses
    if socket is not None:
        body.stream = True
        source = socket.memory
    load = load_for(services, context, body)
    history, own, size = store.gather(body, source, context.caller, load, replayer(services, inbound, context.caller))
    large = is_large(raw, size, history, own)
    turn = compute_if(large, read, limits, raw, body, history, own)
    turn.request.large = large
    if turn.store:
        services.engine.responses.check_quota(context.caller)
    turn = _without_input(turn, socket)
    if body.background and inbound.prepared is None:
        return _begin_background(services, inbound, context, body, turn, socket)
    keep = _keeper(services, context, turn, body.previous_response_id or "", socket, len(raw), load)
    if socket is not None and not socket.generate:
        return _prepare(context, turn, keep)
    if turn.request.requirements.stream:
        return _stream(services, context, turn, keep)
    if services.settings.server.early_blank_s:
        http_responses_module.begin_early(context.shown_id)
    answer = services.engine.chat.generate(context, turn.request)
    facts = facts_of(context, answer)
    response = writer.reply(answer.result, turn, facts, keep)
    headers = headers_of(facts, services.clock, streamed=False)
    written = compute(dumps_in_pieces, response) if answer.result.large else response
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def _begin_background(
    services: Services,
    inbound: Inbound,
    context: RequestContext,
    body: schema.ResponsesBody,
    turn: ResponseTurn,
    socket: SocketTurn | None,
) -> Outbound:
    """Begin a response in the background, after what refuses its request at once."""
    if socket is not None:
        raise InvalidRequest("A WebSocket makes no background responses; use POST.", param="background")
    services.engine.chat.check(context, turn.request)
    facts = _PreparedFacts(
        store.ID_PREFIX + context.request_id, context.at_us // SECOND_US, turn.request.requested_model
    )
    queued: Any = writer.write_response(turn, facts, RUNNING, [])
    queued["status"] = QUEUED
    return background.begin(services, inbound, context, body, queued)


def _without_input(turn: ResponseTurn, socket: SocketTurn | None) -> ResponseTurn:
    """Return a turn that does not hold its input while its answer is streamed, if no later turn can continue it."""
    if turn.store or socket is not None:
        turn.request.kept = True
    elif turn.request.requirements.stream:
        return structs.replace(turn, history=[], items=[])
    return turn


def load_for(services: Services, context: RequestContext, body: schema.CompactBody) -> ConversationLoad:
    """Return the load of a paid request. Before a long conversation is read, the models, limits and credits are checked
    for a request that says nothing: one with the conversation costs more."""

    # Without the body itself: the load is held as long as the answer is streamed.
    bare = schema.ResponsesBody(model=body.model, service_tier=body.service_tier)
    if isinstance(body, schema.ResponsesBody):
        bare.models = body.models
        bare.provider = body.provider

    def check() -> None:
        services.engine.chat.check(context, reader.read_response(bare, [], [shapes.user_text("Hi")]).request)

    return services.engine.responses.load_for(context.caller, check)


def read(
    limits: LimitSettings,
    raw: bytes,
    body: schema.ResponsesBody,
    history: list[dict[str, Any]],
    own: list[dict[str, Any]],
) -> reader.ResponseTurn:
    """Return the turn of a body, within the limits of a request."""
    caps_module.check(limits, raw, range(len(history) + len(own)), body.tools, body.text)
    return reader.read_response(body, history, own)


def is_large(raw: bytes, size: int, history: list[dict[str, Any]], own: list[dict[str, Any]]) -> bool:
    """Return whether a thread handles the items of a request; `size` is the number of stored bytes of earlier turns."""
    if len(raw) + size < caps_module.LARGE:
        return False
    return size >= caps_module.LARGE or caps_module.is_long(raw, (item.get("content") for item in (*history, *own)))


def facts_of(context: RequestContext, answer: Answer | StreamedAnswer) -> Facts:
    """Return the facts of an answer, under the id of this request."""
    facts = Facts(context, answer.outcome, store.ID_PREFIX + context.request_id)
    # Also for a replayed response: it is stored under its id, so that the next turn can continue it.
    facts.answer_id = store.ID_PREFIX + context.request_id
    return facts


def replayer(services: Services, inbound: Inbound, caller: Caller) -> store.Check:
    """Raise Forbidden for a response that access rules, added since it was created, deny to the caller."""

    def check(conversation: StoredResponse) -> None:
        if caller.rules:
            idents = [conversation.response["id"], *(turn.ident for turn in conversation.earlier)]
            requests = [ident.removeprefix(store.ID_PREFIX) for ident in idents if store.RESPONSE_ID.fullmatch(ident)]
            services.engine.replays.check(caller, inbound.peer, requests)

    return check


def _stream(services: Services, context: RequestContext, turn: reader.ResponseTurn, keep: writer.Keep) -> Outbound:
    answering = services.engine.chat.stream(context, turn.request)
    facts = facts_of(context, answering)
    frames = stream_frames(answering, turn, facts, keep)
    return http_responses_module.stream_reply(
        frames, context.shown_id, headers_of(facts, services.clock, streamed=True)
    )


def _keeper(
    services: Services,
    context: RequestContext,
    turn: reader.ResponseTurn,
    previous: str,
    socket: SocketTurn | None,
    size: int,
    load: ConversationLoad,
) -> writer.Keep:
    """Return a function that stores the finished response. A paid response is not lost when storing fails: it then has
    `store: false`, and a turn that continues it gets an error that it does not exist. A response that is not stored is
    kept on its socket. The function holds `load`, whose bytes count as long as the request lasts."""

    def keep(response: Any, load: ConversationLoad = load) -> bool:
        if not turn.store:
            if socket is not None:
                socket.memory.keep(response, turn.items, previous, size)
            return False
        earlier = [PastTurn(previous, turn.history, [])] if turn.history else []
        try:
            services.engine.responses.keep(context.caller, StoredResponse(response, earlier, turn.items), previous)
        except GatewayError as error:
            log.warning("response %s was not stored: %s", context.request_id, error)
            return False
        return True

    return keep


class _PreparedFacts(Struct, frozen=True):
    """The facts of a response that no model generated."""

    answer_id: str
    created: int
    requested_model: str
    service_tier: str = ""


def _prepare(context: RequestContext, turn: reader.ResponseTurn, keep: writer.Keep) -> Outbound:
    """Keep the input of a turn under the id of a response without output, for the next turn to continue. Nothing is
    sent upstream and nothing is charged."""
    ident = store.ID_PREFIX + context.request_id
    facts = _PreparedFacts(ident, context.at_us // SECOND_US, turn.request.requested_model)
    opening = writer.write_response(turn, facts, RUNNING, [])
    response = writer.write_response(turn, facts, COMPLETED, [])
    response["usage"] = dialect.write_usage(NO_USAGE)
    response["store"] = keep(response)
    states = (("response.created", opening), ("response.in_progress", opening), ("response.completed", response))
    return http_responses_module.stream_reply(_write(states), context.shown_id)


def _write(states: tuple[tuple[str, ResponseObject], ...]) -> Iterator[bytes]:
    for number, (name, response) in enumerate(states):
        event: ResponseEvent = {"type": name, "response": response, "sequence_number": number}
        yield http_responses_module.write_event(event, name)
