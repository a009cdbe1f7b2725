"""OpenAI's chat vocabulary: finish reasons, usage names, reasoning formats, error envelope."""

from operator import attrgetter
from typing import Any

from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import MOST_UNITS, Usage, read_count

NAME = "openai"

# OpenAI's five (API reference, chat completion object), then what compatible servers say for the same.
FINISH_READ: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "tool_calls",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}
# Reasons that end no answer: the server failed on the way (as some compatible ones say).
FINISH_FAILED = frozenset(("error",))
FINISH_WRITE: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "stop",
    "stop_sequence": "stop",
}

# Other words for a service tier, each with the one that answers and prices name.
TIER_WORDS = {"fast": "priority"}

# `format` of a reasoning_details item: who made it and can read it again (dialect name of the vendor).
REASONING_FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "google": "google-gemini-v1",
    "responses": "openai-responses-v1",
    "openai": "openai-chat-v1",
}
REASONING_VENDORS = {name: vendor for vendor, name in REASONING_FORMATS.items()}

# `error.type` by kind of error; BY_CODE wins. Types of OpenAI's API reference where it has one.
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
    "timeout_error": "timeout_error",
}


# A usage object of these alone, its details all zero, tells of text in and out and of nothing else.
USUAL_COUNTS = frozenset(
    ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
)
# What a usage object tells beside text in and out, of which most answers have none.
READ_RARE_COUNTS = attrgetter(
    *("cache_read", "cache_write", "cache_write_1h", "input_audio", "input_audio_cached", "input_image"),
    *("reasoning", "output_audio", "output_image"),
)
NOTHING: dict[str, Any] = {}
NO_INPUT_DETAILS = {
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "cache_creation_tokens": 0,
    "audio_tokens": 0,
    "video_tokens": 0,
}
NO_OUTPUT_DETAILS = {"reasoning_tokens": 0, "image_tokens": 0, "audio_tokens": 0}


def tier_of(word: str | None) -> str:
    """A service tier under the name that answers and prices have for it; "" for none."""
    if word:
        return TIER_WORDS.get(word, word)
    return ""


def retention_of(word: str | None) -> str:
    """A prompt_cache_retention as the service spells it now: older clients say in-memory. "" for none."""
    if word:
        return word.replace("-", "_")
    return ""


def error_body(error: GatewayError, request_id: str = "") -> dict[str, Any]:
    """The envelope {error: {message, type, param, code, …details}}: all strings, none but `param` ever empty."""
    message = error.message or "The request failed."
    if error.kind == "internal" and request_id:
        message = f"{message} Quote request id {request_id} when you report this."
    kind = ERROR_TYPES.get(error.kind, "invalid_request_error")
    body = {
        "message": message,
        "type": ERROR_TYPES_BY_CODE.get(error.code, kind),
        "param": error.param,
        "code": error.code or "error",
    }
    if error.details:
        body.update({name: text for name, text in error.details.items() if name not in body})
    return {"error": body}


def read_usage(wire: Any) -> Usage | None:
    """A `usage` object as disjoint counts; None when it reports none.

    prompt_tokens includes cached, written and audio tokens, completion_tokens the reasoning and audio ones (API
    reference, completion usage). Servers that leave reasoning out of completion_tokens show it by their total, or by
    more reasoning than output; what a server read of pages that it found (citation_tokens) is input beside the rest.
    """
    if not isinstance(wire, dict):
        return None
    get = wire.get
    prompt = get("prompt_tokens")
    output = get("completion_tokens")
    details = get("prompt_tokens_details")
    spent = get("completion_tokens_details")
    if type(details) is dict:
        details = details
    else:
        details = NOTHING
    if type(spent) is dict:
        spent = spent
    else:
        spent = NOTHING
    if (
        type(prompt) is int and type(output) is int and 0 <= prompt <= MOST_UNITS and 0 <= output <= MOST_UNITS
        and USUAL_COUNTS.issuperset(wire)
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
    """Tokens read from a cache, written for 5 minutes, written for 1 hour, heard; together at most `prompt`."""
    # Three spellings of the same count: OpenAI's, a hit/miss pair, and one at the top level.
    cached = details.get("cached_tokens") or wire.get("prompt_cache_hit_tokens") or wire.get("cached_tokens")
    read = min(read_count(cached), prompt)
    spellings = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
    written = next((details[name] for name in spellings if details.get(name)), 0)
    write = min(read_count(written), prompt - read)
    hour = details.get("cache_creation")
    if isinstance(hour, dict):
        write_1h = min(read_count(hour.get("ephemeral_1h_input_tokens")), write)
    else:
        write_1h = 0
    audio = min(read_count(details.get("audio_tokens")), prompt - read - write)
    return read, write - write_1h, write_1h, audio


def write_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` object without its cost, whose details nobody changes. prompt_tokens is at least 1: clients divide by
    it."""
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
    details: dict[str, Any] = {
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
