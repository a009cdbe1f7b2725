"""JSON schemas of responses for the API description."""

from collections.abc import Mapping
from typing import Any

ANY: dict[str, Any] = {}
OBJECT = {"type": "object"}
TEXT = {"type": "string"}


def shape(_optional: Mapping[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Return the schema of an object with these required members: the name of a type ("string?" may be null), another
    schema, or [schema] for a list. Members of the first argument are optional; additional members are allowed."""
    every = {**members, **(_optional or {})}
    return {
        "type": "object",
        "properties": {name: read_shape(value) for name, value in every.items()},
        "required": list(members),
    }


def named(title: str, _optional: Mapping[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Return the same schema as a component of the description."""
    return {"title": title, **shape(_optional, **members)}


def map_of(value: Any) -> dict[str, Any]:
    """Return the schema of an object with any names and values of that shape."""
    return {"type": "object", "additionalProperties": read_shape(value)}


def one_of(*words: str, null: bool = False) -> dict[str, Any]:
    """Return the schema of one of these words; with `null` also null."""
    return {"enum": [*words, None] if null else list(words)}


def read_shape(value: Any) -> Any:
    """Return the schema that a member's notation stands for; an answer struct stands for itself."""
    if isinstance(value, list):
        return {"type": "array", "items": read_shape(value[0])}
    if not isinstance(value, str):
        return value
    name = value.removesuffix("?")
    return {"type": [name, "null"] if value.endswith("?") else name}
