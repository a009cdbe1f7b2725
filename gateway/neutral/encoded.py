"""Base64 decoding in pieces: one call for many megabytes would block every other thread."""

from base64 import b64decode
from collections.abc import Iterator

PIECE_LENGTH = 1 << 20  # characters, a multiple of four
TO_STANDARD = str.maketrans("-_", "+/", " \t\r\n")  # URL-safe base64, and wrapped lines


def decode_base64(text: str) -> bytes:
    """Decode standard base64. Raise ValueError for anything else, including line breaks."""
    return b"".join(decode_pieces(text))


def decode_pieces(text: str, start: int = 0) -> Iterator[bytes]:
    """Decode the text from `start` on, one piece at a time, to bound the memory."""
    if (len(text) - start) % 4 or text.find("=", start, max(start, len(text) - 2)) >= 0:
        raise ValueError("the base64 text has padding in its middle or an incomplete group")
    for at in range(start, len(text), PIECE_LENGTH):
        yield b64decode(text[at : at + PIECE_LENGTH], validate=True)


def normalize_base64(text: str) -> str:
    """Normalize base64 as lenient readers accept it: URL-safe alphabet, line breaks, missing padding."""
    standard = text.translate(TO_STANDARD)
    return standard + "=" * (-len(standard) % 4)
