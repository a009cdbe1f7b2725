"""The options of a chat request: all fields of chat completions besides the model and the messages, with their schema,
their limits and their error messages.

Chat completions decode them together with their messages. Other surfaces build a mapping of them and `read` it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, field

from gateway.errors import InvalidRequest
from gateway.neutral.parameters import CHAT, ChoiceCount, Count, Effort, Level, ServiceTier, Temperature, words_in
from gateway.surfaces.bodies.lenient_parsing import KNOWN_CHOICES, KNOWN_TOOLS, correct_numbers, correct_spelling
from gateway.surfaces.bodies.preference_checks import ImageOptions, Routing, Switch
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.unknown_parts import UNKNOWN, require_unknown
from gateway.surfaces.bodies.validation_errors import explain, invalid, words_of
from gateway.surfaces.web.answer_structs import NEWER
from gateway.surfaces.web.model_options import Models, ProviderOptions

Json = dict[str, Any]
Name = Annotated[str, Meta(min_length=1)]
NULL = Raw(b"null")


class Shape(Struct, omit_defaults=True, gc=False):
    """Unknown members are dropped; members that equal their default are left out when written again."""


class CacheControl(Shape):
    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] | None = None


class NewerMembers(Shape):
    """Members of a tool that are newer than this gateway: those of the tool, and those of its function or free text."""

    tool: Json = {}
    inner: Json = {}


class FunctionSpec(Shape, forbid_unknown_fields=True):
    """A function; `parameters` is the JSON text of the schema, byte for byte as the caller wrote it. The lenient parser
    takes unknown members out of it."""

    name: Name
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    strict: bool | None = None


class FunctionTool(Shape, tag_field="type", tag="function", forbid_unknown_fields=True):
    function: FunctionSpec
    defer_loading: bool | None = None
    cache_control: CacheControl | None = None
    newer: NewerMembers | None = field(default=None, name=NEWER)


class CustomSpec(Shape, forbid_unknown_fields=True):
    name: Name
    description: str | None = None
    format: dict[str, Any] | None = None


class CustomTool(Shape, tag_field="type", tag="custom", forbid_unknown_fields=True):
    custom: CustomSpec
    newer: NewerMembers | None = field(default=None, name=NEWER)


class Location(Shape):
    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class WebSearchTool(Shape, tag_field="type", tag="web_search"):
    user_location: Location | None = None
    search_context_size: Level | None = None
    max_uses: Count | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class SearchPlace(Shape):
    approximate: Location | None = None


class SearchOptions(Shape):
    """OpenAI's field to request a web search, in addition to the tool."""

    user_location: SearchPlace | None = None
    search_context_size: Level | None = None


class ToolSearchTool(Shape, tag_field="type", tag="tool_search"):
    pass


class UnknownTool(Shape, tag_field="type", tag=UNKNOWN):
    """A tool of a type that is newer than this gateway."""

    kind: Name
    body: Json

    def __post_init__(self) -> None:
        require_unknown(self.kind, self.body, KNOWN_TOOLS)


class Named(Shape):
    name: Name


class FunctionChoice(Shape, tag_field="type", tag="function"):
    function: Named


class CustomChoice(Shape, tag_field="type", tag="custom"):
    custom: Named


class WebSearchChoice(Shape, tag_field="type", tag="web_search"):
    pass


class AllowedTools(Shape):
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class AllowedChoice(Shape, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedTools


class UnknownChoice(Shape, tag_field="type", tag=UNKNOWN):
    """A choice of a type that is newer than this gateway."""

    kind: Name
    body: Json

    def __post_init__(self) -> None:
        require_unknown(self.kind, self.body, KNOWN_CHOICES)


ChoiceObject = FunctionChoice | CustomChoice | WebSearchChoice | AllowedChoice | UnknownChoice


class TextFormat(Shape, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(Shape, tag_field="type", tag="json_object"):
    """`schema` and `value` are a JSON Schema, as clients of Together AI, Fireworks and llama.cpp, and `huggingface_hub`
    send it."""

    schema: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET


class JsonSchema(Shape):
    name: Name
    schema: Raw
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Shape, tag_field="type", tag="json_schema"):
    json_schema: JsonSchema


class Reasoning(Shape):
    effort: Effort | None = None
    max_tokens: Count | None = None
    mode: Literal["standard", "pro"] | None = None


class Plugin(Shape):
    id: str


class PromptCacheOptions(Shape):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None


class SensitiveWordCheck(Shape):
    status: Literal["ENABLE", "DISABLE"]


class GatewayOptions(Shape, kw_only=True):
    """The options that the gateway itself handles: routing, caching, service tier and plugins."""

    service_tier: ServiceTier | None = None
    routing: Routing = None
    models: Models | None = None
    provider: ProviderOptions | None = None
    free_models_only: bool | None = None
    no_reasoning: Switch = None
    plugins: list[Plugin] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    user: str | None = None
    image_config: ImageOptions = None
    sensitive_word_check: SensitiveWordCheck | None = None


@with_parameters(CHAT)
class ChatOptions(GatewayOptions, kw_only=True):
    """Every option that has an effect."""

    stream: bool | None = None
    temperature: Temperature | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: ChoiceCount | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    tools: list[FunctionTool | CustomTool | WebSearchTool | ToolSearchTool | UnknownTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
    web_search: bool | None = None
    web_search_options: SearchOptions | None = None
    functions: None = (
        None  # the older forms of tools and tool_choice: rejected here, so that the lenient parser converts them
    )
    function_call: None = None


# Allowed values by path (without list indexes), for error messages.


# Words of parameters in the order of their rows, and of the field that also accepts an object.
PARAMETER_WORDS = {**words_in(CHAT), "tool_choice": ("auto", "none", "required", "an object")}


def read_options(values: Json) -> ChatOptions:
    """Return the validated options of a decoded mapping, which may change. JSON Schemas in it are objects or JSON text
    (Raw). Raises InvalidRequest with the dotted path of an invalid value, after other spellings were corrected."""
    _pack_schemas(values)
    try:
        options = msgspec.convert(values, ChatOptions)
    except ValidationError:
        correct_numbers(values)
        correct_spelling(values)
        _pack_schemas(values)
        try:
            options = msgspec.convert(values, ChatOptions)
        except ValidationError as error:
            raise explain(str(error), {**words_of(ChatOptions), **PARAMETER_WORDS}) from None
    check_together(options)
    return options


def _pack_schemas(values: Json) -> None:
    """Replace the JSON Schemas of tools and of the response format by their JSON text."""
    tools = values.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        _pack(tool, "function", "parameters")
    _pack(values.get("response_format"), "json_schema", "schema")
    for name in ("schema", "value"):
        _pack(values, "response_format", name)


def _pack(holder: Any, inner: str, name: str) -> None:
    if not isinstance(holder, dict):
        return
    spec = holder.get(inner)
    if isinstance(spec, dict) and name in spec and not isinstance(spec[name], Raw):
        holder[inner] = {**spec, name: Raw(msgspec.json.encode(spec[name]))}


def check_together(options: ChatOptions) -> None:
    """Check combinations of fields. Raises InvalidRequest."""
    if options.reasoning and options.reasoning.effort and options.reasoning_effort:
        raise InvalidRequest(
            "Give either reasoning_effort or reasoning.effort, not both.",
            code="invalid_request",
            param="reasoning_effort",
        )
    if (
        options.n
        and options.n > 1
        and options.stream
        and any(isinstance(tool, FunctionTool) for tool in options.tools or ())
    ):
        raise InvalidRequest(
            "n above 1 cannot be streamed together with function tools; set n to 1 or stream to false.",
            code="unsupported_parameter_combination",
            param="n",
        )
    for place, tool in enumerate(options.tools or ()):
        if isinstance(tool, FunctionTool):
            require_object(tool.function.parameters, f"tools.{place}.function.parameters", optional=True)
            if tool.function.parameters == NULL:
                tool.function.parameters = UNSET
    options.response_format = _with_schema(options.response_format)
    if isinstance(options.response_format, JsonSchemaFormat):
        require_object(options.response_format.json_schema.schema, "response_format.json_schema.schema")


def _with_schema(shape: TextFormat | JsonObjectFormat | JsonSchemaFormat | None) -> Any:
    """Return the format, where one of JSON objects has a schema as a format of that schema."""
    if isinstance(shape, JsonObjectFormat):
        for raw in (shape.schema, shape.value):
            if raw is not UNSET and raw != NULL:
                return JsonSchemaFormat(JsonSchema("response", raw))
        return JsonObjectFormat()
    return shape


def require_object(raw: Raw | UnsetType, param: str, *, optional: bool = False) -> None:
    """Raise InvalidRequest unless the JSON text is an object (or null or absent, when `optional`)."""
    start = b"null" if raw is UNSET else bytes(memoryview(raw)[:4])
    if start[:1] == b"{" or (optional and start == b"null"):
        return
    raise invalid(param, "expected an object with a JSON Schema")
