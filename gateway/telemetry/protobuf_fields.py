"""Reads the fields of protobuf messages without their schema, with a bound on the work.

Wire format: https://protobuf.dev/programming-guides/encoding. Raises InvalidRequest for anything malformed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.errors import InvalidRequest

VARINT_BYTES = 10
# Wire types.
VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
SIZES = {FIXED64: 8, FIXED32: 4}


class ProtoField(NamedTuple):
    """A field of a message: its tag, where it begins (with its tag), and where its value begins and ends."""

    tag: int
    start: int
    value: int
    end: int

    @property
    def number(self) -> int:
        return self.tag >> 3


class TooManyFields(InvalidRequest):
    """An export has more fields, or points, than are read."""

    def __init__(self, maximum: int, noun: str = "fields") -> None:
        super().__init__(f"The export has more than {maximum:,} {noun}; send smaller batches.")
        self.maximum = maximum


class FieldBudget:
    """Counts the fields that are read of an export, so that its work is limited."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._left = maximum

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyFields(self._maximum)


def read_fields(message: bytes, budget: FieldBudget) -> Iterator[ProtoField]:
    """Yield the fields of a message in their order."""
    at = 0
    while at < len(message):
        budget.take()
        start = at
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            value = at
            _, at = read_varint(message, at)
        elif kind == BYTES:
            length, value = read_varint(message, at)
            at = value + length
        elif kind in SIZES:
            value = at
            at += SIZES[kind]
        else:
            raise malformed("protobuf")
        if at > len(message) or tag >> 3 == 0:
            raise malformed("protobuf")
        yield ProtoField(tag, start, value, at)


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    number = 0
    for index, byte in enumerate(message[at : at + VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, at + index + 1
    raise malformed("protobuf")


def malformed(kind: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not a valid OTLP export in {kind}.", code="malformed_request")
