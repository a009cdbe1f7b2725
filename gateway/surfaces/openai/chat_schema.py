"""The body of POST /v1/chat/completions: its schema, its limits, and its error messages."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from gateway.surfaces.bodies import chat_options as chat_options_module
from gateway.surfaces.bodies.chat_options import CacheControl, ChatOptions, Name, Shape, check_together
from gateway.surfaces.bodies.lenient_parsing import KNOWN_PARTS, correct_spelling, read_again, write_again
from gateway.surfaces.bodies.unknown_parts import UNKNOWN, require_unknown
from gateway.surfaces.bodies.validation_errors import explain, readable, words_of
from gateway.surfaces.web.model_options import name_model

AudioFormat = Literal["wav", "mp3", "aiff", "aac", "ogg", "flac", "m4a", "mpeg", "mpga", "mp4", "pcm", "webm"]
Speaker = Annotated[str, Meta(max_length=256)]  # a name in a message, which models read


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


class UnknownChatPart(Part, tag=UNKNOWN):
    """A part of a type that is newer than this gateway."""

    kind: Name
    body: dict[str, Any]

    def __post_init__(self) -> None:
        require_unknown(self.kind, self.body, KNOWN_PARTS)


AnyPart = TextPart | RefusalPart | ImagePart | AudioPart | FilePart | UnknownChatPart
Parts = list[AnyPart]


class Function(Struct, gc=False):
    name: Name
    arguments: str = ""


class CustomInput(Struct, gc=False):
    name: Name
    input: str = ""


class FunctionCall(Struct, tag_field="type", tag="function", omit_defaults=True, gc=False):
    id: Name
    function: Function
    extra_content: dict[str, Any] | None = None  # with a signature that the call's vendor wants back


class CustomCall(Struct, tag_field="type", tag="custom", gc=False):
    id: Name
    custom: CustomInput


class Message(Shape, tag_field="role"):
    """A message, distinguished by `role`."""


class SystemMessage(Message, tag="system"):
    content: str | Parts
    name: Speaker | None = None


class DeveloperMessage(Message, tag="developer"):
    content: str | Parts
    name: Speaker | None = None


class UserMessage(Message, tag="user"):
    content: str | Parts
    name: Speaker | None = None


class PastAudio(Shape):
    id: Name


class AssistantMessage(Message, tag="assistant"):
    """`content` is UNSET when absent, None when null: an answer may consist of calls alone, or of nothing."""

    content: str | Parts | UnsetType | None = UNSET
    name: Speaker | None = None
    refusal: str | None = None
    audio: PastAudio | None = None
    tool_calls: list[FunctionCall | CustomCall] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    images: list[ImagePart] | None = None  # of an earlier answer of this gateway
    function_call: None = None  # the older form of tool_calls: rejected here, so that the lenient parser converts it


class ToolMessage(Message, tag="tool", kw_only=True):
    content: str | Parts
    tool_call_id: Name
    tool_result_cache_control: CacheControl | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
Messages = list[AnyMessage]


class ChatBody(ChatOptions, kw_only=True):
    """Every field that has an effect; all others of the wire format (stop, seed, logprobs …) are accepted and
    dropped."""

    model: Name
    messages: Annotated[Messages, Meta(min_length=1)]
    onboarding: Any = None
    metadata: Any = None  # an object is kept with the request, any other type has no effect
    safety_identifier: str | None = None


class OlderBody(ChatBody):
    """A body in the older format of tools; its response uses that format too."""


DECODER = Decoder(ChatBody)
OLDER_DECODER = Decoder(OlderBody)


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
        check_together(decoded)
    return decoded


def _decode_loose(body: bytes, error: ValidationError) -> ChatBody:
    """Read a body in an undocumented spelling by its meaning. Raises InvalidRequest."""
    try:
        wire = read_again(body, error)
        decoder = OLDER_DECODER if wire.get("functions") else DECODER
        correct_spelling(wire)
        name_model(wire)
        return decoder.decode(write_again(wire, error))
    except ValidationError as still:
        raise explain(str(still), {**words_of(ChatBody), **chat_options_module.PARAMETER_WORDS}) from None
