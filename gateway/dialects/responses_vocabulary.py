"""Vocabulary of OpenAI's Responses API: statuses, usage names, error codes, ids, and tokens for opaque content.

Source: OpenAI API reference, "Responses", as published in the types of the `openai` package (openai/types/responses).
"""

import hashlib
from typing import Any, TypedDict

from msgspec import Struct

from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.units import PROVIDER_TOOLS
from gateway.neutral.usage import Usage, read_count

NAME = "responses"
ENCRYPTED = "reasoning.encrypted_content"  # the `include` value that requests encrypted reasoning

# incomplete_details.reason (response.py, IncompleteDetails); every other reason is a limit.
INCOMPLETE_READ: dict[str, FinishReason] = {
    "content_filter": "content_filter",
    "steered": "stop",
}
INCOMPLETE_WRITE: dict[FinishReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}

# Items that ask the caller to run something: a response that ends with one has the finish reason tool_calls.
CALLS = frozenset(
    (
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "computer_call",
        "mcp_approval_request",
    )
)

CODE_CALL = "code_interpreter_call"
SHELL_CALL = "shell_call"
IMAGE_CALL = "image_generation_call"
APPROVAL = "mcp_approval_response"  # an item that the user says
TRIGGER = "compaction_trigger"  # an item, also of the user, that requests a compaction instead of an answer
LATER_TOOLS = "additional_tools"  # an item that adds tools to those of the request
# Items that are billed beside the tokens of a response.
BILLED_ITEMS = frozenset(
    ("web_search_call", "x_search_call", CODE_CALL, SHELL_CALL, IMAGE_CALL, *(tool.item for tool in PROVIDER_TOOLS))
)
# The most tokens of an image by its quality (image generation guide, "Cost and latency").
IMAGE_TOKENS = {"low": 408, "medium": 1_584}
MOST_IMAGE_TOKENS = 6_240

# Prefixes of item ids.
ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "web_search_call": "ws",
    "image_generation_call": "ig",
    **{tool.item: tool.prefix for tool in PROVIDER_TOOLS},
    "computer_call": "cu",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "compaction": "cmp",
}

# Members of an upstream's response that neither the request nor the neutral form contains: a relayed response keeps
# them.
OWN_MEMBERS = (
    "access_programs",
    "completed_at",
    "image",
    "input_transformations",
    "max_tool_calls",
    "moderation",
    "prompt_cache_diagnostics",
    "prompt_cache_options",
    "temperature",
    "tool_usage",
    "top_logprobs",
    "top_p",
)

# response.error.code (response_error.py): errors that the request itself caused.
CALLERS_CODES = frozenset(
    (
        "invalid_prompt",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
        "context_length_exceeded",
    )
)
REFUSED_CODES = frozenset(("image_content_policy_violation", "bio_policy", "misalignment_policy_violation"))

# response.error.code by kind of the gateway's error; all others are server_error.
ERROR_CODES = {"rate_limited": "rate_limit_exceeded", "invalid_request": "invalid_prompt"}
KEPT_CODES = CALLERS_CODES | REFUSED_CODES | {"insufficient_quota"}

# Besides "default", which stands for all others.
TIERS = frozenset(("auto", "flex", "scale", "priority", "fast", "ultrafast"))

TOKEN_PREFIX = "gw1"
COMPACTOR = "gateway"  # the vendor name of compactions that the gateway made


class SealedContent(Struct, frozen=True):
    """Opaque content with its vendor. `origin` identifies the only account that can open it, "" if any can."""

    vendor: str
    origin: str
    payload: str


def write_token(vendor: str, origin: str, payload: str) -> str:
    """Return the wire text for opaque content; it contains `payload` byte for byte."""
    return f"{TOKEN_PREFIX}.{vendor}.{origin}.{payload}"


def read_token(text: Any) -> SealedContent | None:
    """Parse an opaque token of the gateway; None for any other text."""
    pieces = text.split(".", 3) if isinstance(text, str) else ()
    if len(pieces) != 4 or pieces[0] != TOKEN_PREFIX or not pieces[1]:
        return None
    return SealedContent(*pieces[1:])


def origin_of(provider: str, account: str) -> str:
    """Return a short id of a provider's account: content that one account sealed cannot be opened by another."""
    return hashlib.sha256(f"{provider}\n{account}".encode()).hexdigest()[:16]


def error_code(error: GatewayError) -> str:
    """Return `response.error.code` for a gateway error."""
    if error.code in KEPT_CODES:
        return error.code
    return ERROR_CODES.get(error.kind, "server_error")


def read_usage(wire: Any) -> Usage | None:
    """Parse a `usage` object (response_usage.py) into disjoint counts; None if it has no counts.

    input_tokens includes cached and written tokens, output_tokens includes reasoning tokens.
    """
    if not isinstance(wire, dict) or ("input_tokens" not in wire and "output_tokens" not in wire):
        return None
    prompt = read_count(wire.get("input_tokens"))
    output = read_count(wire.get("output_tokens"))
    details = wire.get("input_tokens_details")
    spent = wire.get("output_tokens_details")
    if not isinstance(details, dict):
        details = {}
    if not isinstance(spent, dict):
        spent = {}
    read = min(read_count(details.get("cached_tokens")), prompt)
    written = min(read_count(details.get("cache_write_tokens")), prompt - read)
    return Usage(
        input=prompt - read - written,
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=min(read_count(spent.get("reasoning_tokens")), output),
    )


class InputTokensDetails(TypedDict):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    reasoning_tokens: int


class ResponseTokens(TypedDict):
    """A `usage` object without its cost."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


def write_usage(usage: Usage) -> ResponseTokens:
    """Return the `usage` object without its cost."""
    prompt = usage.input_total
    output = usage.output_total
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read + usage.input_audio_cached,
            "cache_write_tokens": usage.cache_write + usage.cache_write_1h,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + output,
    }


def count_tools(response: dict[str, Any]) -> dict[str, int]:
    """Return the billed tool units of a response, as counts of Usage; empty if there are none.

    The units are web searches and the uses of the provider's tools: each call, or each container that ran code.
    """
    items = [item for item in response.get("output") or () if isinstance(item, dict)]
    counts = {"searches": count_searches(response)}
    for tool, unit in PROVIDER_TOOLS.items():
        counts[unit.count] = sum(item.get("type") == tool.item for item in items)
    counts["code_sessions"] = count_containers(items)
    counts["tool_calls"] = sum(item.get("type") == "x_search_call" for item in items)
    counts |= _count_image_tool(response)
    return {name: count for name, count in counts.items() if count}


def containers_of(items: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the ids of the provider's containers in which code or commands ran."""
    named: dict[str, None] = {}
    for item in items:
        environment = item.get("environment")
        if item.get("type") == CODE_CALL:
            ident = item.get("container_id")
        elif item.get("type") == SHELL_CALL and isinstance(environment, dict):
            ident = environment.get("container_id")
        else:
            continue
        if isinstance(ident, str) and ident:
            named[ident] = None
    return tuple(named)


def count_containers(items: list[dict[str, Any]]) -> int:
    """Return the containers in which code or commands ran. A call that names none has its own."""
    named = set()
    unnamed = 0
    for item in items:
        kind = item.get("type")
        if kind == CODE_CALL:
            container = item.get("container_id")
        elif kind == SHELL_CALL and isinstance(item.get("environment"), dict):
            if item["environment"].get("type") == "local":
                continue
            container = item["environment"].get("container_id")
        else:
            continue
        if container:
            named.add(str(container))
        else:
            unnamed += 1
    return len(named) + unnamed


def _count_image_tool(response: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of the images that the provider's tool made."""
    used = _tool_usage(response, "image_gen")
    if not used:
        return {"image_tool_output": sum(map(_image_tokens, response.get("output") or ()))}
    read = read_count(used.get("input_tokens"))
    details = used.get("input_tokens_details")
    image = min(read, read_count(details.get("image_tokens"))) if isinstance(details, dict) else 0
    return {
        "image_tool_text": read - image,
        "image_tool_image": image,
        "image_tool_output": read_count(used.get("output_tokens")),
    }


def _image_tokens(item: Any) -> int:
    """Return the most tokens of an image that the tool made, for a response that does not report them."""
    if not isinstance(item, dict) or item.get("type") != IMAGE_CALL or not item.get("result"):
        return 0
    quality = item.get("quality")
    return IMAGE_TOKENS.get(quality, MOST_IMAGE_TOKENS) if isinstance(quality, str) else MOST_IMAGE_TOKENS


def _tool_usage(response: dict[str, Any], tool: str) -> dict[str, Any]:
    used = response.get("tool_usage")
    reported = used.get(tool) if isinstance(used, dict) else None
    return reported if isinstance(reported, dict) else {}


def count_searches(response: dict[str, Any]) -> int:
    """Return the billed web searches of a response: its own count, else its search calls (opening a page does not
    count).
    """
    reported = _tool_usage(response, "web_search")
    if "num_requests" in reported:
        return read_count(reported["num_requests"])
    items = [item for item in response.get("output") or () if isinstance(item, dict)]
    return sum(1 for item in items if item.get("type") == "web_search_call" and _searched(item))


def _searched(item: dict[str, Any]) -> bool:
    action = item.get("action")
    return not isinstance(action, dict) or action.get("type", "search") == "search"
