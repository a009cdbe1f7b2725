"""Decodes the messages, tools and settings of a chat completions body."""

from typing import Any, Literal

from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.neutral.chat import Conversation, Effort, Sampling
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Part,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.surfaces.chat_option_reader import decode_options, read_mark
from gateway.surfaces.media_urls import read_media
from gateway.surfaces.openai import chat_schema as schema
from gateway.surfaces.openai.reasoning_details import ReasoningMarks, read_details
from gateway.surfaces.validation_errors import invalid

ROLES: dict[type[schema.AnyMessage], Role] = {
    schema.SystemMessage: "system",
    schema.DeveloperMessage: "developer",
    schema.UserMessage: "user",
    schema.AssistantMessage: "assistant",
}


def decode_conversation(body: schema.ChatBody, effort: Effort | Literal[""]) -> Conversation:
    """Return everything that the model reads. Raises InvalidRequest with the dotted path of an invalid value."""
    names: dict[str, str] = {}
    messages = tuple(_message(message, place, names) for place, message in enumerate(body.messages))
    return decode_options(body, effort, messages)


def decode_texts(body: schema.ChatBody) -> Conversation:
    """Decode a body in which each message is one text, without tools, format or reasoning, as `decode_conversation`
    does."""
    messages: list[Any] = body.messages  # the caller has checked this
    return Conversation(
        tuple([Message(ROLES[type(message)], (Text(message.content),), message.name or "") for message in messages]),
        sampling=Sampling(body.max_completion_tokens or body.max_tokens, body.temperature),
    )


def _message(message: schema.AnyMessage, place: int, names: dict[str, str]) -> Message:
    """Return one message; `names` maps each call id to its tool, so that results can name their tool."""
    if isinstance(message, schema.ToolMessage):
        parts = _parts(message, place)
        mark = read_mark(message.tool_result_cache_control)
        name = names.get(message.tool_call_id, "")
        return Message("tool", (ToolResult(message.tool_call_id, parts, name=name, cache=mark),))
    if isinstance(message, schema.AssistantMessage):
        return _assistant(message, place, names)
    return Message(ROLES[type(message)], _parts(message, place), message.name or "")


def _assistant(message: schema.AssistantMessage, place: int, names: dict[str, str]) -> Message:
    """Return reasoning first, then text, then calls: the order in which every vendor accepts them."""
    thought = message.reasoning or message.reasoning_content or ""
    calls = message.tool_calls or []
    path = f"messages.{place}.reasoning_details"
    reasoning, marks = read_details(message.reasoning_details, thought, {call.id for call in calls}, path)
    parts: list[Part] = [*reasoning, *_signed(_parts(message, place), marks)]
    if message.refusal:
        parts.append(Refusal(message.refusal))
    for call in calls:
        custom = isinstance(call, schema.CustomCall)
        signature, vendor = marks.of_call(call.id)
        if isinstance(call, schema.CustomCall):
            name = call.custom.name
            text = call.custom.input
        else:
            name = call.function.name
            text = call.function.arguments
            if not signature and (signature := google.read_extra(call.extra_content)):
                vendor = google.NAME
        parts.append(ToolCall(call.id, name, text, signature=signature, vendor=vendor, custom=custom))
        names[call.id] = name
    return Message("assistant", tuple(parts), message.name or "")


def _signed(parts: tuple[Part, ...], marks: ReasoningMarks) -> tuple[Part, ...]:
    """Return the parts with the signature of the text, if there is one, on the last text."""
    if not marks.text[0] or not parts or not isinstance(parts[-1], Text):
        return parts
    last = parts[-1]
    return (*parts[:-1], Text(last.text, last.cache, last.sources, *marks.text))


def _parts(message: schema.AnyMessage, place: int) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, str):
        if content:
            return (Text(content),)
        return ()
    if not content:
        return ()
    return tuple(_part(part, f"messages.{place}.content.{number}") for number, part in enumerate(content))


def _part(part: schema.AnyPart, path: str) -> Part:
    match part:
        case schema.TextPart():
            return Text(part.text, cache=read_mark(part.cache_control))
        case schema.RefusalPart():
            return Refusal(part.refusal)
        case schema.ImagePart():
            media = read_media(part.image_url.url, f"{path}.image_url.url")
            return Image(media, part.image_url.detail or "", read_mark(part.cache_control))
        case schema.AudioPart():
            sound = part.input_audio
            return Audio(Media(media_type=f"audio/{sound.format}", data=sound.data), sound.format)
        case schema.UnknownChatPart():
            return VendorPart(dialect.NAME, part.kind, part.body)
        case _:
            return _file(part, path)


def _file(part: schema.FilePart, path: str) -> File:
    file = part.file
    mark = read_mark(part.cache_control)
    if file.file_id:
        return File(Media(file_id=file.file_id), file.filename or "", cache=mark)
    if not file.file_data:
        raise invalid(f"{path}.file", "give file_data (a data URL) or file_id")
    return File(read_media(file.file_data, f"{path}.file.file_data", bare=True), file.filename or "", cache=mark)
