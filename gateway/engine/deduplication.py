"""Deduplicates large parts of JSON values: splits a value into text with references, and pieces that are stored once.

The serialized bytes are cut, so nothing that a caller writes can look like a reference. Cuts depend only on sizes, from
the front: a conversation that is sent again with an addition has the same pieces as before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from gateway.neutral.long_json import LONG_BYTES, dumps, dumps_in_pieces

MIN_PART_BYTES = 4096  # bytes; smaller parts are not worth a row
MAX_PARTS = 256  # per value; the rest stays in the text
DEPTH = 6  # levels of {"items": [{"content": [{"image_url": "…"}]}]} plus one


def split(value: Any, digest: Callable[[bytes], bytes]) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Return the text of `value` as literals alternating with digests of pieces, and the pieces by digest."""
    cutter = _Cutter(digest)
    cutter.add(value, dumps_in_pieces(value), DEPTH)
    return cutter.close(), cutter.pieces


def pack(segments: Sequence[bytes]) -> bytes:
    return msgspec.msgpack.encode(segments)


def unpack(packed: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(packed, type=list[bytes])


def digests_of(segments: Sequence[bytes]) -> Sequence[bytes]:
    return segments[1::2]


def join(segments: Sequence[bytes], pieces: Mapping[bytes, bytes]) -> bytes:
    """Return the JSON of the value that was split. KeyError when a piece is missing."""
    return b"".join([pieces[segment] if place % 2 else segment for place, segment in enumerate(segments)])


class _Cutter:
    def __init__(self, digest: Callable[[bytes], bytes]) -> None:
        self.pieces: dict[bytes, bytes] = {}
        self._digest = digest
        self._segments: list[bytes] = []
        self._literal: list[bytes] = []

    def add(self, value: Any, data: bytes, depth: int) -> None:
        """Add `value`, of which `data` is the JSON text."""
        if len(data) < MIN_PART_BYTES or len(self.pieces) >= MAX_PARTS:
            self._literal.append(data)
        elif depth and isinstance(value, dict):
            self._add_members(value, depth, len(data) >= LONG_BYTES)
        elif depth and isinstance(value, list):
            self._add_items(value, depth, len(data) >= LONG_BYTES)
        else:
            self._set_apart(data)

    def close(self) -> list[bytes]:
        return [*self._segments, b"".join(self._literal)]

    def _add_members(self, value: dict[str, Any], depth: int, long: bool) -> None:
        before = b"{"
        for name, inner in value.items():
            self._literal += (before, orjson.dumps(name), b":")
            self.add(inner, dumps(inner, long), depth - 1)
            before = b","
        self._literal.append(b"}")

    def _add_items(self, value: list[Any], depth: int, long: bool) -> None:
        """Add items; consecutive small items form a piece as soon as they are large enough together."""
        self._literal.append(b"[")
        run: list[bytes] = []
        size = 0
        for place, inner in enumerate(value):
            data = dumps(inner, long)
            if place:
                run.append(b",")
            if len(data) >= MIN_PART_BYTES:
                self._literal += run
                run = []
                size = 0
                self.add(inner, data, depth - 1)
                continue
            run.append(data)
            size += len(data) + 1
            if size >= MIN_PART_BYTES and len(self.pieces) < MAX_PARTS:
                self._set_apart(b"".join(run))
                run = []
                size = 0
        self._literal += run
        self._literal.append(b"]")

    def _set_apart(self, data: bytes) -> None:
        digest = self._digest(data)
        self.pieces[digest] = data
        self._segments += (b"".join(self._literal), digest)
        self._literal = []
