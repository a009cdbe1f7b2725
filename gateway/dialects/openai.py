"""OpenAI's chat vocabulary: finish reasons, usage names, reasoning formats, error envelope."""

import hashlib
import re
from operator import attrgetter
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from gateway.dialects.error_details import DETAILED, with_details
from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.parts import Source
from gateway.neutral.units import TOKEN_COUNTS
from gateway.neutral.usage import MAX_UNITS, Usage, read_count

# Sources that some servers of OpenAI's format list beside the choices of an answer.

# `search_results` is a list of {url, title}, `citations` one of addresses.
LISTED_SOURCES = frozenset(("citations", "search_results"))


def read_sources(wire: dict[str, Any]) -> tuple[Source, ...]:
    """Return the sources in `search_results`, otherwise those in `citations`."""
    listed = wire.get("search_results")
    if isinstance(listed, list):
        entries = [entry for entry in listed if isinstance(entry, dict) and _text(entry.get("url"))]
        if entries:
            return tuple(Source(entry["url"], _text(entry.get("title"))) for entry in entries)
    cited = wire.get("citations")
    if isinstance(cited, list):
        return tuple(Source(url) for url in cited if isinstance(url, str) and url)
    return ()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


# Finish reasons in words that a format does not define: compatible servers pass on those of the engine behind them.

# The first entry with a piece that the word contains decides. A word for a limit or a filter must not
# become "stop": callers would take a cut answer for a whole one.
FINISH_REASON_PIECES: tuple[tuple[FinishReason, tuple[str, ...]], ...] = (
    ("stop_sequence", ("stop_sequence", "stopsequence")),
    ("length", ("incomplete",)),
    ("stop", ("eos", "end_turn", "endturn", "complete", "stop_token")),
    ("refusal", ("refus",)),
    (
        "content_filter",
        (
            "filter", "safety", "sensitive", "block", "prohibit", "moderat", "guardrail", "recitation", "toxic", "spii",
            "policy",
        ),
    ),
    ("length", ("max", "length", "limit", "trunc", "exceed", "context", "budget", "abort", "cancel", "interrupt")),
    ("tool_calls", ("tool", "function")),
)  # fmt: skip


def read_unknown(word: Any) -> FinishReason:
    """Return the finish reason that a word of no known vocabulary most likely means; "stop" for all others."""
    if isinstance(word, str):
        lowered = word.lower()
        for reason, pieces in FINISH_REASON_PIECES:
            if any(piece in lowered for piece in pieces):
                return reason
    return "stop"


# The ids of calls and the names of functions that OpenAI's APIs take.

# Error messages of the service: "maximum length 40" of `tool_calls[].id`, "maximum length 64" of `call_id`.
CHAT_LIMIT = 40
RESPONSES_LIMIT = 64
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def shorten(ident: str, limit: int) -> str:
    """Return an id within the limit. A long one is replaced by its hash, so it stays the same in each turn."""
    if len(ident) <= limit:
        return ident
    return f"call_{hashlib.sha256(ident.encode(errors='replace')).hexdigest()[:32]}"


def is_name(name: Any) -> bool:
    return isinstance(name, str) and FUNCTION_NAME.fullmatch(name) is not None


NAME = "openai"
ChatFinish = Literal["stop", "length", "tool_calls", "content_filter"]


class CacheWriteTokens(TypedDict):
    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class PromptTokensDetails(TypedDict):
    cached_tokens: int
    cache_write_tokens: int
    cache_creation_tokens: int
    audio_tokens: int
    video_tokens: int
    cache_creation: NotRequired[CacheWriteTokens]


class CompletionTokensDetails(TypedDict):
    reasoning_tokens: int
    image_tokens: int
    audio_tokens: int


class ChatTokens(TypedDict):
    """A `usage` object without its cost."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    reasoning_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


# OpenAI's five reasons (API reference, chat completion object), then those of compatible servers.
FINISH_READ: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}
# Reasons that mean a failed response, as some compatible servers report a server error.
FINISH_FAILED = frozenset(("error", "network_error", "insufficient_system_resource"))
FINISH_WRITE: dict[FinishReason, ChatFinish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "stop",
    "stop_sequence": "stop",
}

# Alternative names of service tiers, with the names in responses and prices.
TIER_WORDS = {"fast": "priority"}

# `format` of a reasoning_details item by its vendor, which alone can read it again (dialect name).
REASONING_FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "google": "google-gemini-v1",
    "responses": "openai-responses-v1",
}
REASONING_VENDORS = {name: vendor for vendor, name in REASONING_FORMATS.items()}

# `error.type` by kind of error; BY_CODE takes precedence. Types are those of OpenAI's API reference if it has one.
ERROR_TYPES = {
    "rate_limited": "rate_limit_error",
    "upstream_failed": "upstream_error",
    "upstream_timeout": "upstream_timeout",
    "no_provider": "api_error",
    "unavailable": "api_error",
    "overloaded": "overloaded",
    "internal": "api_error",
}
ERROR_TYPES_BY_CODE = {
    "content_policy_violation": "guardrail_violation",
    "client_error": "client_error",
    "request_timeout": "timeout_error",
}


# A usage object with only these members, and details of zero, has only text in and out.
PLAIN_COUNTS = frozenset(ChatTokens.__annotations__) - {"reasoning_tokens"}
# Counts besides text in and out, which most responses do not have.
READ_RARE_COUNTS = attrgetter(*(name for name in TOKEN_COUNTS if name not in ("input", "output")))
NO_DETAILS: dict[str, Any] = {}
NO_INPUT_DETAILS: PromptTokensDetails = {
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "cache_creation_tokens": 0,
    "audio_tokens": 0,
    "video_tokens": 0,
}
NO_OUTPUT_DETAILS: CompletionTokensDetails = {"reasoning_tokens": 0, "image_tokens": 0, "audio_tokens": 0}


def tier_of(word: str | None) -> str:
    """Return the name of a service tier in responses and prices; "" for none."""
    if word:
        return TIER_WORDS.get(word, word)
    return ""


def retention_of(word: str | None) -> str:
    """Return prompt_cache_retention in its current spelling: older clients write in-memory. "" for none."""
    if word:
        return word.replace("-", "_")
    return ""


def read_finish(word: Any) -> FinishReason:
    """Return the finish reason of a word; "stop" for none."""
    if not word:
        return "stop"
    known = FINISH_READ.get(word)
    if known is None:
        return read_unknown(word)
    return known


class ErrorContent(TypedDict):
    """An error. Further members, which are strings, help to find its cause."""

    message: str
    type: str
    param: str
    code: str


class ErrorBody(TypedDict):
    error: Annotated[ErrorContent, DETAILED]


def error_body(error: GatewayError, request_id: str = "") -> ErrorBody:
    """Return the envelope {error: {message, type, param, code, …details}}: all strings; only `param` may be empty."""
    message = error.message or "The request failed."
    if error.kind == "internal" and request_id:
        message = f"{message} Include request id {request_id} when you report this."
    kind = ERROR_TYPES.get(error.kind, "invalid_request_error")
    content: ErrorContent = {
        "message": message,
        "type": ERROR_TYPES_BY_CODE.get(error.code, kind),
        "param": error.param,
        "code": error.code or "error",
    }
    return {"error": with_details(content, error)}


def read_usage(wire: Any) -> Usage | None:
    """Parse a `usage` object into disjoint counts; None if it has no counts.

    prompt_tokens includes cached, written and audio tokens; completion_tokens includes reasoning and audio (API
    reference, completion usage). Servers that exclude reasoning from completion_tokens are recognized by their total,
    or by more reasoning than output. Tokens of web pages that a server read (citation_tokens) are additional input.
    """
    if not isinstance(wire, dict):
        return None
    get = wire.get
    prompt = get("prompt_tokens")
    output = get("completion_tokens")
    details = get("prompt_tokens_details")
    spent = get("completion_tokens_details")
    if type(details) is not dict:
        details = NO_DETAILS
    if type(spent) is not dict:
        spent = NO_DETAILS
    if (
        type(prompt) is int and type(output) is int and 0 <= prompt <= MAX_UNITS and 0 <= output <= MAX_UNITS
        and PLAIN_COUNTS.issuperset(wire)
    ):  # fmt: skip
        if not any(details.values()) and not any(spent.values()):
            return Usage(input=prompt, output=output)
    elif "prompt_tokens" not in wire and "completion_tokens" not in wire:
        return None
    prompt = read_count(prompt)
    output = read_count(output)
    read, write, write_1h, audio_in = _split_prompt(wire, details, prompt)
    reasoning = read_count(spent.get("reasoning_tokens")) or read_count(wire.get("reasoning_tokens"))
    if reasoning > output or (reasoning and read_count(wire.get("total_tokens")) == prompt + output + reasoning):
        output += reasoning
    audio = min(read_count(spent.get("audio_tokens")), output)
    image = min(read_count(spent.get("image_tokens")), output - audio)
    return Usage(
        input=prompt - read - write - write_1h - audio_in + read_count(wire.get("citation_tokens")),
        cache_read=read,
        cache_write=write,
        cache_write_1h=write_1h,
        input_audio=audio_in,
        output=output - audio - image,
        reasoning=min(reasoning, output - audio - image),
        output_audio=audio,
        output_image=image,
        searches=read_count(wire.get("num_search_queries")),
    )


def _split_prompt(wire: dict[str, Any], details: dict[str, Any], prompt: int) -> tuple[int, int, int, int]:
    """Return the tokens read from a cache, written for 5 minutes, written for 1 hour, and of audio; together at most
    `prompt`.
    """
    # Three spellings of the same count: OpenAI's, a hit/miss pair, and a top-level field.
    cached = details.get("cached_tokens") or wire.get("prompt_cache_hit_tokens") or wire.get("cached_tokens")
    read = min(read_count(cached), prompt)
    spellings = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
    written = next((details[name] for name in spellings if details.get(name)), 0)
    write = min(read_count(written), prompt - read)
    hour = details.get("cache_creation")
    write_1h = min(read_count(hour.get("ephemeral_1h_input_tokens")), write) if isinstance(hour, dict) else 0
    audio = min(read_count(details.get("audio_tokens")), prompt - read - write)
    return read, write - write_1h, write_1h, audio


def write_usage(usage: Usage) -> ChatTokens:
    """Return the `usage` object without its cost; its details must not be changed.

    prompt_tokens is at least 1 because clients divide by it.
    """
    prompt = usage.input or 1
    output = usage.output
    if not any(READ_RARE_COUNTS(usage)):
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "reasoning_tokens": 0,
            "prompt_tokens_details": NO_INPUT_DETAILS,
            "completion_tokens_details": NO_OUTPUT_DETAILS,
        }
    prompt = usage.input_total or 1
    output = usage.output_total
    written = usage.cache_write + usage.cache_write_1h
    details: PromptTokensDetails = {
        "cached_tokens": usage.cache_read + usage.input_audio_cached,
        "cache_write_tokens": written,
        "cache_creation_tokens": written,
        "audio_tokens": usage.input_audio + usage.input_audio_cached,
        "video_tokens": 0,
    }
    if written:
        details["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "reasoning_tokens": usage.reasoning,
        "prompt_tokens_details": details,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "image_tokens": usage.output_image,
            "audio_tokens": usage.output_audio,
        },
    }
