"""The methods of Gemini's API, below /v1beta and /v1: newer clients use the second prefix."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.dialects import google as dialect
from gateway.dialects.field_names import read_input_type, restate
from gateway.dialects.google import NAME, OWN_FIELDS
from gateway.errors import InvalidRequest, NotSupported, UnknownModel
from gateway.neutral.chat import ChatRequest
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult, InputType, encode
from gateway.neutral.request import NO_OPTIONS, Options, Requirements
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.token_estimates import estimate_tokens
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.google import model_list, reader, schema, stream, writer
from gateway.surfaces.google.reader import PromptFacts
from gateway.surfaces.google.writer import (
    GeminiEmbedding,
    GeminiEmbeddingEnd,
    GeminiEmbeddings,
    GeminiItem,
    GeminiResponse,
    GeminiVector,
)
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import Answer, StreamFailure, describe_answer
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

# embedContent and batchEmbedContents.

EMBEDDINGS_ID_PREFIX = "embd-"
LARGE = 1 << 14  # numbers in all vectors; more are written in a thread
ONE_VENDOR = "{} had an effect only if a model of this format's own vendor answered."
SEVERAL = "taskType and title were left out, because they differ within the batch."
NOT_FOUND = 404


def embed(services: Services, inbound: Inbound) -> Outbound:
    """Create the embedding vector of a content."""
    return _answer(services, inbound, read_one, single=True)


def embed_batch(services: Services, inbound: Inbound) -> Outbound:
    """Create the embedding vectors of several contents."""
    return _answer(services, inbound, read_batch, single=False)


def _answer(services: Services, inbound: Inbound, read: Any, *, single: bool) -> Outbound:
    context = auth_module.admit(services, inbound, "embeddings", NAME)
    limits = services.settings.limits
    raw = inbound.body
    request = caps_module.read_measured(limits, raw, read, limits, raw, inbound.params["model"])
    try:
        answer = services.engine.executor.generate(context, request)
    except UnknownModel as error:
        error.status = NOT_FOUND
        raise
    except NotSupported as error:
        raise restate(error, NAME) from error
    facts = Facts(context, answer.outcome, EMBEDDINGS_ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses_module.json_reply(
        write_embeddings(answer.result, facts, single=single), context.shown_id, headers=headers
    )


def read_one(large: bool, limits: LimitSettings, raw: bytes, model: str) -> EmbeddingsRequest:
    """Return the neutral request of an embedContent body. Raises InvalidRequest."""
    body: schema.EmbedBody = schema.convert(schema.decode_names(raw), schema.EmbedBody)
    return _request(model, [body], [_text_of(body.content, "content")], large)


def read_batch(large: bool, limits: LimitSettings, raw: bytes, model: str) -> EmbeddingsRequest:
    """Return the neutral request of a batchEmbedContents body. Raises InvalidRequest."""
    body: schema.BatchEmbedBody = schema.convert(schema.decode_names(raw), schema.BatchEmbedBody)
    caps_module.check_inputs(limits, body.requests)
    texts = [_text_of(one.content, f"requests.{place}.content") for place, one in enumerate(body.requests)]
    return _request(model, body.requests, texts, large)


def _request(model: str, parts: list[schema.EmbedBody], texts: list[str], large: bool) -> EmbeddingsRequest:
    sizes = {part.outputDimensionality for part in parts}
    if len(sizes) > 1:
        raise InvalidRequest("All requests of a batch need the same outputDimensionality.", param="requests")
    tasks = [part.task for part in parts]
    alike = all(task == tasks[0] for task in tasks)
    kind = read_input_type(tasks[0].get("taskType")) if alike else ""
    content = EmbeddingsInput(tuple(texts), parts[0].outputDimensionality, input_type=kind)
    lengths = [len(text.encode("utf-8", "replace")) for text in texts]
    return EmbeddingsRequest(
        model,
        Requirements(max_tokens=0, prompt_bytes=sum(lengths), longest_input=max(lengths), messages=len(texts)),
        lambda: content,
        large=large,
        options=Options(extra={OWN_FIELDS: tasks[0]}) if alike and tasks[0] else NO_OPTIONS,
        warnings=tuple(_warn(tasks[0], kind)) if alike else (SEVERAL,),
    )


def _warn(task: dict[str, str], kind: InputType) -> Iterator[str]:
    """Yield warnings about fields without an equal in other formats. The other protocols report a known task type that
    their model does not distinguish."""
    if "title" in task:
        yield ONE_VENDOR.format("title")
    if "taskType" in task and not kind:
        yield ONE_VENDOR.format("taskType")


def _text_of(content: schema.WireContent, path: str) -> str:
    """Return the text of a content. Raises InvalidRequest for media, and for no text."""
    parts = content.parts or []
    if any(part.text is None for part in parts):
        raise invalid(f"{path}.parts", "only texts can be embedded")
    text = "".join(part.text or "" for part in parts)
    if not text:
        raise invalid(f"{path}.parts", "expected a text that is not empty")
    return text


def write_embeddings(result: EmbeddingsResult, facts: Facts, *, single: bool) -> bytes:
    """Return the body of the response."""
    end: GeminiEmbeddingEnd = {
        "usageMetadata": {"promptTokenCount": facts.usage.input_total, **facts.cost()},
        "metadata": facts.metadata(),
    }
    large = len(result.vectors) * len(result.vectors[0]) >= LARGE
    return compute_if(large, _write, result.vectors, end, single)


def _write(vectors: list[Any], end: GeminiEmbeddingEnd, single: bool) -> bytes:
    rows = [orjson.dumps(_write_vector(vector)) for vector in vectors]
    head = b'{"embedding":' + rows[0] if single else b'{"embeddings":[' + b",".join(rows) + b"]"
    return head + b"," + orjson.dumps(end)[1:]


def _write_vector(vector: Any) -> GeminiVector:
    numbers: Any = encode(vector, "float")
    return {"values": numbers}


# countTokens: a local estimate, without an upstream call and without a tokenizer.

TEXT_MODALITY = "TEXT"


class ModalityTokensAnswer(Answer):
    modality: str
    token_count: int


class GeminiTokenCountAnswer(Answer):
    total_tokens: int
    prompt_tokens_details: list[ModalityTokensAnswer]


def estimate(raw: bytes) -> int:
    """Return the estimated tokens of a body with contents or with a whole request. Raises InvalidRequest."""
    wire = schema.decode_names(raw)
    body: schema.CountTokensBody = schema.convert(wire, schema.CountTokensBody)
    counted = body.generateContentRequest or body
    facts = PromptFacts(counted, wire.get("generateContentRequest") or wire)
    images = facts.images + facts.earlier_images
    return estimate_tokens(facts.text, len(counted.contents), images, facts.files + facts.audio, bool(counted.tools))


def write_token_count(tokens: int) -> GeminiTokenCountAnswer:
    """Return the response."""
    return GeminiTokenCountAnswer(tokens, [ModalityTokensAnswer(TEXT_MODALITY, tokens)])


PREFIXES = ("/v1beta", "/v1")
SHARED_PREFIX = "/v1"  # the prefix at which another surface lists models in its own format
EVENTS = "sse"


def generate(services: Services, inbound: Inbound) -> Outbound:
    """Generate a whole response."""
    return _generate(services, inbound, streamed=False)


def generate_stream(services: Services, inbound: Inbound) -> Outbound:
    """Generate a streamed response: events with `alt=sse`, otherwise the items of one JSON array."""
    return _generate(services, inbound, streamed=True)


def _generate(services: Services, inbound: Inbound, *, streamed: bool) -> Outbound:
    context = auth_module.admit(services, inbound, "chat", dialect.NAME)
    limits = services.settings.limits
    raw = inbound.body
    try:
        request = caps_module.read_measured(limits, raw, _read, limits, raw, inbound.params["model"], streamed)
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
    return http_responses_module.result_reply(
        answer.result, writer.reply, facts, request_id=context.shown_id, headers=headers
    )


def _read(large: bool, limits: LimitSettings, raw: bytes, model: str, streamed: bool) -> ChatRequest:
    body, wire = schema.decode(raw)
    config = body.generationConfig
    caps_module.check(
        limits,
        raw,
        body.contents,
        body.tools,
        config.responseSchema if config else None,
        config.responseJsonSchema if config else None,
    )
    request = reader.read_generation(model, body, wire, stream=streamed)
    request.large = large and caps_module.is_long(raw, (content.parts for content in body.contents))
    return request


def _stream(services: Services, inbound: Inbound, context: RequestContext, request: ChatRequest) -> Outbound:
    answering = services.engine.chat.stream(context, request)
    facts = Facts(context, answering.outcome, context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    if _wants_events(inbound):
        return http_responses_module.stream_reply(stream.events(answering, facts), context.shown_id, headers)
    return Outbound(
        200,
        [
            *http_responses_module.PRIVATE_JSON,
            ("X-Accel-Buffering", "no"),
            ("x-request-id", context.shown_id),
            *headers,
        ],
        stream.items(answering, facts),
    )


def _wants_events(inbound: Inbound) -> bool:
    return inbound.arguments().get("alt") == EVENTS


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the input tokens. Nothing is sent upstream and nothing is charged."""
    context = auth_module.admit(services, inbound, "count_tokens", dialect.NAME)
    raw = inbound.body
    tokens = caps_module.read(services.settings.limits, raw, estimate, raw)
    return http_responses_module.json_reply(write_token_count(tokens).encode(), context.shown_id)


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
    answer=GeminiTokenCountAnswer,
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
        yield Operation("POST", f"{method}embedContent", embed, body="json", paid=True, about=EMBED)
        yield Operation("POST", f"{method}batchEmbedContents", embed_batch, body="json", paid=True, about=EMBED_BATCH)
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
