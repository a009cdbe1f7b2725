"""Decoding of the rows of a long answer in pieces.

One call of a JSON decoder holds the interpreter lock to its end: 10 to 50 ms for 40,000 objects, most of which are page
faults. Between pieces the other threads of the process run.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import DecodeError
from msgspec.json import Decoder

T = TypeVar("T")

PIECE_BYTES = 1 << 16  # bytes of JSON that are decoded in one call
MIN_PIECEWISE_BYTES = 1 << 20  # bytes of an answer; a shorter one is decoded faster than its rows are separated
OPENING_BYTES = 4_096  # in which the list of rows begins
MEMBER = rb'"%b"\s*:\s*\['
BETWEEN_ROWS = re.compile(rb"[}\]]\s*,\s*[{\[]")


def decode_rows(whole: Decoder[T], body: bytes, member: str, rows: Decoder[list[Any]]) -> T:
    """Return `whole.decode(body)`, where the rows of the list `member` are decoded in pieces if the body is long.

    Raises DecodeError. A body is cut between rows, wherever `},{` or `],[` stands. Where that is inside of a string or
    of another list, a piece is no valid JSON, and the body is decoded in one call.
    """
    opening = len(body) > MIN_PIECEWISE_BYTES and re.compile(MEMBER % member.encode()).search(body, 0, OPENING_BYTES)
    if not opening:
        return whole.decode(body)
    start = opening.end()
    end = body.rfind(b"]")
    try:
        decoded = whole.decode(body[:start] + body[end:])
        listed = [row for piece in _cut(body, start, end) for row in rows.decode(b"[%b]" % piece)]
    except (DecodeError, RecursionError):
        return whole.decode(body)
    setattr(decoded, member, listed)
    return decoded


def _cut(body: bytes, start: int, end: int) -> Iterator[bytes]:
    """Yield the rows between `start` and `end` in pieces of at least PIECE_BYTES, without the commas between them."""
    while start < end:
        border = BETWEEN_ROWS.search(body, start + PIECE_BYTES, end)
        if border is None:
            yield body[start:end]
            return
        yield body[start : border.start() + 1]
        start = border.end() - 1
