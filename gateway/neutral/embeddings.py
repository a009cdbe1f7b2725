"""A request for embeddings and its result: a vector for each input."""

import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gateway.neutral.request import Request, WholeResult

# A text, or one already cut into tokens of the model's own tokenizer.
Input = str | list[int]
# Numbers, or the same as base64 of little-endian 32-bit floats: whichever came, so that none is converted in vain.
Vector = list[float] | str
Encoding = Literal["float", "base64"]


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
    """The vector in the encoding that is asked for; itself where it has it."""
    if encoding == "base64":
        return vector if isinstance(vector, str) else b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    if isinstance(vector, str):
        packed = b64decode(vector)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return vector
