"""The methods of Gemini's API, below /v1beta and /v1: newer clients use the second prefix."""

from collections.abc import Iterator
from dataclasses import replace

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects import google as dialect
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported, UnknownModel
from gateway.neutral.chat import ChatRequest
from gateway.surfaces import auth, caps, http_responses
from gateway.surfaces.answer_structs import StreamFailure, describe_answer
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.google import embeddings, model_list, reader, schema, stream, token_counts, writer
from gateway.surfaces.google.gemini_answers import GeminiEmbedding, GeminiEmbeddings, GeminiItem, GeminiResponse
from gateway.surfaces.http import About, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

PREFIXES = ("/v1beta", "/v1")
SHARED_PREFIX = "/v1"  # the prefix at which another surface lists models in its own format
NOT_FOUND = 404
EVENTS = "sse"


def generate(services: Services, inbound: Inbound) -> Outbound:
    """Generate a whole response."""
    return _generate(services, inbound, streamed=False)


def generate_stream(services: Services, inbound: Inbound) -> Outbound:
    """Generate a streamed response: events with `alt=sse`, otherwise the items of one JSON array."""
    return _generate(services, inbound, streamed=True)


def _generate(services: Services, inbound: Inbound, *, streamed: bool) -> Outbound:
    context = auth.admit(services, inbound, "chat", dialect.NAME)
    limits = services.settings.limits
    raw = inbound.body
    try:
        request = caps.read_measured(limits, raw, _read, limits, raw, inbound.params["model"], streamed)
        if streamed:
            return _stream(services, inbound, context, request)
        answer = services.engine.chat.generate(context, request)
    except UnknownModel as error:
        error.status = NOT_FOUND
        raise
    except NotSupported as error:
        raise restate(error, dialect.NAME) from error
    facts = Facts(context, answer.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses.result_reply(answer.result, writer.reply, facts, request_id=context.shown_id, headers=headers)


def _read(large: bool, limits: LimitSettings, raw: bytes, model: str, streamed: bool) -> ChatRequest:
    body, wire = schema.decode(raw)
    config = body.generationConfig
    caps.check(
        limits,
        raw,
        body.contents,
        body.tools,
        config.responseSchema if config else None,
        config.responseJsonSchema if config else None,
    )
    request = reader.read(model, body, wire, stream=streamed)
    request.large = large and caps.is_long(raw, (content.parts for content in body.contents))
    return request


def _stream(services: Services, inbound: Inbound, context: RequestContext, request: ChatRequest) -> Outbound:
    answering = services.engine.chat.stream(context, request)
    facts = Facts(context, answering.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    if _wants_events(inbound):
        return http_responses.stream_reply(stream.events(answering, facts), context.shown_id, headers)
    return Outbound(
        200,
        [*http_responses.PRIVATE_JSON, ("X-Accel-Buffering", "no"), ("x-request-id", context.shown_id), *headers],
        stream.items(answering, facts),
    )


def _wants_events(inbound: Inbound) -> bool:
    return inbound.arguments().get("alt") == EVENTS


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the input tokens. Nothing is sent upstream and nothing is charged."""
    context = auth.admit(services, inbound, "count_tokens", dialect.NAME)
    raw = inbound.body
    tokens = caps.read(services.settings.limits, raw, token_counts.estimate, raw)
    return http_responses.json_reply(token_counts.write(tokens).encode(), context.shown_id)


ERROR_SCHEMA = describe_answer(dialect.RpcError)
EVENT_ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=stream.write_failure)
ARRAY_ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=stream.write_failed_item)


def _errors_of(inbound: Inbound) -> ErrorFormat:
    """Return the format of errors of one request: a stream without events is one JSON array."""
    return EVENT_ERRORS if _wants_events(inbound) else ARRAY_ERRORS


ERRORS = ErrorFormat(dialect.NAME, dialect.error_body, ERROR_SCHEMA, frame=stream.write_failure, about=_errors_of)
TAG = "Gemini"
CONTENT = {"role": "user", "parts": [{"text": "Hello!"}]}
HELLO = {"contents": [CONTENT]}
GENERATE = About(
    "Generate content (Gemini dialect)", TAG, request=schema.GenerateBody, answer=GeminiResponse, example=HELLO
)
STREAM = About(
    "Generate content as a stream (Gemini dialect)",
    TAG,
    request=schema.GenerateBody,
    answer=list[GeminiResponse | GeminiItem | StreamFailure],
    events=GeminiResponse | GeminiItem | StreamFailure,
    example=HELLO,
)
COUNT = About(
    "Estimate the input tokens (Gemini dialect)",
    TAG,
    request=schema.CountTokensBody,
    answer=token_counts.GeminiTokenCountAnswer,
    example=HELLO,
)
EMBED = About(
    "Create an embedding (Gemini dialect)",
    TAG,
    request=schema.EmbedBody,
    answer=GeminiEmbedding,
    example={"content": CONTENT},
)
EMBED_BATCH = About(
    "Create embeddings (Gemini dialect)",
    TAG,
    request=schema.BatchEmbedBody,
    answer=GeminiEmbeddings,
    example={"requests": [{"content": CONTENT}]},
)
MODELS = About("List the models that a key can call (Gemini dialect)", TAG, answer=model_list.GeminiModelListAnswer)
MODEL = About("Show a model (Gemini dialect)", TAG, answer=model_list.GeminiModelAnswer)


def _operations() -> Iterator[Operation]:
    for prefix in PREFIXES:
        method = f"{prefix}/models/<path:model>:"
        yield Operation("POST", f"{method}generateContent", generate, body="json", paid=True, about=GENERATE)
        yield Operation("POST", f"{method}streamGenerateContent", generate_stream, body="json", paid=True, about=STREAM)
        yield Operation("POST", f"{method}countTokens", count, body="json", about=COUNT)
        yield Operation("POST", f"{method}embedContent", embeddings.embed, body="json", paid=True, about=EMBED)
        yield Operation(
            "POST", f"{method}batchEmbedContents", embeddings.embed_batch, body="json", paid=True, about=EMBED_BATCH
        )
        chosen = model_list.shows_itself if prefix == SHARED_PREFIX else None
        yield Operation("GET", f"{prefix}/models", model_list.handle_models, about=MODELS, chosen=chosen)
        yield Operation("GET", f"{prefix}/models/<path:model>", model_list.handle_model, about=MODEL, chosen=chosen)


def _short_operations() -> Iterator[Operation]:
    """Return the same methods for model names with a slash that are not behind `models/`, as @ai-sdk/google sends."""
    for operation in SURFACE.operations:
        start = "/v1beta/models/<path:model>:"
        if operation.path.startswith(start):
            yield replace(operation, path=f"/v1beta/<path:model>:{operation.path.removeprefix(start)}", about=None)


NO_FILES = "files are not stored: send their content in the request that uses it, as inlineData."
NO_BATCHES = "batches are not supported: send each request separately."
UNSUPPORTED_PATHS = {
    ":predict": "images are made by POST /v1/images/generations, or by :generateContent of a Gemini model.",
    ":predictLongRunning": "videos are made by POST /v1/videos.",
    ":batchGenerateContent": NO_BATCHES,
    ":asyncBatchEmbedContent": "use :batchEmbedContents.",
    "/v1beta/files": NO_FILES,
    "/upload/v1beta/files": NO_FILES,
    "/v1beta/batches": NO_BATCHES,
    "/v1beta/cachedContents": "caches of content cannot be created: providers cache repeated prompts by themselves.",
}
SURFACE = Surface(
    "gemini", ERRORS, tuple(_operations()), prefixes=("/v1beta", "/upload/v1beta"), instead=UNSUPPORTED_PATHS
)
SHORT = Surface("gemini-short", ERRORS, tuple(_short_operations()), described=False)
