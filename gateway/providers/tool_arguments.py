"""The arguments of a tool call as the object that some formats need instead of JSON text."""

from typing import Any

import orjson

from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.parts import ToolCall


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments; anything but an object (free text, truncated JSON) becomes its only member, `input`."""
    if call.custom:
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        value = _read_mended(call.arguments)
    if isinstance(value, dict):
        return value
    return {"input": value}


def _read_mended(text: str) -> Any:
    """JSON in which a character was cut in two, without its half; other text as it is."""
    try:
        return orjson.loads(without_halves(text.encode(errors="replace")))
    except orjson.JSONDecodeError:
        return text
