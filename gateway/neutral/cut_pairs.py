"""Halves of surrogate pairs in JSON texts. Programs whose texts are UTF-16 cut emoji in two, and write each half as an
escape of its own, which is no text to any reader of JSON here.
"""

import re
from collections.abc import Iterator

HALF = rb"\\u[dD][%b][0-9a-fA-F]{2}"
FIRST = HALF % b"89abAB"
SECOND = HALF % b"c-fC-F"
HALF_BYTES = 6
# Behind an even number of backslashes: the one that begins an escape is not itself escaped.
ESCAPE = rb"(?<!\\)((?:\\\\)*+)"
LONE = re.compile(rb"%b(?:%b(?!%b)|(?<!%b)%b)" % (ESCAPE, FIRST, SECOND, FIRST, SECOND))
# Finds whatever may be such a half, and soon that there is none: its matches begin with one and the same letter.
MAYBE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!%b)|[c-fC-F][0-9a-fA-F]{2}(?<!%b%b))" % (SECOND, FIRST, SECOND)
)
ENDING = re.compile(rb'%b(%b)(?=")' % (ESCAPE, FIRST))
BEGINNING = re.compile(rb'(?<=")(?=%b)' % SECOND)
PAIR = re.compile(FIRST + SECOND)
ESCAPES = re.compile(rb"(?<!\\)\\")
REPLACEMENT = rb"\1\\ufffd"
PIECE = 1 << 16  # bytes of one replacement at most: it holds the interpreter, some 8 ms at the worst
MOST = 1 << 22  # what is longer stays as it is, and so does what is joined beyond a piece


def without_halves(text: bytes) -> bytes:
    """A JSON text with the replacement character for each half that stands alone; as long as it was."""
    if len(text) > MOST or MAYBE.search(text) is None:
        return text
    return b"".join(LONE.sub(REPLACEMENT, piece) for piece in _pieces(text))


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut in front of escapes, and not between those of a pair."""
    at = 0
    while at < len(text):
        found = ESCAPES.search(text, at + PIECE)
        if found is not None:
            end = found.start()
        else:
            end = len(text)
        if PAIR.match(text, end - HALF_BYTES):
            end += HALF_BYTES
        yield text[at:end]
        at = end


def join_halves(text: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A JSON text that is the next piece of a stream, without lone halves, and the half that its last text ended with,
    b"" for none; `before` is what the piece before ended with, which goes where a text begins with the other half."""
    half = b""
    if len(text) <= PIECE:
        if before:
            text = BEGINNING.sub(before.replace(b"\\", b"\\\\"), text, 1)
        ends = list(ENDING.finditer(text))
        if ends:
            start, end = ends[-1].span(2)
            half = text[start:end]
            text = text[:start] + text[end:]
    return without_halves(text), half
