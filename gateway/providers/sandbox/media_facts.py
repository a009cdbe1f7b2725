"""Reads type, size and tokens of images, audio, video and files."""

import mimetypes
from typing import Any

from msgspec import Struct

from gateway.neutral.encoded import decode_base64
from gateway.providers.sandbox.counting import IMAGE_TOKENS, count_media
from gateway.providers.sandbox.error_responses import refuse


class Attachment(Struct, frozen=True):
    """An image, audio clip, video or file. `note` describes it in an answer, e.g. `[image: image/png, 68 bytes]`."""

    kind: str
    note: str
    tokens: int


def read_part(part: dict[str, Any], param: str) -> Attachment | None:
    """Return the attachment in a checked content part; None for text. InvalidRequest for invalid base64."""
    match part["type"]:
        case "image_url":
            return _linked("image", part["image_url"]["url"], f"{param}.image_url.url")
        case "video_url":
            return _linked("video", part["video_url"]["url"], f"{param}.video_url.url")
        case "input_audio":
            audio = part["input_audio"]
            size = _size(audio["data"], f"{param}.input_audio.data")
            return _attach("audio", f"audio/{audio.get('format') or 'wav'}", size)
        case "file":
            return _file(part["file"], f"{param}.file")
    return None


def _file(file: dict[str, Any], param: str) -> Attachment:
    name = file.get("filename") or ""
    if file.get("file_data"):
        link = file["file_data"]
        if not link.startswith("data:"):
            media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
            link = f"data:{media_type};base64,{link}"
        return _linked("file", link, f"{param}.file_data", name)
    return Attachment("file", f"[file: {name or file.get('file_id') or file.get('file_url')}]", 0)


def _linked(kind: str, link: str, param: str, name: str = "") -> Attachment:
    if not link.startswith("data:"):
        return Attachment(kind, f"[{kind}: {link[:200]}]", IMAGE_TOKENS if kind == "image" else 0)
    head, comma, data = link[5:].partition(",")
    media_type, _, encoding = head.rpartition(";")
    if not comma or encoding != "base64":
        raise refuse(f"Invalid '{param}': expected a base64-encoded data URL.", param, "invalid_base64")
    return _attach(kind, media_type or "application/octet-stream", _size(data, param), name)


def _size(data: str, param: str) -> int:
    try:
        return len(decode_base64(data))
    except ValueError as error:
        raise refuse(f"Invalid '{param}': the base64 data cannot be decoded.", param, "invalid_base64") from error


def _attach(kind: str, media_type: str, size: int, name: str = "") -> Attachment:
    if name:
        label = f"{name}, {media_type}"
    else:
        label = media_type
    if kind == "image":
        tokens = IMAGE_TOKENS
    else:
        tokens = count_media(size)
    return Attachment(kind, f"[{kind}: {label}, {size} bytes]", tokens)
