"""Names of the members of a body: each has two spellings, camelCase and snake_case (proto3 JSON mapping)."""

import re
from typing import Any

# A member name with an underscore; within a text the quotation marks are escaped.
SNAKE = re.compile(rb'"[a-z0-9]+_[a-z0-9_]*"\s*:')
# Members with content that is not the format's own: arguments, results, JSON Schemas, labels.
OPAQUE = frozenset(
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
    if SNAKE.search(raw) is None:
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
        renamed[known] = inner if known in OPAQUE else _rename(inner)
    return renamed
