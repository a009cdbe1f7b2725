"""Repair of lone surrogates in JSON texts.

Programs with UTF-16 strings sometimes cut an emoji in two and write each half as its own escape, which JSON parsers
reject.
"""

import re
from collections.abc import Iterator

HALF_PAIR = rb"\\u[dD][%b][0-9a-fA-F]{2}"
FIRST = HALF_PAIR % b"89abAB"
SECOND = HALF_PAIR % b"c-fC-F"
HALF_BYTES = 6
# After an even number of backslashes, so that the backslash of the escape is not itself escaped.
ESCAPE = rb"(?<!\\)((?:\\\\)*+)"
LONE_SURROGATE = re.compile(rb"%b(?:%b(?!%b)|(?<!%b)%b)" % (ESCAPE, FIRST, SECOND, FIRST, SECOND))
# A fast check for candidates: the pattern starts with a literal prefix, which the engine searches quickly.
CANDIDATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!%b)|[c-fC-F][0-9a-fA-F]{2}(?<!%b%b))" % (SECOND, FIRST, SECOND)
)
ENDING = re.compile(rb'%b(%b)(?=")' % (ESCAPE, FIRST))
CUT_BEGINNING = re.compile(rb'(?<=")(?=%b)' % SECOND)
PAIR = re.compile(FIRST + SECOND)
ESCAPES = re.compile(rb"(?<!\\)\\")
REPLACEMENT = rb"\1\\ufffd"
PIECE_BYTES = 1 << 16  # bytes of one substitution, which holds the interpreter lock for at most about 8 ms
MAX_LENGTH = 1 << 22  # Longer texts stay unchanged; parts of a stream are joined only up to PIECE_BYTES.


def without_halves(text: bytes) -> bytes:
    """Replace each lone surrogate by the replacement character; the length stays the same."""
    if len(text) > MAX_LENGTH or CANDIDATE.search(text) is None:
        return text
    return b"".join(LONE_SURROGATE.sub(REPLACEMENT, piece) for piece in _pieces(text))


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut the text in front of escapes, but not within a surrogate pair."""
    at = 0
    while at < len(text):
        escape = ESCAPES.search(text, at + PIECE_BYTES)
        end = escape.start() if escape is not None else len(text)
        if PAIR.match(text, end - HALF_BYTES):
            end += HALF_BYTES
        yield text[at:end]
        at = end


def join_halves(text: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Remove lone surrogates from the next piece of a JSON stream.

    Return the text and the first half of a pair at its end (b"" for none); `before` is the half that the previous
    piece ended with, and is inserted where a string begins with the second half.
    """
    half = b""
    if len(text) <= PIECE_BYTES:
        if before:
            text = CUT_BEGINNING.sub(before.replace(b"\\", b"\\\\"), text, 1)
        ends = list(ENDING.finditer(text))
        if ends:
            start, end = ends[-1].span(2)
            half = text[start:end]
            text = text[:start] + text[end:]
    return without_halves(text), half
