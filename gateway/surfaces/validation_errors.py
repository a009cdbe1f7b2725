"""Validation errors of bodies, with the dotted path of the field: shared by the surfaces of the hot operations."""

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from gateway.errors import InvalidRequest
from gateway.neutral.cut_pairs import without_halves

PLACE = re.compile(r" - at `\$?([^`]*)`$")
MISSING = re.compile(r"^Object missing required field `([^`]+)`$")
INDEX = re.compile(r"\[(\d+)\]")
ENUM = re.compile(r"^Invalid (?:enum )?value ")
NUMBERS = re.compile(r"\.\d+")
TYPES = re.compile(r"`([^`]+)`")
JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "object": "object"}

Choices = Mapping[str, tuple[str, ...]]


def readable(body: bytes, error: Exception) -> bytes:
    """Return the body without lone surrogates, which clients produce when they cut a text inside a character; one in a
    conversation would make every request of it fail. Raises InvalidRequest if the body, rejected with `error`, has
    none."""
    mended = without_halves(body)
    if isinstance(error, RecursionError) or mended == body:
        raise unreadable(error) from None
    return mended


def invalid(param: str, reason: str) -> InvalidRequest:
    """Return the error for a field with an invalid value; `param` is its dotted path."""
    return InvalidRequest(f"Invalid value for '{param}': {reason}.", param=param)


def path_of(text: str) -> str:
    """Return the dotted path in a validation message; "" when it is about the whole body."""
    match = PLACE.search(text)
    if match:
        return INDEX.sub(r".\1", match[1]).strip(".")
    return ""


def unreadable(error: Exception) -> InvalidRequest:
    """Return the error for a body that is not valid JSON; `error` is the decoder's own."""
    if isinstance(error, RecursionError):
        reason = "nested too deeply"
    else:
        reason = str(error)
    return InvalidRequest(f"The body is not valid JSON: {reason}.", code="invalid_json")


def read_part(param: str, value: Any, kind: Any) -> Any:
    """Return a part of a body as one of the structs of a union, which differ by their tags; `param` is the path of the
    part. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        inner = PLACE.search(text)
        reason = PLACE.sub("", text)
        choices = {f"{param}.{get_args(kind)[0].__struct_config__.tag_field}": tags_of(kind)}
        raise explain(f"{reason} - at `$.{param}{inner[1] if inner else ''}`", choices) from None


def tags_of(union: Any) -> tuple[str, ...]:
    """Return the values of the tag by which the structs of a union differ."""
    return tuple(kind.__struct_config__.tag for kind in get_args(union))


def explain(text: str, choices: Choices) -> InvalidRequest:
    """Convert a validation message ("Expected `str`, got `int` - at `$.messages[0].role`") to an error.

    `choices` holds the allowed values by path without list indexes.
    """
    path = path_of(text)
    reason = PLACE.sub("", text)
    missing = MISSING.match(reason)
    if missing:
        if path:
            param = f"{path}.{missing[1]}"
        else:
            param = missing[1]
        return InvalidRequest(f"The required field '{param}' is missing; add it.", param=param)
    if not path:
        return InvalidRequest("The body must be a JSON object.")
    allowed = choices.get(NUMBERS.sub("", path))
    if allowed and ENUM.match(reason):
        return invalid(path, f"{ENUM.sub('', reason)} is not one of {either(allowed)}")
    words = TYPES.sub(lambda match: _in_json_words(match[1]), reason)
    return invalid(path, words[:1].lower() + words[1:])


def either(words: tuple[str, ...]) -> str:
    """Join words: "a", "a or b", "a, b or c"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _in_json_words(types: str) -> str:
    """Convert "str | int | null" to "string, integer or null"."""
    return either(tuple(JSON_WORDS.get(word, word) for word in types.split(" | ")))
