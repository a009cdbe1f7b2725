"""The operations of /v1/ai, /v3/ai and /v4/ai, and the credits operation that their clients also call."""

from collections.abc import Iterator
from functools import partial, wraps

import orjson

from gateway.billing.context import RequestContext
from gateway.dialects import aisdk as dialect
from gateway.dialects import openai
from gateway.dialects.field_names import restate
from gateway.errors import GatewayError, NotSupported, UnknownModel
from gateway.surfaces import attribution, auth, http_responses
from gateway.surfaces.aisdk import balance, model_list, reader, schema, stream, writer
from gateway.surfaces.aisdk.ai_answers import GeneratedAnswer, StreamPart
from gateway.surfaces.aisdk.privacy import without_headers
from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import About, ErrorFormat, HeaderParameter, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

# Prefix → the specification version of its clients where no header names another.
PREFIXES = {"/v1/ai": 2, "/v3/ai": 3, "/v4/ai": 4}
NOT_FOUND = 404


def ask(of_prefix: int, services: Services, inbound: Inbound) -> Outbound:
    """Call a language model, complete or streamed; headers select model, version and streaming."""
    try:
        return _ask(of_prefix, services, inbound)
    except UnknownModel as error:
        error.status = NOT_FOUND
        raise
    except NotSupported as error:
        raise restate(error, dialect.NAME) from error


def _ask(of_prefix: int, services: Services, inbound: Inbound) -> Outbound:
    context = auth.admit(services, inbound, "chat", dialect.NAME)
    if inbound.payload is not None:
        inbound.payload.send_instead(without_headers(inbound.body))
    version = reader.version_of(inbound, of_prefix)
    question = reader.read(inbound, version, services.settings.limits)
    attribution.add_body(context, question.request.user)
    if question.request.requirements.stream:
        return _stream(services, context, question)
    answer = services.engine.chat.generate(context, question.request)
    facts = Facts(context, answer.outcome, writer.ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    shown_id = context.shown_id
    return http_responses.result_reply(
        answer.result, writer.reply, facts, question, request_id=shown_id, headers=headers
    )


def _stream(services: Services, context: RequestContext, question: reader.Question) -> Outbound:
    answering = services.engine.chat.stream(context, question.request)
    facts = Facts(context, answering.outcome, writer.ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    return http_responses.stream_reply(stream.frames(answering, facts, question), context.shown_id, headers)


def _write_frame(error: GatewayError, request_id: str) -> bytes:
    """Return the last frame of a stream that failed: a part of another kind would block a client."""
    return b"data: %b\n\n" % orjson.dumps(dialect.error_part(error, request_id))


ERRORS = ErrorFormat(
    dialect.NAME,
    dialect.error_body,
    describe_answer(openai.ErrorBody),
    frame=_write_frame,
)
HEADERS = (
    HeaderParameter(
        reader.MODEL_HEADER, "The model: provider/model, a bare id, or auto.", required=True, example="auto"
    ),
    HeaderParameter(reader.STREAMING_HEADER, "Whether the response is streamed.", ("true", "false")),
    HeaderParameter(
        reader.VERSION_HEADER, "Version of requests and responses; default: that of the path.", tuple(reader.VERSIONS)
    ),
)
TAG = "AI SDK"
ASK = About(
    "Call a language model (AI SDK)",
    TAG,
    request=schema.CallOptions,
    answer=GeneratedAnswer,
    headers=HEADERS,
    events=StreamPart,
)
ERROR_STATUSES = (401, 403, 410, 503)
CONFIG = About(
    "List the language models that a key may call (AI SDK)",
    TAG,
    answer=model_list.LanguageModelListAnswer,
    errors=ERROR_STATUSES,
)
CREDITS = About("Show the organization's credits", TAG, answer=balance.CreditsLeftAnswer, errors=ERROR_STATUSES)


def _operations() -> Iterator[Operation]:
    for prefix, version in PREFIXES.items():
        answer = wraps(ask)(partial(ask, version))
        yield Operation("POST", f"{prefix}/language-model", answer, body="json", hot=True, paid=True, about=ASK)
        config = wraps(model_list.show_config)(partial(model_list.show_config, version))
        yield Operation("GET", f"{prefix}/config", config, about=CONFIG)
    yield Operation("GET", balance.PATH, balance.show_credits, about=CREDITS)


SURFACE = Surface("aisdk", ERRORS, tuple(_operations()), prefixes=tuple(PREFIXES))
