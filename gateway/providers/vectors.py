"""The vectors of embeddings, decoded individually, and the input types of their texts.

Decoding all vectors of an answer at once would block every other thread, for 0.2 seconds with three million numbers.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder

from gateway.catalogue.entries import Mapping
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import GENERAL, EmbeddingsInput, InputType, Vector
from gateway.providers.answer_checks import EMPTY, NOT_JSON, UNKNOWN_SHAPE

# The field of an embeddings call with the purpose of the vectors, or the prefix of its texts.

# A key of a mapping's `extra`: the name of the provider's field (`field`), and its words for the input types. Without
# a field, the words are prefixes of the texts.
INPUT_TYPES = "input_types"
FIELD = "field"


def write_input_type(kind: InputType, mapping: Mapping, body: dict[str, Any]) -> tuple[str, ...]:
    """Add the field to a body. Return a warning when the model does not distinguish this type."""
    if not kind:
        return ()
    words = mapping.extra.get(INPUT_TYPES, {})
    word = _word_of(kind, words)
    if word is None:
        return (f"input_type was left out: {mapping.key} does not distinguish {kind}.",)
    if FIELD in words:
        body[words[FIELD]] = word
    return ()


def prefix_of(kind: InputType, mapping: Mapping) -> str:
    """Return the prefix of each text that states the purpose of the vectors; "" for models with a field for it."""
    words = mapping.extra.get(INPUT_TYPES, {})
    if FIELD in words:
        return ""
    return _word_of(kind, words) or ""


def _word_of(kind: InputType, words: dict[str, str]) -> str | None:
    return words.get(kind) or words.get(GENERAL.get(kind, ""))


# Decoding of the rows of a long answer in pieces.
#
# One call of a JSON decoder holds the interpreter lock to its end: 10 to 50 ms for 40,000 objects, most of which are
# page faults. Between pieces the other threads of the process run.

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


MAX_VECTOR_BYTES = 1 << 20  # bytes of one vector as JSON: more than 40,000 numbers
NUMBERS = Decoder(list[float])
ROWS: Decoder[list[Any]] = Decoder(list[Any])
VECTOR = Decoder(list[float] | str)  # a string where base64 was requested
# Vectors with more numbers than this are kept in arrays: releasing a million numbers would block every other thread for
# 8 ms.
MANY = 1 << 14


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
