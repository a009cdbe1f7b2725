"""embedContent and batchEmbedContents."""

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.configuration.settings import LimitSettings
from gateway.dialects.field_names import restate
from gateway.dialects.google import NAME, OWN_FIELDS
from gateway.dialects.input_type_words import read_input_type
from gateway.errors import InvalidRequest, NotSupported, UnknownModel
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult, InputType, encode
from gateway.neutral.request import NO_OPTIONS, Options, Requirements
from gateway.runtime.threads import compute_if
from gateway.surfaces import auth, caps, http_responses
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.google import schema
from gateway.surfaces.google.gemini_answers import GeminiEmbeddingEnd, GeminiVector
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.validation_errors import invalid
from gateway.worker.services import Services

ID_PREFIX = "embd-"
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
    context = auth.admit(services, inbound, "embeddings", NAME)
    limits = services.settings.limits
    raw = inbound.body
    request = caps.read_measured(limits, raw, read, limits, raw, inbound.params["model"])
    try:
        answer = services.engine.executor.generate(context, request)
    except UnknownModel as error:
        error.status = NOT_FOUND
        raise
    except NotSupported as error:
        raise restate(error, NAME) from error
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses.json_reply(write(answer.result, facts, single=single), context.shown_id, headers=headers)


def read_one(large: bool, limits: LimitSettings, raw: bytes, model: str) -> EmbeddingsRequest:
    """Return the neutral request of an embedContent body. Raises InvalidRequest."""
    body: schema.EmbedBody = schema.convert(schema.decode_names(raw), schema.EmbedBody)
    return _request(model, [body], [_text_of(body.content, "content")], large)


def read_batch(large: bool, limits: LimitSettings, raw: bytes, model: str) -> EmbeddingsRequest:
    """Return the neutral request of a batchEmbedContents body. Raises InvalidRequest."""
    body: schema.BatchEmbedBody = schema.convert(schema.decode_names(raw), schema.BatchEmbedBody)
    caps.check_inputs(limits, body.requests)
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


def write(result: EmbeddingsResult, facts: Facts, *, single: bool) -> bytes:
    """Return the body of the response."""
    end: GeminiEmbeddingEnd = {
        "usageMetadata": {"promptTokenCount": facts.usage.input_total, **facts.cost()},
        "metadata": facts.metadata(),
    }
    large = len(result.vectors) * len(result.vectors[0]) >= LARGE
    return compute_if(large, _write, result.vectors, end, single)


def _write(vectors: list[Any], end: GeminiEmbeddingEnd, single: bool) -> bytes:
    rows = [orjson.dumps(_write_vector(vector)) for vector in vectors]
    if single:
        head = b'{"embedding":' + rows[0]
    else:
        head = b'{"embeddings":[' + b",".join(rows) + b"]"
    return head + b"," + orjson.dumps(end)[1:]


def _write_vector(vector: Any) -> GeminiVector:
    numbers: Any = encode(vector, "float")
    return {"values": numbers}
