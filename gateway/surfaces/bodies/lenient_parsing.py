"""Lenient parsing: bodies in another spelling than the documented one are corrected and parsed again.

Only a body that the schema refused gets here, so a body in the documented format costs nothing more. If the corrected
body is refused too, the error is the original one.
"""

from collections.abc import Callable
from typing import Any

import orjson
from msgspec import ValidationError
from msgspec.json import Decoder

from gateway.surfaces.web.model_options import name_model

Json = dict[str, Any]

# Objects with JSON Schemas, in which the number format has a meaning, are left unchanged. Lists are never changed.
CONTENT = ("response_format", "text", "output_config")
# The words of a tool_choice in any vendor's spelling, and the types of the caller's own tools.
MODES = {"any": "required", "auto": "auto", "none": "none", "required": "required"}
OWN_TOOLS = ("function", "custom")


def read_choice(given: Any, name_tool: Callable[[str, Json], Json]) -> Any:
    """Read a tool_choice: return a mode as its word, however it is spelled or wrapped; the result of `name_tool` for
    the type and object that name one of the caller's tools; any other value unchanged."""
    if isinstance(given, str):
        return MODES.get(given.lower(), given)
    if not isinstance(given, dict):
        return given
    kind = given.get("type")
    mode = MODES.get(kind.lower()) if isinstance(kind, str) else None
    if mode is not None:
        return mode
    if kind in (None, "tool", *OWN_TOOLS):
        return name_tool("custom" if kind == "custom" else "function", given)
    return given


def tool_type_of(tool: Json) -> Any:
    """Return the type of a tool, inferred from its members where it has none."""
    kind = tool.get("type")
    if kind is None:
        return next((name for name in OWN_TOOLS if isinstance(tool.get(name), dict)), "function")
    return kind


def read_again(body: bytes, error: ValidationError) -> Json:
    """Return the JSON object of a body that was rejected with `error`, with its numbers corrected. Raises `error` for
    any other body."""
    try:
        wire = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        raise error from None
    if type(wire) is not dict:
        raise error
    correct_numbers(wire)
    return wire


def decode_again(decoder: Decoder[Any], body: bytes, error: ValidationError) -> Any:
    """Decode a body that was rejected with `error` after correcting its numbers, and its model where it has further
    models. Raises ValidationError."""
    wire = read_again(body, error)
    if "models" in getattr(decoder.type, "__struct_fields__", ()):
        name_model(wire)
    return decoder.decode(write_again(wire, error))


def write_again(wire: Json, error: ValidationError) -> bytes:
    """Return the JSON text of the corrected body. Raises `error` when it is nested too deep to be written."""
    try:
        return orjson.dumps(wire)
    except TypeError:
        raise error from None


def correct_numbers(wire: Json) -> None:
    """Convert whole numbers that are written with a fraction of zero ("max_tokens": 100.0), except in lists and in
    CONTENT."""
    for name, value in wire.items():
        if type(value) is float and value.is_integer() and abs(value) < 2**63:
            wire[name] = int(value)
        elif type(value) is dict and name not in CONTENT:
            correct_numbers(value)
