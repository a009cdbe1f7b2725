"""Rerank in the format of Jina, Voyage and engines with OpenAI's format: POST {address}/rerank.

Facts: Jina's and Voyage's references: `results` or `data`, `relevance_score` or `score`, `usage.total_tokens`. The
number of results has a different name at each, so all results are requested.
"""

from gateway.dialects import openai as dialect
from gateway.neutral.rerank import RerankResult
from gateway.providers.rerank_codec import Json, RerankCodec, read_scores, tokens_used


class OpenAIRerank(RerankCodec):
    dialect = dialect.NAME

    def result(self, wire: Json) -> RerankResult:
        reported = wire.get("usage") or {}
        used = tokens_used(reported.get("total_tokens", reported.get("prompt_tokens")))
        if "results" in wire:
            rows = wire["results"]
        else:
            rows = wire["data"]
        return RerankResult(read_scores(rows), usage=used, model=wire.get("model") or "")
