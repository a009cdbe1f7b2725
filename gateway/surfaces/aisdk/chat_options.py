"""Converts everything in a request except its prompt into a chat completions body: one schema and one set of limits for
both."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from gateway.dialects.aisdk import OWN, SEARCH_FIELDS, SEARCH_TOOLS
from gateway.dialects.field_names import NAMES
from gateway.errors import InvalidRequest
from gateway.surfaces.aisdk import schema as wire
from gateway.surfaces.aisdk.options import read_mark
from gateway.surfaces.aisdk.warnings import unsupported, unsupported_tool
from gateway.surfaces.validation_errors import invalid

Json = dict[str, Any]

# Placeholder for the prompt, which is read separately; its length is subtracted again.
PLACEHOLDER = [{"role": "user", "content": "-"}]
PLACEHOLDER_BYTES = 1
NUMBERS = (
    ("max_tokens", "max_tokens"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
)
# Fields of chat completions that a caller's namespace may not set, because other fields of the call set them.
ENVELOPE_FIELDS = ("model", "messages", "stream")
# Options with no counterpart, in the order of their warnings.
UNSUPPORTED = (("stop", "stopSequences"), ("seed", "seed"), ("top_k", "topK"))
AS_THE_PROVIDER_DOES = "provider-default"
FORMAT_NAME = "response"
LONGEST_NAME = 64
NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
EXAMPLES = "\n\nExamples of input:\n"
NULL = b"null"
SEARCH = {"type": "web_search"}
PLAIN_CHOICES: dict[type, str] = {wire.AutoChoice: "auto", wire.NeverChoice: "none", wire.RequiredChoice: "required"}


@dataclass(slots=True)
class CallSettings:
    """The settings of a call. `body` is the JSON text for chat completions, `search` the caller's name for web search
    ("": not used), `warnings` list what was left out. `own` are the fields set in the caller's namespace."""

    body: bytes
    search: str = ""
    warnings: list[Json] = field(default_factory=list)
    own: frozenset[str] = frozenset()


def write_settings(call: wire.CallOptions, model: str, stream: bool) -> CallSettings:
    """Return the settings of some call options. Raises InvalidRequest for errors that the chat completions reader would
    not detect."""
    body: Json = {"model": model, "messages": PLACEHOLDER}
    if stream:
        body["stream"] = True
    for name, chat_name in NUMBERS:
        value = getattr(call, name)
        if value is not None:
            body[chat_name] = value
    if call.reasoning is not None and call.reasoning != AS_THE_PROVIDER_DOES:
        body["reasoning_effort"] = call.reasoning
    if type(call.format) is wire.JsonFormat:
        body["response_format"] = _write_format(call.format)
    warnings: list[Json] = [unsupported(shown) for name, shown in UNSUPPORTED if getattr(call, name) is not None]
    settings = CallSettings(b"", warnings=warnings)
    if call.tools:
        _add_tools(call, body, settings)
    if call.options:
        _add_own(call.options, body, settings)
    settings.body = msgspec.json.encode(body)
    return settings


def restated(read: Callable[[], Any], settings: CallSettings) -> Any:
    """Return `read(settings)`. An error that names a field of chat completions is converted to the name of the call
    option, unless the caller's namespace set the field."""
    try:
        return read()
    except InvalidRequest as error:
        first, dot, rest = error.param.partition(".")
        name = NAMES["aisdk"].get(first)
        if first == "reasoning_effort" and first not in settings.own:
            name = "reasoning"
        if name and first not in settings.own:
            error.message = error.message.replace(f"'{error.param}'", f"'{name}{dot}{rest}'")
            error.param = f"{name}{dot}{rest}"
            error.args = (error.message,)
        raise


def _write_format(wanted: wire.JsonFormat) -> Json:
    if isinstance(wanted.schema, UnsetType) or wanted.schema == NULL:
        return {"type": "json_object"}
    # Callers may use any characters in the name, vendors accept identifiers only.
    name = NO_NAME.sub("_", wanted.name or FORMAT_NAME)[:LONGEST_NAME]
    inner: Json = {"name": name, "schema": wanted.schema}
    if wanted.description:
        inner["description"] = wanted.description
    return {"type": "json_schema", "json_schema": inner}


def _add_tools(call: wire.CallOptions, body: Json, settings: CallSettings) -> None:
    """Add the tools and the tool choice; a vendor's tools become web search, or are left out."""
    tools: list[Json] = []
    dropped: set[str] = set()
    for place, tool in enumerate(call.tools or ()):
        if isinstance(tool, wire.FunctionTool):
            tools.append(_write_function(tool, place))
        elif tool.id not in SEARCH_TOOLS:
            dropped.add(tool.name)
            settings.warnings.append(unsupported_tool(tool))
        elif not settings.search:
            settings.search = tool.name or SEARCH["type"]
            tools.append(SEARCH | _write_search(tool.args))
    if not tools:
        return
    body["tools"] = tools
    if call.choice is not None:
        body["tool_choice"] = _write_choice(call.choice, settings.search, dropped)


def _write_function(tool: wire.FunctionTool, place: int) -> Json:
    if not tool.name:
        raise invalid(f"tools.{place}.name", "it is empty")
    function: Json = {"name": tool.name}
    description = tool.description or ""
    if tool.examples:
        # Few vendors have a field for examples; all models read them in the description.
        description += EXAMPLES + "\n".join(bytes(memoryview(one.input)).decode() for one in tool.examples)
    if description:
        function["description"] = description.strip()
    if not isinstance(tool.schema, UnsetType) and tool.schema != NULL:
        if bytes(memoryview(tool.schema)[:1]) != b"{":
            raise invalid(f"tools.{place}.inputSchema", "expected an object with a JSON Schema")
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    written: Json = {"type": "function", "function": function}
    if tool.options is not None:
        mark = read_mark(tool.options)
    else:
        mark = None
    if mark is not None:
        written["cache_control"] = {"type": "ephemeral", **({"ttl": mark.ttl} if mark.ttl else {})}
    return written


def _write_search(args: Any) -> Json:
    """Return the arguments of a vendor's search tool; unsupported ones are left out."""
    if type(args) is not dict:
        return {}
    filters = args.get("filters")
    given = {**(filters if type(filters) is dict else {}), **args}
    found = {chat: given[name] for name, chat in SEARCH_FIELDS.items() if given.get(name) is not None}
    where = found.get("user_location")
    if type(where) is dict:
        found["user_location"] = {name: value for name, value in where.items() if name != "type"}
    return found


def _write_choice(choice: Any, search: str, dropped: set[str]) -> Any:
    if type(choice) is not wire.ToolChoice:
        return PLAIN_CHOICES[type(choice)]
    if search and choice.name == search:
        return SEARCH
    if choice.name in dropped:
        return "auto"
    return {"type": "function", "function": {"name": choice.name}}


def _add_own(options: dict[str, Raw], body: Json, settings: CallSettings) -> None:
    """Add the fields of the gateway's namespace: any field of chat completions, which overrides the call options."""
    raw = options.get(OWN)
    if raw is None:
        return
    try:
        given = msgspec.json.decode(raw, type=dict[str, Raw] | None) or {}
    except msgspec.DecodeError:
        raise invalid(f"providerOptions.{OWN}", "expected an object with fields of chat completions") from None
    own = {name: value for name, value in given.items() if name not in ENVELOPE_FIELDS and value != NULL}
    if "reasoning" in own:
        body.pop("reasoning_effort", None)
    if "max_completion_tokens" in own:
        body.pop("max_tokens", None)
    body.update(own)
    settings.own = frozenset(own)
