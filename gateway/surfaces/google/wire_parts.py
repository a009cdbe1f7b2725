"""Converts the parts of contents to neutral parts."""

from typing import Any

import orjson
from msgspec import to_builtins

from gateway.dialects.google import NAME
from gateway.neutral.encoded import decode_base64, decode_pieces, normalize_base64
from gateway.neutral.hosted_uses import STORAGE_HOSTS, is_stored
from gateway.neutral.parts import (
    WEB,
    Audio,
    File,
    Image,
    Media,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
    Video,
    sound_format,
)
from gateway.surfaces.google import schema
from gateway.surfaces.google.opaque_tokens import SignedData, is_enveloped, read_signature
from gateway.surfaces.validation_errors import invalid

# Values that clients send in place of a signature that they do not have (guide, thought signatures).
NO_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
NAME_LENGTH = 64  # characters of an unknown member in a warning
SERVER_PARTS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
TEXT_TYPES = ("text/", "application/json", "application/xml")
OWN_HOSTS = (*STORAGE_HOSTS, "www.youtube.com", "youtube.com", "youtu.be")


def signed_of(part: schema.WirePart) -> SignedData:
    """Return the opaque data of a part."""
    signature = part.thoughtSignature or ""
    if signature in NO_SIGNATURES:
        return SignedData()
    return read_signature(signature)


def read_text(part: schema.WirePart) -> Text | Reasoning | None:
    """Return a text or a thought; None for an empty one that no vendor needs back."""
    signed = signed_of(part)
    text = part.text or ""
    opaque = bool(signed.signature or signed.sealed or signed.ident)
    if part.thought:
        summary = signed.summary or signed.vendor == NAME
        if not text and not opaque:
            return None
        return Reasoning(text, signed.signature, signed.sealed, signed.vendor, signed.ident, summary)
    if not text and signed.vendor != NAME:
        return None
    return Text(text, signature=signed.signature, vendor=signed.vendor)


def read_call(part: schema.WirePart, call: schema.FunctionCall, ident: str) -> ToolCall:
    """Return a call; `ident` is its id, which the format may leave out."""
    signed = signed_of(part)
    arguments = orjson.dumps(call.args or {}).decode()
    return ToolCall(ident, call.name, arguments, signed.signature, signed.vendor)


def read_result(result: schema.FunctionResponse, ident: str, path: str) -> ToolResult:
    """Return a result. Its JSON is the text, except for an object with one text, as clients wrap them."""
    parts: list[Part] = []
    response = result.response or {}
    failed = "error" in response and len(response) == 1
    text = _text_of(response)
    if text or not result.parts:
        parts.append(Text(text))
    for inner in result.parts or ():
        parts.append(read_media(inner.inlineData, inner.fileData, path))
    return ToolResult(ident, tuple(parts), result.name, failed)


def _text_of(response: dict[str, Any]) -> str:
    for name in ("output", "result", "error"):
        if response.keys() == {name}:
            value = response[name]
            return value if isinstance(value, str) else orjson.dumps(value).decode()
    return orjson.dumps(response).decode() if response else ""


def read_media(blob: schema.Blob | None, file: schema.FileAddress | None, path: str) -> Part:
    """Return inline media, or a file by its address. Raises InvalidRequest for neither."""
    if blob is not None:
        kind = blob.mimeType.partition(";")[0].strip().lower()
        if kind.startswith(TEXT_TYPES):
            return Text(_decoded(blob.data, path))
        return media_part(Media(kind, data=_checked(blob.data, path)), kind, blob.displayName or "")
    if file is None:
        raise invalid(path, "a part needs a text, media, a function call or a function response")
    kind = file.mimeType.lower()
    if file.fileUri.startswith(WEB):
        return media_part(Media(kind, url=file.fileUri), kind, file.displayName or "")
    return media_part(Media(kind, file_id=file.fileUri), kind, file.displayName or "")


def _checked(data: str, path: str) -> str:
    """Return base64 in the standard alphabet. Raises InvalidRequest for anything else."""
    standard = normalize_base64(data)
    try:
        for _ in decode_pieces(standard):
            continue
    except ValueError:
        raise invalid(f"{path}.inlineData.data", "expected base64") from None
    return standard


def _decoded(data: str, path: str) -> str:
    try:
        return decode_base64(normalize_base64(data)).decode("utf-8", "replace")
    except ValueError:
        raise invalid(f"{path}.inlineData.data", "expected base64") from None


def media_part(media: Media, kind: str, name: str) -> Part:
    """Return media by their type."""
    family = kind.partition("/")[0]
    if family == "image":
        return Image(media)
    if family == "audio":
        return Audio(media, sound_format(kind))
    if family == "video":
        return Video(media)
    return File(media, filename=name)


def is_own_file(file: schema.FileAddress) -> bool:
    """Return whether only the format's own vendor can read a file: one of its storage, or a video of its site."""
    if not file.fileUri.startswith(WEB):
        return True
    host = file.fileUri.split("/", 3)[2].lower()
    return host in OWN_HOSTS


def names_stored_file(file: schema.FileAddress) -> bool:
    """Return whether a file is an object of the vendor's storage, which belongs to the account that called."""
    return not file.fileUri.startswith(WEB) or is_stored(file.fileUri)


def with_unknown(part: schema.WirePart, read: Part) -> Part:
    """Return a text or inline media with the members beside it that are newer than this gateway: its vendor gets the
    part as the caller wrote it, others what was read."""
    if part.unknown is None or part.fileData is not None or is_enveloped(part.thoughtSignature or ""):
        return read
    return VendorPart(NAME, next(iter(schema.unknown_members(part.unknown)))[:NAME_LENGTH], part.unknown, (read,))


def read_server_part(part: schema.WirePart) -> VendorPart | None:
    """Return a part that the vendor's own tools wrote, or one of a type that is newer than this gateway; None for any
    other."""
    for kind in SERVER_PARTS:
        if getattr(part, kind) is not None:
            return VendorPart(NAME, kind, part.unknown or to_builtins(part))
    if part.unknown is not None and part.inlineData is None and part.fileData is None:
        return VendorPart(NAME, next(iter(schema.unknown_members(part.unknown)))[:NAME_LENGTH], part.unknown)
    return None
