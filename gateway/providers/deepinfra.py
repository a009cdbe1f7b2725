"""Rerank of DeepInfra: POST {address}/inference/{model}.

Wire facts: DeepInfra's model pages of rerankers, "API". The request has `queries` and `documents`; the response has
`scores`, one for each document in their order, and `input_tokens`.
"""

import dataclasses
from urllib.parse import quote

from gateway.neutral.structured import RerankInput, RerankRequest, RerankResult
from gateway.providers.protocol import Call, Target
from gateway.providers.rerank_codec import Json, RerankCodec, tokens_used

NAME = "deepinfra"
OPENAI_PATH = "/openai"
QUERY_FOR_EACH = "query_for_each"  # in `extra` of a mapping: the model requires one query for each document


class DeepInfraRerank(RerankCodec):
    dialect = NAME

    def write(self, request: RerankRequest, target: Target) -> Call:
        """Build the call. An operator's base URL has the path of the OpenAI format, which this format lacks."""
        return super().write(request, dataclasses.replace(target, address=target.address.removesuffix(OPENAI_PATH)))

    def path(self, target: Target) -> str:
        return f"/inference/{quote(target.mapping.external_id, safe='/')}"

    def body(self, content: RerankInput, target: Target) -> Json:
        count = 1
        if target.mapping.extra.get(QUERY_FOR_EACH):
            count = len(content.documents)
        return {"queries": [content.query] * count, "documents": content.documents}

    def result(self, wire: Json) -> RerankResult:
        scores = tuple((index, float(score)) for index, score in enumerate(wire["scores"]))
        used = tokens_used(wire.get("input_tokens"))
        return RerankResult(scores, usage=used, upstream_id=str(wire.get("request_id") or ""))
