"""The messages of the chat tool: those of a chat completion, and content blocks as MCP writes them."""

from typing import Annotated, Any, Literal, TypeAlias

import orjson
from msgspec import Meta, Struct, to_builtins

from gateway.configuration.settings import LimitSettings
from gateway.neutral.chat import ChatRequest
from gateway.surfaces.openai import chat

Json = dict[str, Any]
Content: TypeAlias = Annotated[
    str | list[Json | str] | Json | None,
    Meta(
        description="A text, or parts: text, image_url, input_audio and file of chat completions, or text, image and "
        "audio blocks of MCP. Null only for the assistant."
    ),
]
SOUNDS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mp4": "m4a"}


class ChatMessage(Struct, omit_defaults=True):
    """A message of a chat."""

    role: Literal["user", "assistant", "system", "developer", "tool"]
    content: Content = None
    name: Annotated[str, Meta(description="The name of the author.")] | None = None
    tool_call_id: Annotated[str, Meta(description="Of the role tool: the call that it answers.")] | None = None
    tool_calls: Annotated[list[Json], Meta(description="Of the assistant: its calls.")] | None = None


def body_of(model: str, messages: list[ChatMessage], options: Json) -> Json:
    """Return the body of the chat completion for a call of the tool."""
    return {"model": model, "messages": [_write(message) for message in messages], **options}


def request_of(limits: LimitSettings, body: Json) -> ChatRequest:
    """Return the neutral request of a body. Raises InvalidRequest with the path of an invalid value."""
    _, request = chat.read(limits, orjson.dumps(body))
    return request


def _write(message: ChatMessage) -> Json:
    written: Json = to_builtins(message)
    content = message.content
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        written["content"] = [_part(part) for part in content]
    return written


def _part(part: Json | str) -> Json:
    """Return a part of a chat completion. What is neither a text nor a block of MCP is left to the chat dialect."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind, data = part.get("type"), part.get("data")
    media_type = part.get("mimeType")
    if kind == "image" and isinstance(data, str):
        return {"type": "image_url", "image_url": {"url": f"data:{media_type or 'image/png'};base64,{data}"}}
    if kind == "audio" and isinstance(data, str):
        name = str(media_type or "audio/wav").lower()
        return {"type": "input_audio", "input_audio": {"data": data, "format": SOUNDS.get(name, name[6:])}}
    return part
