"""Converts a language-model request into a neutral chat request."""

import re
from typing import Any

import orjson
from msgspec import Raw, Struct, UnsetType, field, structs

from gateway.configuration.settings import LimitSettings
from gateway.dialects.aisdk import (
    NAME,
    OWN_NAMESPACE,
    ROUTING,
    ROUTING_MEMBERS,
    ROUTING_SORTS,
    SEARCH_FIELDS,
    SEARCH_TOOLS,
)
from gateway.dialects.field_names import NAMES
from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest
from gateway.neutral.json_weight import without_halves
from gateway.neutral.parameters import PARAMETERS
from gateway.surfaces.aisdk import schema
from gateway.surfaces.aisdk import schema as wire
from gateway.surfaces.aisdk.options import read_mark, unsupported, unsupported_tool
from gateway.surfaces.aisdk.prompt import Prompt
from gateway.surfaces.bodies import chat_options as chat_options_module
from gateway.surfaces.bodies.chat_option_reader import PromptSize, request_of
from gateway.surfaces.bodies.chat_options import ChatOptions
from gateway.surfaces.bodies.validation_errors import invalid, unreadable
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.http import Inbound

# Converts everything in a request except its prompt into the options of chat completions: one schema and one set of
# limits for both.

Json = dict[str, Any]

# Call option and field of chat completions by parameter.
NUMBER_OPTIONS = tuple((row.callers[NAME], row.field) for row in PARAMETERS.values() if NAME in row.callers)
# Options with no counterpart, in the order of their warnings.
UNSUPPORTED_OPTIONS = (("stop", "stopSequences"), ("seed", "seed"), ("top_k", "topK"))
AS_THE_PROVIDER_DOES = "provider-default"
FORMAT_NAME = "response"
MAX_NAME_LENGTH = 64
NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
EXAMPLES = "\n\nExamples of input:\n"
NULL = b"null"
SEARCH = {"type": "web_search"}
PLAIN_CHOICES: dict[type, str] = {wire.AutoChoice: "auto", wire.NeverChoice: "none", wire.RequiredChoice: "required"}


class CallSettings(Struct):
    """The settings of a call. `values` are the options of chat completions, `search` the caller's name for web search
    ("": not used), `warnings` list what was left out. `own` are the fields set in the caller's namespace."""

    values: Json
    search: str = ""
    warnings: list[Json] = field(default_factory=list)
    own: frozenset[str] = frozenset()


def read_options(call: wire.CallOptions, stream: bool) -> tuple[ChatOptions, CallSettings]:
    """Return the validated options of a call and its settings. Raises InvalidRequest with the path of a call option."""
    settings = _collect(call, stream)
    return _read_setting(settings), settings


def _collect(call: wire.CallOptions, stream: bool) -> CallSettings:
    """Return the settings of a call. Raises InvalidRequest for errors that the reader of chat options would not
    detect."""
    values: Json = {}
    if stream:
        values["stream"] = True
    for name, chat_name in NUMBER_OPTIONS:
        value = getattr(call, name)
        if value is not None:
            values[chat_name] = value
    if call.reasoning is not None and call.reasoning != AS_THE_PROVIDER_DOES:
        values["reasoning_effort"] = call.reasoning
    if type(call.format) is wire.JsonFormat:
        values["response_format"] = _write_format(call.format)
    warnings: list[Json] = [
        unsupported(shown) for name, shown in UNSUPPORTED_OPTIONS if getattr(call, name) is not None
    ]
    settings = CallSettings(values, warnings=warnings)
    if call.tools:
        _add_tools(call, settings)
    if call.options:
        _add_routing(call.options, settings)
        _add_own(call.options, settings)
    return settings


def _read_setting(settings: CallSettings) -> ChatOptions:
    """Return the validated options. An error that names a field of chat completions is converted to the name of the
    call option, unless the caller's namespace set the field."""
    try:
        return chat_options_module.read_options(settings.values)
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


def _write_format(format: wire.JsonFormat) -> Json:
    if isinstance(format.schema, UnsetType) or format.schema == NULL:
        return {"type": "json_object"}
    # Callers may use any characters in the name, vendors accept identifiers only.
    name = NO_NAME.sub("_", format.name or FORMAT_NAME)[:MAX_NAME_LENGTH]
    inner: Json = {"name": name, "schema": format.schema}
    if format.description:
        inner["description"] = format.description
    return {"type": "json_schema", "json_schema": inner}


def _add_tools(call: wire.CallOptions, settings: CallSettings) -> None:
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
    settings.values["tools"] = tools
    if call.choice is not None:
        settings.values["tool_choice"] = _write_choice(call.choice, settings.search, dropped)


def _write_function(tool: wire.FunctionTool, place: int) -> Json:
    if not tool.name:
        raise invalid(f"tools.{place}.name", "it is empty")
    function: Json = {"name": tool.name}
    description = tool.description or ""
    if tool.examples:
        # Few vendors have a field for examples; all models read them in the description.
        description += EXAMPLES + "\n".join(bytes(memoryview(example.input)).decode() for example in tool.examples)
    if description:
        function["description"] = description.strip()
    if not isinstance(tool.schema, UnsetType) and tool.schema != NULL:
        if bytes(memoryview(tool.schema)[:1]) != b"{":
            raise invalid(f"tools.{place}.inputSchema", "expected an object with a JSON Schema")
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    written: Json = {"type": "function", "function": function}
    mark = read_mark(tool.options) if tool.options is not None else None
    if mark is not None:
        written["cache_control"] = {"type": "ephemeral", **({"ttl": mark.ttl} if mark.ttl else {})}
    return written


def _write_search(args: Any) -> Json:
    """Return the arguments of a vendor's search tool; unsupported ones are left out."""
    if type(args) is not dict:
        return {}
    filters = args.get("filters")
    given = {**(filters if type(filters) is dict else {}), **args}
    options = {chat: given[name] for name, chat in SEARCH_FIELDS.items() if given.get(name) is not None}
    where = options.get("user_location")
    if type(where) is dict:
        options["user_location"] = {name: value for name, value in where.items() if name != "type"}
    return options


def _write_choice(choice: Any, search: str, dropped: set[str]) -> Any:
    if type(choice) is not wire.ToolChoice:
        return PLAIN_CHOICES[type(choice)]
    if search and choice.name == search:
        return SEARCH
    if choice.name in dropped:
        return "auto"
    return {"type": "function", "function": {"name": choice.name}}


def _add_routing(options: dict[str, Raw], settings: CallSettings) -> None:
    """Add the further models and the preferences among providers that the SDK's own namespace names."""
    given = _read_namespace(options, ROUTING)
    chosen = {name: value for name in ROUTING_MEMBERS if (value := given.get(name)) is not None}
    if "sort" in chosen:
        chosen["sort"] = ROUTING_SORTS.get(str(chosen["sort"]), chosen["sort"])
    if chosen:
        settings.values["provider"] = chosen
    if given.get("models"):
        settings.values["models"] = given["models"]


def _read_namespace(options: dict[str, Raw], name: str) -> Json:
    """Return the object of a namespace, empty where the call has none. Raises InvalidRequest for other values."""
    raw = options.get(name)
    if raw is None:
        return {}
    try:
        given = orjson.loads(without_halves(bytes(raw))) or {}
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise invalid(f"providerOptions.{name}", "expected an object")
    return given


def _add_own(options: dict[str, Raw], settings: CallSettings) -> None:
    """Add the fields of the gateway's namespace: any field of chat completions, which overrides the call options. A
    header says whether the response is streamed."""
    given = _read_namespace(options, OWN_NAMESPACE)
    own = {name: value for name, value in given.items() if name != "stream" and value is not None}
    if "reasoning" in own:
        settings.values.pop("reasoning_effort", None)
    if "max_completion_tokens" in own:
        settings.values.pop("max_tokens", None)
    settings.values.update(own)
    settings.own = frozenset(own)


VERSION_HEADER = "ai-language-model-specification-version"
MODEL_HEADER = "ai-language-model-id"
STREAMING_HEADER = "ai-language-model-streaming"
NEWEST = 4
VERSIONS = {"2": 2, "3": 3, "4": NEWEST}


class Question(Struct, frozen=True):
    """A request, with the facts that its response needs: the specification version (2, 3, 4), the caller's name for web
    search ("": none), and the call options that were left out."""

    request: ChatRequest
    version: int
    search: str
    warnings: list[dict[str, Any]]


def version_of(inbound: Inbound, of_prefix: int) -> int:
    """Return the version in the header, else that of the path prefix."""
    return VERSIONS.get(inbound.header(VERSION_HEADER).removeprefix("v"), of_prefix)


def read_question(inbound: Inbound, version: int, limits: LimitSettings) -> Question:
    """Return the question of a request. Raises InvalidRequest with the dotted path of an invalid value."""
    model = inbound.header(MODEL_HEADER)
    if not model:
        raise InvalidRequest(f"Set the model in the header '{MODEL_HEADER}'.", param=MODEL_HEADER)
    stream = inbound.header(STREAMING_HEADER).lower() == "true"
    raw = inbound.body
    return caps_module.read_measured(limits, raw, _read, limits, raw, model, stream, version)


def _read(large: bool, limits: LimitSettings, raw: bytes, model: str, stream: bool, version: int) -> Question:
    call = schema.decode(raw)
    caps_module.check(limits, raw, call.prompt, None)
    if not call.prompt:
        raise InvalidRequest("The prompt is empty; give at least one message.", param="prompt")
    try:
        options, settings = read_options(call, stream)
        prompt = Prompt(call.prompt)
    except (UnicodeDecodeError, RecursionError) as error:  # in a member that is forwarded unchanged
        raise unreadable(error) from None
    if not prompt.messages:
        raise InvalidRequest("The prompt contains nothing that a model can read.", param="prompt")
    caps_module.check(limits, raw, None, options.tools, options.response_format)
    size = PromptSize(
        prompt.text, prompt.images, prompt.sounds, prompt.files, prompt.count, earlier_images=prompt.earlier_images
    )
    request = request_of(model, options, size, prompt.messages, marks=prompt.marked)
    request.requirements = structs.replace(request.requirements, keeps_reasoning=True)
    request.large = large
    return Question(request, version, settings.search, settings.warnings)
