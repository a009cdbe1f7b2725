"""The body of POST /v1/messages: its schema, its limits, and its error messages."""

import re
from collections.abc import Hashable
from typing import Annotated, Any, Literal, cast, get_args

from msgspec import UNSET, DecodeError, Meta, Raw, UnsetType, ValidationError, json
from msgspec.json import Decoder

from gateway.dialects.anthropic import UNTHREADED
from gateway.errors import InvalidRequest, NotSupported
from gateway.neutral.json_weight import without_halves
from gateway.neutral.parts import NAME_LENGTH
from gateway.surfaces.anthropic import blocks as wire
from gateway.surfaces.anthropic.blocks import Blocks, CacheControl, Name, Shape, TextBlock, ToolUseBlock
from gateway.surfaces.bodies.lenient_parsing import decode_again
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.validation_errors import explain, invalid, path_of, readable, words_of
from gateway.surfaces.web.model_options import Models, ProviderOptions

# Blocks of types that the gateway does not know: new ones of the format work on the day of their release.

# Types of parts and tools that only the other format has.
OTHER_FORMAT_TYPES = ("image_url", "input_audio", "input_text", "input_image", "function", "file", "refusal")
KNOWN_CHOICES = ("auto", "any", "tool", "none", "required")  # the last one is of the other format
UNKNOWN = wire.UnknownBlock.__struct_config__.tag


def _tags(union: Any) -> frozenset[str]:
    """Return the types of blocks in a list type."""
    (kinds,) = get_args(union)
    return frozenset(str(kind.__struct_config__.tag) for kind in get_args(kinds))


KNOWN = _tags(wire.Blocks)
KNOWN_IN_RESULTS = _tags(wire.ResultParts)


def wrap_unknown(body: bytes) -> bytes | None:
    """Return a body with its blocks of unknown types wrapped as UnknownBlock, None if there are none or if they belong
    to another format."""
    try:
        wire_body = json.decode(body)
    except (DecodeError, RecursionError):
        return None
    messages = wire_body.get("messages") if isinstance(wire_body, dict) else None
    found = [_wrap(message, KNOWN) for message in messages if isinstance(message, dict)] if messages else []
    choice = wire_body.get("tool_choice") if isinstance(wire_body, dict) else None
    kind = choice.get("type") if isinstance(choice, dict) else None
    if isinstance(kind, str) and kind and kind not in (*KNOWN_CHOICES, *OTHER_FORMAT_TYPES):
        wire_body["tool_choice"] = {"type": UNKNOWN, "kind": kind, "body": choice}
        found.append(True)
    if not any(found):
        return None
    return json.encode(wire_body)


def _wrap(holder: dict[str, Any], known: frozenset[str]) -> bool:
    """Wrap the unknown blocks in the content of a message or a result; return whether there are any."""
    content = holder.get("content")
    if not isinstance(content, list):
        return False
    found = False
    for place, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or not kind or kind in OTHER_FORMAT_TYPES:
            continue
        if kind not in known or kind == UNKNOWN:
            content[place] = {"type": UNKNOWN, "kind": kind, "body": block}
            found = True
        elif kind == "tool_result":
            found = _wrap(block, KNOWN_IN_RESULTS) or found
    return found


MIN_BUDGET = 1024  # Anthropic API reference, thinking.budget_tokens
SEARCH = "web_search_"
OutputEffort = Literal["low", "medium", "high", "xhigh", "max"]


class Message(Shape, tag_field="role"):
    """A message, distinguished by `role`."""

    content: str | Blocks


class UserMessage(Message, tag="user"):
    pass


class AssistantMessage(Shape, tag_field="role", tag="assistant"):
    content: str | Blocks | None = None  # null only beside the calls of another format
    tool_calls: Raw | UnsetType = UNSET  # of another format: rejected with a hint at its operation


class SystemMessage(Message, tag="system"):
    pass


class DeveloperMessage(Message, tag="developer"):
    pass


class ToolMessage(Message, tag="tool", kw_only=True):
    tool_call_id: str = ""


class FunctionMessage(Message, tag="function"):
    pass


Messages = list[UserMessage | AssistantMessage | SystemMessage | DeveloperMessage | ToolMessage | FunctionMessage]


class ToolChoice(Shape, tag_field="type"):
    pass


class AutoChoice(ToolChoice, tag="auto"):
    disable_parallel_tool_use: bool = False


class AnyChoice(ToolChoice, tag="any"):
    disable_parallel_tool_use: bool = False


class NamedChoice(ToolChoice, tag="tool"):
    name: Name
    disable_parallel_tool_use: bool = False


class NoChoice(ToolChoice, tag="none"):
    pass


class NewerChoice(ToolChoice, tag=UNKNOWN):
    """A choice of a type that is newer than this gateway."""

    kind: Name
    body: dict[str, Any]


Display = Literal["summarized", "omitted"]


class Thinking(Shape, tag_field="type"):
    pass


class EnabledThinking(Thinking, tag="enabled"):
    budget_tokens: Annotated[int, Meta(ge=MIN_BUDGET)]
    display: Display | None = None


class AdaptiveThinking(Thinking, tag="adaptive"):
    display: Display | None = None


class DisabledThinking(Thinking, tag="disabled"):
    pass


class BetweenTools(Thinking, tag="between_tools"):
    pass


class OutputFormat(Shape, tag_field="type", tag="json_schema"):
    schema: dict[str, Any]


class OutputConfig(Shape):
    effort: OutputEffort | None = None
    format: OutputFormat | None = None
    task_budget: dict[str, Any] | None = None


class Metadata(Shape):
    user_id: str | None = None


class Prompt(Shape, kw_only=True):
    """The fields that the model reads; every other field of the wire format without an effect here is accepted and
    dropped."""

    model: Name
    messages: Annotated[Messages, Meta(min_length=1)]
    system: str | list[TextBlock] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: AutoChoice | AnyChoice | NamedChoice | NoChoice | NewerChoice | None = None
    thinking: EnabledThinking | AdaptiveThinking | DisabledThinking | BetweenTools | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # the older place of output_config.format
    cache_control: CacheControl | None = None
    response_format: Raw | UnsetType = UNSET  # of another format


@with_parameters("anthropic")
class MessagesBody(Prompt, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    context_management: dict[str, Any] | None = None
    # Only servers of this dialect support these fields.
    container: str | dict[str, Any] | None = None
    mcp_servers: list[dict[str, Any]] | None = None
    # Service tiers other than the default; any other value is left out, which a warning reports.
    speed: Any = None
    inference_geo: Any = None
    models: Models | None = None
    provider: ProviderOptions | None = None
    thread: Any = None  # a conversation that the server keeps


DECODER = Decoder(MessagesBody)
COUNT_DECODER = Decoder(Prompt)
OTHER_FORMAT = (
    "This looks like a request in OpenAI's format ({}). POST /v1/messages takes Anthropic's; send this request to "
    "POST /v1/chat/completions."
)
NO_THREADS = "Message threads are not supported: send all messages of the conversation, without `thread`."
SURROGATE = b"\\ud"  # lone surrogates, which clients write as escapes; they write complete characters directly
# Types of parts and tools that only the other format has.
OTHER_KINDS = re.compile(rf"^Invalid value '({'|'.join(OTHER_FORMAT_TYPES)})'")
UNKNOWN_KIND = re.compile(r"^Invalid value '[^']+' - at `\$\.(?:messages\[|tool_choice)")
# Members of functions in other formats, which clients leave in their tools.
OTHER_TOOL_FIELDS = frozenset(("parameters", "function", "inputSchema", "parametersJsonSchema", "outputSchema"))
# Members of the caller's own tools; a server tool belongs to its vendor and is kept unchanged.
TOOL_FIELDS = frozenset(
    (
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "input_examples",
        "eager_input_streaming",
    )
)


def decode(body: bytes) -> MessagesBody:
    """Return the validated body of a request. Raises InvalidRequest `invalid_json` or `invalid_parameters` with `param`
    set, and NotSupported for a message thread."""
    decoded: MessagesBody = _decode(DECODER, body)
    if decoded.thread:
        raise NotSupported(NO_THREADS, param="thread", code=UNTHREADED)
    return decoded


def decode_count(body: bytes) -> Prompt:
    """Return the validated body of a token count: a request's body without the settings of its response."""
    decoded: Prompt = _decode(COUNT_DECODER, body)
    return decoded


def _decode(decoder: Decoder[Any], body: bytes) -> Any:
    # Call arguments are forwarded unparsed: upstreams would reject a lone surrogate in them. A search from the end
    # takes a tenth of the time.
    if body.rfind(SURROGATE) >= 0:
        body = without_halves(body)
    try:
        decoded = decoder.decode(body)
    except ValidationError as error:
        decoded = _decode_loose(decoder, body, error)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _decode(decoder, readable(body, error))
    _check_format(decoded)
    _check_calls(decoded.messages)
    if decoded.tools:
        decoded.tools = [_check_tool(tool, f"tools.{place}") for place, tool in enumerate(decoded.tools)]
    return decoded


def _decode_loose(decoder: Decoder[Any], body: bytes, error: ValidationError) -> Any:
    try:
        return decode_again(decoder, body, error)
    except ValidationError as still:
        wrapped = wrap_unknown(body) if UNKNOWN_KIND.match(str(still)) else None
        if wrapped is not None:
            return _decode(decoder, wrapped)
        text = str(still)
        match = OTHER_KINDS.match(text)
        if match and path_of(text).endswith("type"):
            raise _other_format(f"{path_of(text)} is {match[1]}", path_of(text)) from None
        raise explain(text, words_of(cast(Hashable, decoder.type))) from None


def _other_format(what: str, param: str) -> InvalidRequest:
    return InvalidRequest(OTHER_FORMAT.format(what), code="invalid_request", param=param)


def _check_format(body: Prompt) -> None:
    """Reject bodies in the other format; its plain settings alone are ignored."""
    if body.response_format is not UNSET and bytes(memoryview(body.response_format)) != b"null":
        raise _other_format("response_format", "response_format")
    for place, message in enumerate(body.messages):
        if type(message) is AssistantMessage:
            if message.tool_calls is not UNSET:
                raise _other_format("tool_calls of a message", f"messages.{place}.tool_calls")
            if message.content is None:
                raise invalid(f"messages.{place}.content", "expected string or array, got null")
    for place, tool in enumerate(body.tools or ()):
        if tool.get("type") == "function" or isinstance(tool.get("function"), dict):
            raise _other_format("tools with type function", f"tools.{place}")


def _check_calls(messages: Messages) -> None:
    """Check that the input of each call is an object."""
    for place, message in enumerate(messages):
        if type(message) is not AssistantMessage or not isinstance(message.content, list):
            continue
        for number, block in enumerate(message.content):
            if type(block) is ToolUseBlock and bytes(memoryview(block.input)[:1]) != b"{":
                raise invalid(f"messages.{place}.content.{number}.input", "expected an object")


def _check_tool(tool: dict[str, Any], path: str) -> dict[str, Any]:
    """Check a tool, and leave out the members of other formats. Raises InvalidRequest."""
    kind = tool.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid(f"{path}.type", "expected string or null")
    if kind not in (None, "custom") and tool.get("name") is None:
        return tool  # a set of tools has no name
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise invalid(f"{path}.name", "expected a name")
    if kind not in (None, "custom"):
        return tool
    if "input_schema" not in tool:
        raise InvalidRequest(
            f"The required field '{path}.input_schema' is missing; add it.", param=f"{path}.input_schema"
        )
    if not isinstance(tool["input_schema"], dict):
        raise invalid(f"{path}.input_schema", "expected an object with a JSON Schema")
    if not isinstance(tool.get("description") or "", str):
        raise invalid(f"{path}.description", "expected string")
    mark = tool.get("cache_control")
    if mark is not None and (not isinstance(mark, dict) or mark.get("ttl") not in (None, "5m", "1h")):
        raise invalid(f"{path}.cache_control", 'expected {"type": "ephemeral"}, optionally with a ttl of 5m or 1h')
    if tool.keys().isdisjoint(OTHER_TOOL_FIELDS):
        return tool
    return {name: value for name, value in tool.items() if name not in OTHER_TOOL_FIELDS}


def newer_members(tool: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of members that are newer than this gateway: servers of this format get them unchanged."""
    return tuple(name[:NAME_LENGTH] for name in tool if name not in TOOL_FIELDS)
