"""Base64 of many megabytes, decoded in pieces: one call for all of it would keep every other thread waiting."""

from base64 import b64decode
from collections.abc import Iterator

PIECE = 1 << 20  # characters, a multiple of four
TO_STANDARD = str.maketrans("-_", "+/", " \t\r\n")  # base64 of addresses, and lines that were wrapped


def decode_base64(text: str) -> bytes:
    """The bytes of standard base64. ValueError for anything else, line breaks among it."""
    return b"".join(decode_pieces(text))


def decode_pieces(text: str, start: int = 0) -> Iterator[bytes]:
    """The same of a text from `start` on, a piece at a time, so that no more is in memory at once."""
    if (len(text) - start) % 4 or text.find("=", start, max(start, len(text) - 2)) >= 0:
        raise ValueError("the end stands before the end")
    for at in range(start, len(text), PIECE):
        yield b64decode(text[at : at + PIECE], validate=True)


def mended(text: str) -> str:
    """The text as lenient readers of base64 take it: the alphabet of addresses, line breaks, a missing end."""
    standard = text.translate(TO_STANDARD)
    return standard + "=" * (-len(standard) % 4)
