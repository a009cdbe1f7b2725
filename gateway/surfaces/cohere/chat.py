"""POST /v2/chat."""

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects.cohere import NAME
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.surfaces import auth, caps, http_responses
from gateway.surfaces.cohere import cohere_chat_reader, cohere_chat_stream, cohere_chat_writer
from gateway.surfaces.cohere.cohere_chat_schema import decode
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import Inbound, Outbound
from gateway.worker.services import Services


def chat(services: Services, inbound: Inbound) -> Outbound:
    """Answer a conversation, complete or streamed. Documents reach models of other vendors as texts of the user."""
    context = auth.admit(services, inbound, "chat", NAME)
    limits = services.settings.limits
    try:
        request = caps.read_measured(limits, inbound.body, _read, limits, inbound.body)
        if request.requirements.stream:
            return _stream(services, context, request)
        answer = services.engine.chat.generate(context, request)
    except NotSupported as error:
        raise restate(error, NAME) from error
    facts = Facts(context, answer.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses.result_reply(
        answer.result, cohere_chat_writer.reply, facts, request_id=context.shown_id, headers=headers
    )


def _read(large: bool, limits: LimitSettings, raw: bytes) -> ChatRequest:
    body = decode(raw)
    caps.check(limits, raw, body.messages, body.tools, body.response_format)
    request = cohere_chat_reader.read(body)
    request.large = large
    return request


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    answering = services.engine.chat.stream(context, request)
    facts = Facts(context, answering.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    return http_responses.stream_reply(cohere_chat_stream.frames(answering, facts), context.shown_id, headers)
