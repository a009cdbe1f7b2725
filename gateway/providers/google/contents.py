"""Writes messages as `contents` and `systemInstruction`."""

import mimetypes
from typing import Any

from gateway.dialects.google import NAME
from gateway.errors import ContentNeeded, InvalidRequest, NotSupported
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
    Video,
)
from gateway.providers.google.traits import OLDEST, Traits
from gateway.providers.tool_arguments import read_arguments
from gateway.providers.tool_names import plain_name

Wire = dict[str, Any]

# Guide, thought signatures: stands for a signature that another model's or a stripped call does not have.
NO_SIGNATURE = "skip_thought_signature_validator"
USER = "user"
MODEL = "model"
RESULTS = "results"  # a kind of the user's content: nothing else stands among results
SHOWN = "Shown with the instructions:"
FALLBACKS = {Image: "image/jpeg", Audio: "audio/wav", Video: "video/mp4", File: "application/pdf"}
AUDIO_TYPES = {"mp3": "audio/mp3", "mpeg": "audio/mpeg", "mpga": "audio/mpeg", "m4a": "audio/m4a", "mp4": "audio/mp4"}
# Guide, multimodal function responses: what a function's response may hold inline.
RESULT_TYPES = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))
READABLE = (FALLBACKS[Image], FALLBACKS[File])  # what can be brought as bytes instead
WEB = ("https://", "http://")
ADDRESSES = ("https://", "http://", "gs://")
OWN_FILES = "files/"


class Contents:
    """Writes messages in order; adjacent ones of one kind become one content. `address` is where uploaded files are."""

    def __init__(self, traits: Traits, address: str) -> None:
        self._traits = traits
        self._address = address
        self._contents: list[Wire] = []
        self._system: list[Wire] = []
        self._kind = ""
        self._names: dict[str, str] = {}
        self._order: dict[str, int] = {}  # of calls by id: their results must stand alike
        self._beside: list[Wire] = []  # media of results, shown once all results are told
        self._unsorted = False  # whether the last content is results that may stand in another order than their calls
        self._warnings: list[str] = []

    def write(self, messages: tuple[Message, ...], warnings: list[str]) -> Wire:
        """`{contents, systemInstruction?}`. InvalidRequest for a result without its call; NotSupported for a part
        that this format cannot carry."""
        self._warnings = warnings
        for message in messages:
            match message.role:
                case "system" | "developer":
                    self._add_system(message)
                case "assistant":
                    self._add_assistant(message)
                case "tool":
                    self._add_results(message)
                case _:
                    self._add(USER, "user", [self._write_part(part) for part in message.parts])
        self._show_beside()
        self._sort_results()
        if not self._contents and self._system:
            # A conversation of instructions alone is refused: they are then the user's words.
            self._contents = [{"role": USER, "parts": self._system}]
            self._system = []
        body: Wire = {"contents": self._contents}
        if self._system:
            body["systemInstruction"] = {"parts": self._system}
        return body

    def _add(self, role: str, kind: str, parts: list[Wire]) -> None:
        if not parts:
            return
        if kind != RESULTS:
            self._show_beside()
        if kind == self._kind:
            self._contents[-1]["parts"] += parts
            return
        self._sort_results()
        self._kind = kind
        self._contents.append({"role": role, "parts": parts})

    def _show_beside(self) -> None:
        shown = self._beside
        self._beside = []
        self._add(USER, "user", shown)

    def _add_system(self, message: Message) -> None:
        """Instructions are text alone; media among them are shown by the user."""
        shown: list[Wire] = []
        for part in message.parts:
            written = self._write_part(part)
            (self._system if "text" in written else shown).append(written)
        if shown:
            self._add(USER, "user", [{"text": SHOWN}, *shown])

    def _add_assistant(self, message: Message) -> None:
        self._sort_results()  # before its calls may use their ids again
        parts: list[Wire] = []
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.executed:
                parts.append(self._write_call(part))
            elif isinstance(part, ToolCall | ToolResult):
                self._warn("Calls of another provider's server tools in past turns were left out.")
            elif isinstance(part, Reasoning):
                if part.vendor == NAME and part.signature:
                    parts.append({"text": part.text, "thought": True, "thoughtSignature": part.signature})
            elif isinstance(part, Text) and part.signature and part.vendor == NAME:
                parts.append({"text": part.text, "thoughtSignature": part.signature})
            elif not isinstance(part, Text) or part.text:
                parts.append(self._write_part(part))
        calls = [part for part in parts if "functionCall" in part]
        if self._traits.signed and calls and "thoughtSignature" not in calls[0]:
            # Of parallel calls only the first carries a signature.
            calls[0]["thoughtSignature"] = NO_SIGNATURE
        self._add(MODEL, "model", parts)

    def _write_call(self, call: ToolCall) -> Wire:
        self._names[call.id] = call.name
        self._order[call.id] = len(self._order)
        function: Wire = {"name": plain_name(call.name), "args": read_arguments(call)}
        if call.id:
            function["id"] = call.id
        written: Wire = {"functionCall": function}
        if call.signature and call.vendor == NAME:
            written["thoughtSignature"] = call.signature
        return written

    def _add_results(self, message: Message) -> None:
        """Results stand in the order of their calls, and nothing else between them (guide, function calling)."""
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._add(USER, RESULTS, [self._write_result(part, self._beside)])
                self._unsorted = True
            else:
                self._beside.append(self._write_part(part))

    def _sort_results(self) -> None:
        """Once all of a turn are there: sorted with each one, many would take time by their square."""
        if self._unsorted:
            self._unsorted = False
            last = len(self._order)
            self._contents[-1]["parts"].sort(
                key=lambda part: self._order.get(part["functionResponse"].get("id", ""), last)
            )

    def _write_result(self, result: ToolResult, beside: list[Wire]) -> Wire:
        """A functionResponse: text under `output` or `error`; media inside it where the model takes them there, else
        `beside` it, as the user's."""
        name = result.name or self._names.get(result.call_id, "")
        if not name:
            raise InvalidRequest(f"The tool result for {result.call_id} has no tool call before it.", param="messages")
        texts = [part.text for part in result.parts if isinstance(part, Text | Refusal)]
        media = [self._write_part(part) for part in result.parts if not isinstance(part, Text | Refusal)]
        response: Wire = {
            "name": plain_name(name),
            "response": {"error" if result.is_error else "output": "\n".join(texts)},
        }
        if result.call_id:
            response["id"] = result.call_id
        inside: list[Wire] = []
        outside: list[Wire] = []
        for part in media:
            (inside if self._traits.media_results and _fits_inside(part) else outside).append(part)
        if inside:
            response["parts"] = inside
        if outside:
            beside += [{"text": f"Output of {name} (call {result.call_id}):"}, *outside]
        return {"functionResponse": response}

    def _write_part(self, part: Part) -> Wire:
        """A part of a content. NotSupported for anything that the format has no field for."""
        match part:
            case Text() | Refusal():
                return {"text": part.text}
            case Image(media=media) | Video(media=media) | File(media=media):
                return self._write_media(media, FALLBACKS[type(part)])
            case Audio(media=media):
                kind = AUDIO_TYPES.get(part.format) or (f"audio/{part.format}" if part.format else FALLBACKS[Audio])
                return self._write_media(media, kind)
            case VendorPart(vendor=vendor, body=body) if vendor == NAME:
                return body
            case _:
                name = type(part).__name__.lower()
                raise NotSupported(f"This provider does not take a part of type {name} here.", param="messages")

    def _write_media(self, media: Media, fallback: str) -> Wire:
        """inlineData, or fileData by address (https, gs:// or an own file)."""
        if media.data:
            return {"inlineData": {"mimeType": media.media_type or fallback, "data": media.data}}
        uri = media.url or media.file_id
        if uri.startswith(OWN_FILES):
            uri = f"{self._address}/{uri}"
        if not uri.startswith(ADDRESSES):
            raise NotSupported("This provider does not know this file.", param="messages")
        guessed = mimetypes.guess_type(uri.partition("?")[0])[0]
        if fallback in READABLE and media.url and self._must_bring(uri, media.media_type or guessed):
            raise ContentNeeded("This model does not load this URL; send the content as base64.", param="messages")
        return {"fileData": {"fileUri": uri, "mimeType": media.media_type or guessed or fallback}}

    def _must_bring(self, uri: str, kind: str | None) -> bool:
        """Whether an address of the web is not loaded there: only what is https and says its type, and not by the
        oldest models (guide, file input methods)."""
        if not uri.startswith(WEB):
            return False
        return not kind or not uri.startswith("https://") or self._traits.generation <= OLDEST

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)


def _fits_inside(part: Wire) -> bool:
    return "inlineData" in part and part["inlineData"]["mimeType"] in RESULT_TYPES
