"""Vocabulary of the AI SDK's language-model protocol: finish reasons, usage names, error types, option namespaces.

Source: the types and response schemas of `@ai-sdk/provider` and `@ai-sdk/gateway`, specification versions v2 to v4.
Values are in the newest version; the surface converts them for clients of an older one.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from gateway.dialects import openai
from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage

NAME = "aisdk"

# The gateway's own namespace of options and metadata, and the namespaces of vendors with supported cache marks.
OWN_NAMESPACE = "llmgateway"
MARKING = ("anthropic",)

# The namespace of the SDK's own gateway provider, with the members of its options that this gateway supports
# (vercel.com/docs/ai-gateway, "Provider Filtering, Ordering & Sorting"), and its criteria for sorting.
ROUTING = "gateway"
ROUTING_MEMBERS = ("order", "only", "sort")
ROUTING_SORTS = {"cost": "price", "ttft": "latency", "tps": "throughput"}

# Members of a part's providerMetadata that come back as providerOptions, unchanged.
SIGNATURE = "signature"
SEALED = "sealed"
VENDOR = "vendor"
ID_MEMBER = "id"
SUMMARY = "summary"

# Vendor-defined tools that correspond to native web search.
SEARCH_TOOLS = frozenset(
    (
        "openai.web_search",
        "openai.web_search_preview",
        "anthropic.web_search_20250305",
        "anthropic.web_search_20260209",
        "google.google_search",
    )
)
# Arguments of these tools, with their names in chat completions.
SEARCH_FIELDS = {
    "searchContextSize": "search_context_size",
    "userLocation": "user_location",
    "maxUses": "max_uses",
    "allowedDomains": "allowed_domains",
    "blockedDomains": "blocked_domains",
}

FINISH_WRITE: dict[FinishReason, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "pause": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "content_filter": "content-filter",
    "refusal": "content-filter",
}

# `error.type` decides which error a client raises; unknown types become internal errors.
ERROR_TYPES = {
    "unauthenticated": "authentication_error",
    "forbidden": "forbidden",
    "not_found": "not_found",
    "rate_limited": "rate_limit_exceeded",
    "upstream_failed": "internal_server_error",
    "upstream_timeout": "internal_server_error",
    "no_provider": "internal_server_error",
    "unavailable": "internal_server_error",
    "overloaded": "internal_server_error",
    "internal": "internal_server_error",
}
ERROR_TYPES_BY_CODE = dict.fromkeys(
    ("model_not_found", "model_not_served", "model_deactivated", "unknown_region", "dynamic_route_not_found"),
    "model_not_found",
)
ERROR_TYPES_BY_STATUS = {424: "failed_dependency"}


def error_type(error: GatewayError) -> str:
    return (
        ERROR_TYPES_BY_CODE.get(error.code)
        or ERROR_TYPES_BY_STATUS.get(error.status)
        or ERROR_TYPES.get(error.kind, "invalid_request_error")
    )


def error_body(error: GatewayError, request_id: str = "") -> openai.ErrorBody:
    """Return the envelope {error: {message, type, param, code, …details}}, all strings."""
    body = openai.error_body(error, request_id)
    body["error"]["type"] = error_type(error)
    return body


class FailedCall(openai.ErrorContent):
    statusCode: int


class FailurePart(TypedDict):
    type: str
    error: FailedCall


def error_part(error: GatewayError, request_id: str = "") -> FailurePart:
    """Return the stream part for a failure."""
    return {"type": "error", "error": {**error_body(error, request_id)["error"], "statusCode": error.status}}


class FinishShown(TypedDict):
    unified: str
    raw: str


class InputTokens(TypedDict):
    total: int
    noCache: int
    cacheRead: int
    cacheWrite: int


class OutputTokens(TypedDict):
    total: int
    text: int
    reasoning: int


class AiUsage(TypedDict):
    """Usage; `raw` is the usage object of chat completions with its cost."""

    inputTokens: InputTokens
    outputTokens: OutputTokens
    raw: dict[str, Any]


class FlatUsage(TypedDict):
    """Usage of the oldest version."""

    inputTokens: int
    outputTokens: int
    totalTokens: int
    reasoningTokens: int
    cachedInputTokens: int


def write_usage(usage: Usage, cost: Mapping[str, Any]) -> AiUsage:
    """Return the usage of a response."""
    read = usage.cache_read + usage.input_audio_cached
    written = usage.cache_write + usage.cache_write_1h
    total = usage.input_total
    output = usage.output_total
    raw = openai.write_usage(usage)
    if not total:  # chat completions report at least 1 token, which would contradict the other counts here
        raw["prompt_tokens"] = 0
        raw["total_tokens"] = output
    return {
        "inputTokens": {"total": total, "noCache": total - read - written, "cacheRead": read, "cacheWrite": written},
        "outputTokens": {"total": output, "text": output - usage.reasoning, "reasoning": usage.reasoning},
        "raw": {**raw, **cost},
    }
