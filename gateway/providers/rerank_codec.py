"""The base class of rerank codecs, which send query and documents as JSON and read scores."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from msgspec import json

from gateway.errors import UpstreamFailed
from gateway.neutral.structured import RerankInput, RerankRequest, RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.openai.address import Tokens, endpoint_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec

Json = dict[str, Any]
PATH = "/rerank"


class RerankCodec(WrittenCodec, ABC):
    """POST {address}/rerank, or another `path`. `tokens` as for OpenAIChat; derived classes implement `result`."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: RerankRequest, target: Target) -> Call:
        """Return the call."""
        endpoint = endpoint_of(target, self.path(target), False, self._tokens)
        return Call(
            "POST", endpoint.url, endpoint.headers, json.encode(self.body(request.content(), target)), endpoint=endpoint
        )

    def read(self, reply: UpstreamReply, relayed: bool) -> RerankResult:
        """Return the scores. UpstreamFailed for an unexpected shape."""
        wire = read_object(reply.read_all())
        try:
            return self.result(wire)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None

    def path(self, target: Target) -> str:
        return PATH

    def body(self, content: RerankInput, target: Target) -> Json:
        return {"model": target.mapping.external_id, "query": content.query, "documents": content.documents}

    @abstractmethod
    def result(self, wire: Json) -> RerankResult:
        """Return the scores of an answer; may raise SHAPE_ERRORS."""


def read_scores(rows: Iterable[Json]) -> tuple[tuple[int, float], ...]:
    """Return index and score of each row. The score is `relevance_score` or `score`."""
    return tuple(
        (int(row["index"]), float(row["relevance_score"] if "relevance_score" in row else row["score"])) for row in rows
    )


def tokens_used(count: Any) -> Usage | None:
    """Return the usage of a model billed by tokens, if it is reported."""
    if count is None:
        return None
    return Usage(input=read_count(count))
