"""Decoding of long JSON texts in pieces.

One call of a JSON decoder holds the interpreter lock to its end: 10 to 50 ms for 40,000 objects, most of which are page
faults. Between pieces the other threads of the process run.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

T = TypeVar("T")

PIECE_BYTES = 1 << 16  # bytes of JSON that are decoded in one call
MIN_PIECEWISE_BYTES = 1 << 20  # bytes of an answer; a shorter one is decoded faster than its rows are separated
OPENING_BYTES = 4_096  # in which the list of rows begins
MEMBERS: Decoder[dict[str, Raw]] = Decoder(dict[str, Raw])
ELEMENTS: Decoder[list[Raw]] = Decoder(list[Raw])
MEMBER = rb'"%b"\s*:\s*\['
BETWEEN_ROWS = re.compile(rb"[}\]]\s*,\s*[{\[]")


def loads_in_pieces(raw: bytes) -> Any:
    """Return what orjson.loads returns, with its exceptions, for a text that was not decoded before."""
    if len(raw) <= PIECE_BYTES:
        return orjson.loads(raw)
    try:
        return _load(raw)
    except (DecodeError, RecursionError):
        return orjson.loads(raw)


def _load(raw: bytes) -> Any:
    first = raw.lstrip()[:1] if len(raw) > PIECE_BYTES else b""
    if first == b"{":
        return {name: _load(bytes(value)) for name, value in MEMBERS.decode(raw).items()}
    if first == b"[":
        return [value for piece in _pieces_of(ELEMENTS.decode(raw)) for value in piece]
    return orjson.loads(raw)


def _pieces_of(elements: list[Raw]) -> Iterator[list[Any]]:
    """Yield the values of the elements, those of short ones in groups of about PIECE_BYTES."""
    group: list[bytes] = []
    size = 0
    for element in elements:
        text = bytes(element)
        size += len(text)
        if size > PIECE_BYTES:
            yield _load_group(group)
            group = []
            size = len(text)
        if size > PIECE_BYTES:
            yield [_load(text)]
            size = 0
        else:
            group.append(text)
    yield _load_group(group)


def _load_group(texts: list[bytes]) -> Any:
    return orjson.loads(b"[%b]" % b",".join(texts))


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
