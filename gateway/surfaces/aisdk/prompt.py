"""Decodes a prompt into neutral messages, and determines the capabilities that it requires of a model."""

from base64 import b64decode
from typing import Any

import orjson
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from gateway.errors import InvalidRequest
from gateway.neutral.file_types import BASE64_PIECE_LENGTH, decode_base64, decode_pieces, normalize_base64
from gateway.neutral.parts import (
    WEB,
    Audio,
    CacheMark,
    File,
    Image,
    Media,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    sound_format,
)
from gateway.surfaces.aisdk import schema as wire
from gateway.surfaces.aisdk.options import read_mark, read_reasoning, read_signature
from gateway.surfaces.bodies.validation_errors import DATA_START, invalid, split_data_url

# Files of a prompt as neutral parts: images, audio, text and documents, by URL or as bytes.

IMAGE_TYPE = "image"
AUDIO = "audio"
TEXT = "text"
# Base64 of the first bytes of image formats (from their specifications), for callers who send only "image" as the
# type.
IMAGE_STARTS = (("iVBORw0KGgo", "png"), ("/9j/", "jpeg"), ("R0lGOD", "gif"), ("UklGR", "webp"))
KEPT_ELSEWHERE = "file ids of a vendor are not supported; send the bytes or a URL"


def read_file(part: wire.FilePart, path: str, mark: CacheMark | None = None) -> Part:
    """Return the part for a file. Raises InvalidRequest for a file that no vendor can read."""
    data = part.data
    kind = part.media_type
    if isinstance(data, str):
        return read_media(data, kind, f"{path}.data", part.filename or "", mark)
    if isinstance(data, wire.DataFile):
        return read_media(data.data, kind, f"{path}.data.data", part.filename or "", mark)
    if isinstance(data, wire.UrlFile):
        return read_media(data.url, kind, f"{path}.data.url", part.filename or "", mark)
    if isinstance(data, wire.TextFile):
        return _with_name(data.text, part.filename or "", mark)
    raise unreachable(f"{path}.data")


def unreachable(path: str) -> InvalidRequest:
    """Return the error for a file that is named by a vendor's file id."""
    return invalid(path, KEPT_ELSEWHERE)


def read_media(data: str, kind: str, path: str, name: str = "", mark: CacheMark | None = None) -> Part:
    """Return the media at a URL, in a data URL, or in bare base64. `kind` is a media type; "image" and "image/*" are
    any image. Raises InvalidRequest for invalid base64."""
    kind = kind.strip().lower().partition(";")[0]
    family = kind.partition("/")[0]
    if data[:8].lower().startswith(WEB):
        known = "" if kind == family or kind.endswith("/*") else kind
        return _part(family, Media(known, url=data), name, mark)
    if data[: len(DATA_START)].lower() == DATA_START:
        media_type, data = split_data_url(data, path)
        kind = kind or media_type
        family = kind.partition("/")[0]
    if not data:
        raise invalid(path, "it is empty")
    if family == TEXT:
        return _with_name(_decode(data, path), name, mark)
    data = _correct_base64(data, path)
    if kind == family or kind.endswith("/*"):
        kind = _sniff(family, data)
    return _part(family, Media(kind, data=data), name, mark)


def _part(family: str, media: Media, name: str, mark: CacheMark | None) -> Part:
    if family == IMAGE_TYPE:
        return Image(media, cache=mark)
    if family == AUDIO:
        return Audio(media, sound_format(media.media_type))
    return File(media, name, cache=mark)


def _sniff(family: str, data: str) -> str:
    """Return the media type that the first bytes show; the most common image type where they show none."""
    if family != IMAGE_TYPE:
        if family == AUDIO:
            return f"{family}/wav"
        return "application/octet-stream"
    return f"{IMAGE_TYPE}/" + next((kind for start, kind in IMAGE_STARTS if data.startswith(start)), "png")


def _correct_base64(data: str, path: str) -> str:
    """Return `data` as standard base64: the URL-safe alphabet, line breaks and missing padding are corrected. Raises
    InvalidRequest for invalid data, because the caller's own path is known here."""
    if _is_base64(data):
        return data
    standard = normalize_base64(data)
    if not _is_base64(standard):
        raise invalid(path, "it is not valid base64")
    return standard


def _is_base64(data: str) -> bool:
    try:
        for _ in decode_pieces(data):
            continue
    except ValueError:
        return False
    return True


def _decode(data: str, path: str) -> str:
    try:
        # Long data is decoded in pieces, which requires strict base64.
        return (decode_base64(data) if len(data) > BASE64_PIECE_LENGTH else b64decode(data, validate=False)).decode()
    except ValueError:
        raise invalid(path, "it is not base64 of UTF-8 text") from None


def _with_name(text: str, name: str, mark: CacheMark | None) -> Text:
    """Return a text file as text, which every vendor reads."""
    return Text(f"{name}\n\n{text}" if name else text, mark)


DENIED = "The user did not allow this tool to run."
ERRORS = (wire.ErrorTextOutput, wire.ErrorJsonOutput)


class Prompt:
    """A decoded prompt and its requirements. `text` is bytes, `count` the number of messages as chat completions count
    them."""

    __slots__ = ("_ran", "count", "earlier_images", "files", "images", "marked", "messages", "sounds", "text")

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
        mark = read_mark(options) if options is not None else None
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
        mark = read_mark(options) if options is not None else None
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
    text = "" if isinstance(raw, UnsetType) else _text_of(raw)
    if not text.startswith('"'):
        return text
    arguments: str = orjson.loads(text)
    return arguments


def _text_of(raw: Raw) -> str:
    return bytes(memoryview(raw)).decode()
