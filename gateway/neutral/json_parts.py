"""How many parts a JSON text has, counted without decoding it: each takes memory, and time of a call in which no other
thread of the process has its turn."""

import re

from gateway.runtime.threads import compute, give_way

SLICE = 1 << 18  # bytes counted between two turns of the event loop: 4 ms where all are commas
PIECE = 1 << 18  # bytes of one match at most: it holds the interpreter, some 10 ms a megabyte
# Strings as a whole, so that what stands in them is no structure. Possessive: a string without end is read once. The
# group is its end, empty where the piece ends before it.
INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{\[,]', re.DOTALL)
BACKSLASH = 0x5C
COMMA = b","
OPENING = (b"{", b"[")
STRUCTURE = (b"{", b"[", COMMA)


def has_more_parts(raw: bytes, most: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Whether a JSON text has more than `most` parts, or of these `marks`."""
    if len(raw) <= most:
        return False
    opening, commas = count_marks(raw)
    return opening + (commas if COMMA in marks else 0) > most and compute(has_more, raw, most, marks)


def count_marks(raw: bytes) -> tuple[int, int]:
    """Marks that open something, and commas; most of them may stand in texts."""
    opening = commas = 0
    for start in range(0, len(raw), SLICE):
        opening += sum(raw.count(mark, start, start + SLICE) for mark in OPENING)
        commas += raw.count(b",", start, start + SLICE)
        give_way()
    return opening, commas


def has_more(raw: bytes, most: int, marks: tuple[bytes, ...] = STRUCTURE) -> bool:
    """Whether there are more marks of structure outside of strings; in pieces, so that others have their turn."""
    found = 0
    at = 0
    inside = False
    while at < len(raw):
        end = _end_of_piece(raw, at + PIECE)
        piece = raw[at:end]
        start = 0
        if inside and (rest := INSIDE.match(piece)) is not None:
            start = rest.end()
            inside = not rest[1]
        for token in TOKENS.finditer(piece, start):
            closing = token[1]
            if closing is None:
                found += token[0] in marks
                if found > most:
                    return True
            else:
                inside = not closing
        at = end
    return False


def _end_of_piece(raw: bytes, end: int) -> int:
    """Where a piece ends that is to end at `end`: behind no backslash, since what follows belongs to it."""
    while end < len(raw) and raw[end - 1] == BACKSLASH:
        end += 1
    return end
