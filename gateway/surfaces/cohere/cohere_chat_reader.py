"""The body of a chat in version 2 of Cohere's format, and its conversion into a neutral request."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from msgspec import DecodeError, Meta, Struct, to_builtins
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from gateway.dialects.cohere import NAME
from gateway.dialects.hosted_tools import part_uses
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    Native,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
)
from gateway.neutral.hosted_uses import collect
from gateway.neutral.parameters import Count, capabilities_of
from gateway.neutral.parts import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, VendorPart
from gateway.surfaces.bodies.request_parameters import ParameterReader, with_parameters
from gateway.surfaces.bodies.unknown_parts import UNKNOWN, require_unknown, size_of, wrap
from gateway.surfaces.bodies.validation_errors import PDF_NAME, decode_json, is_document, read_media

# The body of a chat in version 2 of Cohere's format. Unknown members are dropped.
#
# Source: Cohere API reference, v2 "Chat".

Json = dict[str, Any]
Name = Annotated[str, Meta(min_length=1)]


class CohereObject(Struct, omit_defaults=True, gc=False):
    """An object of the format."""


class CohereTextBlock(CohereObject, tag_field="type", tag="text"):
    text: str


class CohereThinkingBlock(CohereObject, tag_field="type", tag="thinking"):
    thinking: str


class CohereImageUrl(CohereObject):
    url: Name
    detail: Literal["auto", "low", "high"] | None = None


class CohereImageBlock(CohereObject, tag_field="type", tag="image_url"):
    image_url: CohereImageUrl


class CohereDocument(CohereObject):
    data: Json
    id: str | None = None


class CohereDocumentBlock(CohereObject, tag_field="type", tag="document"):
    document: CohereDocument


KNOWN_BLOCKS = frozenset(("text", "thinking", "image_url", "document"))


class CohereUnknownBlock(CohereObject, tag_field="type", tag=UNKNOWN):
    """A block of a type that is newer than this gateway."""

    kind: Name
    body: Json

    def __post_init__(self) -> None:
        require_unknown(self.kind, self.body, KNOWN_BLOCKS)


class CohereCalledFunction(CohereObject, kw_only=True):
    name: Name
    arguments: str = ""


class CohereCall(CohereObject, kw_only=True):
    id: Name
    type: Literal["function"]
    function: CohereCalledFunction


class CohereSystemMessage(CohereObject, tag_field="role", tag="system"):
    content: str | list[CohereTextBlock | CohereUnknownBlock]


class CohereUserMessage(CohereObject, tag_field="role", tag="user"):
    content: str | list[CohereTextBlock | CohereImageBlock | CohereUnknownBlock]


class CohereAssistantMessage(CohereObject, tag_field="role", tag="assistant"):
    content: str | list[CohereTextBlock | CohereThinkingBlock | CohereUnknownBlock] | None = None
    tool_plan: str | None = None
    tool_calls: list[CohereCall] | None = None
    citations: list[Json] | None = None


class CohereToolMessage(CohereObject, tag_field="role", tag="tool"):
    tool_call_id: Name
    content: str | list[CohereTextBlock | CohereDocumentBlock | CohereUnknownBlock]


CohereMessage = CohereSystemMessage | CohereUserMessage | CohereAssistantMessage | CohereToolMessage


class CohereFunction(CohereObject):
    name: Name
    description: str | None = None
    parameters: Json | None = None


class CohereTool(CohereObject):
    type: Literal["function"]
    function: CohereFunction


class CohereFormat(CohereObject):
    """`schema` is the older name of `json_schema`, which LangChain sends."""

    type: Literal["text", "json_object"]
    json_schema: Json | None = None
    schema: Json | None = None


class CohereThinking(CohereObject):
    type: Literal["enabled", "disabled"]
    token_budget: Count | None = None


@with_parameters(NAME)
class CohereChatBody(CohereObject, kw_only=True):
    """Every member that has an effect. Models of other vendors have no counterpart of the last six."""

    model: Name
    messages: Annotated[list[CohereMessage], Meta(min_length=1)]
    stream: bool | None = None
    tools: list[CohereTool] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    documents: list[str | CohereDocument] | None = None
    response_format: CohereFormat | None = None
    thinking: CohereThinking | None = None
    stop_sequences: list[str] | None = None
    strict_tools: bool | None = None
    citation_options: Json | None = None
    safety_mode: str | None = None
    seed: int | None = None
    logprobs: bool | None = None
    priority: int | None = None


DECODER = Decoder(CohereChatBody)


def decode(raw: bytes) -> CohereChatBody:
    """Return the validated body of a request. Raises InvalidRequest."""
    try:
        return DECODER.decode(raw)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return decode_json(DECODER, _with_wrapped_blocks(raw))


def _with_wrapped_blocks(raw: bytes) -> bytes:
    """Return a body with its blocks of unknown types wrapped; the same body if it has none."""
    try:
        wire = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        return raw
    found = False
    messages = wire.get("messages") if isinstance(wire, dict) else None
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            message["content"] = [wrap(block, KNOWN_BLOCKS) for block in content]
            found = found or message["content"] != content
    return orjson.dumps(wire) if found else raw


MODES: dict[str, Any] = {"REQUIRED": "required", "NONE": "none"}
PARAMETER_READER = ParameterReader(NAME, apart=("stop", "top_k"))
NATIVE_FIELDS = tuple(name for name in CohereChatBody.__struct_fields__ if name != "model")


def read_chat(body: CohereChatBody) -> ChatRequest:
    """Return the neutral request. Messages are decoded on first use, which raises InvalidRequest."""
    native = {name: value for name in NATIVE_FIELDS if (value := getattr(body, name)) is not None}
    needs = _requirements_of(body)
    unknown = [block for message in body.messages for block in _blocks_of(message) if _is_unknown(block)]
    if unknown:
        uses = collect([use for block in unknown for use in part_uses(NAME, block.kind, block.body)])
        inline = sum(size_of(block.body).media for block in unknown)
        needs = replace(needs, own_parts=NAME, hosted_uses=uses, media=needs.media + inline)
        native["messages"] = [_write_unknown(message) for message in body.messages]
    return ChatRequest(body.model, needs, partial(_decode, body), native=Native(NAME, native, whole=True))


def _is_unknown(block: Any) -> bool:
    return type(block) is CohereUnknownBlock


def _write_unknown(message: CohereMessage) -> Any:
    """Return a message with its blocks of unknown types as the caller wrote them."""
    if not any(map(_is_unknown, _blocks_of(message))):
        return message
    blocks = [block.body if _is_unknown(block) else to_builtins(block) for block in _blocks_of(message)]
    return {**to_builtins(message), "content": blocks}


def _requirements_of(body: CohereChatBody) -> Requirements:
    sampling = _read_sampling(body)
    shape = _read_format(body.response_format)
    reasoning = _read_reasoning(body.thinking)
    choice = _read_choice(body)
    media = [
        is_document(block.image_url.url)
        for message in body.messages
        for block in _blocks_of(message)
        if type(block) is CohereImageBlock
    ]
    encoded = [body.tools, body.documents, shape and shape.schema]
    sizes = [len(encode(value)) for value in encoded if value] + [_size_of(message) for message in body.messages]
    return Requirements(
        stream=bool(body.stream),
        tools=bool(body.tools),
        vision=not all(media),
        documents=any(media),
        json_object=shape is not None and shape.kind == "json_object",
        json_schema=shape is not None and shape.kind == "json_schema",
        reasoning=bool(reasoning.enabled),
        parameters=capabilities_of(sampling),
        max_tokens=sampling.max_tokens,
        prompt_bytes=sum(sizes),
        messages=len(body.messages),
        media=len(media),
        forced_tool="required" if choice == ToolChoice("required") else "",
    )


def _blocks_of(message: CohereMessage) -> Iterable[Any]:
    return message.content if isinstance(message.content, list) else ()


def _size_of(message: CohereMessage) -> int:
    """Return the bytes of text in a message."""
    if isinstance(message.content, str):
        size = len(message.content.encode("utf-8", "replace"))
    else:
        size = sum(map(_block_size, _blocks_of(message)))
    if isinstance(message, CohereAssistantMessage):
        size += len(encode(message.tool_calls)) + len(message.tool_plan or "")
    return size


def _block_size(block: Any) -> int:
    if _is_unknown(block):
        return size_of(block.body).text
    return 0 if type(block) is CohereImageBlock else len(encode(block))


def _decode(body: CohereChatBody) -> Conversation:
    names: dict[str, str] = {}
    messages = [_read_message(message, place, names) for place, message in enumerate(body.messages)]
    return Conversation(
        messages=tuple(_with_documents(messages, body.documents or ())),
        tools=tuple(_read_tool(tool.function, body.strict_tools) for tool in body.tools or ()),
        tool_choice=_read_choice(body),
        response_format=_read_format(body.response_format),
        reasoning=_read_reasoning(body.thinking),
        sampling=_read_sampling(body),
    )


def _with_documents(messages: list[Message], documents: Iterable[str | CohereDocument]) -> Iterator[Message]:
    """Yield the messages, with the documents as texts before the first one of the user."""
    texts: tuple[Part, ...] = tuple(Text(_show_document(document)) for document in documents)
    for message in messages:
        if texts and message.role == "user":
            yield Message("user", texts + message.parts)
            texts = ()
        else:
            yield message


def _show_document(document: str | CohereDocument) -> str:
    if isinstance(document, str):
        return document
    return orjson.dumps({"id": document.id, **document.data} if document.id else document.data).decode()


def _read_message(message: CohereMessage, place: int, names: dict[str, str]) -> Message:
    """Return one message; `names` maps the id of each call to its tool, so that results can name it."""
    parts = tuple(_read_parts(message, f"messages.{place}.content"))
    match message:
        case CohereSystemMessage():
            return Message("system", parts)
        case CohereUserMessage():
            return Message("user", parts)
        case CohereToolMessage():
            name = names.get(message.tool_call_id, "")
            return Message("tool", (ToolResult(message.tool_call_id, parts, name=name),))
    plan = (Reasoning(message.tool_plan),) if message.tool_plan else ()
    calls = [ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    names |= {call.id: call.name for call in calls}
    return Message("assistant", (*plan, *parts, *calls))


def _read_parts(message: CohereMessage, path: str) -> Iterator[Part]:
    if isinstance(message.content, str) and message.content:
        yield Text(message.content)
    for place, block in enumerate(_blocks_of(message)):
        match block:
            case CohereTextBlock():
                yield Text(block.text)
            case CohereThinkingBlock():
                yield Reasoning(block.thinking)
            case CohereImageBlock(image_url=image) if is_document(image.url):
                yield File(read_media(image.url, f"{path}.{place}.image_url.url"), PDF_NAME)
            case CohereImageBlock(image_url=image):
                yield Image(read_media(image.url, f"{path}.{place}.image_url.url"), image.detail or "")
            case CohereDocumentBlock():
                yield Text(_show_document(block.document))
            case CohereUnknownBlock():
                yield VendorPart(NAME, block.kind, block.body)


def _read_tool(function: CohereFunction, strict: bool | None) -> FunctionTool:
    return FunctionTool(function.name, function.description or "", function.parameters, strict)


def _read_choice(body: CohereChatBody) -> ToolChoice | None:
    if body.tool_choice is None or not body.tools:
        return None
    return ToolChoice(MODES[body.tool_choice])


def _read_format(shape: CohereFormat | None) -> ResponseFormat | None:
    if shape is None or shape.type == "text":
        return None
    if shape.json_schema or shape.schema:
        return ResponseFormat("json_schema", "response", schema=shape.json_schema or shape.schema)
    return ResponseFormat("json_object")


def _read_reasoning(thinking: CohereThinking | None) -> ReasoningOptions:
    if thinking is None:
        return ReasoningOptions()
    if thinking.type == "disabled":
        return ReasoningOptions(enabled=False)
    return ReasoningOptions(budget=thinking.token_budget, enabled=True)


def _read_sampling(body: CohereChatBody) -> Sampling:
    """Return the parameters. A `k` of 0 switches its limit off."""
    top_k = body.k or None  # type: ignore[attr-defined]  # added by with_parameters
    return PARAMETER_READER.read(body, stop=tuple(body.stop_sequences or ()), top_k=top_k)
