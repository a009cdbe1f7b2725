"""Reads a messages response as a neutral result."""

from typing import Any

from gateway import ids
from gateway.dialects import anthropic as dialect
from gateway.dialects.anthropic import (
    CONTAINER,
    HOSTED_RESULT_SUFFIX,
    container_of,
    plus,
    read_citation,
    shown_in,
    with_tools,
)
from gateway.dialects.openai import read_unknown
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.parts import ExecutedBy, Part, Reasoning, Text, ToolCall, VendorPart
from gateway.neutral.tool_arguments import plain_arguments, read_arguments
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.answer_checks import (
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    empty_answer,
    is_empty,
    read_object,
    text_in,
)
from gateway.providers.failures import stream_failure

CALLS: dict[str, ExecutedBy] = {"tool_use": "", "server_tool_use": "provider"}


def read_result(body: bytes, relayed: bool) -> ChatResult:
    """Return the result of a 2xx body. UpstreamFailed for an unexpected shape, an error inside it, or no content."""
    wire = read_object(body)
    if wire.get("type") == "error" or wire.get("error"):
        raise stream_failure(wire)
    if not isinstance(wire.get("usage"), dict):
        wire["usage"] = None
    try:
        parts = tuple(read_block(block) for block in wire["content"])
        usage = dialect.read_usage(wire.get("usage"))
        if len(parts) > 1:
            shown = _shown(wire["content"])
            if wire.get("container"):
                shown = plus(shown, CONTAINER)
            usage = with_tools(usage, shown, wire["usage"])
        finish = read_stop(wire.get("stop_reason"), parts)
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise empty_answer(finish, usage)
    return ChatResult(
        choices=(Choice(parts, finish, word(wire.get("stop_sequence"))),),
        usage=usage,
        model=word(wire.get("model")),
        upstream_id=word(wire.get("id")),
        service_tier=read_tier(wire.get("usage")),
        native=Native(dialect.NAME, wire) if relayed else None,
        given=container_of(wire) if relayed and wire.get("container") else (),
    )


def _shown(blocks: list[dict[str, Any]]) -> Usage:
    """Return what the results of the provider's tools show to be used."""
    shown = NO_USAGE
    for block in blocks:
        if block["type"].endswith(HOSTED_RESULT_SUFFIX):
            shown = plus(shown, shown_in(block))
    return shown


def read_stop(reason: Any, parts: tuple[Part, ...] = ()) -> FinishReason:
    """Return the finish reason of a stop_reason; a missing one is derived from the content."""
    try:
        known = dialect.STOP_READ[reason]
    except (KeyError, TypeError):
        known = read_unknown(reason)
    if known == "stop" and any(isinstance(part, ToolCall) and not part.executed for part in parts):
        return "tool_calls"
    return known


def read_tier(usage: Any) -> str:
    """Return the service tier by the gateway's names; the format calls the default tier "standard".

    Speed and inference region take precedence over the tier, since they determine the price.
    """
    if not isinstance(usage, dict):
        return ""
    tier = dialect.tier_of(usage) or word(usage.get("service_tier"))
    if tier == "standard":
        return "default"
    return tier


def read_block(block: dict[str, Any]) -> Part:
    """Return the part of a content block. A call without an id gets a new id, since its result needs one."""
    kind = block["type"]
    if kind == "text":
        citations = block.get("citations") or ()
        sources = tuple(source for citation in citations if (source := read_citation(citation)) is not None)
        return Text(block["text"], sources=sources)
    if kind == "thinking":
        return Reasoning(block["thinking"], signature=word(block.get("signature")), vendor=dialect.NAME)
    if kind == "redacted_thinking":
        return Reasoning(sealed=text_in(block["data"]), vendor=dialect.NAME)
    if kind in CALLS:
        ident = block["id"] = word(block.get("id")) or f"toolu_{ids.new_hex()}"
        arguments = plain_arguments(block.get("input"))
        if not isinstance(block.get("input"), dict):
            block["input"] = read_arguments(ToolCall("", "", arguments))
        vendor = dialect.NAME if CALLS[kind] else ""
        return ToolCall(ident, text_in(block["name"]), arguments, vendor=vendor, executed=CALLS[kind])
    return VendorPart(dialect.NAME, kind, block)


def word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
