"""The memory that a JSON text takes with what is made of it, estimated before it is decoded.

A list of short texts takes ten to thirty times the bytes of its JSON, and a text with one emoji four times its own.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from sys import getsizeof
from typing import NamedTuple

from gateway.neutral.json_parts import (
    COMMA,
    LARGE,
    LARGE_WITHOUT_PARTS,
    OPENING,
    SLICE,
    STRINGS,
    Marks,
    StringPieces,
    count_marks,
    outside_strings,
)
from gateway.runtime.threads import compute, compute_if


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
# Escaped characters for which a text takes four bytes each, or two. One pattern for both takes ten times as long.
ESCAPE = b"\\u"
FOUR = re.compile(rb"\\u[dD][89abAB]")
TWO = re.compile(rb"\\u(?!00)")
HEAD_BYTES = 100  # more than Python takes for a text beside its characters
DECODER = getincrementaldecoder("utf-8")  # of pieces that may begin or end within a character


def weigh(raw: bytes, weights: ByteWeights = DICTIONARIES, marks: Marks | None = None) -> int:
    """Return the bytes that a JSON text, what is decoded from it and its copy for a provider take. `marks` are those of
    the text where they were counted before."""
    length = len(raw)
    if length >= LARGE_WITHOUT_PARTS:
        return compute(_weigh, raw, weights, marks)
    return _weigh(raw, weights, marks)


def _weigh(raw: bytes, weights: ByteWeights, marks: Marks | None) -> int:
    length = len(raw)
    width = _width(raw)
    opening, commas = marks or count_marks(raw)
    structure = opening * weights.opening + commas * weights.comma
    rough = length * (COPIES + width) + structure
    least = EXACT_FROM_WIDE if width == WIDE else EXACT_FROM
    if rough < least or rough < EXACT_FACTOR * length:
        return rough
    strings = raw.count(b'"') - raw.count(b'\\"')
    if strings * STRING_BYTES > length:
        return rough
    return compute_if(length > LARGE, _weigh_exactly, raw, weights, width, structure)


def _weigh_exactly(raw: bytes, weights: ByteWeights, width: int, structure: int) -> int:
    if structure > EXACT_FROM:
        structure = _structure(raw, weights)
    return COPIES * len(raw) + structure + (len(raw) if width == 1 else _texts(raw))


def _width(text: bytes) -> int:
    """Return the bytes that a character of a text takes at most."""
    width = 1 if text.isascii() else _raw_width(text)
    # Searched from the end, which is twice as fast for two bytes.
    if width < WIDE and text.rfind(ESCAPE) >= 0:
        for wider, escape in ((WIDE, FOUR), (2, TWO)):
            if escape.search(text):
                return max(width, wider)
    return width


def _raw_width(text: bytes) -> int:
    """Return the width of the characters that are not escaped: Python's decoder finds it faster than a pattern."""
    if len(text) <= SLICE:
        return _width_of(text.decode("utf-8", "ignore"))
    decoder = DECODER("ignore")
    return max(_width_of(decoder.decode(text[at : at + SLICE])) for at in range(0, len(text), SLICE))


def _width_of(text: str) -> int:
    """Return the bytes that Python takes for each character of a text."""
    if len(text) > HEAD_BYTES:
        return getsizeof(text) // len(text)
    return (getsizeof(text + text) - getsizeof(text)) // len(text) if text else 1


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
