"""Decodes the messages, tools and settings of a messages body."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.dialects.anthropic import NAME
from gateway.neutral.chat import (
    Conversation,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parts import CacheMark, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from gateway.surfaces.anthropic import blocks as wire
from gateway.surfaces.anthropic import schema
from gateway.surfaces.anthropic.opaque_tokens import CALL, NEXT, TEXT, OpaqueToken, read_token
from gateway.surfaces.anthropic.part_reader import read_blocks, read_mark, read_thinking
from gateway.surfaces.request_parameters import ParameterReader

SUMMARY_MODES = {"summarized": "summary", "omitted": "omitted"}
MODES: dict[str, Literal["auto", "required", "tool", "none"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "tool",
    "none": "none",
}
SEARCH_NAME = "web_search"
# These fields have a special form.
PARAMETER_READER = ParameterReader(NAME, apart=("stop", "parallel_tool_calls"))


def decode_conversation(body: schema.MessagesBody) -> Conversation:
    """Return everything that the model reads."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    if body.system:
        messages.append(Message("system", _read_content(body.system)))
    for message in body.messages:
        messages += _read_message(message, names)
    if body.cache_control is not None and messages:
        messages[-1] = _mark_last(messages[-1], read_mark(body.cache_control))
    return Conversation(
        messages=tuple(messages),
        tools=tuple(_read_tool(tool) for tool in body.tools or ()),
        tool_choice=_read_choice(body.tool_choice),
        response_format=_read_format(body),
        reasoning=_read_reasoning(body),
        sampling=read_sampling(body),
    )


def _read_content(content: str | Iterable[Struct]) -> tuple[Part, ...]:
    """Return the parts of a text or of a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    return read_blocks(content)


def _read_message(message: schema.Message | schema.AssistantMessage, names: dict[str, str]) -> list[Message]:
    """Return one message, or several, since tool results are separate messages. `names` maps each call to its tool."""
    if isinstance(message, schema.AssistantMessage):
        if isinstance(message.content, str):
            return [Message("assistant", (Text(message.content),))]
        return [Message("assistant", _assistant(message.content or [], names))]
    content = message.content
    if isinstance(message, schema.ToolMessage) and message.tool_call_id:
        parts = _read_content(content)
        return [Message("tool", (ToolResult(message.tool_call_id, parts, names.get(message.tool_call_id, "")),))]
    kind: Role = "user"
    if isinstance(message, schema.SystemMessage):
        kind = "system"
    elif isinstance(message, schema.DeveloperMessage):
        kind = "developer"
    if isinstance(content, str):
        return [Message(kind, (Text(content),) if content else ())]
    return _split_results(kind, content, names)


def _split_results(role: Any, content: wire.Blocks, names: dict[str, str]) -> list[Message]:
    """Return runs of results and runs of all other blocks, in order."""
    messages: list[Message] = []
    run: list[Struct] = []
    results: list[ToolResult] = []
    for block in content:
        if isinstance(block, wire.ToolResultBlock):
            if run:
                messages.append(Message(role, read_blocks(run)))
                run = []
            results.append(_read_result(block, names))
            continue
        if results:
            messages.append(Message("tool", tuple(results)))
            results = []
        run.append(block)
    if results:
        messages.append(Message("tool", tuple(results)))
    if run or not messages:
        messages.append(Message(role, read_blocks(run)))
    return messages


def _read_result(block: wire.ToolResultBlock, names: dict[str, str]) -> ToolResult:
    content = block.content
    if isinstance(content, str):
        parts: tuple[Part, ...] = (Text(content),) if content else ()
    else:
        parts = read_blocks(content or ())
    name = names.get(block.tool_use_id, "")
    return ToolResult(block.tool_use_id, parts, name, block.is_error, cache=read_mark(block.cache_control))


def _assistant(content: wire.Blocks, names: dict[str, str]) -> tuple[Part, ...]:
    """Return the blocks in order; signatures in the gateway's own thinking blocks move to the calls and texts that they
    belong to."""
    parts: list[Part] = []
    calls: dict[str, OpaqueToken] = {}
    waiting: list[OpaqueToken] = []
    for block in content:
        if isinstance(block, wire.ThinkingBlock):
            read = read_thinking(block)
            if isinstance(read, Reasoning):
                parts.append(read)
            elif read is not None:
                _keep_mark(read, parts, calls, waiting)
            continue
        if isinstance(block, wire.ToolUseBlock | wire.ServerToolUseBlock):
            names[block.id] = block.name
            token = read_token(getattr(block, "signature", ""))
            if token is not None:
                calls[block.id] = token
        for part in read_blocks([block]):
            signed = _sign(part, waiting.pop()) if waiting and isinstance(part, Text) else part
            parts.append(signed)
    return tuple(_sign_call(part, calls) for part in parts)


def _keep_mark(
    token: OpaqueToken, parts: list[Part], calls: dict[str, OpaqueToken], waiting: list[OpaqueToken]
) -> None:
    if token.what.startswith(CALL):
        calls[token.what.removeprefix(CALL)] = token
    elif token.what == NEXT:
        waiting[:] = [token]
    elif token.what == TEXT:
        _sign_last(parts, token)


def _sign(part: Text, token: OpaqueToken) -> Text:
    return Text(part.text, part.cache, part.sources, token.signature, token.vendor)


def _sign_last(parts: list[Part], token: OpaqueToken) -> None:
    """Sign the last text; a signature without a text gets an empty one."""
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if isinstance(part, Text):
            parts[place] = _sign(part, token)
            return
    parts.append(Text("", signature=token.signature, vendor=token.vendor))


def _sign_call(part: Part, calls: dict[str, OpaqueToken]) -> Part:
    if not isinstance(part, ToolCall) or (token := calls.get(part.id)) is None:
        return part
    return replace(part, signature=token.signature, vendor=token.vendor)


def _mark_last(message: Message, mark: CacheMark | None) -> Message:
    """Set the cache mark of the whole request on its last part that can carry one."""
    for place in range(len(message.parts) - 1, -1, -1):
        part = message.parts[place]
        if isinstance(part, Text | ToolResult) and part.cache is None:
            marked = replace(part, cache=mark)
            return Message(message.role, (*message.parts[:place], marked, *message.parts[place + 1 :]), message.name)
    return message


def _read_tool(tool: dict[str, Any]) -> Tool:
    """Return one of the caller's own tools, web search, or a tool that only its vendor understands."""
    kind = tool.get("type") or "custom"
    if kind == "custom":
        mark = tool.get("cache_control")
        return FunctionTool(
            name=tool["name"],
            description=tool.get("description") or "",
            schema=tool["input_schema"],
            strict=tool.get("strict"),
            cache=CacheMark(mark.get("ttl") or "") if mark else None,
            deferred=bool(tool.get("defer_loading")),
            newer=schema.newer_members(tool),
        )
    if kind.startswith(schema.SEARCH):
        return _read_search(tool)
    return VendorTool(NAME, "tool_search" if kind.startswith("tool_search") else kind, tool)


def _read_search(tool: dict[str, Any]) -> WebSearch:
    where = tool.get("user_location") or {}
    uses = tool.get("max_uses")
    return WebSearch(
        max_uses=uses if isinstance(uses, int) and uses > 0 else None,
        allowed_domains=_words(tool.get("allowed_domains")),
        blocked_domains=_words(tool.get("blocked_domains")),
        **{
            name: where[name]
            for name in ("city", "region", "country", "timezone")
            if isinstance(where, dict) and isinstance(where.get(name), str)
        },
    )


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(word for word in value if isinstance(word, str))
    return ()


def _read_choice(choice: schema.ToolChoice | None) -> ToolChoice | None:
    if choice is None:
        return None
    if isinstance(choice, schema.NewerChoice):
        return ToolChoice("auto", choice.kind, NAME, choice.body)
    if isinstance(choice, schema.NamedChoice):
        name = choice.name
    else:
        name = ""
    if name == SEARCH_NAME:
        return ToolChoice("web_search")
    return ToolChoice(MODES[str(choice.__struct_config__.tag)], name)


def _read_format(body: schema.Prompt) -> ResponseFormat | None:
    config = body.output_config
    format = (config.format if config else None) or body.output_format
    if format is None:
        return None
    return ResponseFormat("json_schema", "response", schema=format.schema, strict=True)


def _read_reasoning(body: schema.Prompt) -> ReasoningOptions:
    """Return the reasoning settings. Adaptive thinking leaves the choice to the model, so no reasoning is required."""
    thinking = body.thinking
    shown = SUMMARY_MODES.get(getattr(thinking, "display", None) or "", "")
    if isinstance(thinking, schema.EnabledThinking):
        return ReasoningOptions(budget=thinking.budget_tokens, enabled=True, show=shown)
    if isinstance(thinking, schema.AdaptiveThinking):
        return ReasoningOptions(adaptive=True, show=shown)
    if isinstance(thinking, schema.DisabledThinking | schema.BetweenTools):
        return ReasoningOptions(enabled=False)
    return ReasoningOptions()


def read_sampling(body: schema.MessagesBody) -> Sampling:
    """Return the parameters of a body."""
    apart: dict[str, Any] = {"stop": tuple(body.stop_sequences or ())}
    if getattr(body.tool_choice, "disable_parallel_tool_use", False):
        apart["parallel_tool_calls"] = False
    if body.output_config and body.output_config.effort:
        apart["output_effort"] = body.output_config.effort
    return PARAMETER_READER.read(body, **apart)
