"""Writes messages as `contents` and `systemInstruction`."""

import mimetypes
from typing import Any

from gateway.dialects.google import NAME
from gateway.errors import ContentNeeded, InvalidRequest, NotSupported
from gateway.neutral.parts import (
    WEB,
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
from gateway.neutral.tool_arguments import read_arguments
from gateway.providers.google.traits import OLDEST, Traits
from gateway.providers.unsupported_parts import NOTHING_SAID

Wire = dict[str, Any]

# Placeholder for a missing signature: the call came from another model, or the caller stripped it (guide, thought
# signatures).
NO_SIGNATURE = "skip_thought_signature_validator"
USER = "user"
MODEL = "model"
RESULTS = "results"  # kind of a user content that has function responses and nothing else
INSTRUCTION_MEDIA_NOTE = "Shown with the instructions:"
FALLBACKS = {Image: "image/jpeg", Audio: "audio/wav", Video: "video/mp4", File: "application/pdf"}
# Media types that a function response may contain inline (guide, multimodal function responses).
RESULT_TYPES = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))
READABLE = (FALLBACKS[Image], FALLBACKS[File])  # kinds that the gateway can fetch and send as bytes
ADDRESSES = (*WEB, "gs://")
OWN_FILES = "files/"


class Contents:
    """Writes messages in order; adjacent messages of one kind become one content.

    `address` is the base URL of uploaded files.
    """

    def __init__(self, traits: Traits, address: str) -> None:
        self._traits = traits
        self._address = address
        self._contents: list[Wire] = []
        self._system: list[Wire] = []
        self._kind = ""
        self._names: dict[str, str] = {}
        self._order: dict[str, int] = {}  # position of each call by id, since results need the order of their calls
        self._beside: list[Wire] = []  # media of tool results, which follow all results as a user content
        self._unsorted = False  # whether the results in the last content may need sorting
        self._warnings: list[str] = []

    def write(self, messages: tuple[Message, ...], warnings: list[str]) -> Wire:
        """Return `{contents, systemInstruction?}`.

        InvalidRequest for a tool result without a call; NotSupported for a part that this format cannot carry.
        """
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
        if not self._contents:
            # The API refuses a conversation that has only instructions, so they are sent as a user content.
            self._contents = [{"role": USER, "parts": self._system or [{"text": NOTHING_SAID}]}]
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
        """Add instructions, which must be text; their media go into a user content."""
        shown: list[Wire] = []
        for part in message.parts:
            written = self._write_part(part)
            if "text" in written:
                self._system.append(written)
            else:
                shown.append(written)
        if shown:
            self._add(USER, "user", [{"text": INSTRUCTION_MEDIA_NOTE}, *shown])

    def _add_assistant(self, message: Message) -> None:
        self._sort_results()  # first, since the calls of this message may reuse ids
        parts: list[Wire] = []
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.executed:
                parts.append(self._write_call(part))
            elif isinstance(part, ToolCall | ToolResult):
                self._warn("Past calls of another provider's server tools were left out.")
            elif isinstance(part, Reasoning):
                if part.vendor == NAME and part.signature:
                    parts.append({"text": part.text, "thought": True, "thoughtSignature": part.signature})
            elif isinstance(part, Text) and part.signature and part.vendor == NAME:
                parts.append(_with_beside(part, {"text": part.text, "thoughtSignature": part.signature}))
            elif not isinstance(part, Text) or part.text:
                parts.append(self._write_part(part))
        calls = [part for part in parts if "functionCall" in part]
        if self._traits.signed and calls and "thoughtSignature" not in calls[0]:
            # Only the first of parallel calls carries a signature.
            calls[0]["thoughtSignature"] = NO_SIGNATURE
        self._add(MODEL, "model", parts)

    def _write_call(self, call: ToolCall) -> Wire:
        self._names[call.id] = call.name
        self._order[call.id] = len(self._order)
        function: Wire = {"name": call.name, "args": read_arguments(call)}
        if call.id:
            function["id"] = call.id
        written: Wire = {"functionCall": function}
        if call.signature and call.vendor == NAME:
            written["thoughtSignature"] = call.signature
        return _with_beside(call, written)

    def _add_results(self, message: Message) -> None:
        """Add tool results; the API wants them in the order of their calls, with nothing between them (guide, function
        calling)."""
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._add(USER, RESULTS, [self._write_result(part, self._beside)])
                self._unsorted = True
            else:
                self._beside.append(self._write_part(part))

    def _sort_results(self) -> None:
        """Sort the results of a turn once it is complete; sorting for each result would take quadratic time."""
        if self._unsorted:
            self._unsorted = False
            self._contents[-1]["parts"].sort(key=self._rank)

    def _rank(self, part: Wire) -> int:
        return self._order.get(part["functionResponse"].get("id", ""), len(self._order))

    def _write_result(self, result: ToolResult, beside: list[Wire]) -> Wire:
        """Return a functionResponse, with its text as `output` or `error`.

        Its media go into it for models that support them there, and into `beside` for others.
        """
        name = result.name or self._names.get(result.call_id, "")
        if not name:
            raise InvalidRequest(f"The tool result for {result.call_id} has no tool call before it.", param="messages")
        texts = [part.text for part in result.parts if isinstance(part, Text | Refusal)]
        media = [self._write_part(part) for part in result.parts if not isinstance(part, Text | Refusal)]
        response: Wire = {
            "name": name,
            "response": {"error" if result.is_error else "output": "\n".join(texts)},
        }
        if result.call_id:
            response["id"] = result.call_id
        inside: list[Wire] = []
        outside: list[Wire] = []
        for part in media:
            if self._traits.media_results and _fits_inside(part):
                inside.append(part)
            else:
                outside.append(part)
        if inside:
            response["parts"] = inside
        if outside:
            beside += [{"text": f"Output of {name} (call {result.call_id}):"}, *outside]
        return _with_beside(result, {"functionResponse": response})

    def _write_part(self, part: Part) -> Wire:
        """Return a part of a content. NotSupported for parts that the format has no field for."""
        match part:
            case Text():
                return _with_beside(part, {"text": part.text})
            case Refusal():
                return {"text": part.text}
            case Image(media=media) | Video(media=media) | File(media=media):
                return _with_beside(part, self._write_media(media, FALLBACKS[type(part)]))
            case Audio(media=media):
                subtype = part.format.replace("mpga", "mpeg")
                written = self._write_media(media, f"audio/{subtype}" if subtype else FALLBACKS[Audio])
                return _with_beside(part, written)
            case VendorPart(vendor=vendor, body=body) if vendor == NAME:
                return body
            case _:
                name = type(part).__name__.lower()
                raise NotSupported(f"This provider does not take a part of type {name} here.", param="messages")

    def _write_media(self, media: Media, fallback: str) -> Wire:
        """Return inlineData, or fileData with a URL (https, gs:// or an uploaded file)."""
        if media.data:
            return {"inlineData": {"mimeType": media.media_type or fallback, "data": media.data}}
        uri = media.url or media.file_id
        if uri.startswith(OWN_FILES):
            uri = f"{self._address}/{uri}"
        if not uri.startswith(ADDRESSES):
            raise NotSupported("This provider does not know this file.", param="messages")
        guessed = mimetypes.guess_type(uri.partition("?")[0])[0]
        if fallback in READABLE and media.url and self._must_fetch(uri, media.media_type or guessed):
            raise ContentNeeded("This model does not load this URL; send the content as base64.", param="messages")
        return {"fileData": {"fileUri": uri, "mimeType": media.media_type or guessed or fallback}}

    def _must_fetch(self, uri: str, kind: str | None) -> bool:
        """Return whether the model does not load a web URL: it loads only https URLs of a known media type, and the
        oldest models load none (guide, file input methods)."""
        if not uri.startswith(WEB):
            return False
        return not kind or not uri.startswith("https://") or self._traits.generation <= OLDEST

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)


def _with_beside(part: Text | Image | Audio | Video | File | ToolCall | ToolResult, written: Wire) -> Wire:
    """Return a written part with the members beside it that only this vendor reads."""
    if part.beside is None or part.beside.vendor != NAME:
        return written
    return {**part.beside.body, **written}


def _fits_inside(part: Wire) -> bool:
    return "inlineData" in part and part["inlineData"]["mimeType"] in RESULT_TYPES
