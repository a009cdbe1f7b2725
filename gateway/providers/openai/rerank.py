"""Rerank as Jina, Voyage and the engines that speak OpenAI's format have it: POST {address}/rerank.

Facts: Jina's and Voyage's references: `results` or `data`, `relevance_score` or `score`, `usage.total_tokens`. How many
are wanted is told by other names at each, so all are asked for.
"""

from gateway.dialects import openai as dialect
from gateway.neutral.rerank import RerankResult
from gateway.providers.scores import Json, ScoresCodec, read_scores, tokens_used


class OpenAIRerank(ScoresCodec):
    dialect = dialect.NAME

    def result(self, wire: Json) -> RerankResult:
        reported = wire.get("usage") or {}
        used = tokens_used(reported.get("total_tokens", reported.get("prompt_tokens")))
        rows = wire["results"] if "results" in wire else wire["data"]
        return RerankResult(read_scores(rows), usage=used, model=wire.get("model") or "")
