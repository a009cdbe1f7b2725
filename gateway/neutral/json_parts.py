"""Counting the parts of a JSON text without decoding it.

Each part takes memory, and time in the JSON decoder, which blocks all other threads of the process.
"""

import re

from gateway.runtime.threads import compute, compute_if

SLICE = 1 << 18  # bytes counted at once, which holds the interpreter lock: about 0.3 ms
PIECE_BYTES = (
    1 << 18
)  # bytes of one regular expression match, which holds the interpreter lock for about 10 ms per megabyte
# Strings are matched as a whole, so that their contents do not count as structure. Possessive quantifiers read an
# unterminated string only once. The group is the closing quote; it is empty if the piece ends before it.
STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{\[,]', re.DOTALL)
BACKSLASH = 0x5C
COMMA = b","
OPENING = (b"{", b"[")
LARGE = 1 << 17  # bytes; a longer text with many parts is handled in a thread
# A text with few parts consists of strings, which are copied.
LARGE_WITHOUT_PARTS = 1 << 19
FEW_CONTAINERS = 1_000
BYTES_PER_COMMA = 32  # fewer bytes between commas are numbers, or small values
STRUCTURE = (*OPENING, COMMA)


def is_large(raw: bytes) -> bool:
    """Return whether a JSON text is decoded, translated and written in a thread.

    A thread waits for the interpreter while the event loop is busy, which takes longer than decoding a simple text.
    """
    if len(raw) < LARGE:
        return False
    if len(raw) >= LARGE_WITHOUT_PARTS:
        return True
    opening, commas = count_marks(raw)
    return opening > FEW_CONTAINERS or commas * BYTES_PER_COMMA > len(raw)


def has_more_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether a JSON text has more than `maximum` parts, or more than `maximum` of these `marks`."""
    if len(raw) <= maximum:
        return False
    return compute_if(len(raw) > SLICE, _count_parts, raw, maximum, marks)


def _count_parts(raw: bytes, maximum: int, marks: tuple[bytes, ...]) -> bool:
    opening, commas = count_marks(raw)
    return opening + (commas if COMMA in marks else 0) > maximum and compute(has_more, raw, maximum, marks)


def count_marks(raw: bytes) -> tuple[int, int]:
    """Count the opening brackets and the commas, including those within strings; for long texts in `compute`."""
    opening = commas = 0
    for start in range(0, len(raw), SLICE):
        opening += sum(raw.count(mark, start, start + SLICE) for mark in OPENING)
        commas += raw.count(COMMA, start, start + SLICE)
    return opening, commas


def has_more(raw: bytes, maximum: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Return whether there are more marks outside of strings than `maximum`; works in pieces so that other threads can
    run.
    """
    count = 0
    at = 0
    inside = False
    while at < len(raw):
        end = end_of_piece(raw, at + PIECE_BYTES)
        piece = raw[at:end]
        start = 0
        if inside and (rest := STRING_REST.match(piece)) is not None:
            start = rest.end()
            inside = not rest[1]
        for token in TOKENS.finditer(piece, start):
            closing = token[1]
            if closing is None:
                count += token[0] in marks
                if count > maximum:
                    return True
            else:
                inside = not closing
        at = end
    return False


def end_of_piece(raw: bytes, end: int) -> int:
    """Return the end of a piece near `end` that does not separate a backslash from its character."""
    while end < len(raw) and raw[end - 1] == BACKSLASH:
        end += 1
    return end
