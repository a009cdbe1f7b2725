"""Arguments of tools as structs, and their JSON Schemas."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import orjson
from msgspec import Meta, Struct, to_builtins

from gateway.callers.authentication import Caller
from gateway.configuration.settings import LimitSettings
from gateway.errors import GatewayError, InvalidRequest
from gateway.neutral.chat import ChatRequest
from gateway.surfaces.bodies.validation_errors import explain, words_of
from gateway.surfaces.openai import chat
from gateway.surfaces.web.http import Inbound
from gateway.worker.services import Services

# The messages of the chat tool: those of a chat completion, and content blocks as MCP writes them.

Json = dict[str, Any]
Content: TypeAlias = Annotated[
    str | list[Json | str] | Json | None,
    Meta(
        description="A text, or parts: text, image_url, input_audio and file of chat completions, or text, image and "
        "audio blocks of MCP. Null only for the assistant."
    ),
]
SOUNDS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mp4": "m4a"}


class ChatMessage(Struct, omit_defaults=True):
    """A message of a chat."""

    role: Literal["user", "assistant", "system", "developer", "tool"]
    content: Content = None
    name: Annotated[str, Meta(description="The name of the author.")] | None = None
    tool_call_id: Annotated[str, Meta(description="Of the role tool: the call that it answers.")] | None = None
    tool_calls: Annotated[list[Json], Meta(description="Of the assistant: its calls.")] | None = None


def body_of(model: str, messages: list[ChatMessage], options: Json) -> Json:
    """Return the body of the chat completion for a call of the tool."""
    return {"model": model, "messages": [_write(message) for message in messages], **options}


def request_of(limits: LimitSettings, body: Json) -> ChatRequest:
    """Return the neutral request of a body. Raises InvalidRequest with the path of an invalid value."""
    _, request = chat.read_body(limits, orjson.dumps(body))
    return request


def _write(message: ChatMessage) -> Json:
    written: Json = to_builtins(message)
    content = message.content
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        written["content"] = [_part(part) for part in content]
    return written


def _part(part: Json | str) -> Json:
    """Return a part of a chat completion. What is neither a text nor a block of MCP is left to the chat dialect."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind, data = part.get("type"), part.get("data")
    media_type = part.get("mimeType")
    if kind == "image" and isinstance(data, str):
        return {"type": "image_url", "image_url": {"url": f"data:{media_type or 'image/png'};base64,{data}"}}
    if kind == "audio" and isinstance(data, str):
        name = str(media_type or "audio/wav").lower()
        return {"type": "input_audio", "input_audio": {"data": data, "format": SOUNDS.get(name, name[6:])}}
    return part


# The arguments and results of tools: content blocks, structured content, and errors that a model can read.


class ToolContext(Struct, frozen=True):
    """A tool call: its caller, the request that it came with, and its deadline (monotonic)."""

    services: Services
    inbound: Inbound
    caller: Caller
    deadline: float


def begin(services: Services, inbound: Inbound, caller: Caller) -> ToolContext:
    """Return the context of a call that begins now."""
    return ToolContext(services, inbound, caller, services.clock.monotonic() + services.settings.mcp.tool_timeout_s)


def text_of(text: str) -> Json:
    """Return a text content block."""
    return {"type": "text", "text": text}


def blocks(*content: Json) -> Json:
    """Return a result of content blocks."""
    return {"content": list(content)}


def structured(value: Mapping[str, Any], *content: Json) -> Json:
    """Return a structured result; without `content` its JSON is also the text."""
    return {"content": list(content) or [text_of(orjson.dumps(value).decode())], "structuredContent": value}


def failed(error: GatewayError) -> Json:
    """Return a result for a failed call: its status, stable code and message."""
    return {"content": [text_of(f"{error.status} {error.code}: {error.message}")], "isError": True}


T = TypeVar("T")
UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`")
# The reader of the period validates it, with clearer messages than a pattern.
Day = Annotated[str, Meta(extra_json_schema={"pattern": r"^\d{4}-\d{2}-\d{2}$", "format": "date"})]
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]


class NoArguments(Struct, forbid_unknown_fields=True):
    """No arguments: any argument is rejected."""


class UsageArguments(Struct, forbid_unknown_fields=True, rename={"from_date": "from", "to_date": "to"}):
    from_date: Annotated[Day, Meta(description="First day in UTC; default: 29 days before `to`.")] | None = None
    to_date: Annotated[Day, Meta(description="Last day in UTC, included; default: today.")] | None = None
    granularity: Literal["day", "hour"] = "day"


class BreakdownArguments(
    Struct, kw_only=True, forbid_unknown_fields=True, rename={"from_date": "from", "to_date": "to"}
):
    group_by: Literal["provider", "model", "app", "api_key"]
    sort_by: Literal["requests", "cost", "tokens"] = "requests"
    from_date: Annotated[Day, Meta(description="First day in UTC; default: 29 days before `to`.")] | None = None
    to_date: Annotated[Day, Meta(description="Last day in UTC, included; default: today.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0


class ChatArguments(Struct):
    model: Annotated[Text, Meta(description="A model id of list-models, provider/model, or auto.")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    stream: Annotated[bool, Meta(description="Has no effect: the response is never streamed.")] | None = None


class ImageArguments(Struct):
    prompt: Text
    model: Annotated[str, Meta(max_length=256, description="Default: the default model of list-image-models.")] = ""
    size: Annotated[str, Meta(max_length=64)] = "1024x1024"
    n: Annotated[int, Meta(ge=1, le=4)] = 1


class AltImageArguments(Struct):
    prompt: Text
    filename: Annotated[str, Meta(max_length=200, description="A file name without a path.")] = ""
    aspect_ratio: Literal["1:1", "16:9", "4:3", "5:4"] | None = None


class ListArguments(Struct):
    include_deactivated: bool = False
    exclude_deprecated: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of models to list; default: 20.")] = 20
    family: Annotated[str, Meta(max_length=100)] | None = None


class AnyArguments(Struct):
    """Any arguments; they have no effect."""


def read_arguments(kind: type[T], given: Any) -> T:
    """Return the arguments of a tool; null counts as absent, 20.0 as 20. InvalidRequest names the invalid argument."""
    if given is None:
        given = {}
    if isinstance(given, dict):
        given = {name: _whole(value) for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind) from None


def _whole(value: Any) -> Any:
    """Return 20.0 as 20: JSON does not distinguish them, and programs with one numeric type write either."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _explain(text: str, kind: type) -> InvalidRequest:
    unknown = UNKNOWN.match(text)
    if unknown and "$" not in text:
        name = unknown[1][:64]
        return InvalidRequest(f"Unknown argument '{name}'; the API key alone determines the account.", param=name)
    return explain(text, words_of(kind))


def schema_of(kind: type) -> Json:
    """Return the JSON Schema of a tool's arguments."""
    (_, components) = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    written: Json = dict(components.pop(kind.__name__))
    for extra in ("title", "description"):
        written.pop(extra, None)
    written.setdefault("properties", {})
    return written | ({"$defs": components} if components else {})
