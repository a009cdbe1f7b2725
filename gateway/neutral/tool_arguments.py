"""Parses the arguments of a tool call for formats that need an object instead of JSON text."""

from typing import Any

import orjson

from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.parts import ToolCall


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object. Any other value (free text, truncated JSON) becomes its only member,
    `input`."""
    if call.custom:
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        value = _read_repaired(call.arguments)
    if isinstance(value, dict):
        return value
    return {"input": value}


def _read_repaired(text: str) -> Any:
    """Parse JSON after removing lone halves of surrogate pairs; return other text unchanged."""
    try:
        return orjson.loads(without_halves(text.encode(errors="replace")))
    except orjson.JSONDecodeError:
        return text
