"""The memory that a JSON text takes once it is decoded, estimated before it is.

A list of short texts takes ten to thirty times the bytes of its JSON, and a text with one emoji four times its own.
"""

import re
from collections.abc import Iterator

from gateway.neutral.json_parts import COMMA, LARGE, OPENING, PIECE_BYTES, STRING_REST, count_marks, end_of_piece
from gateway.runtime.threads import compute_if

# Bytes of an object or a list with what is made of it (measured: 150 in chats, 600 to 850 in responses, 430 in Gemini's
# contents, 250 in other JSON), and of each further value.
OPENING_BYTES = 512
COMMA_BYTES = 64
# An estimate over this and over EXACT_FACTOR times the text is computed again without the contents of strings, where
# brackets and commas of code stand; except where strings are short, since each takes more than a microsecond.
EXACT_FROM = 4 << 20
EXACT_FACTOR = 3
STRING_BYTES = 16
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)  # the group is empty where a piece ends first
# Characters for which a text takes four bytes each, or two: raw and as escapes. One pattern for both takes ten times as
# long.
FOUR = (re.compile(rb"[\xf0-\xf4]"), re.compile(rb"\\u[dD][89abAB]"))
TWO = (re.compile(rb"[\xc4-\xf4]"), re.compile(rb"\\u(?!00)"))


def weigh(raw: bytes) -> int:
    """Return the bytes that a JSON text and what is decoded from it take."""
    return compute_if(len(raw) > LARGE, _weigh, raw)


def _weigh(raw: bytes) -> int:
    width = _width(raw)
    opening, commas = count_marks(raw)
    rough = len(raw) * (1 + width) + opening * OPENING_BYTES + commas * COMMA_BYTES
    strings = raw.count(b'"') - raw.count(b'\\"')
    if rough < EXACT_FROM or rough < EXACT_FACTOR * len(raw) or strings * STRING_BYTES > len(raw):
        return rough
    structure = opening * OPENING_BYTES + commas * COMMA_BYTES
    if structure > EXACT_FROM:
        structure = _structure(raw)
    return len(raw) + structure + (len(raw) if width == 1 else _texts(raw))


def _width(text: bytes) -> int:
    """Return the bytes that a character of a text takes at most."""
    raw = not text.isascii()
    escaped = b"\\u" in text
    for width, (bare, escape) in ((4, FOUR), (2, TWO)):
        if (raw and bare.search(text)) or (escaped and escape.search(text)):
            return width
    return 1


def _structure(raw: bytes) -> int:
    """Return the bytes of the values outside of strings."""
    total = at = 0
    inside = False
    while at < len(raw):
        end = end_of_piece(raw, at + PIECE_BYTES)
        piece = raw[at:end]
        start = 0
        if inside and (rest := STRING_REST.match(piece)) is not None:
            start = rest.end()
            inside = not rest[1]
        bare, strings = STRINGS.subn(rb"\1", piece[start:])
        inside = inside or strings > bare.count(b'"')
        total += OPENING_BYTES * sum(map(bare.count, OPENING)) + COMMA_BYTES * bare.count(COMMA)
        at = end
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
    at = 0
    inside = False
    while at < len(raw):
        end = end_of_piece(raw, at + PIECE_BYTES)
        piece = raw[at:end]
        start = 0
        if inside and (rest := STRING_REST.match(piece)) is not None:
            start = rest.end()
            inside = not rest[1]
            yield rest[0], not inside
        for found in STRINGS.finditer(piece, start):
            inside = not found[1]
            yield found[0], not inside
        at = end
