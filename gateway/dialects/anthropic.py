"""Vocabulary of the Anthropic Messages dialect: stop reasons, usage names, error types by status.

Source: Anthropic API reference, "Messages" and "Errors"; `param` and `code` of an error are the gateway's additions,
which the SDKs ignore.
"""

import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import structs

from gateway.dialects.anthropic_tools import with_model_tokens
from gateway.dialects.error_details import DETAILED, with_details
from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.request import TIERS_JOINED
from gateway.neutral.usage import Usage, read_count

NAME = "anthropic"
VERSION = "2023-06-01"  # API version in the header anthropic-version

# Key in `Options.extra` of body fields that only the vendor's own servers support.
OWN_FIELDS = "anthropic_fields"

# Fields for premium service: the value that requests it, which is a service tier here (several are joined by +), and
# the ordinary value. A usage object repeats them (API reference, "Messages"; "Fast mode").
TIER_FIELDS = {"speed": ("fast", "standard"), "inference_geo": ("us", "global")}

THINKING = ("thinking", "redacted_thinking")  # types of blocks; they cannot have a cache mark ("Prompt caching")
StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]
STOP_READ: dict[str, FinishReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
}
# Calls in the answer decide the word for stop and tool_calls.
STOP_WRITE: dict[FinishReason, StopReason] = {
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause": "pause_turn",
    "refusal": "refusal",
    "content_filter": "refusal",
}

ID_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
ID_LENGTH = 64

# Coding agents of this format recognize these words, with any model, and compact their conversation.
TOO_LONG = "prompt is too long"

ERROR_TYPES = {
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


# Coding agents take the status 429 for a spending limit and recognize it by this type.
LIMIT_TYPE = "billing_error"


def error_type(status: int) -> str:
    """Return the error type for a status; other 5xx are api_error, other 4xx invalid_request_error."""
    return ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


# The code of a request with `thread`. Anthropic's SDKs read it in `details`, and then send the whole conversation.
UNTHREADED = "thread_unsupported_request"


class ThreadErrorDetails(TypedDict):
    error_code: str
    unsupported: list[str]


class MessageErrorContent(TypedDict):
    """An error. Further members, which are strings, help to find its cause."""

    type: str
    message: str
    param: str
    code: str
    details: NotRequired[ThreadErrorDetails]


class MessageError(TypedDict):
    type: Literal["error"]
    error: Annotated[MessageErrorContent, DETAILED]
    request_id: str


def error_body(error: GatewayError, request_id: str) -> MessageError:
    """Return `{type: "error", error: {type, message, param, code}, request_id}`."""
    message = error.message
    if error.code == "context_length_exceeded" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    inner: MessageErrorContent = {
        "type": LIMIT_TYPE if error.kind == "limit_reached" else error_type(error.status),
        "message": message,
        "param": error.param,
        "code": error.code,
    }
    if error.code == UNTHREADED:
        inner["details"] = {"error_code": UNTHREADED, "unsupported": [error.param]}
    return {"type": "error", "error": with_details(inner, error), "request_id": request_id}


def call_id(ident: str) -> str:
    """Return a tool call id with the letters that the format allows: letters, digits, _ and -.

    The same id always gives the same result, since a call and its tool result must match.
    """
    if ID_ALLOWED.fullmatch(ident):
        return ident
    clean = ID_FORBIDDEN.sub("_", ident)
    # The checksum keeps two ids distinct that differ only in replaced or cut letters.
    return f"{clean[: ID_LENGTH - 9]}_{binascii.crc32(ident.encode()):08x}"


def tier_of(wire: Mapping[str, Any]) -> str:
    """Return the service tier in the fields of a body or of a usage object; "" for the ordinary one."""
    names = [tier for name, (tier, _) in TIER_FIELDS.items() if wire.get(name) == tier]
    return TIERS_JOINED.join(names)


def fields_of_tier(tier: str) -> dict[str, str]:
    """Return the body fields that request a service tier."""
    tiers = tier.split(TIERS_JOINED)
    return {name: value for name, (value, _) in TIER_FIELDS.items() if value in tiers}


def read_usage(wire: Any) -> Usage | None:
    """Parse a `usage` object into disjoint counts; None if it has no counts.

    input_tokens is only the uncached part; cache writes are split by lifetime in cache_creation, and count as 5-minute
    writes otherwise. thinking_tokens are part of output_tokens (API reference, "Usage"). Tokens for compacting the
    conversation are reported only in iterations, and are added; so are those of an advisor, with the price of its
    model.
    """
    if not isinstance(wire, dict) or ("input_tokens" not in wire and "output_tokens" not in wire):
        return None
    usage = _read_counts(wire)
    iterations = wire.get("iterations")
    for entry in iterations if isinstance(iterations, list) else ():
        if not isinstance(entry, dict):
            continue
        if entry.get("type") == "compaction":
            usage = _add(usage, _read_counts(entry))
        elif entry.get("type") == "advisor_message":
            model = entry.get("model")
            usage = with_model_tokens(usage, model if isinstance(model, str) else "", _read_counts(entry))
    return usage


def _read_counts(wire: dict[str, Any]) -> Usage:
    split, details, tools = (wire.get(name) for name in ("cache_creation", "output_tokens_details", "server_tool_use"))
    written = read_count(wire.get("cache_creation_input_tokens"))
    hour = 0
    if isinstance(split, dict):
        hour = read_count(split.get("ephemeral_1h_input_tokens"))
        written = max(written, hour + read_count(split.get("ephemeral_5m_input_tokens")))
    output = read_count(wire.get("output_tokens"))
    if isinstance(details, dict):
        thinking = read_count(details.get("thinking_tokens"))
    else:
        thinking = 0
    return Usage(
        input=read_count(wire.get("input_tokens")),
        cache_read=read_count(wire.get("cache_read_input_tokens")),
        cache_write=written - min(hour, written),
        cache_write_1h=min(hour, written),
        output=output,
        reasoning=min(thinking, output),
        searches=read_count(tools.get("web_search_requests")) if isinstance(tools, dict) else 0,
    )


def _add(usage: Usage, other: Usage) -> Usage:
    """Add the tokens of `other` to the usage."""
    return structs.replace(
        usage,
        input=usage.input + other.input,
        cache_read=usage.cache_read + other.cache_read,
        cache_write=usage.cache_write + other.cache_write,
        cache_write_1h=usage.cache_write_1h + other.cache_write_1h,
        output=usage.output + other.output,
    )


class CacheCreation(TypedDict):
    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class ThinkingTokens(TypedDict):
    thinking_tokens: int


class ServerToolUse(TypedDict):
    web_search_requests: int
    web_fetch_requests: int


class MessageTokens(TypedDict):
    """A `usage` object without its cost."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cache_creation: CacheCreation
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]
    server_tool_use: NotRequired[ServerToolUse | None]


def write_usage(usage: Usage) -> MessageTokens:
    """Return the `usage` object without its cost. Token kinds without a field in this dialect count as plain tokens."""
    written = usage.cache_write + usage.cache_write_1h
    read = usage.cache_read + usage.input_audio_cached
    body: MessageTokens = {
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
