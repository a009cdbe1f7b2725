"""Embeddings and rerank of version 2 of Cohere's API.

Wire facts: API reference, v2 "Embed". Inputs without a type are sent as documents, whose vectors can be compared with
each other.
"""

from typing import Any

from msgspec import Raw, Struct, json

from gateway.dialects import cohere as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import GENERAL, EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult, InputType
from gateway.neutral.structured import RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE
from gateway.providers.openai.address import endpoint_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.providers.rerank_codec import Json, RerankCodec, read_scores
from gateway.providers.vectors import read_apart, read_vectors

PATH = "/embed"
MEDIA = frozenset(("images", "inputs"))  # fields of the caller's body that replace the texts
EMBEDDING_TYPES: dict[InputType, str] = {
    "": "search_document",
    "document": "search_document",
    "query": "search_query",
    "classification": "classification",
    "clustering": "clustering",
    "similarity": "search_document",
}


class SentEmbeddings(Struct):
    """The fields that are read from a response."""

    embeddings: dict[str, list[Raw] | None]
    meta: Any = None
    id: Any = None


ANSWER = json.Decoder(SentEmbeddings)


class CohereEmbeddings(WrittenCodec):
    """POST {address}/embed."""

    dialect = dialect.NAME

    def write(self, request: EmbeddingsRequest, target: Target) -> Call:
        """Build the call. NotSupported for token ids, which are those of another vendor's tokenizer."""
        content: EmbeddingsInput = request.content()
        if request.token_ids:
            raise NotSupported("This model accepts texts only, no token ids.", param="input", code="unsupported_input")
        own = request.options.extra.get(dialect.OWN_FIELDS) or {}
        body: dict[str, Any] = {
            "model": target.mapping.external_id,
            **({} if MEDIA.intersection(own) else {"texts": content.inputs}),
            "input_type": EMBEDDING_TYPES[GENERAL.get(content.input_type, content.input_type)],
            "embedding_types": [content.number_type],
            **own,
        }
        if content.dimensions is not None:
            body["output_dimension"] = content.dimensions
        endpoint = endpoint_of(target, PATH, False)
        return Call("POST", endpoint.url, endpoint.headers, json.encode(body), endpoint=endpoint)

    def read(self, reply: UpstreamReply, relayed: bool) -> EmbeddingsResult:
        """Return the vectors of a response. UpstreamFailed for an unexpected shape or an empty list."""
        sent = read_apart(ANSWER, reply.read_all())
        try:
            (encoded,) = filter(None, sent.embeddings.values())
            billed = (sent.meta or {}).get("billed_units") or {}
            tokens = billed.get("input_tokens")
            images = read_count(billed.get("image_tokens"))
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        used = None if tokens is None and not images else Usage(input=read_count(tokens), input_image=images)
        upstream_id = sent.id if isinstance(sent.id, str) else ""
        return EmbeddingsResult(read_vectors(encoded), usage=used, upstream_id=upstream_id)


# Rerank of version 2 of Cohere's API, which is billed by search units.
#
# Wire facts: API reference, v2 "Rerank": meta.billed_units.search_units.


class CohereRerank(RerankCodec):
    dialect = dialect.NAME

    def result(self, wire: Json) -> RerankResult:
        units = ((wire.get("meta") or {}).get("billed_units") or {}).get("search_units")
        used = None if units is None else Usage(searches=read_count(units))
        return RerankResult(read_scores(wire["results"]), usage=used, upstream_id=str(wire.get("id") or ""))
