"""Decodes the messages, tools and settings of a messages body."""

from collections.abc import Iterable
from typing import Any, Literal

import orjson
from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from gateway.dialects.anthropic import NAME, read_citation
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
from gateway.neutral.parts import (
    CacheMark,
    File,
    Image,
    Media,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.surfaces.anthropic import blocks as wire
from gateway.surfaces.anthropic import schema
from gateway.surfaces.anthropic.opaque_tokens import CALL, NEXT, REASONING, TEXT, OpaqueToken, is_ours, read_token
from gateway.surfaces.bodies.request_parameters import ParameterReader
from gateway.surfaces.bodies.validation_errors import PDF_NAME

# Converts content blocks to neutral parts.


def read_mark(control: wire.CacheControl | None) -> CacheMark | None:
    if control is None:
        return None
    return CacheMark(control.ttl or "")


def read_blocks(content: Iterable[Struct]) -> tuple[Part, ...]:
    """Return all blocks except results, which are separate messages, and gateway thinking blocks that carry another
    part's token."""
    parts: list[Part] = []
    for block in content:
        parts += _read_block(block)
    return tuple(parts)


def _read_block(block: Struct) -> list[Part]:
    match block:
        case wire.TextBlock():
            sources = tuple(
                source for citation in block.citations or () if (source := read_citation(citation)) is not None
            )
            return [Text(block.text, read_mark(block.cache_control), sources)]
        case wire.ImageBlock():
            return [_read_image(block)]
        case wire.DocumentBlock():
            return _read_document(block)
        case wire.SearchResultBlock():
            text = "\n".join(part.text for part in block.content)
            return [Text(f"{block.title} ({block.source}):\n{text}", read_mark(block.cache_control))]
        case wire.ThinkingBlock():
            read = read_thinking(block)
            return [read] if isinstance(read, Reasoning) else []
        case wire.RedactedThinkingBlock():
            return [Reasoning(sealed=block.data, vendor=NAME)]
        case wire.ToolReferenceBlock():
            return [Text(f"Found the tool {block.tool_name}.")]
        case wire.CompactionBlock():
            return [Text(block.content, read_mark(block.cache_control))] if block.content else []
        case wire.ToolUseBlock() | wire.ServerToolUseBlock() | wire.ServerResult():
            return [_read_call(block)]
        case _:
            return [_read_other(block)]


def _read_image(block: wire.ImageBlock) -> Image | File:
    media, mark = _read_media(block.source), read_mark(block.cache_control)
    return File(media, PDF_NAME, cache=mark) if wire.is_document(block) else Image(media, cache=mark)


def _read_call(block: wire.ToolUseBlock | wire.ServerToolUseBlock | wire.ServerResult) -> Part:
    if isinstance(block, wire.ServerResult):
        return ToolResult(block.tool_use_id, (_read_other(block),), executed="provider")
    mark = read_mark(block.cache_control)
    text = _text_of(block.input)
    if isinstance(block, wire.ServerToolUseBlock):
        return ToolCall(block.id, block.name, text, vendor=NAME, executed="provider", cache=mark)
    return ToolCall(block.id, block.name, text, cache=mark)


def _read_other(block: Struct) -> VendorPart:
    """Return a block that only its vendor reads; calls of the caller's MCP servers are ordinary calls for others."""
    if isinstance(block, wire.UnknownBlock):
        return VendorPart(NAME, block.kind, block.body)
    body = orjson.loads(encode(block))
    instead: tuple[Part, ...] = ()
    if isinstance(block, wire.McpToolUseBlock):
        instead = (ToolCall(block.id, block.name, _text_of(block.input)),)
    elif isinstance(block, wire.McpToolResultBlock):
        text = _text_in(body.get("content"))
        instead = (ToolResult(block.tool_use_id, (Text(text),) if text else (), is_error=block.is_error),)
    return VendorPart(NAME, str(block.__struct_config__.tag), body, instead)


def _text_in(content: Any) -> str:
    """Return the text in the content of a result."""
    if isinstance(content, list):
        texts = [inner.get("text") for inner in content if isinstance(inner, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _text_of(raw: Raw) -> str:
    return bytes(memoryview(raw)).decode()


def read_thinking(block: wire.ThinkingBlock) -> Reasoning | OpaqueToken | None:
    """Return the reasoning as its own vendor signed it; a token for a gateway block that carries another part's token;
    None for a gateway block that was modified."""
    if not is_ours(block.signature):
        return Reasoning(block.thinking, block.signature, vendor=NAME if block.signature else "")
    token = read_token(block.signature)
    if token is None or token.what != REASONING:
        return token
    return Reasoning(block.thinking, token.signature, token.sealed, token.vendor, token.ident, token.summary)


def _read_media(source: wire.Base64Source | wire.UrlSource | wire.FileSource) -> Media:
    match source:
        case wire.Base64Source():
            return Media(source.media_type, data=source.data)
        case wire.UrlSource():
            return Media(url=source.url)
        case _:
            return Media(file_id=source.file_id)


def _read_document(block: wire.DocumentBlock) -> list[Part]:
    """Return a file; a text document becomes text, which every vendor reads."""
    mark = read_mark(block.cache_control)
    source = block.source
    head = "\n".join(filter(None, (block.title, block.context)))
    if isinstance(source, wire.TextSource):
        return [Text(f"{head}\n\n{source.data}" if head else source.data, mark)]
    if isinstance(source, wire.ContentSource):
        inner = source.content
        if isinstance(inner, str):
            inner = [wire.TextBlock(inner)]
        parts = list(read_blocks(inner))
        if head:
            parts.insert(0, Text(head))
        return parts
    cited = block.citations is not None and block.citations.enabled
    title = block.title or ""
    context = block.context or ""
    return [File(_read_media(source), title=title, context=context, citations=cited, cache=mark)]


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
    name = choice.name if isinstance(choice, schema.NamedChoice) else ""
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
