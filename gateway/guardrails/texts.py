"""All texts of a neutral value, with their places: found by the types of the value, so that no field is left out."""

import base64
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

import orjson
from msgspec import Struct, structs

from gateway.guardrails.rule_sets import Place
from gateway.neutral.chat import Conversation
from gateway.neutral.parts import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from gateway.runtime.large_files import StoredFile

V = TypeVar("V")

LEAST_NUMBER = 10_000_000  # of those in JSON that are read as text
NUMBERS = (int, float)
# Fields that no text is in: opaque values that only the vendor that wrote them reads.
OPAQUE = frozenset(("signature", "sealed"))
READABLE_TYPES = ("text/", "application/json", "application/xml", "application/x-yaml", "application/javascript")
UNREAD_TOKENS = "token ids"
UNREAD_MEDIA = "media"
UNREAD_FILE = "a file"


class TextEditor(Protocol):
    """Edits the texts of a value. `text` returns a text as it is sent; `sealed` is true for a text that is
    bound to a signature, and then None means that it must not be sent. `unread` reports content that has no text,
    `media` a file that has none. `across` edits texts that follow each other in a message, where a value may be cut."""

    def text(self, text: str, place: Place) -> str: ...
    def signed(self, text: str, place: Place) -> str | None: ...
    def unread(self, kind: str) -> None: ...
    def media(self, value: Media, place: Place) -> None: ...
    def across(self, texts: list[str], place: Place) -> list[str]: ...


class TextReader:
    """Reads texts and changes none: the base of editors that read what `text` and `media` get."""

    def text(self, text: str, place: Place) -> str:
        return text

    def signed(self, text: str, place: Place) -> str | None:
        return self.text(text, place)

    def unread(self, kind: str) -> None:
        """Content without text or bytes is not read."""

    def media(self, value: Media, place: Place) -> None:
        """Files without text are not read."""

    def across(self, texts: list[str], place: Place) -> list[str]:
        return texts


class TextWalk:
    """Edits the texts of neutral values. A value without a changed text is returned itself."""

    def __init__(self, editor: TextEditor) -> None:
        self._editor = editor
        self._in_json = False  # where lists of numbers are data, and no token ids

    def edit(self, value: Any, place: Place) -> Any:
        """Return `value` with its texts edited; all of them are in `place` unless their type says otherwise."""
        kind = type(value)
        if kind is str:
            return self._editor.text(value, place)
        special = SPECIAL.get(kind)
        if special is not None:
            return special(self, value, place)
        if value is None or kind in (bool, int, float):
            return value
        if isinstance(value, Mapping):
            return self._edit_mapping(value, place)
        if isinstance(value, list | tuple | set | frozenset):
            return self._edit_items(value, place)
        if isinstance(value, str):
            return self._editor.text(str(value), place)
        if isinstance(value, Struct) or dataclasses.is_dataclass(value):
            return self.edit_fields(value, place)
        return self._edit_other(value, kind)

    def edit_fields(self, value: V, place: Place, skipped: frozenset[str] = OPAQUE) -> V:
        """Return a struct or data class with the texts of its fields edited, except for those that are `skipped`."""
        whole: Any = value
        changed: dict[str, Any] = {}
        kind: Any = type(whole)
        for name in _names_of(kind):
            if name in skipped:
                continue
            before = getattr(whole, name)
            after = self.edit(before, place)
            if after is not before:
                changed[name] = after
        if changed and isinstance(whole, Struct):
            whole = structs.replace(whole, **changed)
        elif changed:
            whole = dataclasses.replace(whole, **changed)
        edited: V = whole
        return edited

    def edit_json(self, text: str, place: Place) -> str:
        """Return a JSON text with its strings and long numbers edited; a text that is no JSON is edited as it is. The
        written text is read too: a repeated member is in no value."""
        if "\\" in text or '"' in text or text[:1] in ("{", "["):
            try:
                value = orjson.loads(text)
            except ValueError:
                return self._editor.text(text, place)
            edited = self._edit_data(value, place)
            if edited is not value:
                text = orjson.dumps(edited).decode()
        return self._editor.text(text, place)

    def _edit_data(self, value: Any, place: Place) -> Any:
        """Return a value of JSON with its texts and long numbers edited."""
        outside, self._in_json = self._in_json, True
        try:
            return self._edit_number(value, place) if type(value) in NUMBERS else self.edit(value, place)
        finally:
            self._in_json = outside

    def _edit_mapping(self, value: Mapping[Any, Any], place: Place) -> Any:
        changed = False
        edited: dict[Any, Any] = {}
        for name, before in value.items():
            key = self._editor.text(name, place) if type(name) is str else name
            after = self._edit_data(before, place)
            changed = changed or key is not name or after is not before
            edited[key] = after
        return edited if changed else value

    def _edit_items(self, value: Any, place: Place) -> Any:
        if not self._in_json and len(value) > 1 and all(type(item) is int for item in value):
            self._editor.unread(UNREAD_TOKENS)
        edited = [self._edit_number(item, place) if type(item) in NUMBERS else self.edit(item, place) for item in value]
        if all(after is before for after, before in zip(edited, value, strict=True)):
            return value
        return _like(value, edited)

    def _edit_number(self, value: float, place: Place) -> Any:
        if abs(value) < LEAST_NUMBER or value % 1:
            return value
        text = str(int(value))
        edited = self._editor.text(text, place)
        return value if edited == text else edited

    def _edit_other(self, value: Any, kind: type) -> Any:
        if callable(value) or (kind in (bytes, bytearray) and not value):
            return value
        self._editor.unread(UNREAD_FILE)
        return value

    # Types with a separate place for their texts, or with content without text.

    def _edit_conversation(self, value: Conversation, place: Place) -> Conversation:
        last = max((number for number, message in enumerate(value.messages) if message.role == "assistant"), default=-1)
        edited = [
            self._edit_message(message, _place_of(message, number > last))
            for number, message in enumerate(value.messages)
        ]
        rest = self.edit_fields(value, "system", frozenset(("messages",)))
        if all(after is before for after, before in zip(edited, value.messages, strict=True)):
            return rest
        return structs.replace(rest, messages=tuple(message for message in edited if message.parts))

    def _edit_message(self, message: Message, place: Place) -> Message:
        parts = []
        for part in self._joined(message.parts, place):
            edited = self.edit(part, place)
            if edited is not None:
                parts.append(edited)
        name = self._editor.text(message.name, place) if message.name else ""
        if len(parts) == len(message.parts) and all(map(_is_same, parts, message.parts)) and name == message.name:
            return message
        return structs.replace(message, parts=tuple(parts), name=name)

    def _joined(self, parts: tuple[Part, ...], place: Place) -> tuple[Part, ...]:
        """Return the parts of a message with the values edited that reach over several of its texts. A text of which
        nothing is left is left out."""
        edited: list[Part | None] = list(parts)
        run: list[tuple[int, Text]] = []
        for number, part in enumerate((*parts, None)):
            if isinstance(part, Text) and not part.signature:
                run.append((number, part))
                continue
            if len(run) > 1:
                texts = self._editor.across([text.text for _, text in run], place)
                for (place_of, before), after in zip(run, texts, strict=True):
                    if after is not before.text:
                        edited[place_of] = structs.replace(before, text=after) if after else None
            run = []
        return tuple(part for part in edited if part is not None)

    def _edit_text(self, part: Text, place: Place) -> Text | None:
        if not part.signature:
            return self.edit_fields(part, place)
        edited = self._editor.signed(part.text, place)
        rest = self.edit_fields(part, place, frozenset(("signature", "text")))
        if edited is None:
            return structs.replace(rest, text=self._editor.text(part.text, place), signature="")
        return rest if edited is part.text else structs.replace(rest, text=edited)

    def _edit_reasoning(self, part: Reasoning, place: Place) -> Reasoning | None:
        if not part.signature:
            return self.edit_fields(part, place)
        edited = self._editor.signed(part.text, place)
        if edited is None or edited is part.text:
            return None if edited is None else part
        return structs.replace(part, text=edited)

    def _edit_call(self, part: ToolCall, place: Place) -> ToolCall:
        rest = self.edit_fields(part, place, frozenset(("signature", "arguments")))
        edit = self._editor.text if part.custom else self.edit_json
        arguments = edit(part.arguments, "tool_arguments")
        return rest if arguments is part.arguments else structs.replace(rest, arguments=arguments)

    def _edit_result(self, part: ToolResult, place: Place) -> ToolResult:
        joined = self._joined(part.parts, "tool_results")
        parts = tuple(edited for one in joined if (edited := self.edit(one, "tool_results")) is not None)
        rest = self.edit_fields(part, "tool_results", frozenset(("parts",)))
        if len(parts) == len(part.parts) and all(map(_is_same, parts, part.parts)):
            return rest
        return structs.replace(rest, parts=parts)

    def _edit_media(self, value: Media, place: Place) -> Media:
        rest = self.edit_fields(value, place, frozenset(("data",)))
        if not value.data or not value.media_type.lower().startswith(READABLE_TYPES):
            self._editor.media(value, place)
            return rest
        try:
            text = base64.b64decode(value.data, validate=True).decode()
        except ValueError:
            self._editor.media(value, place)
            return rest
        edited = self._editor.text(text, place)
        if edited == text:
            return rest
        return structs.replace(rest, data=base64.b64encode(edited.encode("utf-8", "replace")).decode())

    def _edit_file(self, value: Any, place: Place) -> Any:
        self._editor.unread(UNREAD_FILE)
        return value


SPECIAL: dict[type, Callable[[TextWalk, Any, Place], Any]] = {
    Conversation: TextWalk._edit_conversation,
    Message: TextWalk._edit_message,
    Text: TextWalk._edit_text,
    Reasoning: TextWalk._edit_reasoning,
    ToolCall: TextWalk._edit_call,
    ToolResult: TextWalk._edit_result,
    Media: TextWalk._edit_media,
    StoredFile: TextWalk._edit_file,
}


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a struct or a data class."""
    if issubclass(kind, Struct):
        names: tuple[str, ...] = kind.__struct_fields__
        return names
    return tuple(field.name for field in dataclasses.fields(kind))


def _place_of(message: Message, current: bool) -> Place:
    if message.role in ("system", "developer"):
        return "system"
    if message.role == "tool":
        return "tool_results"
    return "prompt" if current and message.role == "user" else "history"


def _like(value: Any, items: list[Any]) -> Any:
    """Return the items in a collection of the type of `value`."""
    if hasattr(value, "_fields"):  # a named tuple
        return type(value)(*items)
    return type(value)(items)


def _is_same(after: object, before: object) -> bool:
    return after is before
