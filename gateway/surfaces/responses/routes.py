"""The operations of /v1/responses."""

from typing import Annotated

from gateway.configuration.settings import LimitSettings
from gateway.dialects import responses_vocabulary as dialect
from gateway.engine.stored_responses import ConversationLoad, StoredResponse
from gateway.errors import InvalidRequest, MethodNotAllowed
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute_if
from gateway.surfaces import auth, caps, http_responses, socket_handshakes
from gateway.surfaces.answer_structs import RELAYED, ModelApiAnswer
from gateway.surfaces.facts import headers_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.responses import compact, response_creation, schema, socket_opening, store
from gateway.surfaces.responses.response_answers import CompactedResponse, ResponseEvent, ResponseObject
from gateway.surfaces.token_estimates import estimate_tokens
from gateway.worker.services import Services

NOT_RUNNING = "Only background responses can be cancelled, and they are not supported; close the connection instead."


class TokenEstimateAnswer(ModelApiAnswer, tag_field="object", tag="response.input_tokens"):
    input_tokens: int


class ResponseDeletedAnswer(ModelApiAnswer, tag_field="object", tag="response"):
    id: str
    deleted: bool = True


def shorten(services: Services, inbound: Inbound) -> Outbound:
    """Compact a conversation. Send the result as the input of the next turn."""
    context = auth.admit(services, inbound, "chat", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode_compact, raw)
    load = response_creation.load_for(services, context, body)
    check = response_creation.replayer(services, inbound, context.caller)
    history, own, size = store.gather(body, services.engine.responses, context.caller, load, check)
    large = response_creation.is_large(raw, size, history, own)
    request, users = compute_if(large, _read_compact, limits, raw, body, history, own)
    request.large = large
    answer = services.engine.chat.generate(context, request)
    facts = response_creation.facts_of(context, answer)
    headers = headers_of(facts, services.clock, streamed=False)
    written = compute_if(large, compact.write, answer.result, users, facts)
    return http_responses.json_reply(written, context.shown_id, headers=headers)


def _read_compact(
    limits: LimitSettings, raw: bytes, body: schema.CompactBody, history: list[dict], own: list[dict]
) -> tuple[ChatRequest, list[dict]]:
    caps.check(limits, raw, range(len(history) + len(own)), None)
    return compact.read(body, history, own)


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the number of input tokens of a response; nothing is sent upstream and nothing is charged."""
    context = auth.admit(services, inbound, "count_tokens", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps.read(limits, raw, schema.decode_count, raw)
    load = services.engine.responses.load_for(context.caller)
    check = response_creation.replayer(services, inbound, context.caller)
    history, own, size = store.gather(body, services.engine.responses, context.caller, load, check)
    large = response_creation.is_large(raw, size, history, own)
    turn = compute_if(large, response_creation.read, limits, raw, body, history, own)
    needs = turn.request.requirements
    if needs.documents:
        images, files = (0, needs.media)
    else:
        images, files = (needs.media, 0)
    tokens = estimate_tokens(needs.prompt_bytes, needs.messages, images, files, needs.tools)
    return http_responses.json_reply(TokenEstimateAnswer(tokens).encode(), context.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Get a stored response. It cannot be streamed again."""
    stored, _load = _find(services, inbound, whole=False)
    if inbound.arguments().get("stream", "").lower() == "true":
        raise InvalidRequest("A stored response cannot be streamed; leave out stream.", param="stream")
    return compute_if(store.is_long(stored), _show, stored.response, inbound)


def _show(response: dict, inbound: Inbound) -> Outbound:
    shown = store.show(response, sealed=_sealed(inbound), reasoned=store.asks_reasoning(response))
    return http_responses.json_reply(shown, inbound.shown_id)


def list_input(services: Services, inbound: Inbound) -> Outbound:
    """List the input items of a stored response: those of earlier turns and its own."""
    stored, _load = _find(services, inbound, whole=True)
    page = compute_if(store.is_long(stored), store.list_items, stored, inbound.arguments(), sealed=_sealed(inbound))
    return http_responses.json_reply(page.encode(), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a stored response."""
    ident = inbound.params["response_id"]
    services.engine.responses.delete(auth.caller_of(services, inbound), ident)
    return http_responses.json_reply(ResponseDeletedAnswer(ident).encode(), inbound.shown_id)


def cancel(services: Services, inbound: Inbound) -> Outbound:
    """Always 400 for an existing response: background responses, which could be cancelled, are not supported."""
    _find(services, inbound, whole=False)
    raise InvalidRequest(NOT_RUNNING, code="unsupported_operation")


def connect(services: Services, inbound: Inbound) -> Outbound:
    """Open a WebSocket: each response.create message creates a response, like a POST with `stream`."""
    if not socket_handshakes.is_upgrade(inbound):
        text = "GET is not allowed at /v1/responses; use POST, a WebSocket, or GET /v1/responses/{id}."
        raise MethodNotAllowed(text, headers=(("Allow", "OPTIONS, POST"),))
    return socket_opening.open_socket(services, inbound)


def _find(services: Services, inbound: Inbound, *, whole: bool) -> tuple[StoredResponse, ConversationLoad]:
    """Return the response, with its conversation if `whole`, and its load."""
    caller = auth.caller_of(services, inbound)
    load = services.engine.responses.load_for(caller)
    stored = services.engine.responses.find(caller, inbound.params["response_id"], load, whole=whole)
    response_creation.replayer(services, inbound, caller)(stored)
    return stored, load


def _sealed(inbound: Inbound) -> bool:
    """Return whether the query requests encrypted reasoning (`include`, once or several times, with brackets or
    without)."""
    return dialect.ENCRYPTED in inbound.query


RESPONSE_PATH = "/v1/responses/<response_id>"
RESPONSE_ANSWER = Annotated[ResponseObject, RELAYED]
ABOUT = About(
    "Create a response (OpenAI Responses dialect)",
    request=schema.ResponsesBody,
    answer=RESPONSE_ANSWER,
    events=Annotated[ResponseEvent, RELAYED],
)
ABOUT_SHORT = About("Compact a conversation", request=schema.ResponsesBody, answer=CompactedResponse)
ABOUT_COUNT = About("Estimate the input tokens of a response", request=schema.CountBody, answer=TokenEstimateAnswer)
ABOUT_SOCKET = About(
    "Create responses over a WebSocket",
    success=(101,),
    answer=None,
)
ABOUT_CANCEL = About("Cancel a response (not supported)", success=())
OPERATIONS = (
    Operation("POST", "/v1/responses", response_creation.create, body="json", hot=True, paid=True, about=ABOUT),
    Operation("GET", "/v1/responses", connect, upgrades=True, about=ABOUT_SOCKET),
    Operation("POST", "/v1/responses/compact", shorten, body="json", paid=True, about=ABOUT_SHORT),
    Operation("POST", "/v1/responses/input_tokens", count, body="json", about=ABOUT_COUNT),
    Operation("GET", RESPONSE_PATH, retrieve, about=About("Get a stored response", answer=RESPONSE_ANSWER)),
    Operation("DELETE", RESPONSE_PATH, delete, about=About("Delete a stored response", answer=ResponseDeletedAnswer)),
    Operation(
        "GET",
        f"{RESPONSE_PATH}/input_items",
        list_input,
        about=About("List input items of a response", answer=store.ResponseItemsAnswer),
    ),
    Operation("POST", f"{RESPONSE_PATH}/cancel", cancel, about=ABOUT_CANCEL),
)

SURFACE = Surface("responses", http_responses.OPENAI, OPERATIONS)
