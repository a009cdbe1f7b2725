"""Counts of the tools that Anthropic runs, as its answers show them.

Usage reports web searches and, in `iterations`, the tokens of models that tools call; it reports no containers. While
an answer is streamed, only its blocks show what its tools did.
"""

from typing import Any

from msgspec import json, structs

from gateway.neutral.hosted_uses import TOOL_MODEL_COUNTS, price_key_of
from gateway.neutral.usage import NO_USAGE, Usage

ADVICE = "advisor_tool_result"
CODE_RESULTS = ("code_execution_tool_result", "bash_code_execution_tool_result")
CODE_END = "_code_execution_tool_result"
BYTES_PER_TOKEN = 4
ADVICE_PROMPT = 2_048  # tokens of an advisor's own instructions, before the conversation
HOSTED = "_tool_result"
CONTAINER = structs.replace(NO_USAGE, code_sessions=1)


def shown_in(block: dict[str, Any]) -> Usage:
    """Return what a block shows to be used: a web search, a container, or the advice of another model."""
    kind = block.get("type")
    content = block.get("content")
    if kind == "web_search_tool_result":
        return Usage(searches=1) if isinstance(content, list) else NO_USAGE
    if kind in CODE_RESULTS or (isinstance(kind, str) and kind.endswith(CODE_END)):
        return CONTAINER
    if kind == ADVICE and isinstance(content, dict) and "error_code" not in content:
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
