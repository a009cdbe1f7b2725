"""Embeddings in OpenAI's format.

Source: OpenAI API reference, "Create embeddings".
"""

from operator import attrgetter
from typing import Any

from msgspec import Raw, Struct, json

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult
from gateway.neutral.request import Native
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE
from gateway.providers.openai.address import Tokens, endpoint_of
from gateway.providers.openai.request import shorten_user
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.vectors import VECTOR, read_apart, read_vectors, require_floats, write_input_type

PATH = "/embeddings"
DIMENSIONS = "dimensions_field"  # a key of a mapping's `extra`: the provider's name of that field, "" without one
COMPATIBLE = "compatible"  # the quirk of servers other than OpenAI, which all support float vectors


class SentRow(Struct):
    embedding: Raw
    index: Any = 0


class SentVectors(Struct):
    """The fields that are read from an answer."""

    data: list[SentRow]
    usage: Any = None
    model: Any = None


ANSWER = json.Decoder(SentVectors)
ROWS = json.Decoder(list[SentRow])


class OpenAIEmbeddings:
    """POST {address}/embeddings. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME
    waits = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: EmbeddingsRequest, target: Target) -> Call:
        """Return the call for a neutral request."""
        content: EmbeddingsInput = request.content()
        require_floats(content)
        body: dict[str, Any] = {"input": content.inputs, "encoding_format": content.encoding}
        if content.dimensions is not None:
            body["dimensions"] = content.dimensions
        if request.user:
            body["user"] = request.user
        if content.input_type:
            body["input_type"] = content.input_type
        return self._finish(body, target)

    def relay(self, native: Native, request: EmbeddingsRequest, target: Target) -> Call:
        """Return the call with the caller's body, retargeted."""
        return self._finish(native.body, target)

    def read(self, reply: UpstreamReply, relayed: bool) -> EmbeddingsResult:
        """Return the vectors in the order of the inputs. UpstreamFailed for an unexpected shape or an empty list."""
        sent = read_apart(ANSWER, reply.read_all(), "data", ROWS)
        try:
            rows = sorted(sent.data, key=attrgetter("index"))
            usage = sent.usage
            used = Usage(input=read_count(usage.get("prompt_tokens", usage.get("total_tokens")))) if usage else None
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        vectors = read_vectors([row.embedding for row in rows], VECTOR)
        return EmbeddingsResult(vectors, usage=used, model=sent.model if isinstance(sent.model, str) else "")

    def _finish(self, body: dict[str, Any], target: Target) -> Call:
        body = {"model": target.mapping.external_id, **body}
        warnings = write_input_type(body.pop("input_type", ""), target.mapping, body)
        if "user" in body:
            body["user"] = shorten_user(body["user"])
        if COMPATIBLE in target.quirks:
            body.pop("encoding_format", None)
        if "dimensions" in body:
            spelled = target.mapping.extra.get(DIMENSIONS, "dimensions")
            if not spelled:
                what = f"{target.mapping.key} does not support dimensions."
                raise NotSupported(what, param="dimensions", code="unsupported_parameter")
            body[spelled] = body.pop("dimensions")
        endpoint = endpoint_of(target, PATH, False, self._tokens)
        return Call("POST", endpoint.url, endpoint.headers, json.encode(body), warnings=warnings, endpoint=endpoint)
