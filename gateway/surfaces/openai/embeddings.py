"""POST /v1/embeddings."""

from collections.abc import Iterator, MutableSequence
from typing import Annotated, Any, Literal, TypedDict

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.dialects import openai as dialect
from gateway.dialects.field_names import INPUT_TYPE_WORDS, read_input_type, restate
from gateway.errors import NotSupported
from gateway.neutral.embeddings import (
    ID_BYTES,
    EmbeddingsInput,
    EmbeddingsRequest,
    EmbeddingsResult,
    Encoding,
    Input,
    InputType,
    encode,
)
from gateway.neutral.request import Native, Options, Requirements
from gateway.runtime.threads import compute
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.validation_errors import decode_json, invalid
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata, headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "embd-"
LARGE = 1 << 14  # numbers in all vectors; more are written in a thread
NO_DTYPES = "output_dtype was left out: vectors contain 32-bit floats."
Name = Annotated[str, Meta(min_length=1)]
NON_EMPTY = {"minItems": 1}
MAX_TOKEN_ID = (1 << 32) - 1  # larger than any vocabulary; upstreams differ in how they read 64-bit and longer numbers
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_ID}, **NON_EMPTY}
TEXT = {"type": "string", "minLength": 1}
Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Texts = Annotated[list[Any], Meta(extra_json_schema={**NON_EMPTY, "anyOf": [{"items": TEXT}, IDS, {"items": IDS}]})]


class EmbeddingsBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Name
    input: Text | Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    output_dimension: Annotated[int, Meta(ge=1)] | None = None  # Mistral's name for the same field
    output_dtype: str | None = None  # any value other than "float" is not supported, which a warning reports
    input_type: str | None = None  # what the vectors are for, in the words of any vendor
    task_type: str | None = None  # Google's name for the same field
    task: str | None = None  # Jina's name for the same field
    user: str | None = None
    routing: Routing = None


DECODER = Decoder(EmbeddingsBody)


class EmbeddingsUsage(AnswerCost):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsFacts(TypedDict):
    model: str
    id: str
    usage: EmbeddingsUsage
    metadata: RoutingMetadata


class Embedding(TypedDict):
    """A vector, or its bytes as base64 where the request asks for that."""

    object: Literal["embedding"]
    index: int
    embedding: MutableSequence[float] | str


class Embeddings(EmbeddingsFacts):
    object: Literal["list"]
    data: list[Embedding]


def embed(services: Services, inbound: Inbound) -> Outbound:
    """Create an embedding vector for each text."""
    context = auth_module.admit(services, inbound, "embeddings")
    raw = inbound.body
    limits = services.settings.limits
    body, request = caps_module.read(limits, raw, read_embeddings, raw, limits)
    attribution_module.add_body(context, body.user)
    try:
        answer = services.engine.executor.generate(context, request)
    except NotSupported as error:
        raise restate(error, "embeddings") from error
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    written = write(answer.result, facts, body.encoding_format or "float")
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def read_embeddings(raw: bytes, limits: LimitSettings) -> tuple[EmbeddingsBody, EmbeddingsRequest]:
    """Return the validated body and the neutral request. Raises InvalidRequest."""
    body = decode_json(DECODER, raw)
    inputs = inputs_of(body.input)
    caps_module.check_inputs(limits, inputs)
    sizes = [len(text.encode("utf-8", "replace")) if isinstance(text, str) else ID_BYTES * len(text) for text in inputs]
    dimensions = body.dimensions or body.output_dimension
    named = body.input_type or body.task_type or body.task
    kind = read_input_type(named)
    content = EmbeddingsInput(inputs, dimensions, body.encoding_format or "float", kind)
    native: dict[str, Any] = {"input": body.input, "encoding_format": content.encoding}
    if kind:
        native["input_type"] = kind
    if dimensions is not None:
        native["dimensions"] = dimensions
    if body.user:
        native["user"] = body.user
    request = EmbeddingsRequest(
        body.model,
        # No output token is requested; only the input bounds its cost.
        Requirements(max_tokens=0, prompt_bytes=sum(sizes), longest_input=max(sizes), messages=len(inputs)),
        lambda: content,
        Options(**read_preferences(routing=body.routing)),
        Native(dialect.NAME, native),
        user=body.user or "",
        large=len(raw) >= caps_module.LARGE,
        warnings=tuple(_warn(body, named, kind)),
        token_ids=sum(len(text) for text in inputs if not isinstance(text, str)),
    )
    return body, request


def _warn(body: EmbeddingsBody, named: str | None, kind: InputType) -> Iterator[str]:
    if body.output_dtype not in (None, "float"):
        yield NO_DTYPES
    if named and not kind:
        yield f"input_type was left out: it is none of {', '.join(INPUT_TYPE_WORDS)}."


def inputs_of(given: str | list[Any]) -> tuple[Input, ...]:
    """Return the inputs, each a text or a list of token numbers. Raises InvalidRequest for anything else, and for
    none."""
    if isinstance(given, str) or _are_ids(given):
        inputs: tuple[Input, ...] = (given,)
    else:
        inputs = tuple(given)
    if not inputs or not all(inputs):
        raise invalid("input", "expected at least one string, none of them empty")
    if not all(isinstance(text, str) or (isinstance(text, list) and _are_ids(text)) for text in inputs):
        raise invalid("input", "expected a string, a list of strings, a list of token numbers, or a list of such lists")
    return inputs


def _are_ids(given: list[Any]) -> bool:
    return bool(given) and all(type(value) is int and 0 <= value <= MAX_TOKEN_ID for value in given)


def write(result: EmbeddingsResult, facts: Facts, encoding: Encoding) -> bytes:
    """Return the body of the response."""
    tokens = facts.usage.input_total
    body: EmbeddingsFacts = {
        "model": facts.served,
        "id": facts.answer_id,  # some clients require it
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, **facts.cost()},
        "metadata": facts.metadata(),
    }
    numbers = len(result.vectors) * len(result.vectors[0])
    if numbers >= LARGE:
        return compute(_write, body, result.vectors, encoding)
    return _write(body, result.vectors, encoding)


def _write(body: EmbeddingsFacts, vectors: list[Any], encoding: Encoding) -> bytes:
    # Vector by vector: one call for all numbers would block every other thread. Joining does not.
    rows = [orjson.dumps(_embedding(vector, index, encoding)) for index, vector in enumerate(vectors)]
    return b"".join((b'{"object":"list","data":[', b",".join(rows), b"],", orjson.dumps(body)[1:]))


def _embedding(vector: Any, index: int, encoding: Encoding) -> Embedding:
    return {"object": "embedding", "index": index, "embedding": encode(vector, encoding)}


ABOUT = About("Create embeddings", request=EmbeddingsBody, answer=Embeddings)

OPERATIONS = (Operation("POST", "/v1/embeddings", embed, body="json", hot=True, paid=True, about=ABOUT),)
