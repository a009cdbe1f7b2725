"""Rerank as Jina, Voyage and the engines that speak OpenAI's format have it: POST {address}/rerank.

Facts: Jina's and Voyage's references: `results` or `data`, `relevance_score` or `score`, `usage.total_tokens`. How many
are wanted is told by other names at each, so all are asked for.
"""

from typing import Any

from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.request import Native
from gateway.neutral.rerank import RerankInput, RerankRequest, RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answers import ODD, SHAPE_ERRORS, read_object
from gateway.providers.openai.address import Tokens, way_of
from gateway.providers.protocol import Call, Target, UpstreamReply

PATH = "/rerank"


class OpenAIRerank:
    """`tokens` as for OpenAIChat."""

    dialect = dialect.NAME
    waits = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: RerankRequest, target: Target) -> Call:
        """The call."""
        wanted: RerankInput = request.content()
        body = {"model": target.mapping.external_id, "query": wanted.query, "documents": wanted.documents}
        way = way_of(target, PATH, False, self._tokens)
        return Call("POST", way.url, way.headers, json.encode(body), way=way)

    def relay(self, native: Native, request: RerankRequest, target: Target) -> Call:
        """Every call is written anew."""
        raise NotSupported("A request to rerank is not relayed.")

    def read(self, reply: UpstreamReply, relayed: bool) -> RerankResult:
        """The scores. UpstreamFailed when they are none."""
        wire = read_object(reply.read_all())
        try:
            rows = wire["results"] if "results" in wire else wire["data"]
            told = wire.get("usage") or {}
            count = told.get("total_tokens", told.get("prompt_tokens"))
            usage = None if count is None else Usage(input=read_count(count))
            return RerankResult(read_scores(rows), usage, wire.get("model") or "")
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None


def read_scores(rows: list[Any]) -> tuple[tuple[int, float], ...]:
    """Index and score of each row, whatever the score is called."""
    return tuple(
        (int(row["index"]), float(row["relevance_score"] if "relevance_score" in row else row["score"])) for row in rows
    )
