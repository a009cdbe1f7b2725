"""Rerank in the format of Jina, Voyage and OpenAI-compatible engines: POST {address}/rerank.

Sources: the API references of Jina and Voyage: `results` or `data`, `relevance_score` or `score`, `usage.total_tokens`.
The field for the number of results differs between them, so all results are requested.
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
