"""Operations with one JSON answer in OpenAI's format: the body is sent unchanged, with the provider's name of the
model.

Sources: OpenAI API reference, "Create moderation"; Mistral API reference, moderations and OCR, whose answers have other
members. `/systemone` is the operation of this gateway's API.
"""

from collections.abc import Callable
from typing import Any

from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.structured import RerankResult, StructuredRequest, StructuredResult
from gateway.neutral.usage import Usage, UsageBasis, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.openai.address import Tokens, endpoint_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.providers.rerank_codec import Json as RerankCodecJson
from gateway.providers.rerank_codec import RerankCodec, read_scores, tokens_used

# Rerank in the format of Jina, Voyage and OpenAI-compatible engines: POST {address}/rerank.
#
# Sources: the API references of Jina and Voyage: `results` or `data`, `relevance_score` or `score`,
# `usage.total_tokens`. The field for the number of results differs between them, so all results are requested.


class OpenAIRerank(RerankCodec):
    dialect = dialect.NAME

    def result(self, wire: RerankCodecJson) -> RerankResult:
        reported = wire.get("usage") or {}
        used = tokens_used(reported.get("total_tokens", reported.get("prompt_tokens")))
        rows = wire["results"] if "results" in wire else wire["data"]
        return RerankResult(read_scores(rows), usage=used, model=wire.get("model") or "")


Json = dict[str, Any]
TEXT_ONLY = "text_only"  # a key of a mapping's `extra`: its moderations do not accept images


class OpenAIStructured(WrittenCodec):
    """POST {address}{path}. `answers` is the name of the required list or object of an answer. `fit` adapts a body
    (NotSupported), `repair` an answer."""

    dialect = dialect.NAME

    def __init__(
        self,
        path: str,
        answers: str,
        tokens: Tokens | None = None,
        fit: Callable[[Json, Target], Json] | None = None,
        repair: Callable[[Json], None] | None = None,
    ) -> None:
        self._path = path
        self._answers = answers
        self._tokens = tokens
        self._fit = fit
        self._repair = repair

    def write(self, request: StructuredRequest, target: Target) -> Call:
        """Return the call with the provider's name of the model in the body."""
        body: Json = request.content()
        if self._fit is not None:
            body = self._fit(body, target)
        endpoint = endpoint_of(target, self._path, False, self._tokens)
        sent = json.encode({**body, "model": target.mapping.external_id})
        return Call("POST", endpoint.url, endpoint.headers, sent, endpoint=endpoint)

    def read(self, reply: UpstreamReply, relayed: bool) -> StructuredResult:
        """Return the answer. UpstreamFailed when a required member is missing."""
        wire = read_object(reply.read_all())
        try:
            if not wire[self._answers]:
                raise ValueError("empty")
            if self._repair is not None:
                self._repair(wire)
            model = wire.pop("model", "")
            ident = wire.pop("id", "")
            usage = read_usage(wire.pop("usage", None), wire.get("usage_info"), wire.get("pages"))
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        return StructuredResult(
            wire,
            usage=usage,
            model=model if isinstance(model, str) else "",
            upstream_id=ident if isinstance(ident, str) else "",
        )


def fit_moderations(body: Json, target: Target) -> Json:
    """Convert text parts to strings for models that only accept text. NotSupported for other parts."""
    inputs = body["input"]
    if not target.mapping.extra.get(TEXT_ONLY) or not isinstance(inputs, list):
        return body
    if any(isinstance(part, dict) and part.get("type") != "text" for part in inputs):
        raise NotSupported(f"{target.mapping.key} only accepts text.", param="input", code="unsupported_input")
    return {**body, "input": [part["text"] if isinstance(part, dict) else part for part in inputs]}


def repair_moderations(wire: Json) -> None:
    """Derive a missing `flagged` of each result from its categories."""
    for result in wire["results"]:
        result.setdefault("flagged", any(result["categories"].values()))


def read_usage(reported: Json | None, pages: Json | None, answered: Any = None) -> Usage | None:
    """Return the usage in tokens, pages, or both; None where neither is known. Without a reported number of pages, the
    pages in `answered` are counted."""
    counted = read_count(pages.get("pages_processed")) if pages else 0
    basis: UsageBasis = "provider"
    if not counted and isinstance(answered, list):
        counted = len(answered)
        basis = "estimated"
    if not reported:
        if counted:
            return Usage(pages=counted, basis=basis)
        return None
    read = reported.get("input_tokens", reported.get("prompt_tokens", reported.get("total_tokens")))
    output = reported.get("output_tokens", reported.get("completion_tokens"))
    return Usage(input=read_count(read), output=read_count(output), pages=counted, basis=basis)
