"""Rerank of version 2 of Cohere's API, which is billed by search units.

Wire facts: API reference, v2 "Rerank": meta.billed_units.search_units.
"""

from gateway.dialects import cohere as dialect
from gateway.neutral.structured import RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.rerank_codec import Json, RerankCodec, read_scores


class CohereRerank(RerankCodec):
    dialect = dialect.NAME

    def result(self, wire: Json) -> RerankResult:
        units = ((wire.get("meta") or {}).get("billed_units") or {}).get("search_units")
        used = None if units is None else Usage(searches=read_count(units))
        return RerankResult(read_scores(wire["results"]), usage=used, upstream_id=str(wire.get("id") or ""))
