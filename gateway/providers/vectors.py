"""Decodes the vectors of an answer individually. Decoding all of them at once would block every other thread, for 0.2
seconds with three million numbers."""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder

from gateway.errors import UpstreamFailed
from gateway.neutral.embeddings import Vector
from gateway.providers.answer_checks import EMPTY, NOT_JSON, ODD

MOST_BYTES = 1 << 20  # bytes of one vector as JSON: more than 40,000 numbers
NUMBERS = Decoder(list[float])
VECTOR = Decoder(list[float] | str)  # a string where base64 was requested
T = TypeVar("T")


def read_apart(decoder: Decoder[T], body: bytes) -> T:
    """Return an answer as its struct, with vectors still Raw. UpstreamFailed for an unexpected shape."""
    try:
        return decoder.decode(body)
    except ValidationError:
        raise UpstreamFailed(ODD, upstream_status=200) from None
    except (DecodeError, RecursionError):
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None


def read_vectors(encoded: Sequence[Raw], decoder: Decoder[Any] = NUMBERS) -> list[Vector]:
    """Return the vectors. UpstreamFailed when there are none, or when one is empty or invalid."""
    if any(memoryview(vector).nbytes > MOST_BYTES for vector in encoded):
        raise UpstreamFailed(f"The provider sent a vector of more than {MOST_BYTES:,} bytes.", upstream_status=200)
    try:
        vectors = [decoder.decode(vector) for vector in encoded]
    except (DecodeError, RecursionError):
        raise UpstreamFailed(ODD, upstream_status=200) from None
    if not vectors or not all(vectors):
        raise UpstreamFailed(EMPTY, upstream_status=200)
    return vectors
