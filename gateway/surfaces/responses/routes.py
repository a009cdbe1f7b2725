"""The operations of /v1/responses."""

import logging

from gateway.accounts.access import keeps_nothing
from gateway.accounts.authentication import Caller
from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.field_names import restate
from gateway.engine.executor import Answer, StreamedAnswer
from gateway.engine.stored_responses import PastTurn, StoredResponse, storage_conflict
from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute_if
from gateway.surfaces import attribution, auth, caps, http_responses
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.responses import compact, reader, schema, shapes, store, stream, writer
from gateway.surfaces.token_estimates import estimate_tokens
from gateway.worker.services import Services

log = logging.getLogger("gateway")

DIALECT = dialect.NAME
UPGRADE_REQUIRED = 426  # 426 makes coding clients switch to HTTP at once (RFC 9110, 15.5.22)
NO_SOCKET = "WebSockets are not supported; send POST /v1/responses over HTTP."
NOT_RUNNING = "Only background responses can be cancelled, and they are not supported; close the connection instead."


def create(services: Services, inbound: Inbound) -> Outbound:
    """Create a response, complete or streamed."""
    try:
        return _create(services, inbound)
    except NotSupported as error:
        raise restate(error, DIALECT) from error


def _create(services: Services, inbound: Inbound) -> Outbound:
    context = auth.admit(services, inbound, "chat", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode, raw)
    attribution.add_body(context, body.user, body.metadata)
    if keeps_nothing(context.caller.rules):
        if body.store:
            raise storage_conflict("store")
        body.store = False  # fields that the client sets by default are left out
    history, own, size = store.gather(
        body, services.engine.responses, context.caller, _replayer(services, inbound, context.caller)
    )
    large = _is_large(raw, size)
    turn = compute_if(large, _read, limits, raw, body, history, own)
    turn.request.large = large
    if turn.store:
        services.engine.responses.check_quota(context.caller)
    keep = _keeper(services, context, turn, body.previous_response_id or "")
    if turn.request.requirements.stream:
        return _stream(services, context, turn, keep)
    answer = services.engine.chat.generate(context, turn.request)
    facts = _facts(context, answer)
    response = writer.reply(answer.result, turn, facts, keep)
    headers = headers_of(facts, services.clock, streamed=False)
    return compute_if(answer.result.large, http_responses.json_reply, response, context.shown_id, headers=headers)


def _read(
    limits: LimitSettings, raw: bytes, body: schema.ResponsesBody, history: list[dict], own: list[dict]
) -> reader.ResponseTurn:
    caps.check(limits, raw, range(len(history) + len(own)), body.tools, body.text)
    return reader.read(body, history, own)


def _stream(services: Services, context: RequestContext, turn: reader.ResponseTurn, keep: writer.Keep) -> Outbound:
    answering = services.engine.chat.stream(context, turn.request)
    facts = _facts(context, answering)
    frames = stream.frames(answering, turn, facts, keep)
    return http_responses.stream_reply(frames, context.shown_id, headers_of(facts, services.clock, streamed=True))


def _facts(context: RequestContext, answer: Answer | StreamedAnswer) -> Facts:
    facts = Facts(context, answer.outcome, store.ID_PREFIX + context.request_id)
    # Also for a replayed response: it is stored under its id, so that the next turn can continue it.
    facts.answer_id = store.ID_PREFIX + context.request_id
    return facts


def _keeper(services: Services, context: RequestContext, turn: reader.ResponseTurn, previous: str) -> writer.Keep:
    """Return a function that stores the finished response. A paid response is not lost when storing fails: it then has
    `store: false`, and a turn that continues it gets an error that it does not exist."""

    def keep(response: dict) -> bool:
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


def shorten(services: Services, inbound: Inbound) -> Outbound:
    """Compact a conversation. Send the result as the input of the next turn."""
    context = auth.admit(services, inbound, "chat", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode_compact, raw)
    history, own, size = store.gather(
        body, services.engine.responses, context.caller, _replayer(services, inbound, context.caller)
    )
    large = _is_large(raw, size)
    request, users = compute_if(large, _read_compact, limits, raw, body, history, own)
    request.large = large
    answer = services.engine.chat.generate(context, request)
    facts = _facts(context, answer)
    headers = headers_of(facts, services.clock, streamed=False)
    written = compute_if(large, compact.write, answer.result, users, facts)
    return http_responses.json_reply(written, context.shown_id, headers=headers)


def _read_compact(
    limits: LimitSettings, raw: bytes, body: schema.CompactBody, history: list[dict], own: list[dict]
) -> tuple[ChatRequest, list[dict]]:
    caps.check(limits, raw, range(len(history) + len(own)), None)
    return compact.read(body, history, own)


def _is_large(raw: bytes, size: int) -> bool:
    """Return whether a thread handles it; `size` is the number of stored bytes of earlier turns."""
    return len(raw) + size >= caps.LARGE


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the number of input tokens of a response; nothing is sent upstream and nothing is charged."""
    context = auth.admit(services, inbound, "count_tokens", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode_count, raw)
    history, own, size = store.gather(
        body, services.engine.responses, context.caller, _replayer(services, inbound, context.caller)
    )
    turn = compute_if(_is_large(raw, size), _read, limits, raw, body, history, own)
    needs = turn.request.requirements
    if needs.documents:
        images, files = (0, needs.media)
    else:
        images, files = (needs.media, 0)
    tokens = estimate_tokens(needs.prompt_bytes, needs.messages, images, files, needs.tools)
    return http_responses.json_reply({"object": "response.input_tokens", "input_tokens": tokens}, context.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Get a stored response. It cannot be streamed again."""
    found = _find(services, inbound, whole=False)
    if inbound.arguments().get("stream", "").lower() == "true":
        raise InvalidRequest("A stored response cannot be streamed; leave out stream.", param="stream")
    return compute_if(store.is_long(found), _show, found.response, inbound)


def _show(response: dict, inbound: Inbound) -> Outbound:
    shown = store.show(response, sealed=_sealed(inbound), reasoned=store.asks_reasoning(response))
    return http_responses.json_reply(shown, inbound.shown_id)


def list_input(services: Services, inbound: Inbound) -> Outbound:
    """List the input items of a stored response: those of earlier turns and its own."""
    found = _find(services, inbound, whole=True)
    body = compute_if(store.is_long(found), store.list_items, found, inbound.arguments(), sealed=_sealed(inbound))
    return http_responses.json_reply(body, inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a stored response."""
    ident = inbound.params["response_id"]
    services.engine.responses.delete(auth.caller_of(services, inbound), ident)
    return http_responses.json_reply({"id": ident, "object": "response", "deleted": True}, inbound.shown_id)


def cancel(services: Services, inbound: Inbound) -> Outbound:
    """Always 400 for an existing response: background responses, which could be cancelled, are not supported."""
    _find(services, inbound, whole=False)
    raise InvalidRequest(NOT_RUNNING, code="unsupported_operation")


def refuse_socket(services: Services, inbound: Inbound) -> Outbound:
    """GET /v1/responses: 426 for a WebSocket handshake, 405 for anything else."""
    if inbound.header("upgrade").lower() == "websocket":
        raise InvalidRequest(NO_SOCKET, status=UPGRADE_REQUIRED, code="websocket_not_supported")
    text = "GET is not allowed at /v1/responses; use POST, or GET /v1/responses/{id}."
    raise MethodNotAllowed(text, headers=(("Allow", "OPTIONS, POST"),))


def _find(services: Services, inbound: Inbound, *, whole: bool) -> StoredResponse:
    caller = auth.caller_of(services, inbound)
    found = services.engine.responses.find(caller, inbound.params["response_id"], whole=whole)
    _replayer(services, inbound, caller)(found)
    return found


def _replayer(services: Services, inbound: Inbound, caller: Caller) -> store.Check:
    """Raise Forbidden for a response that access rules, added since it was created, deny to the caller."""

    def check(found: StoredResponse) -> None:
        if caller.rules:
            idents = [found.response["id"], *(turn.ident for turn in found.earlier)]
            requests = [ident.removeprefix(store.ID_PREFIX) for ident in idents if store.RESPONSE_ID.fullmatch(ident)]
            services.engine.replays.check(caller, inbound.peer, requests)

    return check


def _sealed(inbound: Inbound) -> bool:
    """Return whether the query requests encrypted reasoning (`include`, once or several times, with brackets or
    without)."""
    return dialect.ENCRYPTED in inbound.query


ONE = "/v1/responses/<response_id>"
ABOUT = About(
    "Create a response (OpenAI Responses dialect)",
    request=schema.ResponsesBody,
    answer=shapes.RESPONSE,
    events=shapes.EVENT,
)
ABOUT_SHORT = About("Compact a conversation", request=schema.ResponsesBody, answer=shapes.COMPACTION)
ABOUT_COUNT = About("Estimate the input tokens of a response", request=schema.CountBody, answer=shapes.COUNTED)
ABOUT_SOCKET = About("List responses (not supported)", success=(), errors=(405, 426))
ABOUT_CANCEL = About("Cancel a response (not supported)", success=(), errors=(400, 401, 403, 404, 503))
OPERATIONS = (
    Operation("POST", "/v1/responses", create, body="json", hot=True, paid=True, about=ABOUT),
    Operation("GET", "/v1/responses", refuse_socket, about=ABOUT_SOCKET),
    Operation("POST", "/v1/responses/compact", shorten, body="json", paid=True, about=ABOUT_SHORT),
    Operation("POST", "/v1/responses/input_tokens", count, body="json", about=ABOUT_COUNT),
    Operation("GET", ONE, retrieve, about=About("Get a stored response", answer=shapes.RESPONSE)),
    Operation("DELETE", ONE, delete, about=About("Delete a stored response", answer=shapes.DELETED)),
    Operation(
        "GET", f"{ONE}/input_items", list_input, about=About("List input items of a response", answer=shapes.ITEMS)
    ),
    Operation("POST", f"{ONE}/cancel", cancel, about=ABOUT_CANCEL),
)

SURFACE = Surface("responses", http_responses.OPENAI, OPERATIONS)
