"""Writes neutral messages as the `input` items of an OpenAI Responses body.

Items have no ids, because the upstream stores nothing that an id could refer to.
"""

from typing import Any

from msgspec import to_builtins

from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.openai import RESPONSES_LIMIT, shorten
from gateway.errors import NotSupported, SealedElsewhere
from gateway.neutral.parts import (
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
)
from gateway.providers.unsupported_parts import GENERATED

OMITTED_CALLS = "Calls of another provider's server tools in past turns were left out."
OMITTED_COMPACTION = "An earlier part of the conversation, which another account compacted, was left out."
Item = dict[str, Any]


class InputWriter:
    """Writes messages in order. Images and files of the assistant follow in a user message, because an assistant
    message must not contain them."""

    def __init__(self, origin: str, unseals: bool, warnings: list[str]) -> None:
        self._origin = origin
        self._unseals = unseals
        self._warnings = warnings
        self._items: list[Item] = []
        self._custom: set[str] = set()

    def write(self, messages: tuple[Message, ...]) -> list[Item]:
        """Return the items. NotSupported for content that this format cannot carry."""
        for message in messages:
            if message.role == "assistant":
                self._add_assistant(message)
            elif message.role == "tool":
                self._add_results(message)
            else:
                self._add_message(message.role, message.parts)
        return self._items

    def _add_message(self, role: str, parts: tuple[Part, ...]) -> None:
        if parts and isinstance(parts[0], VendorPart) and parts[0].kind in (dialect.APPROVAL, dialect.TRIGGER):
            self._items.append(parts[0].body)
            return
        content = [write_part(part) for part in parts]
        plain = len(content) == 1 and content[0]["type"] == "input_text"
        self._items.append({"type": "message", "role": role, "content": content[0]["text"] if plain else content})

    def _add_results(self, message: Message) -> None:
        waiting: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._items.append(self._write_result(part))
            else:
                waiting.append(part)
        if waiting:
            self._add_message("user", tuple(waiting))

    def _write_result(self, result: ToolResult) -> Item:
        kind = "custom_tool_call_output" if result.call_id in self._custom else "function_call_output"
        content = [write_part(part) for part in result.parts]
        output: Any = content
        if all(part["type"] == "input_text" for part in content):
            output = "\n".join(part["text"] for part in content)
            if result.is_error and not output.lower().startswith("error"):
                output = f"Error: {output}"
        elif result.is_error:
            output = [{"type": "input_text", "text": "Error:"}, *content]
        return {"type": kind, "call_id": shorten(result.call_id, RESPONSES_LIMIT), "output": output}

    def _add_assistant(self, message: Message) -> None:
        media: list[Part] = []
        for part in message.parts:
            match part:
                case Reasoning():
                    self._add_reasoning(part)
                case Text() | Refusal():
                    if part.text:
                        self._items.append({"type": "message", "role": "assistant", "content": part.text})
                case ToolCall(executed=""):
                    self._items.append(self._write_call(part))
                case ToolCall() | ToolResult():
                    self._warnings.append(OMITTED_CALLS)
                case VendorPart(vendor=dialect.NAME):
                    self._items += retarget([part.body], self._origin, self._unseals, self._warnings)
                case VendorPart():
                    raise NotSupported(f"This provider does not support a part of type {part.kind}.", param="messages")
                case _:
                    media.append(part)
        if media:
            self._add_message("user", (Text(GENERATED), *media))

    def _add_reasoning(self, part: Reasoning) -> None:
        """Add reasoning that the target's account encrypted. No other account can decrypt it, so other reasoning is
        left out."""
        sealed = open_seal(part.sealed, self._origin) if part.vendor == dialect.NAME and self._unseals else ""
        if sealed:
            summary = [{"type": "summary_text", "text": part.text}] if part.text and part.summary else []
            self._items.append({"type": "reasoning", "summary": summary, "encrypted_content": sealed})

    def _write_call(self, call: ToolCall) -> Item:
        ident = shorten(call.id, RESPONSES_LIMIT)
        if call.custom:
            self._custom.add(call.id)
            return {"type": "custom_tool_call", "call_id": ident, "name": call.name, "input": call.arguments}
        return {"type": "function_call", "call_id": ident, "name": call.name, "arguments": call.arguments or "{}"}


def open_seal(text: str, origin: str) -> str:
    """Return the payload of an opaque token from the account `origin`, "" for another account; other text unchanged."""
    token = dialect.read_token(text)
    if token is None:
        return text
    if token.vendor == dialect.NAME and token.origin == origin:
        return token.payload
    return ""


def retarget(items: Any, origin: str, unseals: bool, warnings: list[str]) -> Any:
    """Return a relayed `input` for the account `origin`, with its opaque tokens opened, other accounts' reasoning
    removed, and call ids within the service's limit.

    SealedElsewhere when only another account can read a compaction, because that replaces all earlier messages. Unless
    the account `unseals`, everything encrypted is left out, with a warning for a compaction.
    """
    if not isinstance(items, list):
        return items
    retargeted = []
    for item in items:
        ident = item.get("call_id") if type(item) is dict else getattr(item, "call_id", None)
        if type(ident) is str and len(ident) > RESPONSES_LIMIT:
            item = {**to_builtins(item), "call_id": shorten(ident, RESPONSES_LIMIT)}
        sealed = item.get("encrypted_content") if type(item) is dict else None
        if not sealed or (unseals and dialect.read_token(sealed) is None):
            retargeted.append(item)
            continue
        opened = open_seal(sealed, origin) if unseals else ""
        if opened:
            retargeted.append({**item, "encrypted_content": opened})
        elif item.get("type") == "reasoning":
            continue
        elif unseals:
            raise SealedElsewhere("Another account compacted this conversation.", param="input")
        else:
            warnings.append(OMITTED_COMPACTION)
    return retargeted


def write_part(part: Part) -> Item:
    """Return a content part of a message or a tool's output. NotSupported for a part that the format has no field
    for."""
    match part:
        case Text() | Refusal():
            return {"type": "input_text", "text": part.text}
        case VendorPart(vendor=dialect.NAME):
            return part.body
        case Image(media=media) if media.url or media.data or media.file_id:
            image: Item = {"type": "input_image", "detail": part.detail or "auto"}
            if media.file_id:
                return image | {"file_id": media.file_id}
            return image | {"image_url": media.url or media.inline("image/png")}
        case File(media=media) if media.file_id:
            return {"type": "input_file", "file_id": media.file_id}
        case File(media=media) if media.url:
            return {"type": "input_file", "file_url": media.url}
        case File(media=media) if media.data:
            data = media.inline("application/pdf")
            return {"type": "input_file", "filename": part.filename or part.title or "file", "file_data": data}
        case _:
            name = type(part).__name__.lower()
            raise NotSupported(f"This provider does not support a part of type {name} in this form.", param="messages")
