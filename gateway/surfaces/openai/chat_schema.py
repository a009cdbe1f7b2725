"""The body of POST /v1/chat/completions: its schema, its limits, and its error messages."""

from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, DecodeError, Meta, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from gateway.errors import InvalidRequest
from gateway.surfaces.loose import read_again, write_again
from gateway.surfaces.openai.loose_chat import mend
from gateway.surfaces.preference_checks import ImageOptions, Routing, Switch
from gateway.surfaces.validation_errors import explain, invalid, readable

Efforts = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Levels = Literal["low", "medium", "high"]
Tiers = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
AudioFormat = Literal["wav", "mp3", "aiff", "aac", "ogg", "flac", "m4a", "mpeg", "mpga", "mp4", "pcm", "webm"]
Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1)]
Speaker = Annotated[str, Meta(max_length=256)]  # a name in a message, which models read


class Shape(Struct, omit_defaults=True, gc=False):
    """Unknown members are dropped; members that equal their default are left out when written again."""


class CacheControl(Shape):
    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] | None = None


class Breakpoint(Shape):
    mode: Literal["explicit"]
    ttl: str | None = None


class Part(Shape, tag_field="type"):
    """A part of a message's content, distinguished by `type`."""


class TextPart(Part, tag="text"):
    text: str
    cache_control: CacheControl | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


class RefusalPart(Part, tag="refusal"):
    refusal: str


class ImageUrl(Shape):
    url: Name
    detail: Literal["low", "high", "auto", "original"] | None = None


class ImagePart(Part, tag="image_url"):
    image_url: ImageUrl
    cache_control: CacheControl | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


class InputAudio(Shape):
    data: Name
    format: AudioFormat


class AudioPart(Part, tag="input_audio"):
    input_audio: InputAudio
    prompt_cache_breakpoint: Breakpoint | None = None


class FileData(Shape):
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class FilePart(Part, tag="file"):
    file: FileData
    cache_control: CacheControl | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


AnyPart = TextPart | RefusalPart | ImagePart | AudioPart | FilePart
Parts = list[AnyPart]


class Function(Struct, gc=False):
    name: Name
    arguments: str = ""


class CustomInput(Struct, gc=False):
    name: Name
    input: str = ""


class FunctionCall(Struct, tag_field="type", tag="function", gc=False):
    id: Name
    function: Function


class CustomCall(Struct, tag_field="type", tag="custom", gc=False):
    id: Name
    custom: CustomInput


class Message(Shape, tag_field="role"):
    """A message, distinguished by `role`. `content` is UNSET when absent, None when null."""

    content: str | Parts | None | UnsetType = UNSET


class SystemMessage(Message, tag="system"):
    name: Speaker | None = None


class DeveloperMessage(Message, tag="developer"):
    name: Speaker | None = None


class UserMessage(Message, tag="user"):
    name: Speaker | None = None


class PastAudio(Shape):
    id: Name


class AssistantMessage(Message, tag="assistant"):
    name: Speaker | None = None
    refusal: str | None = None
    audio: PastAudio | None = None
    tool_calls: list[FunctionCall | CustomCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    function_call: None = None  # the older form of tool_calls: rejected here, so that the lenient parser converts it


class ToolMessage(Message, tag="tool", kw_only=True):
    tool_call_id: Name
    tool_result_cache_control: CacheControl | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = list[AnyMessage]


class FunctionSpec(Shape):
    """A function; `parameters` is the JSON text of the schema, byte for byte as the caller wrote it."""

    name: Name
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    strict: bool | None = None


class FunctionTool(Shape, tag_field="type", tag="function"):
    function: FunctionSpec
    defer_loading: bool | None = None
    cache_control: CacheControl | None = None


class CustomSpec(Shape):
    name: Name
    description: str | None = None
    format: dict[str, Any] | None = None


class CustomTool(Shape, tag_field="type", tag="custom"):
    custom: CustomSpec


class Location(Shape):
    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class WebSearchTool(Shape, tag_field="type", tag="web_search"):
    user_location: Location | None = None
    search_context_size: Levels | None = None
    max_uses: Count | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class SearchPlace(Shape):
    approximate: Location | None = None


class SearchOptions(Shape):
    """OpenAI's field to request a web search, in addition to the tool."""

    user_location: SearchPlace | None = None
    search_context_size: Levels | None = None


class ToolSearchTool(Shape, tag_field="type", tag="tool_search"):
    pass


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


ChoiceObject = FunctionChoice | CustomChoice | WebSearchChoice | AllowedChoice


class TextFormat(Shape, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(Shape, tag_field="type", tag="json_object"):
    pass


class JsonSchema(Shape):
    name: Name
    schema: Raw
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Shape, tag_field="type", tag="json_schema"):
    json_schema: JsonSchema


class Reasoning(Shape):
    effort: Efforts | None = None
    max_tokens: Count | None = None
    mode: Literal["standard", "pro"] | None = None


class Plugin(Shape):
    id: str


class PromptCacheOptions(Shape):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None


class SensitiveWordCheck(Shape):
    status: Literal["ENABLE", "DISABLE"]


class ChatBody(Shape, kw_only=True):
    """Every field that has an effect; all others of the wire format (stop, seed, logprobs …) are accepted and
    dropped."""

    model: Name
    messages: Annotated[Messages, Meta(min_length=1)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    n: Count | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    tools: list[FunctionTool | CustomTool | WebSearchTool | ToolSearchTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Efforts | None = None
    reasoning: Reasoning | None = None
    effort: Levels | None = None
    verbosity: Levels | None = None
    service_tier: Tiers | None = None
    routing: Routing = None
    free_models_only: bool | None = None
    no_reasoning: Switch = None
    onboarding: Any = None
    web_search: bool | None = None
    web_search_options: SearchOptions | None = None
    plugins: list[Plugin] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    user: str | None = None
    metadata: Any = None  # an object is kept with the request, any other type has no effect
    image_config: ImageOptions = None
    sensitive_word_check: SensitiveWordCheck | None = None
    functions: None = (
        None  # the older forms of tools and tool_choice: rejected here, so that the lenient parser converts them
    )
    function_call: None = None


class OlderBody(ChatBody):
    """A body in the older format of tools; its response uses that format too."""


DECODER = Decoder(ChatBody)
OLDER_DECODER = Decoder(OlderBody)
NULL = Raw(b"null")
# Allowed values by path (without list indexes), for error messages.
CHOICES = {
    "messages.role": ("system", "developer", "user", "assistant", "tool"),
    "messages.content.type": ("text", "image_url", "input_audio", "file", "refusal"),
    "messages.content.image_url.detail": ("low", "high", "auto", "original"),
    "messages.content.input_audio.format": get_args(AudioFormat),
    "messages.tool_calls.type": ("function", "custom"),
    "tools.type": ("function", "custom", "web_search", "tool_search"),
    "tool_choice": ("auto", "none", "required", "an object"),
    "tool_choice.type": ("function", "custom", "web_search", "allowed_tools"),
    "response_format.type": ("text", "json_object", "json_schema"),
    "reasoning_effort": get_args(Efforts),
    "reasoning.effort": get_args(Efforts),
    "effort": get_args(Levels),
    "verbosity": get_args(Levels),
    "service_tier": get_args(Tiers),
    "prompt_cache_retention": ("in_memory", "24h"),
}


def decode(body: bytes) -> ChatBody:
    """Return the validated body of a request. Raises InvalidRequest `invalid_json` or `invalid_parameters` with `param`
    set."""
    try:
        decoded = DECODER.decode(body)
    except ValidationError as error:
        decoded = _decode_loose(body, error)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        return decode(readable(body, error))
    if decoded.tools or decoded.response_format or decoded.reasoning:
        _check_together(decoded)
    return decoded


def _decode_loose(body: bytes, error: ValidationError) -> ChatBody:
    """Read a body in an undocumented spelling by its meaning. Raises InvalidRequest."""
    try:
        wire = read_again(body, error)
        decoder = OLDER_DECODER if wire.get("functions") else DECODER
        mend(wire)
        return decoder.decode(write_again(wire, error))
    except ValidationError as still:
        raise explain(str(still), CHOICES) from None


def _check_together(body: ChatBody) -> None:
    """Check combinations of fields. Raises InvalidRequest."""
    if body.reasoning and body.reasoning.effort and body.reasoning_effort:
        raise InvalidRequest(
            "Give either reasoning_effort or reasoning.effort, not both.",
            code="invalid_request",
            param="reasoning_effort",
        )
    if body.n and body.n > 1 and body.stream and any(isinstance(tool, FunctionTool) for tool in body.tools or ()):
        raise InvalidRequest(
            "n above 1 cannot be streamed together with function tools; set n to 1 or stream to false.",
            code="unsupported_parameter_combination",
            param="n",
        )
    for place, tool in enumerate(body.tools or ()):
        if isinstance(tool, FunctionTool):
            require_object(tool.function.parameters, f"tools.{place}.function.parameters", optional=True)
            if tool.function.parameters == NULL:
                tool.function.parameters = UNSET
    if isinstance(body.response_format, JsonSchemaFormat):
        require_object(body.response_format.json_schema.schema, "response_format.json_schema.schema")


def require_object(raw: Raw | UnsetType, param: str, *, optional: bool = False) -> None:
    """Raise InvalidRequest unless the JSON text is an object (or null or absent, when `optional`)."""
    if raw is UNSET:
        start = b"null"
    else:
        start = bytes(memoryview(raw)[:4])
    if start[:1] == b"{" or (optional and start == b"null"):
        return
    raise invalid(param, "expected an object with a JSON Schema")
