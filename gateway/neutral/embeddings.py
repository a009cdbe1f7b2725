"""A request for embeddings and its result: a vector for each input."""

import struct
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from msgspec import structs

from gateway.errors import UpstreamFailed
from gateway.neutral.request import Native, Request, WholeResult
from gateway.neutral.usage import added

# A text, or one already cut into tokens of the model's own tokenizer.
Input = str | list[int]
# Numbers, or the same as base64 of little-endian 32-bit floats: whichever came, so that none is converted in vain.
Vector = list[float] | str
Encoding = Literal["float", "base64"]
ID_BYTES = 4  # what a token id counts as among the bytes of a prompt
FEWEST_BYTES_A_TOKEN = 3  # where the tokens of a call are limited: prose has more, code about so many


@dataclass(frozen=True, slots=True)
class EmbeddingsInput:
    """What is to be embedded. `dimensions` None: as many as the model gives."""

    inputs: tuple[Input, ...]
    dimensions: int | None = None
    encoding: Encoding = "float"


class EmbeddingsRequest(Request, eq=False):
    """`decode` gives an EmbeddingsInput. `token_ids`: how many of its inputs' tokens came as numbers; each counts four
    bytes among `prompt_bytes`."""

    operation: ClassVar[str] = "embeddings"

    token_ids: int = 0


@dataclass(slots=True, unsafe_hash=True)
class EmbeddingsResult(WholeResult):
    """`vectors` holds a Vector for each input, in their order."""

    vectors: Any


def encode(vector: Vector, encoding: Encoding) -> Vector:
    """The vector in the encoding that is asked for; itself where it has it. UpstreamFailed for base64 that is none."""
    if encoding == "base64":
        if isinstance(vector, str):
            return vector
        return b64encode(_packed(vector)).decode()
    if isinstance(vector, str):
        try:
            packed = b64decode(vector, validate=True)
            return list(struct.unpack(f"<{len(packed) // 4}f", packed))
        except (ValueError, struct.error):
            raise UpstreamFailed("The provider sent a vector that is none.", upstream_status=200) from None
    return vector


def _packed(vector: list[float]) -> bytes:
    """As 32-bit floats; what is out of their range is infinite."""
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def split(request: EmbeddingsRequest, most: int, most_tokens: int = 0) -> Iterator[EmbeddingsRequest]:
    """The request as several of at most `most` inputs each, and of about `most_tokens` together (0: no matter), in
    their order."""
    wanted: EmbeddingsInput = request.content()
    part: list[Input] = []
    tokens = 0
    for one in wanted.inputs:
        if isinstance(one, list):
            size = len(one)
        else:
            size = -(-_bytes_of(one) // FEWEST_BYTES_A_TOKEN)
        if part and (len(part) >= most or (most_tokens and tokens + size > most_tokens)):
            yield _part(request, wanted, part)
            part = []
            tokens = 0
        part.append(one)
        tokens += size
    yield _part(request, wanted, part)


def join(results: Sequence[EmbeddingsResult]) -> EmbeddingsResult:
    """One result of those of `split`; its usage is their sum, None where one tells none."""
    first = results[0]
    reported = [one.usage for one in results]
    return EmbeddingsResult(
        [vector for one in results for vector in one.vectors],
        usage=added([one for one in reported if one is not None]) if all(reported) else None,
        model=first.model,
        upstream_id=first.upstream_id,
        service_tier=first.service_tier,
        warnings=tuple(dict.fromkeys(text for one in results for text in one.warnings)),
    )


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _part(request: EmbeddingsRequest, wanted: EmbeddingsInput, inputs: list[Input]) -> EmbeddingsRequest:
    part = EmbeddingsInput(tuple(inputs), wanted.dimensions, wanted.encoding)
    size = sum(ID_BYTES * len(one) if isinstance(one, list) else _bytes_of(one) for one in inputs)
    needs = structs.replace(request.requirements, messages=len(inputs), prompt_bytes=size)
    native = request.native and Native(request.native.dialect, {**request.native.body, "input": inputs})
    ids = sum(len(one) for one in inputs if isinstance(one, list))
    return structs.replace(
        request, requirements=needs, decode=lambda: part, native=native, token_ids=ids, _decoded=None
    )
