"""Rerank of DeepInfra: POST {address}/inference/{model}, a score for each document in their order.

Facts: HTTP reference, section 3.8: `queries`, `documents`, `scores`, `input_tokens`.
"""

import dataclasses
from urllib.parse import quote

from gateway.neutral.rerank import RerankInput, RerankRequest, RerankResult
from gateway.providers.protocol import Call, Target
from gateway.providers.rerank_codec import Json, RerankCodec, tokens_used

NAME = "deepinfra"
BESIDE = "/openai"
EACH = "query_for_each"  # of a mapping's `extra`: it wants as many queries as documents


class DeepInfraRerank(RerankCodec):
    dialect = NAME

    def write(self, request: RerankRequest, target: Target) -> Call:
        """The call. An operator's base URL is that of the provider's other format, which lies below this one's."""
        return super().write(request, dataclasses.replace(target, address=target.address.removesuffix(BESIDE)))

    def path(self, target: Target) -> str:
        return f"/inference/{quote(target.mapping.external_id, safe='/')}"

    def body(self, wanted: RerankInput, target: Target) -> Json:
        if target.mapping.extra.get(EACH):
            count = len(wanted.documents)
        else:
            count = 1
        return {"queries": [wanted.query] * count, "documents": wanted.documents}

    def result(self, wire: Json) -> RerankResult:
        scores = tuple((index, float(score)) for index, score in enumerate(wire["scores"]))
        used = tokens_used(wire.get("input_tokens"))
        return RerankResult(scores, usage=used, upstream_id=str(wire.get("request_id") or ""))
