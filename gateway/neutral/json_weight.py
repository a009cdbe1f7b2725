"""The memory that a JSON text takes with what is made of it, estimated before it is decoded.

A list of short texts takes ten to thirty times the bytes of its JSON, and a text with one emoji four times its own.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gateway.neutral.json_parts import COMMA, LARGE, OPENING, STRINGS, StringPieces, count_marks, outside_strings
from gateway.runtime.threads import compute_if


class ByteWeights(NamedTuple):
    """Bytes of an object or a list with what is made of it, and of each further value."""

    opening: int
    comma: int


# Measured for two letters in each part: 150 to 250 with the values in chats and messages, which become structs; 580 to
# 810 in items of responses, 430 in Gemini's contents, and 250 in other JSON, which become dictionaries first.
STRUCTS = ByteWeights(128, 64)
DICTIONARIES = ByteWeights(640, 64)
# Copies of a text beside its decoded strings: the body itself, and the body for the provider.
COPIES = 2
# An estimate over this and over EXACT_FACTOR times the text is computed again without the contents of strings, where
# brackets and commas of code stand; except where strings are short, since each takes more than a microsecond. A wide
# character counts for all of a text, so texts with some are measured from fewer bytes on.
EXACT_FROM = 4 << 20
EXACT_FROM_WIDE = 1 << 20
EXACT_FACTOR = 4
STRING_BYTES = 16
WIDE = 4
# Characters for which a text takes four bytes each, or two: raw and as escapes. One pattern for both takes ten times as
# long.
FOUR = (re.compile(rb"[\xf0-\xf4]"), re.compile(rb"\\u[dD][89abAB]"))
TWO = (re.compile(rb"[\xc4-\xf4]"), re.compile(rb"\\u(?!00)"))


def weigh(raw: bytes, weights: ByteWeights = DICTIONARIES) -> int:
    """Return the bytes that a JSON text, what is decoded from it and its copy for a provider take."""
    return compute_if(len(raw) > LARGE, _weigh, raw, weights)


def _weigh(raw: bytes, weights: ByteWeights) -> int:
    width = _width(raw)
    opening, commas = count_marks(raw)
    structure = opening * weights.opening + commas * weights.comma
    rough = len(raw) * (COPIES + width) + structure
    strings = raw.count(b'"') - raw.count(b'\\"')
    least = EXACT_FROM_WIDE if width == WIDE else EXACT_FROM
    if rough < least or rough < EXACT_FACTOR * len(raw) or strings * STRING_BYTES > len(raw):
        return rough
    if structure > EXACT_FROM:
        structure = _structure(raw, weights)
    return COPIES * len(raw) + structure + (len(raw) if width == 1 else _texts(raw))


def _width(text: bytes) -> int:
    """Return the bytes that a character of a text takes at most."""
    raw = not text.isascii()
    escaped = b"\\u" in text
    for width, (bare, escape) in ((WIDE, FOUR), (2, TWO)):
        if (raw and bare.search(text)) or (escaped and escape.search(text)):
            return width
    return 1


def _structure(raw: bytes, weights: ByteWeights) -> int:
    """Return the bytes of the values outside of strings."""
    total = 0
    for bare in outside_strings(raw):
        total += weights.opening * sum(map(bare.count, OPENING)) + weights.comma * bare.count(COMMA)
    return total


def _texts(raw: bytes) -> int:
    """Return the bytes of the strings: each takes the width of its widest character for all of them."""
    total = len(raw)
    length = 0
    width = 1
    for piece, ends in _strings(raw):
        length += len(piece)
        width = max(width, _width(piece))
        if ends:
            total += length * (width - 1)
            length = 0
            width = 1
    return total + length * (width - 1)


def _strings(raw: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the strings in pieces, with whether each ends its string."""
    pieces = StringPieces(raw)
    for piece, start in pieces:
        if start:
            yield piece[:start], not pieces.inside
        for found in STRINGS.finditer(piece, start):
            pieces.inside = not found[1]
            yield found[0], not pieces.inside
