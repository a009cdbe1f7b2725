"""Writes messages in the roles and blocks of the format.

Wire facts: Cohere API reference, v2/chat, messages; guide, tool use (a turn with calls reports its plan); guide,
reasoning (thinking blocks are sent back with their turn).
"""

from collections.abc import Iterable
from typing import Any

from gateway.errors import NotSupported
from gateway.neutral.parts import Image, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult

Wire = dict[str, Any]

FOREIGN_SEARCH = "Calls of another provider's server tools in past turns were left out."
NO_OUTPUT = "(no output)"


def write_messages(messages: Iterable[Message], *, thinks: bool, warnings: list[str]) -> list[Wire]:
    """The `messages` list. `thinks`: the model takes thinking blocks; others are told past reasoning as their plan.

    Instructions stand in front, in one message: "system turn must be the first in the list". A conversation of
    instructions alone is the user's. NotSupported for parts that the format has no field for.
    """
    system: list[Wire] = []
    turns: list[Wire] = []
    for message in messages:
        match message.role:
            case "system" | "developer":
                system += _write_system(message, turns)
            case "assistant":
                _add(turns, _write_assistant(message, thinks, warnings))
            case "tool":
                _add_results(turns, message)
            case _:
                _add(turns, {"role": "user", "content": [_write_part(part) for part in message.parts]})
    if not turns:
        return [{"role": "user", "content": system}]
    if system:
        return [{"role": "system", "content": system}, *turns]
    return turns


def _add(turns: list[Wire], turn: Wire) -> None:
    """A turn that is not empty: empty ones are refused by the API."""
    if turn.get("content") or turn.get("tool_calls"):
        turns.append(turn)


def _write_system(message: Message, turns: list[Wire]) -> list[Wire]:
    """The text of instructions; media among them go into a user message."""
    written = [_write_part(part) for part in message.parts]
    shown = [part for part in written if part["type"] != "text"]
    _add(turns, {"role": "user", "content": shown})
    return [part for part in written if part["type"] == "text"]


def _write_assistant(message: Message, thinks: bool, warnings: list[str]) -> Wire:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    own = [_write_call(part) for part in calls if not part.executed]
    if len(own) < len(calls) and FOREIGN_SEARCH not in warnings:
        warnings.append(FOREIGN_SEARCH)
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning) and part.text]
    text_parts = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult | Reasoning)]
    content = [_write_part(part) for part in text_parts if not isinstance(part, Text | Refusal) or part.text]
    turn: Wire = {"role": "assistant"}
    if thoughts and thinks:
        content = [{"type": "thinking", "thinking": "\n\n".join(thoughts)}, *content]
    elif thoughts and own:
        turn["tool_plan"] = "\n\n".join(thoughts)
    if content:
        turn["content"] = content
    if own:
        turn["tool_calls"] = own
    return turn


def _write_call(call: ToolCall) -> Wire:
    if call.custom:
        raise NotSupported("This provider has no tools with free-text input.", param="messages")
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _add_results(turns: list[Wire], message: Message) -> None:
    """Results, each a turn of its own; what is no text in them is shown by the user behind them all."""
    shown: list[Wire] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            shown.append(_write_part(part))
            continue
        written = [_write_part(one) for one in part.parts]
        text = "\n".join(one["text"] for one in written if one["type"] == "text") or NO_OUTPUT
        if part.is_error and not text.lower().startswith("error"):
            text = f"Error: {text}"
        media = [one for one in written if one["type"] != "text"]
        if media:
            shown += [{"type": "text", "text": f"Output of {part.name or 'the tool'} (call {part.call_id}):"}, *media]
        turns.append({"role": "tool", "tool_call_id": part.call_id, "content": text})
    _add(turns, {"role": "user", "content": shown})


def _write_part(part: Part) -> Wire:
    """A content block. NotSupported for what the format has no field for; cache marks have none and are hints only."""
    match part:
        case Text() | Refusal():
            return {"type": "text", "text": part.text}
        case Image(media=media) if media.url or media.data:
            image = {"url": media.url or media.inline("image/png")}
            if part.detail:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case _:
            name = type(part).__name__.lower()
            raise NotSupported(f"This provider does not take a part of type {name} in this form.", param="messages")
