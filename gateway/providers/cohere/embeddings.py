"""Embeddings of Cohere's second API: the call and its answer.

Facts: API reference, v2 "Embed". Whether a text is a document or a question is no matter of callers in other formats:
vectors of documents can be compared with each other, so all are asked for as such.
"""

from typing import Any

from msgspec import json

from gateway.dialects import cohere as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answers import EMPTY, ODD, SHAPE_ERRORS, read_object
from gateway.providers.openai.address import way_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec

PATH = "/embed"
KIND = "search_document"


class CohereEmbeddings(WrittenCodec):
    """POST {address}/embed."""

    dialect = dialect.NAME

    def write(self, request: EmbeddingsRequest, target: Target) -> Call:
        """The call built from the neutral form; NotSupported for token numbers, which are another vendor's."""
        wanted: EmbeddingsInput = request.content()
        if request.token_ids:
            raise NotSupported("This model takes texts, no token numbers.", param="input", code="unsupported_input")
        body: dict[str, Any] = {
            "model": target.mapping.external_id,
            "texts": wanted.inputs,
            "input_type": KIND,
            "embedding_types": ["float"],
        }
        if wanted.dimensions is not None:
            body["output_dimension"] = wanted.dimensions
        way = way_of(target, PATH, False)
        return Call("POST", way.url, way.headers, json.encode(body), way=way)

    def read(self, reply: UpstreamReply, relayed: bool) -> EmbeddingsResult:
        """The vectors. UpstreamFailed when it is no list of them, or is empty."""
        wire = read_object(reply.read_all())
        try:
            vectors = wire["embeddings"]["float"]
            billed = (wire.get("meta") or {}).get("billed_units") or {}
            tokens = billed.get("input_tokens")
            upstream_id = wire.get("id") or ""
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        if not isinstance(vectors, list) or not vectors or not all(isinstance(one, list) and one for one in vectors):
            raise UpstreamFailed(EMPTY, upstream_status=200)
        used = None if tokens is None else Usage(input=read_count(tokens))
        return EmbeddingsResult(vectors, usage=used, upstream_id=upstream_id if isinstance(upstream_id, str) else "")
