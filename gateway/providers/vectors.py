"""Decodes the vectors of an answer individually. Decoding all of them at once would block every other thread, for 0.2
seconds with three million numbers."""

from array import array
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, Vector
from gateway.providers.answer_checks import EMPTY, NOT_JSON, UNKNOWN_SHAPE
from gateway.providers.json_pieces import decode_rows

MAX_VECTOR_BYTES = 1 << 20  # bytes of one vector as JSON: more than 40,000 numbers
NUMBERS = Decoder(list[float])
ROWS: Decoder[list[Any]] = Decoder(list[Any])
VECTOR = Decoder(list[float] | str)  # a string where base64 was requested
# Vectors with more numbers than this are kept in arrays: releasing a million numbers would block every other thread for
# 8 ms.
MANY = 1 << 14
T = TypeVar("T")


def require_floats(content: EmbeddingsInput) -> None:
    """Raise NotSupported where other numbers than floats were requested."""
    if content.number_type != "float":
        what = f"This model has no vectors of the type {content.number_type}."
        raise NotSupported(what, param="embedding_types", code="unsupported_parameter")


def read_apart(decoder: Decoder[T], body: bytes, member: str = "", rows: Decoder[Any] = ROWS) -> T:
    """Return an answer as its struct, with vectors still Raw. UpstreamFailed for an unexpected shape.

    `member` is the list that contains the vectors, `rows` decodes a part of it; "" where it is not at the top.
    """
    try:
        return decode_rows(decoder, body, member, rows)
    except ValidationError:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    except (DecodeError, RecursionError):
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None


def read_vectors(encoded: Sequence[Raw], decoder: Decoder[Any] = NUMBERS) -> list[Vector]:
    """Return the vectors. UpstreamFailed when there are none, or when one is empty or invalid."""
    if any(memoryview(vector).nbytes > MAX_VECTOR_BYTES for vector in encoded):
        raise UpstreamFailed(
            f"The provider sent a vector of more than {MAX_VECTOR_BYTES:,} bytes.", upstream_status=200
        )
    numbers = 0
    vectors: list[Vector] = []
    try:
        for text in encoded:
            vector = decoder.decode(text)
            numbers += len(vector)
            if numbers > MANY and isinstance(vector, list):
                vector = array("d", vector)
            vectors.append(vector)
    except (DecodeError, RecursionError):
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if not vectors or not all(vectors):
        raise UpstreamFailed(EMPTY, upstream_status=200)
    return vectors
