"""Embeddings: vectors from hashed words, so that texts with common words are near each other.

Source: OpenAI API reference, "Create embeddings".
"""

import base64
import hashlib
import struct
from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, between, check_fields, of, one_of, wrong_type
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.prose import count
from gateway.providers.sandbox.response import Response, refuse
from gateway.runtime.threads import compute_if

DIMENSIONS = 256
MAX_DIMENSIONS = 4096
MAX_INPUTS = 2048
MAX_NUMBERS = 1 << 20  # of all vectors together
MANY = 1 << 15  # numbers from which vectors are computed in a thread

Input = str | list[int]


def check_embeddings(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "input"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: every text to embed."""
    return "\n".join(text for text in _read_inputs(body["input"]) if isinstance(text, str))


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body."""
    inputs = _read_inputs(body["input"])
    size = body.get("dimensions") or DIMENSIONS
    if len(inputs) * size > MAX_NUMBERS:
        raise refuse(f"The sandbox returns at most {MAX_NUMBERS:,} numbers in all vectors.", "dimensions")
    return compute_if(len(inputs) * size >= MANY, _write, body, inputs, size, directives)


def _write(body: dict[str, Any], inputs: list[Input], size: int, directives: Directives) -> Response:
    packed = body.get("encoding_format") == "base64"
    rows = []
    for index, value in enumerate(inputs):
        vector = embed(value, size)
        # Each row is encoded separately: a single call for all numbers would block every other thread.
        encoded = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if packed else vector
        rows.append(orjson.dumps({"object": "embedding", "index": index, "embedding": encoded}))
    rest: dict[str, Any] = {"model": body["model"]}
    if not directives.no_usage:
        tokens = sum(count(strip(value)) if isinstance(value, str) else len(value) for value in inputs)
        rest["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    whole = b"".join((b'{"object":"list","data":[', b",".join(rows), b"],", orjson.dumps(rest)[1:]))
    return Response(whole, bare=orjson.dumps({"object": "list", "data": [], **rest}))


def embed(value: Input, size: int) -> list[float]:
    """Return a vector of length 1. The hash of each word (or token number) selects a component and adds 1 or -1."""
    components: dict[int, float] = {}
    words = strip(value).lower().split() if isinstance(value, str) else [str(token) for token in value]
    for word in words or [""]:
        number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        place = (number >> 1) % size
        components[place] = components.get(place, 0.0) + (1.0 if number & 1 else -1.0)
    length = sum(component * component for component in components.values()) ** 0.5
    if not length:  # two words may cancel each other out
        components[0] = length = 1.0
    vector = [0.0] * size
    for place, component in components.items():
        vector[place] = component / length
    return vector


def _read_inputs(value: Any) -> list[Input]:
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        return [value]
    inputs: list[Input] = value
    return inputs


def _input(value: Any, param: str) -> None:
    of(str, list)(value, param)
    if value in ("", []):
        raise refuse(f"Invalid '{param}': it cannot be an empty string or array.", param)
    inputs = _read_inputs(value)
    if len(inputs) > MAX_INPUTS:
        text = f"Invalid '{param}': array too long. Expected an array with maximum length {MAX_INPUTS}."
        raise refuse(text, param, "array_above_max_length")
    for place, entry in enumerate(inputs):
        where = param if inputs is not value else f"{param}[{place}]"
        tokens = isinstance(entry, list) and all(type(token) is int for token in entry)
        if not (tokens or isinstance(entry, str)):
            raise wrong_type(entry, where, "a string or an array of integers")
        if not entry:
            raise refuse(f"Invalid '{where}': it is empty.", where)


FIELDS: dict[str, Check] = {
    "model": of(str),
    "input": _input,
    "dimensions": between(1, MAX_DIMENSIONS, whole=True),
    "encoding_format": one_of("float", "base64"),
    "user": of(str),
}
