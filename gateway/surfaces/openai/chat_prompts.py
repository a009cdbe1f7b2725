"""Writes a neutral conversation as the body of a chat completion, as callers of the gateway send it.

Reasoning with its signatures, cache marks and media stay. A note names what this dialect has no field for.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.dialects.openai import NAME
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    CustomTool,
    FunctionTool,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parameters import PARAMETERS
from gateway.neutral.parts import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
    Video,
    sound_format,
)
from gateway.surfaces.openai.chat_writer import write_image
from gateway.surfaces.openai.reasoning_details import write_details

Json = dict[str, Any]
SEARCH_FIELDS = ("max_uses", "allowed_domains", "blocked_domains")
PLACE_FIELDS = ("city", "region", "country", "timezone")
EXECUTED = "Calls that a provider ran itself in earlier turns are left out."
NO_FIELD = "{} has no counterpart in a chat completion and is left out."


def write_chat(request: ChatRequest) -> tuple[Json, list[str]]:
    """Return the body and notes on what is left out of it. InvalidRequest for invalid contents."""
    conversation = request.conversation()
    notes: dict[str, None] = {}
    body: Json = {"model": request.requested_model, "messages": list(_write_messages(conversation.messages, notes))}
    tools = [written for tool in conversation.tools for written in _write_tool(tool, notes)]
    if tools:
        body["tools"] = tools
        if conversation.tool_choice is not None:
            body["tool_choice"] = _write_choice(conversation.tool_choice, conversation.tools)
    if conversation.response_format is not None:
        body["response_format"] = _write_format(conversation.response_format)
    _write_parameters(conversation, body, notes)
    return body, list(notes)


def _write_parameters(conversation: Conversation, body: Json, notes: dict[str, None]) -> None:
    for row in PARAMETERS.values():
        value = getattr(conversation.sampling, row.name)
        if value == row.default or not row.is_given(value):
            continue
        path = row.callers.get(NAME, "")
        if not path or "." in path:
            notes[NO_FIELD.format(row.subject)] = None
        else:
            body[path] = list(value) if isinstance(value, tuple) else value
    reasoning = conversation.reasoning
    if reasoning.budget:
        body["reasoning"] = {"max_tokens": reasoning.budget}
    elif reasoning.effort:
        body["reasoning_effort"] = reasoning.effort
    elif reasoning.enabled is False:
        body["reasoning_effort"] = "none"


# Messages.


def _write_messages(messages: Iterable[Message], notes: dict[str, None]) -> Iterable[Json]:
    for message in messages:
        if message.role == "tool":
            yield from _write_results(message, notes)
            continue
        written: Json = {"role": message.role, "content": None}
        if message.role == "assistant":
            _add_assistant(message, written, notes)
        else:
            written["content"] = _join(_write_parts(message.parts, notes))
        if message.name:
            written["name"] = message.name
        if written["content"] or message.role == "assistant":
            yield written


def _write_results(message: Message, notes: dict[str, None]) -> Iterable[Json]:
    others = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            others.append(part)
            continue
        content = _join(_write_parts(part.parts, notes))
        if part.is_error and isinstance(content, str) and not content.lower().startswith("error"):
            content = f"Error: {content}"
        written: Json = {"role": "tool", "tool_call_id": part.call_id, "content": content}
        if part.cache is not None:
            written["tool_result_cache_control"] = _write_mark(part.cache)
        yield written
    content = _join(_write_parts(others, notes))
    if content:
        yield {"role": "user", "content": content}


def _add_assistant(message: Message, written: Json, notes: dict[str, None]) -> None:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if any(call.executed for call in calls):
        notes[EXECUTED] = None
    calls = [call for call in calls if not call.executed]
    thoughts = "\n\n".join(part.text for part in message.parts if isinstance(part, Reasoning) and part.text)
    details = write_details([part for part in message.parts if not isinstance(part, ToolCall) or not part.executed])
    if thoughts:
        written["reasoning"] = thoughts
    if details:
        written["reasoning_details"] = details
    shown = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult | Reasoning)]
    images = [write_image(part) for part in shown if isinstance(part, Image)]
    if images:
        written["images"] = images
    written["content"] = _join(_write_parts([part for part in shown if not isinstance(part, Image)], notes)) or None
    if calls:
        written["tool_calls"] = [_write_call(call) for call in calls]


def _write_call(call: ToolCall) -> Json:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _write_parts(parts: Iterable[Part], notes: dict[str, None]) -> list[Json]:
    return [written for part in parts for written in _write_part(part, notes)]


def _write_part(part: Part, notes: dict[str, None]) -> Iterable[Json]:
    match part:
        case Text():
            if part.text:
                yield {"type": "text", "text": part.text, **_mark_of(part.cache)}
        case Refusal():
            yield {"type": "refusal", "refusal": part.text}
        case VendorPart():
            yield from _write_vendor_part(part, notes)
        case Reasoning() | ToolCall() | ToolResult():
            pass  # they stand beside the content of a message
        case _:
            yield from _write_media(part, notes)


def _write_vendor_part(part: VendorPart, notes: dict[str, None]) -> Iterable[Json]:
    if part.vendor == NAME:
        yield part.body
        return
    for one in part.instead:
        yield from _write_part(one, notes)
    if not part.instead:
        notes[NO_FIELD.format(f"A part of the type {part.kind}")] = None


def _write_media(part: Image | Audio | Video | File, notes: dict[str, None]) -> Iterable[Json]:
    media = part.media
    if isinstance(part, File):
        yield from _write_file(part, notes)
    elif isinstance(part, Image) and (media.url or media.data):
        yield {**write_image(part), **_mark_of(part.cache)}
    elif isinstance(part, Audio) and media.data:
        sound = part.format or sound_format(media.media_type) or "wav"
        yield {"type": "input_audio", "input_audio": {"data": media.data, "format": sound}}
    else:
        notes[NO_FIELD.format(f"A part of the type {type(part).__name__.lower()}")] = None


def _write_file(part: File, notes: dict[str, None]) -> Iterable[Json]:
    media = part.media
    named = {"filename": part.filename or part.title} if part.filename or part.title else {}
    if media.file_id:
        yield {"type": "file", "file": {"file_id": media.file_id, **named}, **_mark_of(part.cache)}
    elif media.data or media.url:
        content = media.inline("application/pdf") if media.data else media.url
        yield {"type": "file", "file": {"file_data": content, **named}, **_mark_of(part.cache)}
    if part.context:
        notes[NO_FIELD.format("The context of a document")] = None


def _join(parts: Sequence[Json]) -> Any:
    """Return a single plain text as a string, other parts as a list."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return list(parts)


def _mark_of(cache: CacheMark | None) -> Json:
    return {} if cache is None else {"cache_control": _write_mark(cache)}


def _write_mark(cache: CacheMark) -> Json:
    return {"type": "ephemeral", "ttl": cache.ttl} if cache.ttl else {"type": "ephemeral"}


# Tools.


def _write_tool(tool: Tool, notes: dict[str, None]) -> Iterable[Json]:
    match tool:
        case FunctionTool():
            members = {"description": tool.description or None, "parameters": tool.schema, "strict": tool.strict}
            function = {"name": tool.name, **{name: value for name, value in members.items() if value is not None}}
            yield {"type": "function", "function": function, **_mark_of(tool.cache)}
        case CustomTool():
            custom = {"name": tool.name, "description": tool.description, "format": tool.format}
            yield {"type": "custom", "custom": {name: value for name, value in custom.items() if value}}
        case WebSearch():
            yield _write_search(tool)
        case VendorTool():
            yield from _write_vendor_tool(tool, notes)


def _write_vendor_tool(tool: VendorTool, notes: dict[str, None]) -> Iterable[Json]:
    if tool.vendor == NAME:
        yield tool.body
        return
    for one in tool.instead:
        yield from _write_tool(one, notes)
    if not tool.instead:
        notes[NO_FIELD.format(f"The tool {tool.kind}")] = None


def _write_search(tool: WebSearch) -> Json:
    written: Json = {"type": "web_search"}
    for name in SEARCH_FIELDS:
        value = getattr(tool, name)
        if value:
            written[name] = list(value) if isinstance(value, tuple) else value
    if tool.context_size:
        written["search_context_size"] = tool.context_size
    place = {name: getattr(tool, name) for name in PLACE_FIELDS if getattr(tool, name)}
    if place:
        written["user_location"] = {"type": "approximate", **place}
    return written


def _write_choice(choice: ToolChoice, tools: Sequence[Tool]) -> Any:
    if choice.body is not None and choice.vendor == NAME:
        return choice.body
    if choice.mode == "web_search":
        return {"type": "web_search"}
    if choice.mode != "tool":
        return choice.mode
    kind = "custom" if any(isinstance(tool, CustomTool) and tool.name == choice.name for tool in tools) else "function"
    return {"type": kind, kind: {"name": choice.name}}


def _write_format(response_format: ResponseFormat) -> Json:
    if response_format.kind != "json_schema":
        return {"type": response_format.kind}
    schema: Json = {"name": response_format.name or "response", "schema": response_format.schema or {}}
    if response_format.description:
        schema["description"] = response_format.description
    if response_format.strict is not None:
        schema["strict"] = response_format.strict
    return {"type": "json_schema", "json_schema": schema}
