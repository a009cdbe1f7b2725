"""Decodes a prompt into neutral messages, and determines the capabilities that it requires of a model."""

from typing import Any

import orjson
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from gateway.neutral.parts import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.surfaces.aisdk import schema as wire
from gateway.surfaces.aisdk.options import read_mark, read_reasoning, read_signature
from gateway.surfaces.aisdk.prompt_files import read_file, read_media, unreachable

DENIED = "The user did not allow this tool to run."
ERRORS = (wire.ErrorTextOutput, wire.ErrorJsonOutput)


class Prompt:
    """A decoded prompt and its requirements. `text` is bytes, `count` the number of messages as chat completions count
    them."""

    __slots__ = ("messages", "text", "images", "earlier_images", "sounds", "files", "count", "marked", "_ran")

    def __init__(self, prompt: list[wire.AnyMessage]) -> None:
        """Raises InvalidRequest with the dotted path of content that cannot be sent."""
        self.text = self.images = self.earlier_images = self.sounds = self.files = self.count = 0
        self.marked = False
        self._ran: set[str] = set()  # calls that the provider executed
        self.messages = tuple(
            [read for place, message in enumerate(prompt) if (read := self._read(message, place)) is not None]
        )

    def _read(self, message: wire.AnyMessage, place: int) -> Message | None:
        """Return the message, None when it has no content left."""
        options = message.options
        if options is not None:
            mark = read_mark(options)
        else:
            mark = None
        self.count += 1
        if isinstance(message, wire.SystemMessage):
            self.marked = self.marked or mark is not None
            return Message("system", (self._text(message.content, mark, None),))
        parts: tuple[Part, ...]
        if isinstance(message, wire.UserMessage):
            parts = self._user(message.content, place)
            converted = Message("user", parts)
        elif isinstance(message, wire.AssistantMessage):
            before = self.images
            parts = self._assistant(message.content, place)
            self.earlier_images += self.images - before
            self.images = before
            converted = Message("assistant", parts)
        else:
            parts = self._results(message.content, place)
            converted = Message("tool", parts)
            self.count += max(0, len(parts) - 1)
        if not parts:
            return None
        if mark is None:
            return converted
        return self._mark_last(converted, mark)

    def _user(self, content: list[Any], place: int) -> tuple[Part, ...]:
        return tuple(
            [
                self._text(part.text, None, part.options)
                if type(part) is wire.TextPart
                else self._file(part, f"prompt.{place}.content.{number}")
                for number, part in enumerate(content)
            ]
        )

    def _assistant(self, content: list[Any], place: int) -> tuple[Part, ...]:
        """Return the assistant's message without calls that the provider executed, and without their results: they
        belong to an earlier response."""
        parts: list[Part] = []
        for number, part in enumerate(content):
            kind = type(part)
            if kind is wire.TextPart:
                parts.append(self._text(part.text, None, part.options))
            elif kind is wire.ReasoningPart and (part.text or part.options):
                parts.append(self._thought(part))
            elif kind is wire.ToolCallPart and part.executed:
                self._ran.add(part.id)
            elif kind is wire.ToolCallPart:
                parts.append(self._call(part))
            elif kind is wire.FilePart:
                parts.append(self._file(part, f"prompt.{place}.content.{number}"))
        return tuple(parts)

    def _results(self, content: list[Any], place: int) -> tuple[Part, ...]:
        return tuple(
            [
                self._result(part, f"prompt.{place}.content.{number}.output")
                for number, part in enumerate(content)
                if type(part) is wire.ToolResultPart and part.id not in self._ran
            ]
        )

    def _text(self, text: str, mark: CacheMark | None, options: Any) -> Text:
        self._count(text)
        if options is None:
            return Text(text, mark)
        signature, vendor = read_signature(options)
        return Text(text, self._mark(options), (), signature, vendor)

    def _thought(self, part: wire.ReasoningPart) -> Reasoning:
        self._count(part.text)
        return read_reasoning(part.text, part.options)

    def _call(self, part: wire.ToolCallPart) -> ToolCall:
        arguments = _arguments(part.input)
        self._count(arguments)
        self._count(part.name)
        signature, vendor = read_signature(part.options)
        return ToolCall(part.id, part.name, arguments, signature, vendor, cache=self._mark(part.options))

    def _result(self, part: wire.ToolResultPart, path: str) -> ToolResult:
        output = part.output
        mark = self._mark(part.options) or self._mark(output.options)
        return ToolResult(part.id, self._output(output, path), part.name, isinstance(output, ERRORS), cache=mark)

    def _output(self, output: wire.Output, path: str) -> tuple[Part, ...]:
        if isinstance(output, wire.ContentOutput):
            items = [self._item(item, f"{path}.value.{place}") for place, item in enumerate(output.value)]
            return tuple(part for part in items if part is not None)
        if isinstance(output, wire.JsonOutput | wire.ErrorJsonOutput):
            text = _text_of(output.value)
        elif isinstance(output, wire.DeniedOutput):
            text = output.reason or DENIED
        else:
            text = output.value
        if text:
            return (self._text(text, None, None),)
        return ()

    def _item(self, item: wire.Item, path: str) -> Part | None:
        """Return an item of a tool's result; None for ignored ones."""
        match item:
            case wire.TextItem():
                return self._text(item.text, None, item.options)
            case wire.FilePart():
                return self._file(item, path)
            case wire.MediaItem() | wire.ImageDataItem():
                return self._add(read_media(item.data, item.media_type, f"{path}.data", "", self._mark(item.options)))
            case wire.FileDataItem():
                mark = self._mark(item.options)
                return self._add(read_media(item.data, item.media_type, f"{path}.data", item.filename or "", mark))
            case wire.ImageUrlItem():
                return self._add(read_media(item.url, "image", f"{path}.url", "", self._mark(item.options)))
            case wire.FileUrlItem():
                kind = item.media_type or "application/octet-stream"
                return self._add(read_media(item.url, kind, f"{path}.url", "", self._mark(item.options)))
            case wire.CustomPart():
                return None
        raise unreachable(path)

    def _file(self, part: wire.FilePart, path: str) -> Part:
        return self._add(read_file(part, path, self._mark(part.options)))

    def _add(self, part: Part) -> Part:
        """Count a part that came as a file."""
        if isinstance(part, Image):
            self.images += 1
        elif isinstance(part, Audio):
            self.sounds += 1
        elif isinstance(part, File):
            self.files += 1
        elif isinstance(part, Text):
            self._count(part.text)
        return part

    def _mark(self, options: Any) -> CacheMark | None:
        if options is not None:
            mark = read_mark(options)
        else:
            mark = None
        self.marked = self.marked or mark is not None
        return mark

    def _mark_last(self, message: Message, mark: CacheMark) -> Message:
        """Set the cache mark of a message on its last part that can carry one and has none."""
        self.marked = True
        parts = message.parts
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if isinstance(part, Text | Image | File | ToolCall | ToolResult):
                if part.cache is not None:
                    return message
                marked: Part = replace(part, cache=mark)
                return replace(message, parts=(*parts[:place], marked, *parts[place + 1 :]))
        return message

    def _count(self, text: str) -> None:
        self.text += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _arguments(raw: Raw | UnsetType) -> str:
    """Return the arguments of a call as the model wrote them: an object, or a text that was no JSON."""
    if isinstance(raw, UnsetType):
        text = ""
    else:
        text = _text_of(raw)
    if not text.startswith('"'):
        return text
    arguments: str = orjson.loads(text)
    return arguments


def _text_of(raw: Raw) -> str:
    return bytes(memoryview(raw)).decode()
