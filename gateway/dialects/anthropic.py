"""Words of the Anthropic messages dialect: stop reasons, usage names, error types by status.

Wire facts: Anthropic API reference, "Messages" and "Errors"; `param` and `code` of an error are members of our own
that its SDKs ignore.
"""

from collections.abc import Mapping
from typing import Any

from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.request import TIERS_JOINED
from gateway.neutral.usage import Usage, read_count

NAME = "anthropic"
VERSION = "2023-06-01"  # of the API, in the header anthropic-version

# `Options.extra` holds the caller's opt-ins (the values of the header anthropic-beta) under this name.
BETAS = "anthropic_betas"
# … and fields of a body that have a meaning on the format's own servers alone under this one.
OWN_FIELDS = "anthropic_fields"

# Fields that ask for more than the ordinary: the value that does, which is a service tier here (both at once are joined
# by +), and the one that asks for nothing. A usage tells them again (API reference, "Messages"; "Fast mode").
TIER_FIELDS = {"speed": ("fast", "standard"), "inference_geo": ("us", "global")}
FAST_BETA = "fast-mode-2026-02-01"  # the opt-in that some models want with a speed

STOP_READ: dict[str, FinishReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}
STOP_WRITE: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
    "refusal": "refusal",
    "content_filter": "refusal",
}

# How coding agents of this format know that they have to shorten the conversation, whoever's model serves.
TOO_LONG = "prompt is too long"

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """The error type for a status; other 5xx are api_error, other 4xx invalid_request_error."""
    return ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def error_body(error: GatewayError, request_id: str) -> dict:
    """`{type: "error", error: {type, message, param, code}, request_id}`."""
    message = error.message
    if error.code == "context_length_exceeded" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    inner = {
        "type": error_type(error.status),
        "message": message,
        "param": error.param,
        "code": error.code,
    }
    if error.details:
        inner.update({name: text for name, text in error.details.items() if name not in inner})
    return {"type": "error", "error": inner, "request_id": request_id}


def tier_of(wire: Mapping[str, Any]) -> str:
    """The service tier that the fields of a body, or of a usage, stand for; "" for the ordinary one."""
    names = [tier for name, (tier, _) in TIER_FIELDS.items() if wire.get(name) == tier]
    return TIERS_JOINED.join(names)


def fields_of_tier(tier: str) -> dict[str, str]:
    """What a body asks for a service tier with."""
    asked = tier.split(TIERS_JOINED)
    return {name: value for name, (value, _) in TIER_FIELDS.items() if value in asked}


def read_usage(wire: Any) -> Usage | None:
    """A `usage` object as disjoint counts; None when it reports none.

    input_tokens is the uncached part alone; what was written to a cache is split by lifetime in cache_creation, and
    counts for 5 minutes where it is not. thinking_tokens are part of output_tokens (API reference, "Usage"). What
    compacting a conversation took on the way is told in iterations alone, and added.
    """
    if not isinstance(wire, dict) or ("input_tokens" not in wire and "output_tokens" not in wire):
        return None
    usage = _read_counts(wire)
    iterations = wire.get("iterations")
    for entry in iterations if isinstance(iterations, list) else ():
        if isinstance(entry, dict) and entry.get("type") == "compaction":
            usage = _add(usage, _read_counts(entry))
    return usage


def is_search(block: dict[str, Any]) -> bool:
    """Whether a block of content is the result of a billed web search; one that failed has an error for its content."""
    return block.get("type") == "web_search_tool_result" and isinstance(block.get("content"), list)


def _read_counts(wire: dict[str, Any]) -> Usage:
    split, details, tools = (wire.get(name) for name in ("cache_creation", "output_tokens_details", "server_tool_use"))
    written = read_count(wire.get("cache_creation_input_tokens"))
    if isinstance(split, dict):
        hour = read_count(split.get("ephemeral_1h_input_tokens"))
    else:
        hour = 0
    if isinstance(split, dict):
        written = max(written, hour + read_count(split.get("ephemeral_5m_input_tokens")))
    output = read_count(wire.get("output_tokens"))
    if isinstance(details, dict):
        thought = read_count(details.get("thinking_tokens"))
    else:
        thought = 0
    return Usage(
        input=read_count(wire.get("input_tokens")),
        cache_read=read_count(wire.get("cache_read_input_tokens")),
        cache_write=written - min(hour, written),
        cache_write_1h=min(hour, written),
        output=output,
        reasoning=min(thought, output),
        searches=read_count(tools.get("web_search_requests")) if isinstance(tools, dict) else 0,
    )


def _add(one: Usage, other: Usage) -> Usage:
    """Both together; of `other` the tokens alone."""
    return Usage(
        input=one.input + other.input,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        cache_write_1h=one.cache_write_1h + other.cache_write_1h,
        output=one.output + other.output,
        reasoning=one.reasoning,
        searches=one.searches,
    )


def write_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` object without its cost. Tokens of kinds that the dialect has no field for count as plain ones."""
    written = usage.cache_write + usage.cache_write_1h
    read = usage.cache_read + usage.input_audio_cached
    body: dict[str, Any] = {
        "input_tokens": usage.input_total - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": usage.output_total,
    }
    if usage.reasoning:
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.searches:
        body["server_tool_use"] = {"web_search_requests": usage.searches, "web_fetch_requests": 0}
    return body
