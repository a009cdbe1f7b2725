"""Vocabulary of the Anthropic Messages dialect: stop reasons, usage names, error types by status.

Source: Anthropic API reference, "Messages" and "Errors"; `param` and `code` of an error are the gateway's additions,
which the SDKs ignore.
"""

import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import json, structs

from gateway.dialects.error_details import DETAILED, with_details
from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.hosted_uses import TOOL_MODEL_COUNTS, price_key_of
from gateway.neutral.parts import RangeKind, Source, SourceRange
from gateway.neutral.request import TIERS_JOINED
from gateway.neutral.usage import NO_USAGE, Usage, read_count

# Citations of the Anthropic Messages dialect: of web pages, search results and places in documents.
#
# Source: Anthropic API reference, "Messages", text block citations; documentation, "Citations" and "Search results".

WEB_CITATION = "web_search_result_location"
RESULT_CITATION = "search_result_location"
# Citation type → the kind of range, and the names of its first and last index.
CITATION_LOCATIONS: dict[str, tuple[RangeKind, str, str]] = {
    "char_location": ("characters", "start_char_index", "end_char_index"),
    "page_location": ("pages", "start_page_number", "end_page_number"),
    "content_block_location": ("blocks", "start_block_index", "end_block_index"),
}
CITATION_TYPES = {kind: (name, first, last) for name, (kind, first, last) in CITATION_LOCATIONS.items()}
BLOCK_RANGE = ("start_block_index", "end_block_index")


def read_citation(wire: Any) -> Source | None:
    """Parse a citation into its source; None for an unknown shape."""
    if not isinstance(wire, dict):
        return None
    kind = wire.get("type")
    quote = _text(wire.get("cited_text"))
    if kind in CITATION_LOCATIONS:
        range_kind, begin, end = CITATION_LOCATIONS[kind]
        place = SourceRange(
            range_kind, _count(wire.get("document_index"), 0), _count(wire.get(begin)), _count(wire.get(end)),
            _text(wire.get("file_id")),
        )  # fmt: skip
        return Source("", _text(wire.get("document_title")), quote, place=place)
    address = _text(wire.get("url")) or _text(wire.get("source"))
    if not address:
        return None
    index = _count(wire.get("search_result_index"), 0)
    first, last = (_count(wire.get(name)) for name in BLOCK_RANGE)
    source_range = SourceRange("result", index, first, last) if kind == RESULT_CITATION else None
    return Source(address, _text(wire.get("title")), quote, place=source_range)


def write_citation(source: Source) -> dict[str, Any]:
    """Render a citation. The index of a web page is empty because only the vendor's own search can use it."""
    place = source.place
    title = source.title or None
    if place is None:
        return {
            "type": WEB_CITATION,
            "url": source.url,
            "title": title,
            "cited_text": source.quote,
            "encrypted_index": "",
        }
    first = max(place.first, 0)
    last = max(place.last, 0)
    if place.kind == "result":
        return {
            "type": RESULT_CITATION,
            "source": source.url or place.file_id,
            "title": title,
            "cited_text": source.quote,
            "search_result_index": place.document,
            BLOCK_RANGE[0]: first,
            BLOCK_RANGE[1]: last,
        }
    name, start, end = CITATION_TYPES[place.kind]
    return {
        "type": name,
        "cited_text": source.quote,
        "document_index": place.document,
        "document_title": title,
        "file_id": place.file_id or None,
        start: first,
        end: last,
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


def _count(value: Any, missing: int = -1) -> int:
    if type(value) is int and value >= 0:
        return value
    return missing


# Counts of the tools that Anthropic runs, as its answers show them.
#
# Usage reports web searches and, in `iterations`, the tokens of models that tools call; it reports no containers.
# While an answer is streamed, only its blocks show what its tools did.

ADVICE_RESULT = "advisor_tool_result"
CODE_RESULTS = ("code_execution_tool_result", "bash_code_execution_tool_result")
CODE_END = "_code_execution_tool_result"
BYTES_PER_TOKEN = 4
ADVICE_PROMPT = 2_048  # tokens of an advisor's own instructions, before the conversation
HOSTED_RESULT_SUFFIX = "_tool_result"
CONTAINER = structs.replace(NO_USAGE, code_sessions=1)


def shown_in(block: dict[str, Any]) -> Usage:
    """Return what a block shows to be used: a web search, a container, or the advice of another model."""
    kind = block.get("type")
    content = block.get("content")
    if kind == "web_search_tool_result":
        return Usage(searches=1) if isinstance(content, list) else NO_USAGE
    if kind in CODE_RESULTS or (isinstance(kind, str) and kind.endswith(CODE_END)):
        return CONTAINER
    if kind == ADVICE_RESULT and isinstance(content, dict) and "error_code" not in content:
        # Its own prompt has the whole conversation; its answer may be encrypted.
        written = -(-len(json.encode(content)) // BYTES_PER_TOKEN)
        return structs.replace(NO_USAGE, tool_model_output=written, tool_model_input=ADVICE_PROMPT)
    return NO_USAGE


def container_of(wire: dict[str, Any]) -> tuple[str, ...]:
    """Return the id of the container that a message, or its end in a stream, names."""
    container = wire.get("container")
    ident = container.get("id") if isinstance(container, dict) else None
    return (ident,) if isinstance(ident, str) and ident else ()


def plus(shown: Usage, more: Usage) -> Usage:
    """Return the sum of what two blocks show. A request has one container."""
    return structs.replace(
        shown,
        searches=shown.searches + more.searches,
        code_sessions=max(shown.code_sessions, more.code_sessions),  # type: ignore[attr-defined]
        tool_model_output=shown.tool_model_output + more.tool_model_output,  # type: ignore[attr-defined]
        tool_model_input=shown.tool_model_input + more.tool_model_input,  # type: ignore[attr-defined]
    )


def with_tools(usage: Usage | None, shown: Usage, wire: Any) -> Usage | None:
    """Return the usage with what the blocks show and `wire`, its JSON, does not report."""
    if shown is NO_USAGE:
        return usage
    usage = usage or NO_USAGE
    reported = wire if isinstance(wire, dict) else {}
    changes: dict[str, int] = {"code_sessions": shown.code_sessions}  # type: ignore[attr-defined]
    if "server_tool_use" not in reported:
        changes["searches"] = usage.searches + shown.searches
    advice = shown.tool_model_output  # type: ignore[attr-defined]
    if advice and not usage.tool_model_output:  # type: ignore[attr-defined]
        own = shown.tool_model_input  # type: ignore[attr-defined]
        calls = own // ADVICE_PROMPT
        read = own + calls * (usage.input_total + usage.output)
        changes |= {"tool_model_output": advice, "tool_model_input": read}
    return structs.replace(usage, **{name: count for name, count in changes.items() if count})


def with_model_tokens(usage: Usage, model: str, counted: Usage) -> Usage:
    """Return the usage with the tokens that a tool's model used. Several models are priced as the most expensive."""
    counts = {name: getattr(usage, name) + getattr(counted, own) for own, name in TOOL_MODEL_COUNTS.items()}
    key = price_key_of(model, counted.input_total)
    if any(getattr(usage, name) for name in TOOL_MODEL_COUNTS.values()) and usage.price_key != key:
        key = ""
    return structs.replace(usage, **counts, price_key=key)


NAME = "anthropic"
VERSION = "2023-06-01"  # API version in the header anthropic-version

# Key in `Options.extra` of body fields that only the vendor's own servers support.
OWN_FIELDS = "anthropic_fields"

# Fields for premium service: the value that requests it, which is a service tier here (several are joined by +), and
# the ordinary value. A usage object repeats them (API reference, "Messages"; "Fast mode").
TIER_FIELDS = {"speed": ("fast", "standard"), "inference_geo": ("us", "global")}
TIER_NAMES = frozenset(TIER_FIELDS)

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
OUTPUT_TOO_LONG = "exceed context limit"  # beside the prompt: agents then ask for a shorter answer

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
    said = message.lower()
    if error.code == "context_length_exceeded" and TOO_LONG not in said and OUTPUT_TOO_LONG not in said:
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
    if TIER_NAMES.isdisjoint(wire):
        return ""
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
    get = wire.get
    split, details, tools = get("cache_creation"), get("output_tokens_details"), get("server_tool_use")
    written = read_count(get("cache_creation_input_tokens"))
    hour = 0
    if isinstance(split, dict):
        hour = read_count(split.get("ephemeral_1h_input_tokens"))
        written = max(written, hour + read_count(split.get("ephemeral_5m_input_tokens")))
    output = read_count(get("output_tokens"))
    thinking = read_count(details.get("thinking_tokens")) if isinstance(details, dict) else 0
    return Usage(
        input=read_count(get("input_tokens")),
        cache_read=read_count(get("cache_read_input_tokens")),
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
