"""Files of a prompt as neutral parts: images, audio, text and documents, by URL or as bytes."""

from base64 import b64decode

from gateway.errors import InvalidRequest
from gateway.neutral.encoded import PIECE_LENGTH, decode_base64, decode_pieces, normalize_base64
from gateway.neutral.parts import WEB, Audio, CacheMark, File, Image, Media, Part, Text, sound_format
from gateway.surfaces.aisdk import schema as wire
from gateway.surfaces.media_urls import DATA_START, split_data_url
from gateway.surfaces.validation_errors import invalid

IMAGE = "image"
AUDIO = "audio"
TEXT = "text"
# Base64 of the first bytes of image formats (from their specifications), for callers who send only "image" as the
# type.
STARTS = (("iVBORw0KGgo", "png"), ("/9j/", "jpeg"), ("R0lGOD", "gif"), ("UklGR", "webp"))
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
        if kind == family or kind.endswith("/*"):
            known = ""
        else:
            known = kind
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
    if family == IMAGE:
        return Image(media, cache=mark)
    if family == AUDIO:
        return Audio(media, sound_format(media.media_type))
    return File(media, name, cache=mark)


def _sniff(family: str, data: str) -> str:
    """Return the media type that the first bytes show; the most common image type where they show none."""
    if family != IMAGE:
        if family == AUDIO:
            return f"{family}/wav"
        return "application/octet-stream"
    return f"{IMAGE}/" + next((kind for start, kind in STARTS if data.startswith(start)), "png")


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
        return (decode_base64(data) if len(data) > PIECE_LENGTH else b64decode(data, validate=False)).decode()
    except ValueError:
        raise invalid(path, "it is not base64 of UTF-8 text") from None


def _with_name(text: str, name: str, mark: CacheMark | None) -> Text:
    """Return a text file as text, which every vendor reads."""
    return Text(f"{name}\n\n{text}" if name else text, mark)
