"""The chat vocabulary of Cohere's second version: finish reasons and usage names."""

from typing import Any

from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage, read_count

NAME = "cohere"

# API reference, v2/chat, finish_reason.
FINISH_READ: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop_sequence",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
}
FAILED = "ERROR"
TIMED_OUT = "TIMEOUT"


def read_usage(wire: Any) -> Usage | None:
    """A `usage` object as disjoint counts; None when it reports none.

    What is billed (`billed_units`) counts, `tokens` (with the service's own additions to the prompt) only in its
    absence; `cached_tokens` are a part of the prompt (API reference, v2/chat, usage). Counts may be written as floats.
    """
    if not isinstance(wire, dict):
        return None
    counted = wire.get("billed_units")
    if not isinstance(counted, dict) or "input_tokens" not in counted:
        counted = wire.get("tokens")
    if not isinstance(counted, dict) or ("input_tokens" not in counted and "output_tokens" not in counted):
        return None
    prompt = read_count(counted.get("input_tokens"))
    cached = min(read_count(wire.get("cached_tokens")), prompt)
    return Usage(
        input=prompt - cached,
        cache_read=cached,
        output=read_count(counted.get("output_tokens")),
        searches=read_count(counted.get("search_units")),
    )
