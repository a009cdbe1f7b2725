"""Converts the format's own schemas, a subset of OpenAPI 3.0, into JSON Schema (API reference, Schema)."""

import re
from typing import Any

# Names of the members of a body: each has two spellings, camelCase and snake_case (proto3 JSON mapping).

# A member name with an underscore; within a text the quotation marks are escaped.
SNAKE_CASE_NAME = re.compile(rb'"[a-z0-9]+_[a-z0-9_]*"\s*:')
# Members with content that is not the format's own: arguments, results, JSON Schemas, labels.
OPAQUE_MEMBERS = frozenset(
    (
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
        "partMetadata",
    )
)


def with_camel_names(wire: Any, raw: bytes) -> Any:
    """Return a decoded body with all names in camelCase. `raw` is its JSON text, which nearly always has no other."""
    if SNAKE_CASE_NAME.search(raw) is None:
        return wire
    return _rename(wire)


def camel(name: str) -> str:
    """Return a name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for name, inner in value.items():
        known = camel(name) if "_" in name else name
        renamed[known] = inner if known in OPAQUE_MEMBERS else _rename(inner)
    return renamed


Json = dict[str, Any]

LISTS = ("anyOf",)
COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength")  # int64: may be texts
DROPPED = frozenset(("nullable", "propertyOrdering", "example"))
NULL = "null"
# In the order of their numbers in the vendor's protocol buffers, which older clients send.
TYPES = ("type_unspecified", "string", "number", "integer", "boolean", "array", "object", NULL)
MAX_DEPTH = 200


def json_schema_of(schema: Any, depth: int = 0) -> Json:
    """Return the JSON Schema of a Schema: lower-case types, `nullable` as a type. An empty one for anything else."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    written: Json = {}
    for given, value in schema.items():
        name = camel(given)
        if name not in DROPPED:
            written[name] = _member(name, value, depth)
    if written.get("type") == "type_unspecified":
        del written["type"]
    if schema.get("nullable") is True:
        _allow_null(written)
    return written


def word_of(value: str | int, words: tuple[str, ...]) -> str:
    """Return the word of an enumeration, which JSON may name by its number (proto3 JSON mapping)."""
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    return str(value)


def _member(name: str, value: Any, depth: int) -> Any:
    """Return the value of a member in JSON Schema."""
    if name == "type" and isinstance(value, str | int):
        return word_of(value, TYPES).lower()
    if name == "items":
        return json_schema_of(value, depth + 1)
    if name == "properties" and isinstance(value, dict):
        return {key: json_schema_of(inner, depth + 1) for key, inner in value.items()}
    if name in LISTS and isinstance(value, list):
        return [json_schema_of(inner, depth + 1) for inner in value]
    if name in COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _allow_null(written: Json) -> None:
    kind = written.get("type")
    if isinstance(kind, str) and kind != NULL:
        written["type"] = [kind, NULL]
        if isinstance(written.get("enum"), list):
            written["enum"] = [*written["enum"], None]
    elif "anyOf" in written:
        written["anyOf"] = [*written["anyOf"], {"type": NULL}]
