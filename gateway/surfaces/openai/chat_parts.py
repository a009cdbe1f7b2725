"""Writes tool calls, images and citations as members of a chat completion's message."""

from gateway.neutral.events import ToolCallDelta
from gateway.neutral.parts import Image, Source, ToolCall
from gateway.surfaces.openai.chat_answers import ChatAnnotation, ChatImage, ChatToolCall, UrlCitation


def write_call(call: ToolCall) -> ChatToolCall:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    arguments = call.arguments or "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def add_piece(call: ChatToolCall, event: ToolCallDelta) -> None:
    """Add a piece of a tool call's arguments; the first one, which has the type, also names the tool."""
    named = event.name or "type" in call
    if event.custom:
        call["custom"] = {"input": event.arguments}
        if named:
            call["custom"]["name"] = event.name
    else:
        call["function"] = {"arguments": event.arguments}
        if named:
            call["function"]["name"] = event.name


def write_image(image: Image) -> ChatImage:
    media = image.media
    url = media.url or f"data:{media.media_type or 'image/png'};base64,{media.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def write_annotation(source: Source) -> ChatAnnotation:
    citation: UrlCitation = {"url": source.url, "title": source.title}
    if source.start >= 0 and source.end >= 0:
        citation["start_index"] = source.start
        citation["end_index"] = source.end
    return {"type": "url_citation", "url_citation": citation}
