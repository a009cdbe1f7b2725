"""Arguments of tools as structs, and their JSON Schemas."""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.errors import InvalidRequest
from gateway.surfaces.mcp.chat_messages import ChatMessage
from gateway.surfaces.validation_errors import explain, words_of

Json = dict[str, Any]
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


def read(kind: type[T], given: Any) -> T:
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
