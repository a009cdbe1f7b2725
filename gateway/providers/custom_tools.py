"""Tools with free-text input, at providers that have functions only: a function with one text. Its calls come back as
calls with that text.

The answer's arguments are JSON, of which a stream shows the text as it arrives.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import structs

from gateway.neutral.chat import ChatResult, Choice, Conversation, CustomTool, FunctionTool
from gateway.neutral.events import Batch, BlockDone, Event, Failed, Finished, ToolCallDelta
from gateway.neutral.parts import Message, Part, ToolCall

INPUT = "input"
SCHEMA = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": [INPUT],
}
FREE_TEXT = "The input is free text, not JSON: pass all of it, unchanged and not quoted, as `input`."
GRAMMAR = "It must match this {} grammar:\n{}"
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
UNICODE_LENGTH = 4


def with_functions(conversation: Conversation) -> tuple[Conversation, frozenset[str]]:
    """Return the conversation with functions in place of its free-text tools and their past calls, and the names of
    these tools; the same conversation when it has none."""
    names = frozenset(tool.name for tool in conversation.tools if isinstance(tool, CustomTool))
    if not names and not any(_is_custom(part) for message in conversation.messages for part in message.parts):
        return conversation, names
    changed = structs.replace(
        conversation,
        messages=tuple(_write_message(message) for message in conversation.messages),
        tools=tuple(as_function(tool) if isinstance(tool, CustomTool) else tool for tool in conversation.tools),
    )
    return changed, names


def as_function(tool: CustomTool) -> FunctionTool:
    """Return the function for a free-text tool; its description has the grammar, which functions cannot express."""
    pieces = [tool.description, FREE_TEXT]
    grammar = (tool.format or {}).get("grammar")
    if isinstance(grammar, dict) and isinstance(grammar.get("definition"), str):
        pieces.append(GRAMMAR.format(grammar.get("syntax") or "", grammar["definition"]))
    return FunctionTool(tool.name, "\n\n".join(filter(None, pieces)), SCHEMA)


def _is_custom(part: Part) -> bool:
    return isinstance(part, ToolCall) and part.custom


def _write_message(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return structs.replace(message, parts=tuple(_write_call(part) for part in message.parts))


def _write_call(part: Part) -> Part:
    if isinstance(part, ToolCall) and part.custom:
        return structs.replace(part, arguments=orjson.dumps({INPUT: part.arguments}).decode(), custom=False)
    return part


def restore_result(result: ChatResult, names: frozenset[str]) -> ChatResult:
    """Return the result with calls of these tools as calls with free text."""
    return dataclasses.replace(result, choices=tuple(_restore_choice(choice, names) for choice in result.choices))


def _restore_choice(choice: Choice, names: frozenset[str]) -> Choice:
    return structs.replace(choice, parts=tuple(_restore_part(part, names) for part in choice.parts))


def _restore_part(part: Part, names: frozenset[str]) -> Part:
    if isinstance(part, ToolCall) and part.name in names and not part.executed:
        return structs.replace(part, arguments=read_input(part.arguments), custom=True)
    return part


def read_input(arguments: str) -> str:
    """Return the text in the arguments of a call, or the arguments themselves if they are something else."""
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if isinstance(value, dict):
        if len(value) == 1 and not isinstance(value.get(INPUT), str):
            value = next(iter(value.values()))  # models rename the only argument
        else:
            value = value.get(INPUT, arguments)
    return value if isinstance(value, str) else arguments


def restore_batches(batches: Iterator[Batch], names: frozenset[str]) -> Iterator[Batch]:
    """Yield the batches with the calls of these tools as calls with free text, of which no piece waits for the end
    unless the arguments are no JSON object with `input` first."""
    inputs: dict[tuple[int, int], InputReader] = {}
    for batch in batches:
        if inputs or any(isinstance(event, ToolCallDelta) and event.name in names for event in batch):
            batch = [read for event in batch for read in _restore_event(event, inputs, names)]
        if batch:
            yield batch


def _restore_event(event: Event, inputs: dict[tuple[int, int], "InputReader"], names: frozenset[str]) -> list[Event]:
    if isinstance(event, ToolCallDelta):
        place = (event.choice, event.block)
        if event.name in names and not event.executed:
            inputs.setdefault(place, InputReader())
        reader = inputs.get(place)
        if reader is None:
            return [event]
        event.arguments = reader.read(event.arguments)
        event.custom = True
        return [event] if event.arguments or event.id or event.name or event.signature else []
    if isinstance(event, BlockDone):
        reader = inputs.pop((event.choice, event.block), None)
        return [*_rest_of(reader, event.choice, event.block), event]
    if isinstance(event, Finished | Failed):
        rest = [left for (choice, block), reader in inputs.items() for left in _rest_of(reader, choice, block)]
        inputs.clear()
        return [*rest, event]
    return [event]


def _rest_of(reader: "InputReader | None", choice: int, block: int) -> list[Event]:
    text = reader.finish() if reader is not None else ""
    return [ToolCallDelta(block, text, custom=True, choice=choice)] if text else []


class InputReader:
    """Reads the text out of `{"input": "…"}` piece by piece."""

    def __init__(self) -> None:
        self._raw: list[str] = []  # the arguments so far, until the text begins
        self._begun = False
        self._ended = False
        self._left = ""  # the beginning of an escape sequence, or half of a pair of them

    def read(self, piece: str) -> str:
        """Return what the piece adds to the text."""
        if self._ended or not piece:
            return ""
        if not self._begun:
            self._raw.append(piece)
            if '"' not in piece:
                return ""
            whole = "".join(self._raw)
            start = _start_of(whole)
            if start < 0:
                return ""
            self._begun = True
            piece = whole[start:]
        return self._decode(piece)

    def finish(self) -> str:
        """Return the rest of the text at the end of the arguments."""
        if self._begun:
            return ""
        whole = "".join(self._raw)
        return read_input(whole) if whole else ""

    def _decode(self, piece: str) -> str:
        text = self._left + piece
        self._left = ""
        decoded: list[str] = []
        place = 0
        while place < len(text):
            quote = text.find('"', place)
            escape = text.find("\\", place)
            if escape < 0 or 0 <= quote < escape:
                end = quote if quote >= 0 else len(text)
                decoded.append(text[place:end])
                self._ended = quote >= 0
                break
            decoded.append(text[place:escape])
            read, place = _read_escape(text, escape)
            if place < 0:
                self._left = text[escape:]
                break
            decoded.append(read)
        return "".join(decoded)


def _start_of(raw: str) -> int:
    """Return the position of the text's first character; -1 if `input` is not the first member, or not there yet."""
    place = 0
    for token in ("{", f'"{INPUT}"', ":", '"'):
        while place < len(raw) and raw[place].isspace():
            place += 1
        if not raw.startswith(token, place):
            return -1
        place += len(token)
    return place


def _read_escape(text: str, place: int) -> tuple[str, int]:
    """Return the character of an escape sequence and the position behind it, -1 if more of it must arrive first."""
    kind = text[place + 1 : place + 2]
    if not kind:
        return "", -1
    if kind != "u":
        return ESCAPES.get(kind, kind), place + 2
    end = place + 2 + UNICODE_LENGTH
    if len(text) < end:
        return "", -1
    code = _code_of(text[place + 2 : end])
    if not 0xD800 <= code < 0xDC00:
        return ("\ufffd" if 0xDC00 <= code < 0xE000 else chr(code)), end
    if len(text) < end + 2 + UNICODE_LENGTH and text[end : end + 2] in ("", "\\", "\\u"):
        return "", -1
    low = _code_of(text[end + 2 : end + 2 + UNICODE_LENGTH]) if text[end : end + 2] == "\\u" else 0
    if not 0xDC00 <= low < 0xE000:
        return "\ufffd", end
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), end + 2 + UNICODE_LENGTH


def _code_of(digits: str) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0xFFFD
