"""Decoding and encoding of long JSON texts in pieces.

One call of a JSON library holds the interpreter lock to its end: 0.1 to 0.6 s for an answer of 62 MB, in which not even
the event loop runs. Here no call has much more than PIECE_BYTES, and other threads run in between.
"""

import ctypes
import re
import secrets
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import orjson
from msgspec import Struct

from gateway.neutral.json_weight import blank_escapes, end_of_text, without_halves

# Strings of many megabytes that are put together piece by piece.
#
# `str.join` holds the interpreter lock to its end: 25 to 160 ms for 62 MB, most of which are page faults. Each copy of
# a piece takes microseconds, and other threads run in between.

JOINED = 1 << 20  # a shorter string is joined in one call
# The highest character of the four kinds of strings that the interpreter has (PEP 393).
ASCII, LATIN, TWO_BYTES, FOUR_BYTES = 0x7F, 0xFF, 0xFFFF, 0x10FFFF

_new = ctypes.pythonapi.PyUnicode_New
_new.argtypes = (ctypes.c_ssize_t, ctypes.c_uint32)
_new.restype = ctypes.c_void_p
# The string is passed as an address: it may be changed only as long as there is one reference to it.
_copy = ctypes.pythonapi.PyUnicode_CopyCharacters
_copy.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object, ctypes.c_ssize_t, ctypes.c_ssize_t)
_copy.restype = ctypes.c_ssize_t
_release = ctypes.pythonapi.Py_DecRef
_release.argtypes = (ctypes.c_void_p,)
_release.restype = None


def join_pieces(pieces: Sequence[str]) -> str:
    """Return the joined `pieces`, each of which is short."""
    length = sum(map(len, pieces))
    if length < JOINED:
        return "".join(pieces)
    address = _new(length, max(map(_highest, pieces)))
    try:
        at = 0
        for piece in pieces:
            at += _copy(address, at, piece, 0, len(piece))
        joined: str = ctypes.cast(address, ctypes.py_object).value
    finally:
        _release(address)
    return joined


def _highest(piece: str) -> int:
    """Return the highest character of the kind of string that the piece is."""
    if piece.isascii():
        return ASCII
    try:
        piece.encode("latin-1")
    except UnicodeEncodeError:
        wide = len(piece.encode("utf-16-le", "surrogatepass")) > 2 * len(piece)
        return FOUR_BYTES if wide else TWO_BYTES
    return LATIN


PIECE_BYTES = 1 << 15
READ_BYTES = 1 << 14  # of one match of a pattern
LONG_BYTES = 1 << 20  # a shorter text is decoded and encoded in one call
LONG_STRING = 4_096  # bytes of a string that reaches from one piece to another, which is decoded on its own
MAX_SEGMENT = 1 << 20  # bytes between two commas: blanks, or a name
REPEATED_BYTES = 1 << 22  # of an invalid text that is decoded again in one call, for its error
MAX_LEVELS = 300  # of containers: each long one takes two of the thousand frames of the stack
NODES = 4_000  # values that are encoded in one call, where this many characters count as another value
WHOLE = 40_000  # values of a text that is encoded in one call
CHARACTERS_PER_NODE = 32
BLANKS = b" \t\n\r"
# All up to a bracket or to a string that does not end here; what follows is the first byte that it leaves.
TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
TO_COMMA = re.compile(rb'(?:[^",\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+,', re.DOTALL)
COMMA_NEXT = re.compile(rb"[ \t\n\r]{0,64}+,")
COLON_NEXT = re.compile(rb"[ \t\n\r]{0,64}+:")
OPENING, CLOSING = b"[{", b"]}"
QUOTE = ord('"')
TOKEN = secrets.token_hex(16)  # stands for a long value, and no provider knows it


class InvalidText(ValueError):
    """A text that cannot be decoded in pieces."""


class _Place(Struct, eq=False):
    """A container or a string that is longer than a piece; `end` is behind it. `inner`: the long values directly in it.
    `cuts`: commas directly in it, about a piece apart. `cut`: where the last of its pieces ends."""

    start: int
    end: int
    inner: "list[_Place]"
    cuts: list[int]
    cut: int


def loads_long(raw: bytes) -> Any:
    """Return what orjson.loads returns for a text of any length."""
    return orjson.loads(raw) if len(raw) < LONG_BYTES else loads_in_pieces(raw)


def loads_in_pieces(raw: bytes) -> Any:
    """Return what orjson.loads returns, with its exceptions, except that lone surrogates in a long text are
    replaced."""
    if len(raw) <= PIECE_BYTES:
        return orjson.loads(raw)
    try:
        return _load(raw, _find_places(raw))
    except (InvalidText, orjson.JSONDecodeError):
        if len(raw) <= REPEATED_BYTES:
            return orjson.loads(raw)
        raise orjson.JSONDecodeError("invalid JSON", "", 0) from None


def _find_places(raw: bytes) -> _Place:
    """Return the outermost container of a text. InvalidText if there is none, or more."""
    places = _Places(raw)
    at = 0
    while at < len(raw):
        at = places.read(at, min(at + READ_BYTES, len(raw)))
    return places.outermost()


class _Places:
    """Reads a text piece by piece, and notes its long values and where they can be cut."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._open: list[_Place] = [_Place(0, len(raw), [], [], 0)]
        self._string = -1  # where the string began in which the next piece begins

    def outermost(self) -> _Place:
        raw = self._raw
        bottom = self._open[0]
        if len(self._open) != 1 or self._string >= 0 or len(bottom.inner) != 1:
            raise InvalidText
        (place,) = bottom.inner
        if not _is_blank(raw, 0, place.start) or not _is_blank(raw, place.end, len(raw)):
            raise InvalidText
        return place

    def read(self, at: int, end: int) -> int:
        """Read the piece from `at` to about `end`, and return where the next one begins."""
        raw = self._raw
        if self._string >= 0:
            end = end_of_text(raw, at, end)
            closing = _end_of_string(raw, at, end)
            if closing < 0:
                return end
            at = self._end_string(closing)
            end = min(at + READ_BYTES, len(raw))
        top = self._open[-1]
        if at - top.cut >= PIECE_BYTES and (comma := TO_COMMA.match(raw, at, end)):
            self._cut(top, comma.end() - 1)
        while (found := TO_BRACKET.match(raw, at, end)) and found.end() < end:
            at = found.end()
            if raw[at] == QUOTE:
                self._string = at
                return at + 1
            at = self._bracket(at)
        return end

    def _bracket(self, at: int) -> int:
        if self._raw[at] in OPENING:
            if len(self._open) > MAX_LEVELS:
                raise InvalidText
            self._open.append(_Place(at, 0, [], [], at))
            return at + 1
        if len(self._open) == 1:
            raise InvalidText
        place = self._open.pop()
        place.end = at + 1
        parent = self._open[-1]
        if place.end - place.start >= PIECE_BYTES or len(self._open) == 1:
            parent.inner.append(place)
            parent.cut = place.end
        elif place.end - parent.cut >= PIECE_BYTES and (comma := COMMA_NEXT.match(self._raw, place.end)):
            self._cut(parent, comma.end() - 1)
        return place.end

    def _end_string(self, end: int) -> int:
        start = self._string
        self._string = -1
        if end - start >= LONG_STRING and not COLON_NEXT.match(self._raw, end):
            top = self._open[-1]
            top.inner.append(_Place(start, end, [], [], start))
            top.cut = end
        return end

    @staticmethod
    def _cut(place: _Place, comma: int) -> None:
        place.cuts.append(comma)
        place.cut = comma


def _end_of_string(raw: bytes, at: int, end: int) -> int:
    """Return the place behind the quote that ends a string; -1 if it does not end here."""
    quote = raw.find(b'"', at, end)
    if quote >= 0 and raw.find(b"\\", at, quote) >= 0:
        within = blank_escapes(raw[at:end]).find(b'"')
        quote = at + within if within >= 0 else -1
    return quote + 1 or -1


def _is_blank(raw: bytes, start: int, end: int) -> bool:
    return all(not raw[at : min(at + PIECE_BYTES, end)].strip(BLANKS) for at in range(start, end, PIECE_BYTES))


def _load(raw: bytes, place: _Place) -> Any:
    if raw[place.start] == QUOTE:
        return _load_string(raw, place.start + 1, place.end - 1)
    kind = OPENING.index(raw[place.start])
    if raw[place.end - 1] != CLOSING[kind]:
        raise InvalidText
    return _load_list(raw, place) if kind == 0 else _load_object(raw, place)


def _load_list(raw: bytes, place: _Place) -> list[Any]:
    values: list[Any] = []
    for text, inner in _segments(raw, place):
        segment = _loads(b"[%b]" % text)
        if inner is not None:
            segment[-1] = _load(raw, inner)
        values += segment
    return values


def _load_object(raw: bytes, place: _Place) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text, inner in _segments(raw, place):
        segment = _loads(b"{%b}" % text)
        if inner is not None:
            last = next(reversed(segment))
            if segment[last] != TOKEN:  # the name stands there twice
                last = next(name for name, value in segment.items() if value == TOKEN)
            segment[last] = _load(raw, inner)
        values |= segment
    return values


def _segments(raw: bytes, place: _Place) -> Iterator[tuple[bytes, _Place | None]]:
    """Yield the texts between the cuts of a container. One that ends with a long value comes with it, and has the token
    in its place."""
    ends: list[tuple[int, _Place | None]] = [(comma, None) for comma in place.cuts]
    ends += [(inner.start, inner) for inner in place.inner]
    ends.sort(key=itemgetter(0))
    at = place.start + 1
    before: _Place | None = None
    for end, inner in (*ends, (place.end - 1, None)):
        if before is not None:
            comma = COMMA_NEXT.match(raw, at, end)
            if comma is None:
                if inner is None and end == place.end - 1 and _is_blank(raw, at, end):
                    return
                raise InvalidText
            at = comma.end()
        if end - at > MAX_SEGMENT:
            raise InvalidText
        text = raw[at:end]
        if inner is not None:
            yield b'%b"%b"' % (text, TOKEN.encode()), inner
        elif ends and not text.strip(BLANKS):
            raise InvalidText
        else:
            yield text, None
        before = inner
        at = end + 1 if inner is None else inner.end


def _load_string(raw: bytes, start: int, end: int) -> str:
    pieces = []
    while start < end:
        stop = end_of_text(raw, start, start + PIECE_BYTES) if start + PIECE_BYTES < end else end
        pieces.append(_loads(b'"%b"' % raw[start:stop]))
        start = stop
    return join_pieces(pieces)


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.loads(without_halves(text))


def dumps(value: Any, large: bool) -> bytes:
    """Return what orjson.dumps returns, with its exceptions; a `large` value is encoded in pieces."""
    return dumps_in_pieces(value) if large else orjson.dumps(value)


def dumps_in_pieces(value: Any) -> bytes:
    """Return what orjson.dumps returns, with its exceptions."""
    if _nodes(value, WHOLE) <= WHOLE:
        return orjson.dumps(value)
    written: list[bytes] = []
    _dump(value, written)
    return b"".join(written)


def _dump(value: Any, written: list[bytes]) -> None:
    kind = type(value)
    if kind is str and len(value) > PIECE_BYTES:
        written.append(b'"')
        pieces = (value[at : at + PIECE_BYTES] for at in range(0, len(value), PIECE_BYTES))
        written.extend(orjson.dumps(piece)[1:-1] for piece in pieces)
        written.append(b'"')
    elif kind is dict and _nodes(value) > NODES:
        _dump_object(value, written)
    elif kind in (list, tuple) and _nodes(value) > NODES:
        _dump_list(value, written)
    else:
        written.append(orjson.dumps(value))


def _dump_object(value: dict[str, Any], written: list[bytes]) -> None:
    mark = b"{"
    group: dict[str, Any] = {}
    room = NODES
    for name, member in value.items():
        nodes = _nodes(member)
        if group and nodes > room:
            written += (mark, orjson.dumps(group)[1:-1])
            mark = b","
            group = {}
            room = NODES
        if nodes > NODES:
            written += (mark, orjson.dumps(name), b":")
            mark = b","
            _dump(member, written)
        else:
            group[name] = member
            room -= nodes
    if group:
        written += (mark, orjson.dumps(group)[1:-1])
    written.append(b"}")


def _dump_list(value: Sequence[Any], written: list[bytes]) -> None:
    mark = b"["
    group: list[Any] = []
    room = NODES
    for member in value:
        nodes = _nodes(member)
        if group and nodes > room:
            written += (mark, orjson.dumps(group)[1:-1])
            mark = b","
            group = []
            room = NODES
        if nodes > NODES:
            written.append(mark)
            mark = b","
            _dump(member, written)
        else:
            group.append(member)
            room -= nodes
    if group:
        written += (mark, orjson.dumps(group)[1:-1])
    written.append(b"]")


def _nodes(value: Any, most: int = NODES) -> int:
    """Return how much a value takes to encode; for a large one some number above `most`."""
    nodes = 0
    rest = [value]
    while rest and nodes <= most:
        one = rest.pop()
        kind = type(one)
        nodes += 1
        if kind is str:
            nodes += len(one) // CHARACTERS_PER_NODE
        elif kind is dict:
            nodes += len(one)
            if nodes <= most:
                nodes += sum(map(len, one)) // CHARACTERS_PER_NODE
                rest += one.values()
        elif kind in (list, tuple):
            nodes += len(one)
            if nodes <= most:
                rest += one
    return nodes
