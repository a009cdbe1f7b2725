"""Lenient parsing: bodies in another spelling than the documented one are corrected and parsed again.

Only a body that the schema refused gets here, so a body in the documented format costs nothing more. If the corrected
body is refused too, the error is the original one.
"""

from collections.abc import Callable
from typing import Any

import orjson
from msgspec import ValidationError
from msgspec.json import Decoder

Json = dict[str, Any]

# Of these members nothing is touched: what the model reads, and JSON Schemas, whose numbers mean what they say.
CONTENT = (
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "functions",
    "response_format",
    "text",
    "output_config",
)
# What a tool_choice may be as a word, in any vendor's spelling, and the types of tools that are the caller's own.
MODES = {"any": "required", "auto": "auto", "none": "none", "required": "required"}
OWN_TOOLS = ("function", "custom")


def read_choice(given: Any, name_tool: Callable[[str, Json], Json]) -> Any:
    """A tool_choice: a mode as a word, however it is spelled or wrapped; what `name_tool` makes of the type and the
    object that name a tool of the caller's own; anything else as it is."""
    if isinstance(given, str):
        return MODES.get(given.lower(), given)
    if not isinstance(given, dict):
        return given
    kind = given.get("type")
    if isinstance(kind, str):
        mode = MODES.get(kind.lower())
    else:
        mode = None
    if mode is not None:
        return mode
    if kind in (None, "tool", *OWN_TOOLS):
        return name_tool("custom" if kind == "custom" else "function", given)
    return given


def tool_type_of(tool: Json) -> Any:
    """The type of a tool; of one that names none, by what it holds."""
    kind = tool.get("type")
    if kind is None:
        return next((name for name in OWN_TOOLS if isinstance(tool.get(name), dict)), "function")
    return kind


def read_again(body: bytes, error: ValidationError) -> Json:
    """The JSON object of a body that was refused with `error`, its numbers put right. `error` when it is none."""
    try:
        wire = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        raise error from None
    if type(wire) is not dict:
        raise error
    mend_numbers(wire)
    return wire


def decode_again(decoder: Decoder, body: bytes, error: ValidationError) -> Any:
    """What a body that was refused with `error` says once its numbers are put right. ValidationError."""
    return decoder.decode(write_again(read_again(body, error), error))


def write_again(wire: Json, error: ValidationError) -> bytes:
    """The JSON text of what was put right. `error` when it is nested deeper than can be written."""
    try:
        return orjson.dumps(wire)
    except TypeError:
        raise error from None


def mend_numbers(wire: Json) -> None:
    """Whole numbers written with a fraction of zero ("max_tokens": 100.0), beside what the model reads."""
    for name, value in wire.items():
        if type(value) is float and value.is_integer() and abs(value) < 2**63:
            wire[name] = int(value)
        elif type(value) is dict and name not in CONTENT:
            mend_numbers(value)
