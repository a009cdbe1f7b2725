"""Converts content blocks to neutral parts."""

from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import encode

from gateway.dialects.anthropic import NAME
from gateway.dialects.anthropic_citations import read_citation
from gateway.neutral.parts import (
    CacheMark,
    File,
    Image,
    Media,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.surfaces.anthropic import blocks as wire
from gateway.surfaces.anthropic.opaque_tokens import REASONING, OpaqueToken, is_ours, read_token


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
            return [Image(_read_media(block.source), cache=read_mark(block.cache_control))]
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
