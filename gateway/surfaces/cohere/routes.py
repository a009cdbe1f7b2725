"""Operations of Cohere's API. Its clients call version 1 (`cohere.Client`) or version 2 (`cohere.ClientV2`)."""

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects import cohere as dialect
from gateway.dialects.cohere import NAME
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.surfaces.cohere import (
    chat_v1,
    chat_v1_writer,
    cohere_chat_reader,
    cohere_chat_writer,
    embed,
)
from gateway.surfaces.cohere.chat_v1_writer import V1ChatAnswer, V1ChatBody
from gateway.surfaces.cohere.cohere_chat_reader import CohereChatBody, decode
from gateway.surfaces.cohere.cohere_chat_writer import CohereChatAnswer, CohereEvent
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

# POST /v2/chat.


def chat(services: Services, inbound: Inbound) -> Outbound:
    """Answer a conversation, complete or streamed. Documents reach models of other vendors as texts of the user."""
    context = auth_module.admit(services, inbound, "chat", NAME)
    limits = services.settings.limits
    try:
        request = caps_module.read_measured(limits, inbound.body, _read, limits, inbound.body)
        if request.requirements.stream:
            return _stream(services, context, request)
        answer = services.engine.chat.generate(context, request)
    except NotSupported as error:
        raise restate(error, NAME) from error
    facts = Facts(context, answer.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses_module.result_reply(
        answer.result, cohere_chat_writer.reply, facts, request_id=context.shown_id, headers=headers
    )


def _read(large: bool, limits: LimitSettings, raw: bytes) -> ChatRequest:
    body = decode(raw)
    caps_module.check(limits, raw, body.messages, body.tools, body.response_format)
    request = cohere_chat_reader.read_chat(body)
    request.large = large
    return request


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    answering = services.engine.chat.stream(context, request)
    facts = Facts(context, answering.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    return http_responses_module.stream_reply(cohere_chat_writer.frames(answering, facts), context.shown_id, headers)


ERROR_SCHEMA = describe_answer(dialect.CohereError)
ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=cohere_chat_writer.write_failure)
FIRST_ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=chat_v1_writer.write_failure)
TAG = "Cohere"
CHAT = About("Chat (Cohere dialect)", TAG, request=CohereChatBody, answer=CohereChatAnswer, events=CohereEvent)
CHAT_FIRST = About(
    "Chat (first version of the Cohere dialect)",
    TAG,
    request=V1ChatBody,
    answer=V1ChatAnswer,
    example={"model": "auto", "message": "Hello!"},
    also=(chat_v1.LINES,),
)
EMBED_EXAMPLE = {"model": "auto", "texts": ["Hello!"], "input_type": "search_document"}
EMBED = About(
    "Create embeddings (Cohere dialect)",
    TAG,
    request=embed.CohereEmbedBody,
    answer=embed.EmbeddedByType,
    example=EMBED_EXAMPLE,
)
EMBED_FIRST = About(
    "Create embeddings (first version of the Cohere dialect)",
    TAG,
    request=embed.CohereEmbedBody,
    answer=embed.EmbeddedByType | embed.EmbeddedFloats,
    example=EMBED_EXAMPLE,
)
SURFACE = Surface(
    "cohere",
    ERRORS,
    (
        Operation("POST", "/v2/chat", chat, body="json", hot=True, paid=True, about=CHAT),
        Operation(
            "POST",
            "/v1/chat",
            chat_v1.chat,
            errors=FIRST_ERRORS,
            body="json",
            hot=True,
            paid=True,
            about=CHAT_FIRST,
        ),
        Operation("POST", "/v2/embed", embed.embed, body="json", hot=True, paid=True, about=EMBED),
        Operation("POST", "/v1/embed", embed.embed_first, body="json", hot=True, paid=True, about=EMBED_FIRST),
    ),
    prefixes=("/v2",),
    aliases={
        "/v2/chat": "/v2/chat",
        "/v2/embed": "/v2/embed",
        "/v2/rerank": "/v1/rerank",
    },  # a base URL may end with /v1
)
