"""Writes messages in the roles and blocks of the format.

Wire facts: Cohere API reference, v2/chat, messages; guide, tool use (a turn with calls has a plan); guide, reasoning
(thinking blocks are sent back with their turn).
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from gateway.dialects.cohere import NAME
from gateway.errors import NotSupported
from gateway.neutral.parts import Image, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, VendorPart
from gateway.providers.openai.request import write_image
from gateway.providers.unsupported_parts import GENERATED

Wire = dict[str, Any]

FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."
NO_OUTPUT = "(no output)"


def write_messages(messages: Iterable[Message], *, thinks: bool, warnings: list[str]) -> list[Wire]:
    """Return the `messages` list. NotSupported for parts that the format has no field for.

    `thinks`: the model accepts thinking blocks; other models get past reasoning as the plan of a turn. Instructions
    are at the front ("system turn must be the first in the list"). A conversation that consists only of
    instructions is sent as a user message.
    """
    system: list[Wire] = []
    turns: list[Wire] = []
    waiting: list[Wire] = []  # images of the assistant, for the user's next turn: its own have texts only
    for message in messages:
        match message.role:
            case "system" | "developer":
                system += _write_system(message, turns)
            case "assistant":
                waiting = _show(turns, waiting)
                shown = [part for part in message.parts if isinstance(part, Image)]
                parts = tuple(part for part in message.parts if not isinstance(part, Image))
                _add(turns, _write_assistant(replace(message, parts=parts), thinks, warnings))
                if shown:
                    waiting = [{"type": "text", "text": GENERATED}, *map(_write_part, shown)]
            case "tool":
                _add_results(turns, message)
            case _:
                _add(turns, {"role": "user", "content": [*waiting, *map(_write_part, message.parts)]})
                waiting = []
    _show(turns, waiting)
    if not turns:
        return [{"role": "user", "content": system}]
    if system:
        return [{"role": "system", "content": system}, *turns]
    return turns


def _show(turns: list[Wire], waiting: list[Wire]) -> list[Wire]:
    """Append the waiting content as a turn of the user, and return what waits then: nothing."""
    _add(turns, {"role": "user", "content": waiting})
    return []


def _add(turns: list[Wire], turn: Wire) -> None:
    """Append a turn unless it is empty; the API refuses empty turns."""
    if turn.get("content") or turn.get("tool_calls"):
        turns.append(turn)


def _write_system(message: Message, turns: list[Wire]) -> list[Wire]:
    """Return the text of instructions; their media go into a user message."""
    written = [_write_part(part) for part in message.parts]
    media = [part for part in written if part["type"] != "text"]
    _add(turns, {"role": "user", "content": media})
    return [part for part in written if part["type"] == "text"]


def _write_assistant(message: Message, thinks: bool, warnings: list[str]) -> Wire:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    tool_calls = [_write_call(part) for part in calls if not part.executed]
    if len(tool_calls) < len(calls) and FOREIGN_SEARCH not in warnings:
        warnings.append(FOREIGN_SEARCH)
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning) and part.text]
    text_parts = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult | Reasoning)]
    content = [_write_part(part) for part in text_parts if not isinstance(part, Text | Refusal) or part.text]
    turn: Wire = {"role": "assistant"}
    if thoughts and thinks:
        content = [{"type": "thinking", "thinking": "\n\n".join(thoughts)}, *content]
    elif thoughts and tool_calls:
        turn["tool_plan"] = "\n\n".join(thoughts)
    if content:
        turn["content"] = content
    if tool_calls:
        turn["tool_calls"] = tool_calls
    return turn


def _write_call(call: ToolCall) -> Wire:
    if call.custom:
        raise NotSupported("This provider has no tools with free-text input.", param="messages")
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _add_results(turns: list[Wire], message: Message) -> None:
    """Add each result as a separate turn; the media of all results follow in one user message."""
    following: list[Wire] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            following.append(_write_part(part))
            continue
        blocks = [_write_part(content) for content in part.parts]
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text") or NO_OUTPUT
        if part.is_error and not text.lower().startswith("error"):
            text = f"Error: {text}"
        media = [block for block in blocks if block["type"] != "text"]
        if media:
            title = f"Output of {part.name or 'the tool'} (call {part.call_id}):"
            following += [{"type": "text", "text": title}, *media]
        turns.append({"role": "tool", "tool_call_id": part.call_id, "content": text})
    _add(turns, {"role": "user", "content": following})


def _write_part(part: Part) -> Wire:
    """Return a content block without cache marks. NotSupported for parts that the format has no field for."""
    match part:
        case Text() | Refusal():
            return {"type": "text", "text": part.text}
        case Image(media=media) if media.url or media.data:
            return write_image(part)
        case VendorPart(vendor=vendor) if vendor == NAME:
            return part.body
        case _:
            name = type(part).__name__.lower()
            raise NotSupported(f"This provider does not take a part of type {name} in this form.", param="messages")
