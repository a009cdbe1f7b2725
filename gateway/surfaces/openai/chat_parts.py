"""Writes tool calls, images and citations as members of a chat completion's message."""

from collections.abc import Iterable

from gateway.dialects import google
from gateway.neutral.events import ToolCallDelta
from gateway.neutral.parts import Image, Part, Source, Text, ToolCall
from gateway.surfaces.openai.chat_answers import CalledFunction, ChatAnnotation, ChatImage, ChatToolCall, UrlCitation


def write_call(call: ToolCall) -> ChatToolCall:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function: CalledFunction = {"name": call.name, "arguments": call.arguments or "{}"}
    written: ChatToolCall = {"id": call.id, "type": "function", "function": function}
    if call.signature and call.vendor == google.NAME:
        written["extra_content"] = google.write_extra(call.signature)
    return written


def add_piece(call: ChatToolCall, event: ToolCallDelta) -> None:
    """Add a piece of a tool call's arguments; the first one, which has the type, also names the tool."""
    named = event.name or "type" in call
    if event.signature and event.vendor == google.NAME:
        call["extra_content"] = google.write_extra(event.signature)
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


def write_annotation(source: Source, begin: int = 0, end: int = 0) -> ChatAnnotation:
    """Return a url_citation, with the positions that OpenAI's type requires: those of the source, which count from
    `begin`, or `begin` and `end` if it has none."""
    if source.start >= 0 and source.end >= 0:
        begin, end = begin + source.start, begin + source.end
    citation: UrlCitation = {"url": source.url, "title": source.title, "start_index": begin, "end_index": end}
    return {"type": "url_citation", "url_citation": citation}


def write_annotations(parts: Iterable[Part]) -> list[ChatAnnotation]:
    """Return the citations of an answer's texts. Positions count in the joined text, and a citation without one covers
    the text that it belongs to."""
    written: list[ChatAnnotation] = []
    begin = 0
    for part in parts:
        if isinstance(part, Text):
            end = begin + len(part.text)
            written += [write_annotation(source, begin, end) for source in part.sources if source.url]
            begin = end
    return written
