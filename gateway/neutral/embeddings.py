"""A request for embeddings and its result: a vector for each input."""

import struct
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from msgspec import Struct, structs

from gateway.errors import UpstreamFailed
from gateway.neutral.request import Native, Request, WholeResult
from gateway.neutral.usage import added

# A text, or a text that is already tokenized with the model's own tokenizer.
Input = str | list[int]
# Numbers, or base64 of little-endian 32-bit floats: kept as received to avoid needless conversions. A list, or an array
# where there are many numbers.
Vector = MutableSequence[float] | str
Encoding = Literal["float", "base64"]
# The purpose of the vectors, for models that distinguish it; "": not given.
InputType = Literal[
    "",
    "document",
    "query",
    "classification",
    "clustering",
    "similarity",
    "code_query",
    "code_document",
    "question_answering",
    "fact_verification",
]
# The general purpose, for models that do not distinguish the special one.
GENERAL: dict[InputType, InputType] = {
    "code_query": "query",
    "code_document": "document",
    "question_answering": "query",
    "fact_verification": "query",
}
ID_BYTES = 4  # size that one token id adds to the bytes of a prompt
MIN_BYTES_PER_TOKEN = 3  # assumed where a call has a token limit: prose has more, code about as many


# The numbers of vectors: floats, or the smaller ones that some models compute of them ("binary": eight signs in one).
NumberType = Literal["float", "int8", "uint8", "binary", "ubinary"]


class EmbeddingsInput(Struct, frozen=True):
    """The inputs to embed. `dimensions` None: the model's default."""

    inputs: tuple[Input, ...]
    dimensions: int | None = None
    encoding: Encoding = "float"
    input_type: InputType = ""
    number_type: NumberType = "float"


class EmbeddingsRequest(Request, eq=False):
    """An embeddings request. `decode` returns an EmbeddingsInput.

    `token_ids` is the number of inputs' tokens given as numbers; each adds four bytes to `prompt_bytes`.
    """

    operation: ClassVar[str] = "embeddings"

    token_ids: int = 0


@dataclass(slots=True, unsafe_hash=True)
class EmbeddingsResult(WholeResult):
    """The result. `vectors` holds one Vector for each input, in the same order."""

    vectors: Any


def encode(vector: Vector, encoding: Encoding) -> Vector:
    """Return the vector in the given encoding. Raise UpstreamFailed for invalid base64."""
    if encoding == "base64":
        if isinstance(vector, str):
            return vector
        return b64encode(_packed(vector)).decode()
    if isinstance(vector, str):
        try:
            packed = b64decode(vector, validate=True)
            return list(struct.unpack(f"<{len(packed) // 4}f", packed))
        except (ValueError, struct.error):
            raise UpstreamFailed("The provider sent an invalid vector.", upstream_status=200) from None
    if isinstance(vector, array):
        return vector.tolist()
    return vector


def _packed(vector: MutableSequence[float]) -> bytes:
    """Pack the vector as 32-bit floats; values outside of their range become infinite."""
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def split(request: EmbeddingsRequest, maximum: int, most_tokens: int = 0) -> Iterator[EmbeddingsRequest]:
    """Split the request into requests of at most `maximum` inputs and about `most_tokens` each (0: no limit), in
    order."""
    content: EmbeddingsInput = request.content()
    part: list[Input] = []
    tokens = 0
    for item in content.inputs:
        size = len(item) if isinstance(item, list) else -(-_bytes_of(item) // MIN_BYTES_PER_TOKEN)
        if part and (len(part) >= maximum or (most_tokens and tokens + size > most_tokens)):
            yield _part(request, content, part)
            part = []
            tokens = 0
        part.append(item)
        tokens += size
    yield _part(request, content, part)


def join(results: Sequence[EmbeddingsResult]) -> EmbeddingsResult:
    """Merge the results of `split` into one; its usage is their sum, or None if any is missing."""
    first = results[0]
    usages = [result.usage for result in results]
    return EmbeddingsResult(
        [vector for result in results for vector in result.vectors],
        usage=added([usage for usage in usages if usage is not None]) if all(usages) else None,
        model=first.model,
        upstream_id=first.upstream_id,
        service_tier=first.service_tier,
        warnings=tuple(dict.fromkeys(text for result in results for text in result.warnings)),
    )


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _part(request: EmbeddingsRequest, content: EmbeddingsInput, inputs: list[Input]) -> EmbeddingsRequest:
    part = structs.replace(content, inputs=tuple(inputs))
    size = sum(ID_BYTES * len(item) if isinstance(item, list) else _bytes_of(item) for item in inputs)
    requirements = structs.replace(request.requirements, messages=len(inputs), prompt_bytes=size)
    native = request.native and Native(request.native.dialect, {**request.native.body, "input": inputs})
    ids = sum(len(item) for item in inputs if isinstance(item, list))
    return structs.replace(
        request, requirements=requirements, decode=lambda: part, native=native, token_ids=ids, _decoded=None
    )
