"""Writes message parts as content blocks.

Wire facts: Anthropic API reference, "Messages", request content blocks.
"""

from typing import Any

from gateway.dialects.anthropic import NAME, call_id
from gateway.errors import ContentNeeded, NotSupported
from gateway.neutral.file_types import decode_base64
from gateway.neutral.parts import (
    CacheMark,
    File,
    Image,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.neutral.tool_arguments import read_arguments

Block = dict[str, Any]

PDF = "application/pdf"
PLAIN_TEXT = "text/plain"
OWN_FILES = "file_"
# First base64 characters of the four supported image types; the API refuses an image with a wrong media type.
IMAGE_STARTS = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
)
IMAGE_TYPES = frozenset(kind for _, kind in IMAGE_STARTS)


def write_part(part: Part, *, addresses: bool = True) -> Block | None:
    """Return the block of a part, or None for blank text and for reasoning without this vendor's signature.

    NotSupported for parts that the format has no field for. ContentNeeded for a URL that the host does not load.
    """
    match part:
        case Text() | Refusal():
            if _has_text(part):
                return _marked({"type": "text", "text": part.text}, getattr(part, "cache", None))
            return None
        case Reasoning():
            return _write_reasoning(part)
        case ToolCall():
            return _write_call(part)
        case ToolResult():
            return _write_result(part, addresses)
        case Image():
            return _marked({"type": "image", "source": _write_image(part.media, addresses)}, part.cache)
        case File():
            return _write_file(part, addresses)
        case VendorPart(vendor=vendor) if vendor == NAME:
            return part.body
        case _:
            kind = part.kind if isinstance(part, VendorPart) else type(part).__name__.lower()
            raise NotSupported(f"This provider does not take a part of type {kind}.", param="messages")


def _has_text(part: Text | Refusal) -> bool:
    """Return whether a part has more than white space; the API refuses blank text."""
    return bool(part.text.strip())


def _marked(block: Block, mark: CacheMark | None) -> Block:
    if mark is not None:
        block["cache_control"] = write_mark(mark)
    return block


def write_mark(mark: CacheMark) -> dict[str, str]:
    if mark.ttl:
        return {"type": "ephemeral", "ttl": mark.ttl}
    return {"type": "ephemeral"}


def _write_reasoning(part: Reasoning) -> Block | None:
    if part.vendor != NAME:
        return None
    if part.sealed:
        return {"type": "redacted_thinking", "data": part.sealed}
    if part.signature:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return None


def _write_call(part: ToolCall) -> Block:
    kind = "server_tool_use" if part.executed else "tool_use"
    block = {"type": kind, "id": call_id(part.id), "name": part.name, "input": read_arguments(part)}
    return _marked(block, part.cache)


def _write_result(part: ToolResult, addresses: bool) -> Block:
    """Return a tool_result block, or the unchanged result block of a server tool."""
    if part.executed:
        vendor_part = next((p for p in part.parts if isinstance(p, VendorPart) and p.vendor == NAME), None)
        if vendor_part is None:
            raise NotSupported(
                "This provider does not accept results of another provider's server tools.", param="messages"
            )
        return vendor_part.body
    written = [write_part(inner, addresses=addresses) for inner in part.parts]
    content = [block for block in written if block is not None]
    block: Block = {"type": "tool_result", "tool_use_id": call_id(part.call_id)}
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        block["content"] = content[0]["text"]
    elif content:
        block["content"] = content
    if part.is_error:
        block["is_error"] = True
    return _marked(block, part.cache)


def _write_image(media: Media, addresses: bool) -> dict[str, str]:
    if media.data:
        detected = next((kind for start, kind in IMAGE_STARTS if media.data.startswith(start)), media.media_type)
        kind = "image/jpeg" if detected == "image/jpg" else detected or "image/png"
        if kind not in IMAGE_TYPES:
            raise NotSupported(f"This provider does not support images of type {kind}.", param="messages")
        return {"type": "base64", "media_type": kind, "data": media.data}
    return _write_address(media, addresses)


def _write_address(media: Media, addresses: bool) -> dict[str, str]:
    if media.file_id.startswith(OWN_FILES):
        return {"type": "file", "file_id": media.file_id}
    if not media.url:
        raise NotSupported("This provider cannot read files uploaded elsewhere; send their content.", param="messages")
    if not addresses or not media.url.lower().startswith("https://"):
        raise ContentNeeded("This provider does not load URLs; send the content as base64.", param="messages")
    return {"type": "url", "url": media.url}


def _write_file(part: File, addresses: bool) -> Block:
    media = part.media
    source = _write_data(media, part.filename) if media.data else _write_address(media, addresses)
    block: Block = {"type": "document", "source": source}
    title = part.title or part.filename
    if title:
        block["title"] = title
    if part.context:
        block["context"] = part.context
    if part.citations:
        block["citations"] = {"enabled": True}
    return _marked(block, part.cache)


def _write_data(media: Media, filename: str) -> dict[str, str]:
    """Return the source of a PDF (as base64) or of a text file (as text); the API supports no other files."""
    kind = media.media_type or (PDF if media.data.startswith("JVBERi0") or not filename else "")
    if kind == PDF or (not kind and filename.lower().endswith(".pdf")):
        return {"type": "base64", "media_type": PDF, "data": media.data}
    if not kind.startswith("text/"):
        raise NotSupported(f"This provider does not support files of type {kind or filename}.", param="messages")
    try:
        text = decode_base64(media.data).decode()
    except ValueError:
        raise NotSupported("This provider accepts text files in UTF-8 only.", param="messages") from None
    return {"type": "text", "media_type": PLAIN_TEXT, "data": text}
