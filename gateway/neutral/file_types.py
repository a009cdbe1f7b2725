"""Detection of media types by the first bytes of a file, never by its name (source: the formats' specifications)."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

# Base64 decoding in pieces: one call for many megabytes would block every other thread.

BASE64_PIECE_LENGTH = 1 << 20  # characters, a multiple of four
TO_STANDARD = str.maketrans("-_", "+/", " \t\r\n")  # URL-safe base64, and wrapped lines


def decode_base64(text: str) -> bytes:
    """Decode standard base64. Raise ValueError for anything else, including line breaks."""
    return b"".join(decode_pieces(text))


def decode_pieces(text: str, start: int = 0) -> Iterator[bytes]:
    """Decode the text from `start` on, one piece at a time, to bound the memory."""
    if (len(text) - start) % 4 or text.find("=", start, max(start, len(text) - 2)) >= 0:
        raise ValueError("the base64 text has padding in its middle or an incomplete group")
    for at in range(start, len(text), BASE64_PIECE_LENGTH):
        yield b64decode(text[at : at + BASE64_PIECE_LENGTH], validate=True)


def normalize_base64(text: str) -> str:
    """Normalize base64 as lenient readers accept it: URL-safe alphabet, line breaks, missing padding."""
    standard = text.translate(TO_STANDARD)
    return standard + "=" * (-len(standard) % 4)


HEAD_BYTES = 16  # bytes that are enough to recognize every type
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"#!AMR", "audio/amr"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)
# Container formats have their brand after the length; unlisted brands of `ftyp` are video.
BRANDS = {
    b"avif": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"M4A ": "audio/mp4",
}
MP4 = "video/mp4"
RIFFS = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
AIFFS = (b"AIFF", b"AIFC")


def type_of(head: bytes) -> str:
    """Return the media type of a file with these first bytes; "" if it is unknown."""
    if head[:4] == b"RIFF":
        return RIFFS.get(head[8:12], "")
    if head[:4] == b"FORM":
        if head[8:12] in AIFFS:
            return "audio/aiff"
        return ""
    if head[4:8] == b"ftyp":
        return BRANDS.get(head[8:12], MP4)
    return next((kind for start, kind in SIGNATURES if head.startswith(start)), "") or _frame_of(head)


def _frame_of(head: bytes) -> str:
    """Recognize MPEG audio by the sync word of a frame; layer 0 is ADTS, which carries AAC.

    Layer I is not recognized: it is not used in practice, and UTF-16 texts begin with the same bytes.
    """
    if len(head) < 2 or head[0] != 0xFF:
        return ""
    if head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    if head[1] & 0xE0 == 0xE0 and head[1] & 0x06 in (0x02, 0x04):
        return "audio/mpeg"
    return ""


# Inline media within JSON of types that the gateway does not know: data URLs, and base64 in a member `data`.

DATA_URL = "data:"
ENCODED = ";base64,"
DATA = "data"  # the member of inline media in most formats
SHORTEST = 64  # characters; a shorter text in the member is no file


def inline_media(body: Any) -> Iterator[tuple[str, int]]:
    """Yield the base64 text of each file, and the length of the JSON text that has it."""
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not isinstance(inner, str):
                    left.append(inner)
                elif inner.startswith(DATA_URL) and ENCODED in inner[:256]:
                    yield inner.partition(ENCODED)[2], len(inner)
                elif name == DATA and len(inner) >= SHORTEST and _is_base64(inner):
                    yield inner, len(inner)


def _is_base64(text: str) -> bool:
    try:
        for _ in decode_pieces(normalize_base64(text)):
            continue
    except ValueError:
        return False
    return True
