"""Creates a response: a POST of /v1/responses, or a turn of a WebSocket."""

import logging
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gateway.accounts.access import keeps_nothing
from gateway.accounts.authentication import Caller
from gateway.billing.context import RequestContext
from gateway.clock import SECOND_US
from gateway.configuration.settings import LimitSettings
from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.field_names import restate
from gateway.engine.executor import Answer, StreamedAnswer
from gateway.engine.stored_responses import ConversationLoad, PastTurn, StoredResponse, storage_conflict
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.long_json import dumps_in_pieces
from gateway.neutral.usage import NO_USAGE
from gateway.runtime.threads import compute, compute_if
from gateway.surfaces import attribution, auth, caps, http_responses
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses import reader, schema, store, stream, writer
from gateway.surfaces.responses.assembler import COMPLETED
from gateway.surfaces.responses.response_answers import ResponseEvent, ResponseObject
from gateway.surfaces.responses.socket_memory import TurnMemory
from gateway.worker.services import Services

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
    context = auth.admit(services, inbound, "chat", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode, raw)
    attribution.add_body(context, body.user, body.metadata)
    if body.prompt_cache_key:
        attribution.add_cache_key(context, body.prompt_cache_key)
    if keeps_nothing(context.caller.rules):
        if body.store:
            raise storage_conflict("store")
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
    keep = _keeper(services, context, turn, body.previous_response_id or "", socket, len(raw), load)
    if socket is not None and not socket.generate:
        return _prepare(context, turn, keep)
    if turn.request.requirements.stream:
        return _stream(services, context, turn, keep)
    if services.settings.server.early_blank_s:
        http_responses.begin_early(context.shown_id)
    answer = services.engine.chat.generate(context, turn.request)
    facts = facts_of(context, answer)
    response = writer.reply(answer.result, turn, facts, keep)
    headers = headers_of(facts, services.clock, streamed=False)
    written = compute(dumps_in_pieces, response) if answer.result.large else response
    return http_responses.json_reply(written, context.shown_id, headers=headers)


def load_for(services: Services, context: RequestContext, body: schema.CompactBody) -> ConversationLoad:
    """Return the load of a paid request. Before a long conversation is read, the models, limits and credits are checked
    for a request that says nothing: one with the conversation costs more."""

    def check() -> None:
        bare = schema.ResponsesBody(model=body.model, service_tier=body.service_tier)
        if isinstance(body, schema.ResponsesBody):
            bare.models = body.models
            bare.provider = body.provider
        services.engine.chat.check(context, reader.read(bare, [], [shapes.user_text("Hi")]).request)

    return services.engine.responses.load_for(context.caller, check)


def read(
    limits: LimitSettings, raw: bytes, body: schema.ResponsesBody, history: list[dict], own: list[dict]
) -> reader.ResponseTurn:
    """Return the turn of a body, within the limits of a request."""
    caps.check(limits, raw, range(len(history) + len(own)), body.tools, body.text)
    return reader.read(body, history, own)


def is_large(raw: bytes, size: int, history: list[dict], own: list[dict]) -> bool:
    """Return whether a thread handles the items of a request; `size` is the number of stored bytes of earlier turns."""
    if len(raw) + size < caps.LARGE:
        return False
    return size >= caps.LARGE or caps.is_long(raw, (item.get("content") for item in (*history, *own)))


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
    frames = stream.frames(answering, turn, facts, keep)
    return http_responses.stream_reply(frames, context.shown_id, headers_of(facts, services.clock, streamed=True))


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
        if turn.history:
            earlier = [PastTurn(previous, turn.history, [])]
        else:
            earlier = []
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
    opening = writer.write_response(turn, facts, writer.RUNNING, [])
    response = writer.write_response(turn, facts, COMPLETED, [])
    response["usage"] = dialect.write_usage(NO_USAGE)
    response["store"] = keep(response)
    states = (("response.created", opening), ("response.in_progress", opening), ("response.completed", response))
    return http_responses.stream_reply(_write(states), context.shown_id)


def _write(states: tuple[tuple[str, ResponseObject], ...]) -> Iterator[bytes]:
    for number, (name, response) in enumerate(states):
        event: ResponseEvent = {"type": name, "response": response, "sequence_number": number}
        yield http_responses.write_event(event, name)
