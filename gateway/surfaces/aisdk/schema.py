"""The call options of a language-model request: their schema in all three versions, and its error messages.

The format is that of the types LanguageModelV2CallOptions to LanguageModelV4CallOptions of `@ai-sdk/provider`. Where
the newest version differs from older ones both forms are accepted, whatever version was declared.
"""

from typing import Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, field
from msgspec.json import Decoder

from gateway.dialects.aisdk import NAME
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.validation_errors import explain, readable, words_of

Json = dict[str, Any]


class Shape(Struct, gc=False):
    """Unknown members are dropped."""


class DataFile(Shape, tag_field="type", tag="data"):
    data: str


class UrlFile(Shape, tag_field="type", tag="url"):
    url: str


class TextFile(Shape, tag_field="type", tag="text"):
    text: str


class ReferenceFile(Shape, tag_field="type", tag="reference"):
    """A file that a vendor stores for its own customer."""


FileData = str | DataFile | UrlFile | TextFile | ReferenceFile


class PromptPart(Shape, tag_field="type", kw_only=True):
    """A part of a message, distinguished by `type`. `options` are the caller's, by namespace."""

    options: Any = field(default=None, name="providerOptions")


class TextPart(PromptPart, tag="text"):
    text: str


class FilePart(PromptPart, tag="file"):
    """A file as a URL, a data URL, bare base64, or tagged as one of these."""

    data: FileData
    media_type: str = field(name="mediaType")
    filename: str | None = None


class ReasoningPart(PromptPart, tag="reasoning"):
    text: str


class ToolCallPart(PromptPart, tag="tool-call"):
    """`input` is the JSON text of the arguments, byte for byte."""

    id: str = field(name="toolCallId")
    name: str = field(name="toolName")
    input: Raw | UnsetType = UNSET
    executed: bool | None = field(default=None, name="providerExecuted")


class ReasoningFilePart(PromptPart, tag="reasoning-file"):
    """Ignored: no vendor accepts it."""


class CustomPart(PromptPart, tag="custom"):
    """Ignored: it has a meaning for one vendor only."""


class ApprovalRequestPart(PromptPart, tag="tool-approval-request"):
    """Ignored: between the client and its user."""


class ApprovalResponsePart(PromptPart, tag="tool-approval-response"):
    """Ignored: between the client and its user."""


class TextItem(PromptPart, tag="text"):
    text: str


class MediaItem(PromptPart, tag="media"):
    data: str
    media_type: str = field(name="mediaType")


class FileDataItem(PromptPart, tag="file-data"):
    data: str
    media_type: str = field(name="mediaType")
    filename: str | None = None


class FileUrlItem(PromptPart, tag="file-url"):
    url: str
    media_type: str | None = field(default=None, name="mediaType")


class FileIdItem(PromptPart, tag="file-id"):
    """A file that a vendor stores for its own customer, by id."""


class ImageDataItem(PromptPart, tag="image-data"):
    data: str
    media_type: str = field(name="mediaType")


class ImageUrlItem(PromptPart, tag="image-url"):
    url: str


class ImageIdItem(PromptPart, tag="image-file-id"):
    """An image that a vendor stores for its own customer, by id."""


ReferenceItem = FileIdItem | ImageIdItem
Item = (
    TextItem
    | MediaItem
    | FileDataItem
    | FileUrlItem
    | FileIdItem
    | ImageDataItem
    | ImageUrlItem
    | ImageIdItem
    | FilePart
    | CustomPart
)


class TextOutput(PromptPart, tag="text"):
    value: str


class ErrorTextOutput(PromptPart, tag="error-text"):
    value: str


class JsonOutput(PromptPart, tag="json"):
    value: Raw


class ErrorJsonOutput(PromptPart, tag="error-json"):
    value: Raw


class DeniedOutput(PromptPart, tag="execution-denied"):
    reason: str | None = None


class ContentOutput(PromptPart, tag="content"):
    value: list[Item]


Output = TextOutput | ErrorTextOutput | JsonOutput | ErrorJsonOutput | DeniedOutput | ContentOutput


class ToolResultPart(PromptPart, tag="tool-result"):
    id: str = field(name="toolCallId")
    name: str = field(name="toolName")
    output: Output


class Message(Shape, tag_field="role", kw_only=True):
    """A message, distinguished by `role`."""

    options: Any = field(default=None, name="providerOptions")


class SystemMessage(Message, tag="system"):
    content: str


class UserMessage(Message, tag="user"):
    content: list[TextPart | FilePart]


class AssistantMessage(Message, tag="assistant"):
    content: list[
        TextPart
        | FilePart
        | ReasoningPart
        | ToolCallPart
        | ToolResultPart
        | ReasoningFilePart
        | CustomPart
        | ApprovalRequestPart
    ]


class ToolMessage(Message, tag="tool"):
    content: list[ToolResultPart | ApprovalResponsePart]


AnyMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class InputExample(Shape):
    input: Raw


class FunctionTool(Shape, tag_field="type", tag="function"):
    name: str
    description: str | None = None
    schema: Raw | UnsetType = field(default=UNSET, name="inputSchema")
    strict: bool | None = None
    examples: list[InputExample] | None = field(default=None, name="inputExamples")
    options: Any = field(default=None, name="providerOptions")


class ProviderTool(Shape, tag_field="type", tag="provider"):
    """A tool that a vendor defines: `id` is "vendor.tool", `name` the caller's name for it."""

    id: str
    name: str
    args: Any = None


class OlderProviderTool(ProviderTool, tag="provider-defined"):
    """The same in the format of version 2."""


class AutoChoice(Shape, tag_field="type", tag="auto"):
    pass


class NeverChoice(Shape, tag_field="type", tag="none"):
    pass


class RequiredChoice(Shape, tag_field="type", tag="required"):
    pass


class ToolChoice(Shape, tag_field="type", tag="tool"):
    name: str = field(name="toolName")


class TextFormat(Shape, tag_field="type", tag="text"):
    pass


class JsonFormat(Shape, tag_field="type", tag="json"):
    schema: Raw | UnsetType = UNSET
    name: str | None = None
    description: str | None = None


@with_parameters(NAME, kind=int | float | None)  # the reader of chat options checks their limits
class CallOptions(Shape):
    """The body. Its member `headers` repeats the caller's own headers, including secrets, and is ignored."""

    prompt: list[AnyMessage]
    stop: Any = field(default=None, name="stopSequences")
    seed: Any = None
    top_k: Any = field(default=None, name="topK")
    format: TextFormat | JsonFormat | None = field(default=None, name="responseFormat")
    tools: list[FunctionTool | ProviderTool | OlderProviderTool] | None = None
    choice: AutoChoice | NeverChoice | RequiredChoice | ToolChoice | None = field(default=None, name="toolChoice")
    reasoning: str | None = None
    options: dict[str, Raw] | None = field(default=None, name="providerOptions")


DECODER = Decoder(CallOptions)
# Allowed values by path (without list indexes), for error messages.


def decode(body: bytes) -> CallOptions:
    """Return the validated call options. Raises InvalidRequest `invalid_json` or `invalid_parameters` with `param`
    set."""
    try:
        return DECODER.decode(body)
    except ValidationError as error:
        raise explain(str(error), words_of(CallOptions)) from None
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        return decode(readable(body, error))
