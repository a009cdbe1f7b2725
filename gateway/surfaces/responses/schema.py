"""The body of POST /v1/responses: its schema, its limits, and its error messages.

Format: openai/types/responses of the OpenAI SDK (response_create_params.py, response_input_item_param.py,
tool_param.py).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.errors import InvalidRequest
from gateway.neutral.parameters import Count, Effort, Level, ServiceTier
from gateway.surfaces.bodies import chat_options as chat_options_module
from gateway.surfaces.bodies.preference_checks import Routing, Switch
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.validation_errors import decode_json
from gateway.surfaces.web.model_options import Models, ProviderOptions

Detail = Literal["low", "high", "auto", "original"]
Name = Annotated[str, Meta(min_length=1)]
Json = dict[str, Any]
Label = Annotated[str, Meta(max_length=512)]
Key = Annotated[str, Meta(max_length=64)]


class Shape(Struct, omit_defaults=True, gc=False):
    """Unknown members are dropped; members that equal their default are left out when written again."""


class TextPart(Shape, tag_field="type", tag="input_text"):
    text: str
    prompt_cache_breakpoint: Json | None = None


class OutputText(Struct, tag_field="type", tag="output_text", gc=False):
    """Output text; `annotations` are written even when there are none."""

    text: str
    annotations: list[Json] = []


class RefusalPart(Shape, tag_field="type", tag="refusal"):
    refusal: str


class ImagePart(Shape, tag_field="type", tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: Detail | None = None
    prompt_cache_breakpoint: Json | None = None


class FilePart(Shape, tag_field="type", tag="input_file"):
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: Literal["low", "high", "auto"] | None = None
    prompt_cache_breakpoint: Json | None = None


class InputAudio(Shape):
    data: Name
    format: Literal["mp3", "wav"]


class AudioPart(Shape, tag_field="type", tag="input_audio"):
    input_audio: InputAudio


class UnknownPart(Shape, tag_field="type", tag="unknown"):
    """A content part of a type that is newer than this gateway, kept unchanged for servers of this dialect."""

    kind: str
    body: Json


Parts = list[TextPart | OutputText | RefusalPart | ImagePart | FilePart | AudioPart | UnknownPart]
Output = str | list[TextPart | OutputText | ImagePart | FilePart | UnknownPart]


class Message(Shape, tag_field="type", tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(Shape, tag_field="type", tag="function_call"):
    call_id: Name
    name: Name
    arguments: str
    namespace: str | None = None


class CustomCall(Shape, tag_field="type", tag="custom_tool_call"):
    call_id: Name
    name: Name
    input: str
    namespace: str | None = None


class FunctionOutput(Shape, tag_field="type", tag="function_call_output"):
    call_id: Name
    output: Output


class CustomOutput(Shape, tag_field="type", tag="custom_tool_call_output"):
    call_id: Name
    output: Output


class SummaryText(Struct, tag_field="type", tag="summary_text", gc=False):
    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text", gc=False):
    text: str


class Reasoning(Struct, tag_field="type", tag="reasoning", omit_defaults=True, gc=False):
    summary: list[SummaryText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class Compaction(Shape, tag_field="type", tag="compaction"):
    encrypted_content: Name


class VendorItem(Struct, gc=False):
    """An item that only servers of this dialect understand, kept unchanged."""

    kind: str
    body: Json


class FunctionTool(Shape, tag_field="type", tag="function"):
    name: Name
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    newer: tuple[str, ...] = ()  # names of members that are newer than this gateway: see items.read_tool


class CustomTool(Shape, tag_field="type", tag="custom"):
    name: Name
    description: str | None = None
    format: Json | None = None
    defer_loading: bool | None = None


class NamespaceTool(Shape, tag_field="type", tag="namespace"):
    name: Name
    tools: list[FunctionTool | CustomTool]
    description: str = ""


class Location(chat_options_module.Location):
    type: Literal["approximate"] | None = None


class Filters(Shape):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class WebSearchTool(Shape):
    type: str
    external_web_access: bool | None = None
    filters: Filters | None = None
    search_context_size: Level | None = None
    user_location: Location | None = None


class JsonSchemaFormat(Shape, tag_field="type", tag="json_schema"):
    name: Name
    schema: Json
    description: str | None = None
    strict: bool | None = None


class JsonObjectFormat(Shape, tag_field="type", tag="json_object"):
    pass


class TextFormat(Shape, tag_field="type", tag="text"):
    pass


@with_parameters("responses", "text")
class TextConfig(Shape):
    format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None


class ReasoningRequest(Shape):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: Literal["standard", "pro"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None


class PromptCacheOptions(Shape):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None


class CompactBody(Shape, kw_only=True):
    """The body of POST /v1/responses/compact, and the fields that it shares with a response."""

    model: Name
    input: str | list[Json] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None


@with_parameters("responses")
class ResponsesBody(CompactBody, kw_only=True):
    """Every field that has an effect, or that is rejected so that no caller relies on it; all others are dropped."""

    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    conversation: str | Json | None = None
    prompt: Json | None = None
    include: list[str] | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    metadata: Annotated[dict[Key, Label], Meta(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningRequest | None = None
    safety_identifier: str | None = None
    text: TextConfig | None = None
    tool_choice: str | Json | None = None
    tools: list[Json] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    routing: Routing = None
    models: Models | None = None
    provider: ProviderOptions | None = None
    free_models_only: bool | None = None
    no_reasoning: Switch = None
    # Only servers of this dialect support these fields.
    access_programs: Json | None = None
    context_management: list[Json] | None = None
    image: Json | None = None
    moderation: Json | None = None
    stream_options: Json | None = None


class CountBody(ResponsesBody, kw_only=True):
    """POST /v1/responses/input_tokens: a response's body, in which the model may be omitted."""

    model: Name = "auto"


BODY = Decoder(ResponsesBody)
COMPACT = Decoder(CompactBody)
COUNT_DECODER = Decoder(CountBody)
MISSING_INPUT = "The required field 'input' is missing; add it."
# Fields for features that this gateway does not have; ignoring them silently would change the response.
ABSENT = {
    "conversation": "Conversation objects are not supported; use previous_response_id.",
    "prompt": "Prompt templates are not supported; send instructions and input.",
}
# Allowed values by path (without list indexes), for error messages.


def decode(body: bytes) -> ResponsesBody:
    """Return the validated body of a request. Raises InvalidRequest `invalid_json`, `invalid_parameters` or, for
    unsupported fields, `unsupported_parameter`, with `param` set."""
    decoded: ResponsesBody = _decode(BODY, body)
    for name, message in ABSENT.items():
        if getattr(decoded, name):
            raise _absent(name, message)
    return decoded


def decode_count(body: bytes) -> CountBody:
    """Return the validated body of a token count."""
    decoded: CountBody = _decode(COUNT_DECODER, body)
    return decoded


def decode_compact(body: bytes) -> CompactBody:
    """Return the validated body of a compaction."""
    decoded: CompactBody = _decode(COMPACT, body)
    return decoded


def _decode(decoder: Decoder[Any], body: bytes) -> Any:
    decoded = decode_json(decoder, body)
    if decoded.input is None and decoded.previous_response_id is None:
        raise InvalidRequest(MISSING_INPUT, param="input")
    return decoded


def _absent(param: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code="unsupported_parameter")
