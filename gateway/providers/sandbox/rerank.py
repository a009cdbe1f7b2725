"""Rerank: the score is the share of the query's words that a document contains.

Source: Jina API reference, rerank; `providers/openai/rerank.py` reads this format.
"""

from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, check_fields, of
from gateway.providers.sandbox.counting import count
from gateway.providers.sandbox.directives import Directives, strip
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.response import Response


def check_rerank(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "query", "documents"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the query."""
    return body["query"]


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body, the best document first."""
    query = strip(body["query"])
    words = set(query.lower().split())
    scored = [
        (len(words & set(text.lower().split())) / max(1, len(words)), -index)
        for index, text in enumerate(body["documents"])
    ]
    rows = [{"index": -place, "relevance_score": round(score, 6)} for score, place in sorted(scored, reverse=True)]
    whole: dict[str, Any] = {"model": body["model"], "results": rows}
    if not directives.no_usage:
        whole["usage"] = {"total_tokens": sum(count(query) + count(text) for text in body["documents"])}
    return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "results": []}))


FIELDS: dict[str, Check] = {"model": of(str), "query": of(str), "documents": of(list)}
