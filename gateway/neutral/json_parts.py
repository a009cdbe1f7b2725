"""Counting the parts of a JSON text without decoding it.

Each part takes memory, and time in the JSON decoder, which blocks all other threads of the process.
"""

import re
from collections.abc import Iterator

from gateway.runtime.threads import compute, compute_if

SLICE = 1 << 18  # bytes counted at once, which holds the interpreter lock: about 0.3 ms
PIECE_BYTES = (
    1 << 18
)  # bytes of one regular expression match, which holds the interpreter lock for about 10 ms per megabyte
# Strings are matched as a whole, so that their contents do not count as structure. Possessive quantifiers read an
# unterminated string only once. The group is the closing quote; it is empty if the piece ends before it.
STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
BACKSLASH = 0x5C
COMMA = b","
OPENING = (b"{", b"[")
LARGE = 1 << 17  # bytes; a longer text with many parts is handled in a thread
# A text with few parts consists of strings, which are copied.
LARGE_WITHOUT_PARTS = 1 << 19
FEW_CONTAINERS = 1_000
BYTES_PER_COMMA = 32  # fewer bytes between commas are numbers, or small values
MANY_CONTAINERS, BYTES_PER_VALUE = 8_000, 12  # the same for the decoder alone
STRUCTURE = (*OPENING, COMMA)
OTHERS = bytes(byte for byte in range(256) if byte not in b"".join(STRUCTURE))
Marks = tuple[int, int]  # the opening brackets and the commas of a text, including those within strings


def is_large(raw: bytes) -> bool:
    """Return whether a JSON text is decoded, translated and written in a thread.

    A thread waits for the interpreter while the event loop is busy, which takes longer than decoding a simple text.
    """
    if len(raw) < LARGE:
        return False
    return len(raw) >= LARGE_WITHOUT_PARTS or has_many(count_marks(raw), len(raw))


def has_many(marks: Marks, length: int) -> bool:
    """Return whether a text of fewer than LARGE_WITHOUT_PARTS bytes is large for its number of parts."""
    opening, commas = marks
    return length >= LARGE and (opening > FEW_CONTAINERS or commas * BYTES_PER_COMMA > length)


def takes_long(marks: Marks, length: int) -> bool:
    """Return whether the JSON decoder takes more than a millisecond or two. Source code and JSON within strings have as
    many marks as a thousand objects, and are copied."""
    opening, commas = marks
    if length < LARGE:
        return False
    return length >= LARGE_WITHOUT_PARTS or opening > MANY_CONTAINERS or commas * BYTES_PER_VALUE > length


def has_more_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether a JSON text has more than `maximum` parts, or more than `maximum` of these `marks`."""
    if len(raw) <= maximum:
        return False
    return compute_if(len(raw) > SLICE, _count_parts, raw, maximum, marks)


def _count_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...]) -> bool:
    opening, commas = count_marks(raw)
    return opening + (commas if COMMA in marks else 0) > maximum and compute(has_more, raw, maximum, marks)


def count_marks(raw: bytes) -> Marks:
    """Count the opening brackets and the commas, including those within strings; for long texts in `compute`."""
    opening = commas = 0
    for start in range(0, len(raw), SLICE):
        # All others are removed first: each count reads all bytes that it is given.
        marks = raw[start : start + SLICE].translate(None, OTHERS)
        count = marks.count(COMMA)
        commas += count
        opening += len(marks) - count
    return opening, commas


def has_more(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether there are more marks outside of strings than `maximum`; works in pieces so that other threads can
    run.
    """
    count = 0
    for bare in outside_strings(raw):
        count += sum(map(bare.count, marks))
        if count > maximum:
            return True
    return False


class StringPieces:
    """The pieces of a JSON text, each with the place in it where the string ends that the piece before began.

    The reader sets `inside` after each piece: whether the piece ended within a string.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.inside = False

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        raw = self._raw
        at = 0
        while at < len(raw):
            end = end_of_piece(raw, at + PIECE_BYTES)
            piece = raw[at:end]
            start = 0
            if self.inside and (rest := STRING_REST.match(piece)) is not None:
                start = rest.end()
                self.inside = not rest[1]
            yield piece, start
            at = end


def outside_strings(raw: bytes) -> Iterator[bytes]:
    """Yield a JSON text in pieces, with a quote in place of each string."""
    pieces = StringPieces(raw)
    for piece, start in pieces:
        bare, strings = STRINGS.subn(rb"\1", piece[start:])
        pieces.inside = pieces.inside or strings > bare.count(b'"')
        yield bare


def end_of_piece(raw: bytes, end: int) -> int:
    """Return the end of a piece near `end` that does not separate a backslash from its character."""
    while end < len(raw) and raw[end - 1] == BACKSLASH:
        end += 1
    return end
