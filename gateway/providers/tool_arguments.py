"""Arguments of a call as the object that some formats want in place of JSON text."""

from typing import Any

import orjson

from gateway.neutral.cut_pairs import read_joined
from gateway.neutral.parts import ToolCall


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments; what is no object (free text, cut JSON) is told as the only member, `input`."""
    if call.custom:
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:
        value, _ = read_joined(call.arguments.encode(errors="replace"), b"")
        value = call.arguments if value is None else value
    return value if isinstance(value, dict) else {"input": value}
