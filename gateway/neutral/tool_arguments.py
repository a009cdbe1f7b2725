"""The arguments of tool calls: as the JSON text that clients parse, and as objects for formats that need them."""

from typing import Any

import orjson

from gateway.neutral.json_weight import without_halves
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
    return _read_object(call.arguments)


def is_object(text: Any) -> bool:
    """Return whether arguments are the JSON text of an object."""
    try:
        return isinstance(orjson.loads(text), dict)
    except (orjson.JSONDecodeError, TypeError):
        return False


def object_text(text: str) -> str:
    """Return arguments as the JSON text of an object, unchanged if they are one, for servers that refuse a past call
    with any other."""
    plain = plain_arguments(text)
    if is_object(plain):
        return plain
    return orjson.dumps(_read_object(plain)).decode()


def _read_object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _read_repaired(text)
    if isinstance(value, dict):
        return value
    return {"input": value}


def _read_repaired(text: str) -> Any:
    """Parse JSON after removing lone halves of surrogate pairs; return other text unchanged."""
    try:
        return orjson.loads(without_halves(text.encode(errors="replace")))
    except orjson.JSONDecodeError:
        return text
