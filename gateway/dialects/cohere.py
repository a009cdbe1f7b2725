"""Vocabulary of Cohere's API version 2: finish reasons and usage names of chats, and errors."""

from typing import Any, NotRequired, TypedDict

from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage, read_count

NAME = "cohere"
EMBED = "cohere_embed"  # embeddings have other fields than chats (neutral/parameters.py)
OWN_FIELDS = "cohere_fields"  # a key of `Options.extra`: fields of a body that only this vendor's models have

# Source: Cohere API reference, v2/chat, finish_reason.
# COMPLETE and TOOL_CALL end an answer as usual, with calls or without.
FINISH_READ: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "TOOL_CALL": "tool_calls",
    "STOP_SEQUENCE": "stop_sequence",
    "MAX_TOKENS": "length",
    "ERROR_TOXIC": "content_filter",
}
FINISH_WRITE: dict[FinishReason, str] = {
    "stop": "COMPLETE",
    "length": "MAX_TOKENS",
    "tool_calls": "TOOL_CALL",
    "content_filter": "ERROR_TOXIC",
    "refusal": "COMPLETE",
    "pause": "COMPLETE",
    "stop_sequence": "STOP_SEQUENCE",
}
FAILED = "ERROR"
TIMED_OUT = "TIMEOUT"


class CohereCounts(TypedDict):
    input_tokens: int
    output_tokens: int
    search_units: NotRequired[int]


class CohereTokens(TypedDict):
    billed_units: CohereCounts
    tokens: CohereCounts
    cached_tokens: int


class CohereError(TypedDict):
    """An error. `message` is the member of the vendor; clients show the whole object."""

    id: str
    message: str
    code: str
    param: str


def error_body(error: GatewayError, request_id: str) -> CohereError:
    """Return `{id, message, code, param}`."""
    return {"id": request_id, "message": error.message, "code": error.code, "param": error.param}


def read_usage(wire: Any) -> Usage | None:
    """Parse a `usage` object into disjoint counts; None if it has no counts.

    The billed counts (`billed_units`) apply; `tokens` (with the service's own additions to the prompt) only if they
    are missing. `cached_tokens` are part of the prompt (API reference, v2/chat, usage). Counts may be floats.
    """
    if not isinstance(wire, dict):
        return None
    counts = wire.get("billed_units")
    if not isinstance(counts, dict) or "input_tokens" not in counts:
        counts = wire.get("tokens")
    if not isinstance(counts, dict) or ("input_tokens" not in counts and "output_tokens" not in counts):
        return None
    prompt = read_count(counts.get("input_tokens"))
    cached = min(read_count(wire.get("cached_tokens")), prompt)
    return Usage(
        input=prompt - cached,
        cache_read=cached,
        output=read_count(counts.get("output_tokens")),
        searches=read_count(counts.get("search_units")),
    )


def write_usage(usage: Usage) -> CohereTokens:
    """Return the `usage` object without its cost."""
    billed: CohereCounts = {"input_tokens": usage.input_total, "output_tokens": usage.output_total}
    counts = billed.copy()
    if usage.searches:
        billed["search_units"] = usage.searches
    return {"billed_units": billed, "tokens": counts, "cached_tokens": usage.cache_read}
