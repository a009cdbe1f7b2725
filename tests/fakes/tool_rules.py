"""Rules on tool names, call ids and schemas that several services share."""

import re
from collections.abc import Iterator
from typing import Any

NAME_64 = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAME_128 = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def schema_mistakes(schema: Any) -> Iterator[str]:
    """Yield what OpenAI refuses about a function's parameters: a root that is no object, and arrays without items."""
    if schema is None:
        return
    if schema.get("type") != "object" and schema:
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    yield from _items_mistakes(schema, ())


def _items_mistakes(schema: Any, context: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type")
    if "array" in (kinds if isinstance(kinds, list) else [kinds]) and not schema.keys() & {"items", "prefixItems"}:
        yield f"In context={context}, array schema missing items."
    for keyword in ("properties", "$defs", "definitions"):
        for name, inner in (schema.get(keyword) or {}).items():
            yield from _items_mistakes(inner, (*context, keyword, name))
    yield from _items_mistakes(schema.get("items"), (*context, "items"))
    for keyword in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(keyword) or ():
            yield from _items_mistakes(inner, (*context, keyword))


def repeated(values: list[str]) -> str:
    """Return the first value that occurs twice; "" when there is none."""
    return next((value for place, value in enumerate(values) if value in values[:place]), "")
