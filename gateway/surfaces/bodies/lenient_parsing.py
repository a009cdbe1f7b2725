"""Lenient parsing: bodies in another spelling than the documented one are corrected and parsed again.

Only a body that the schema refused gets here, so a body in the documented format costs nothing more. If the corrected
body is refused too, the error is the original one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from msgspec import ValidationError
from msgspec.json import Decoder

from gateway.neutral.parameters import CHAT, words_in
from gateway.surfaces.bodies.unknown_parts import wrap
from gateway.surfaces.web.answer_structs import NEWER
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


# Lenient parsing of chat completions bodies: older spellings of the format, other dialects', and common mistakes.


# Words that are compared without regard to case.
CASELESS_PARAMETERS = tuple(words_in(CHAT))
# Other vendors' words for a service tier.
TIERS = {"standard_only": "default", "standard": "default", "on_demand": "default", "performance": "priority"}
# Content part types of the Responses format, and the member that holds the text.
TEXTS = ("input_text", "output_text")
IMAGES = ("input_image", "image")
# Types that are passed on to no vendor as unknown ones: parts of the format, and those of other formats, which it has
# under another name.
KNOWN_PARTS = frozenset(
    (*("text", "refusal", "image_url", "input_audio", "file"), *TEXTS, *IMAGES, "input_file", "document")
)
KNOWN_TOOLS = frozenset((*OWN_TOOLS, "web_search", "tool_search"))
KNOWN_CHOICES = frozenset((*OWN_TOOLS, "web_search", "allowed_tools"))
BESIDE = ("defer_loading", "cache_control")  # known members of a tool
NAMED = {
    "function": ("name", "description", "parameters", "strict"),
    "custom": ("name", "description", "format"),
}
# Members of tools that stand in the wrong place, or are those of another format.
MISPLACED = (
    "type",
    NEWER,
    *OWN_TOOLS,
    *BESIDE,
    "name",
    "description",
    "parameters",
    "strict",
    "format",
    "input_schema",
)
UNNAMED = "response"  # the name of a JSON Schema without one


def correct_spelling(wire: Json) -> None:
    """Correct every known misspelling; everything else stays unchanged."""
    for name in CASELESS_PARAMETERS:
        if isinstance(wire.get(name), str):
            wire[name] = wire[name].lower()
    if isinstance(wire.get("service_tier"), str):
        wire["service_tier"] = TIERS.get(wire["service_tier"], wire["service_tier"])
    _correct_functions(wire)
    _mend_format(wire.get("response_format"))
    if isinstance(wire.get("tools"), list):
        wire["tools"] = [wrap(_tool(tool), KNOWN_TOOLS) for tool in wire["tools"]]
    if wire.get("tool_choice") is not None:
        wire["tool_choice"] = wrap(read_choice(wire["tool_choice"], _name_tool), KNOWN_CHOICES)
    if isinstance(wire.get("messages"), list):
        wire["messages"] = list(_messages(wire["messages"]))


def _correct_functions(wire: Json) -> None:
    """Replace `functions` and `function_call` by `tools` and `tool_choice`."""
    functions = wire.pop("functions", None)
    call = wire.pop("function_call", None)
    if isinstance(functions, list) and functions and not wire.get("tools"):
        wire["tools"] = [{"type": "function", "function": function} for function in functions]
    if call is not None and wire.get("tool_choice") is None and wire.get("tools"):
        wire["tool_choice"] = call


def _mend_format(shape: Any) -> None:
    """Name a schema without a name (Perplexity), and move one that is a level too high (Together AI, llama.cpp)."""
    if not isinstance(shape, dict) or shape.get("type") != "json_schema":
        return
    if "json_schema" not in shape and "schema" in shape:
        shape["json_schema"] = {"schema": shape.pop("schema")}
    named = shape.get("json_schema")
    if isinstance(named, dict) and not named.get("name"):
        named["name"] = UNNAMED


def _tool(tool: Any) -> Any:
    """Correct a tool with members one level too high, or without a type."""
    if not isinstance(tool, dict):
        return tool
    kind = tool_type_of(tool)
    if kind not in OWN_TOOLS:
        return tool
    kept = {name: tool[name] for name in BESIDE if name in tool}
    outer: Json = {}
    spec = tool.get(kind)
    if not isinstance(spec, dict):
        spec = {name: value for name, value in tool.items() if name not in ("type", *kept)}
    else:
        outer = tool
    if "input_schema" in spec and "parameters" not in spec:
        spec["parameters"] = spec.pop("input_schema")
    newer = {"tool": _newer(outer), "inner": _newer(spec)}
    named = {name: spec[name] for name in NAMED[kind] if name in spec}
    return {"type": kind, kind: named, **kept, **({NEWER: newer} if any(newer.values()) else {})}


def _newer(members: Json) -> Json:
    """Return the members that are newer than this gateway; null says nothing."""
    return {name: value for name, value in members.items() if name not in MISPLACED and value is not None}


def _name_tool(kind: str, named: Json) -> Json:
    """Return the choice of a tool; its name may be one level too high."""
    if isinstance(named.get("name"), str) and not isinstance(named.get(kind), dict):
        return {"type": kind, kind: {"name": named["name"]}}
    return {**named, "type": kind}


def _messages(messages: list[Any]) -> Iterator[Any]:
    """Return the messages, with calls and results in the older format as tool calls and their results. Calls without
    an id get one, and a result without an id that of the first call of its function that has no result."""
    functions: dict[str, str] = {}  # calls in the older format: id by function name
    open_calls = _OpenCalls([])
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            yield message
            continue
        message["role"] = role = message["role"].lower()
        _correct_parts(message)
        ident = f"call_{place}"
        if role == "assistant":
            _correct_calls(message, ident)
            functions |= {name: ident for name in _legacy_call(message, ident)}
            if message.get("tool_calls"):
                open_calls = _OpenCalls(message["tool_calls"])
        elif role == "function":
            name = message.get("name")
            if not isinstance(name, str) or not name:
                name = "function"
            if name not in functions:
                call = {"id": ident, "type": "function", "function": {"name": name, "arguments": "{}"}}
                yield {"role": "assistant", "content": None, "tool_calls": [call]}
            message = {
                "role": "tool",
                "tool_call_id": functions.pop(name, ident),
                "content": message.get("content") or "",
            }
        elif role == "tool":
            open_calls.answer(message)
        yield message


class _OpenCalls:
    """The calls of a turn that have no result yet."""

    def __init__(self, calls: Any) -> None:
        self._answered: set[str] = set()
        self._all: deque[str] = deque()
        self._by_name: dict[str, deque[str]] = {}
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                ident = str(call.get("id"))
                self._all.append(ident)
                self._by_name.setdefault(_name_of(call), deque()).append(ident)

    def answer(self, result: Json) -> None:
        """Write an id into a result without one: that of the first open call of its function, or of any function."""
        ident = result.get("tool_call_id")
        if not ident:
            name = result.get("name")
            named = self._by_name.get(name) if isinstance(name, str) else None
            ident = self._first(named) or self._first(self._all)
        if ident:
            result["tool_call_id"] = ident
            self._answered.add(str(ident))

    def _first(self, idents: deque[str] | None) -> str:
        while idents:
            ident = idents.popleft()
            if ident not in self._answered:
                return ident
        return ""


def _name_of(call: Json) -> str:
    called = call.get("function") or call.get("custom")
    return str(called.get("name")) if isinstance(called, dict) else ""


def _legacy_call(message: Json, ident: str) -> tuple[str, ...]:
    """Turn a `function_call` into a tool call; return its name, if there was one."""
    call = message.pop("function_call", None)
    if not isinstance(call, dict) or message.get("tool_calls"):
        return ()
    message["tool_calls"] = [{"id": ident, "type": "function", "function": _function(call)}]
    if isinstance(call.get("name"), str):
        return (call["name"],)
    return ()


def _correct_calls(message: Json, ident: str) -> None:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return
    for number, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        if not call.get("type"):
            if isinstance(call.get("custom"), dict):
                call["type"] = "custom"
            else:
                call["type"] = "function"
        if isinstance(call.get("function"), dict):
            call["function"] = _function(call["function"])
        if not call.get("id"):
            call["id"] = f"{ident}_{number}" if number else ident


def _function(function: Json) -> Json:
    """Return a called function with its arguments as text."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**function, "arguments": orjson.dumps(arguments).decode()}
    if arguments is None:
        return {**function, "arguments": ""}
    return function


def _correct_parts(message: Json) -> None:
    content = message.get("content")
    if isinstance(content, dict):
        content = message["content"] = [content]
    if isinstance(content, list):
        message["content"] = [wrap(_part(part), KNOWN_PARTS) for part in content]


def _part(part: Any) -> Any:
    """Correct a content part: a bare text, or an image with a bare URL."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    image = part.get("image_url")
    if kind in TEXTS or (kind is None and isinstance(part.get("text"), str)):
        return {**part, "type": "text"}
    if isinstance(image, str):
        image = {"url": image, **({"detail": part["detail"]} if isinstance(part.get("detail"), str) else {})}
    if isinstance(image, dict) and (kind is None or kind in IMAGES or kind == "image_url"):
        return {**part, "type": "image_url", "image_url": image}
    return part
