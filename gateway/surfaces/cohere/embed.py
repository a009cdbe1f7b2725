"""POST /v2/embed and /v1/embed: vectors in one or several types.

Wire facts: Cohere API reference, "Embed" of both versions. Without `embedding_types`, the first version answers with a
list of vectors instead of a list for each type.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import orjson
from msgspec import Meta, Struct, to_builtins
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.dialects.cohere import EMBED, NAME, OWN_FIELDS
from gateway.dialects.field_names import INPUT_TYPE_WORDS, read_input_type, restate
from gateway.errors import NotSupported
from gateway.neutral.embeddings import (
    EmbeddingsInput,
    EmbeddingsRequest,
    EmbeddingsResult,
    NumberType,
    encode,
)
from gateway.neutral.request import NO_OPTIONS, Options, Requirements
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.validation_errors import decode_json, invalid
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata, headers_of
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.worker.services import Services

ID_PREFIX = "embd-"
LARGE = 1 << 14  # numbers in all vectors; more are written in a thread
EmbeddingType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
IMAGE_TOKENS = 16_000  # the most of one image: 1,610 for 512 × 512 pixels, and larger ones are reduced to 2,458,624
MAX_INPUTS = 96  # in one call; requests with images are not split
ONE_VENDOR = "{} had an effect only if a model of this format's own vendor answered."


class EmbedImage(Struct, omit_defaults=True):
    url: Annotated[str, Meta(min_length=1)]
    detail: str | None = None


class EmbedPart(Struct, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: EmbedImage | None = None


class EmbedContent(Struct):
    content: Annotated[list[EmbedPart], Meta(min_length=1)]


class CohereEmbedBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Annotated[str, Meta(min_length=1)]
    texts: list[str] | None = None
    inputs: list[EmbedContent] | None = None
    images: list[str] | None = None
    input_type: str | None = None
    embedding_types: list[EmbeddingType] | None = None
    output_dimension: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None


class CohereUnits(TypedDict):
    input_tokens: int
    image_tokens: NotRequired[int]


class CohereVersion(TypedDict):
    version: str


class CohereMeta(TypedDict):
    api_version: CohereVersion
    billed_units: CohereUnits
    warnings: NotRequired[list[str]]


class EmbeddedEnd(TypedDict):
    """The members behind the vectors."""

    id: str
    texts: list[str]
    meta: CohereMeta
    model: str
    usage: AnswerCost
    metadata: RoutingMetadata


Integers = list[list[int]]


class CohereVectors(TypedDict, total=False):
    float: list[list[float]]
    int8: Integers
    uint8: Integers
    binary: Integers
    ubinary: Integers
    base64: list[str]


class EmbeddedByType(EmbeddedEnd):
    response_type: Literal["embeddings_by_type"]
    embeddings: CohereVectors


class EmbeddedFloats(EmbeddedEnd):
    response_type: Literal["embeddings_floats"]
    embeddings: list[list[float]]


DECODER = Decoder(CohereEmbedBody)


def embed(services: Services, inbound: Inbound) -> Outbound:
    """Create an embedding vector for each text, in one or several types."""
    return _answer(services, inbound, "2")


def embed_first(services: Services, inbound: Inbound) -> Outbound:
    """Create an embedding vector for each text: a list, or a list for each of the `embedding_types`."""
    return _answer(services, inbound, "1")


def _answer(services: Services, inbound: Inbound, version: str) -> Outbound:
    context = auth_module.admit(services, inbound, "embeddings", EMBED)
    limits = services.settings.limits
    body, texts, request = caps_module.read_measured(limits, inbound.body, read_embed, limits, inbound.body)
    try:
        answer = services.engine.executor.generate(context, request)
    except NotSupported as error:
        raise restate(error, EMBED) from error
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    listed = version == "1" and not body.embedding_types
    types: list[EmbeddingType] = body.embedding_types or ["float"]
    written = write(answer.result, facts, texts, types, version, listed=listed)
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def read_embed(large: bool, limits: LimitSettings, raw: bytes) -> tuple[CohereEmbedBody, list[str], EmbeddingsRequest]:
    """Return the validated body, its texts and the neutral request. Raises InvalidRequest."""
    body = decode_json(DECODER, raw)
    texts = list(_texts_of(body))
    caps_module.check_inputs(limits, texts)
    images = _count_images(body)
    kind = read_input_type(body.input_type)
    content = EmbeddingsInput(
        tuple(texts), body.output_dimension, input_type=kind, number_type=number_type_of(body.embedding_types)
    )
    lengths = [len(text.encode("utf-8", "replace")) for text in texts]
    own = {name: value for name in ("truncate", "max_tokens") if (value := getattr(body, name)) is not None}
    warnings: tuple[str, ...] = ()
    if images:
        own |= _media_of(body, len(texts))  # for this vendor only, which reads all of these fields
    else:
        warnings = tuple(_warn(body, own))
    request = EmbeddingsRequest(
        body.model,
        Requirements(
            max_tokens=0,
            prompt_bytes=sum(lengths) + IMAGE_TOKENS * images,
            longest_input=max(lengths),
            messages=len(texts),
            media=images,
            vendor_only=NAME if images else "",
        ),
        lambda: content,
        Options(extra={OWN_FIELDS: own}) if own else NO_OPTIONS,
        large=large,
        warnings=warnings,
    )
    return body, [text for text in texts if text], request


def _texts_of(body: CohereEmbedBody) -> Iterator[str]:
    """Yield the text of each input; that of an image is empty. Raises InvalidRequest where there is no input."""
    if not (body.texts or body.inputs or body.images):
        raise invalid("texts", "expected at least one text")
    for place, text in enumerate(body.texts or ()):
        if not text:
            raise invalid(f"texts.{place}", "expected a text that is not empty")
        yield text
    for place, item in enumerate(body.inputs or ()):
        if not all(part.text or part.image_url for part in item.content):
            raise invalid(f"inputs.{place}.content", "expected texts and images")
        yield "".join(part.text or "" for part in item.content)
    yield from ("" for _ in body.images or ())


def _count_images(body: CohereEmbedBody) -> int:
    parts = [part for item in body.inputs or () for part in item.content]
    return len(body.images or ()) + sum(part.image_url is not None for part in parts)


def _media_of(body: CohereEmbedBody, count: int) -> dict[str, Any]:
    """Return the fields of a body with images as the provider reads them. Raises InvalidRequest."""
    given = {name: value for name in ("texts", "inputs", "images") if (value := getattr(body, name))}
    if len(given) > 1:
        raise invalid("images", f"expected one of {', '.join(given)}")
    if count > MAX_INPUTS:
        raise invalid(next(iter(given)), f"expected at most {MAX_INPUTS} inputs with images")
    if body.input_type:
        given["input_type"] = body.input_type
    media: dict[str, Any] = to_builtins(given)
    return media


def number_type_of(types: list[EmbeddingType] | None) -> NumberType:
    """Return the one type of numbers. Raises InvalidRequest for several; base64 contains floats."""
    wanted: set[NumberType] = {"float" if name == "base64" else name for name in types or ["float"]}
    if len(wanted) > 1:
        raise invalid("embedding_types", "expected float and base64, or one of int8, uint8, binary and ubinary")
    return wanted.pop()


def _warn(body: CohereEmbedBody, own: dict[str, Any]) -> Iterator[str]:
    if body.input_type and not read_input_type(body.input_type):
        yield f"input_type was left out: it is none of {', '.join(INPUT_TYPE_WORDS)}."
    for name in own:
        yield ONE_VENDOR.format(name)


def write(
    result: EmbeddingsResult, facts: Facts, texts: list[str], types: list[EmbeddingType], version: str, *, listed: bool
) -> bytes:
    """Return the body of the response. `listed`: `embeddings` is a list of vectors."""
    images = facts.usage.input_image
    billed: CohereUnits = {"input_tokens": facts.usage.input_total - images}
    if images:
        billed["image_tokens"] = images
    meta: CohereMeta = {"api_version": {"version": version}, "billed_units": billed}
    if facts.warnings:
        meta["warnings"] = facts.warnings
    end: EmbeddedEnd = {
        "id": facts.answer_id,
        "texts": texts,
        "meta": meta,
        "model": facts.served,
        "usage": facts.cost(),
        "metadata": facts.metadata(),
    }
    large = len(result.vectors) * len(result.vectors[0]) >= LARGE
    return compute_if(large, _write, result.vectors, end, types, listed)


def _write(vectors: list[Any], end: EmbeddedEnd, types: list[EmbeddingType], listed: bool) -> bytes:
    if listed:
        head = b'{"response_type":"embeddings_floats","embeddings":' + _rows(vectors, "float")
    else:
        lists = [b'"%b":%b' % (name.encode(), _rows(vectors, name)) for name in dict.fromkeys(types)]
        head = b'{"response_type":"embeddings_by_type","embeddings":{' + b",".join(lists) + b"}"
    return head + b"," + orjson.dumps(end)[1:]


def _rows(vectors: list[Any], name: EmbeddingType) -> bytes:
    return b"[" + b",".join([orjson.dumps(_convert(vector, name)) for vector in vectors]) + b"]"


def _convert(vector: Any, name: EmbeddingType) -> Any:
    if name == "base64":
        return encode(vector, "base64")
    numbers = encode(vector, "float")
    if name == "float":
        return numbers
    return list(map(int, numbers))
