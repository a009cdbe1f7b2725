"""POST /v1/chat: version 1 of Cohere's chat, served as a chat of version 2."""

from msgspec import to_builtins

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects.cohere import NAME
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.validation_errors import decode_json
from gateway.surfaces.cohere import chat_v1_writer, cohere_chat_reader
from gateway.surfaces.cohere.chat_v1_writer import DECODER, History, V1ChatBody, to_v2
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.worker.services import Services

LINES = "application/stream+json"


def chat(services: Services, inbound: Inbound) -> Outbound:
    """Answer a message, complete or streamed as one JSON object a line. Without `model`, the gateway chooses one.
    `connectors`, `conversation_id`, `search_queries_only` and `raw_prompting` are refused."""
    context = auth_module.admit(services, inbound, "chat", NAME)
    limits = services.settings.limits
    try:
        history, request = caps_module.read_measured(limits, inbound.body, _read, limits, inbound.body)
        if request.requirements.stream:
            return _stream(services, context, history, request)
        answer = services.engine.chat.generate(context, request)
    except NotSupported as error:
        raise restate(error, NAME) from error
    facts = Facts(context, answer.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    large = request.large or answer.result.large
    written = compute_if(large, chat_v1_writer.reply, answer.result, facts, history)
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def _read(large: bool, limits: LimitSettings, raw: bytes) -> tuple[History, ChatRequest]:
    given: V1ChatBody = decode_json(DECODER, raw)
    body = to_v2(given)
    caps_module.check(limits, raw, body.messages, body.tools, body.response_format)
    request = cohere_chat_reader.read_chat(body)
    request.large = large
    return _history_of(given), request


def _stream(services: Services, context: RequestContext, history: History, request: ChatRequest) -> Outbound:
    answering = services.engine.chat.stream(context, request)
    facts = Facts(context, answering.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    written = chat_v1_writer.frames(answering, facts, history, request.large)
    outbound = http_responses_module.stream_reply(written, context.shown_id, headers)
    outbound.headers[0] = ("Content-Type", LINES)
    return outbound


def _history_of(body: V1ChatBody) -> History:
    """Return the messages of a request, which the answer repeats."""
    history: History = to_builtins(body.chat_history or [])
    if body.message:
        history.append({"role": "USER", "message": body.message})
    if body.tool_results:
        history.append({"role": "TOOL", "tool_results": to_builtins(body.tool_results)})
    return history
