"""The arguments of tool calls: as the JSON text that clients parse, and as objects for formats that need them."""

from typing import Any

import orjson

from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.parts import ToolCall

NOTHING = ("", "null")


def plain_arguments(value: Any) -> str:
    """Return the arguments that a server sent as the JSON text of an object. Some servers send the object itself,
    nothing, or its text encoded once more as a string."""
    if not isinstance(value, str):
        return orjson.dumps(value or {}).decode()
    text = value.strip()
    if text in NOTHING:
        return "{}"
    if text[0] == '"':
        return unwrapped(text) or value
    return value


def unwrapped(text: str) -> str:
    """Return the JSON text of an object within a JSON string; "" for any other text."""
    try:
        inner = orjson.loads(text)
        if isinstance(inner, str) and isinstance(orjson.loads(inner), dict):
            return inner
    except orjson.JSONDecodeError:
        pass
    return ""


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
