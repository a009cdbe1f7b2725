"""Writes a neutral answer as a message, and its parts as content blocks."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required, TypedDict

from msgspec import Meta
from msgspec.structs import replace

from gateway.dialects.anthropic import (
    NAME,
    STOP_WRITE,
    MessageError,
    MessageTokens,
    StopReason,
    write_citation,
    write_usage,
)
from gateway.neutral.chat import ChatResult, FinishReason
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Text, ToolCall, VendorPart
from gateway.neutral.tool_arguments import read_arguments
from gateway.surfaces.anthropic.opaque_tokens import CALL, NEXT, TEXT, OpaqueToken, write_token
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata

# Messages as types: the complete answer, its content blocks, and the events of a stream.
#
# Source: Anthropic API reference, "Messages" and "Streaming messages".


class ContentBlock(TypedDict, total=False):
    """A block of content; its type decides which members it has. A call has a `signature` for callers without
    thinking."""

    type: Required[str]
    text: str
    citations: list[JsonObject] | None
    thinking: str
    signature: str
    data: str
    id: str
    name: str
    input: Any


ContentBlocks = list[Annotated[ContentBlock, RELAYED]]


class MessageUsage(MessageTokens, AnswerCost):
    """Tokens, and their cost in US dollars."""


# A provider's own usage may have fewer members.
RELAYED_USAGE = Meta(
    title="RelayedUsage", extra_json_schema={"additionalProperties": True, "required": ["cost", "cost_details"]}
)


class MessageEnding(TypedDict):
    stop_reason: StopReason | None
    stop_sequence: str | None


class MessageContent(MessageEnding):
    role: Literal["assistant"]
    content: ContentBlocks


class MessageFacts(TypedDict):
    type: Literal["message"]
    id: str
    model: str
    usage: Annotated[MessageUsage, RELAYED_USAGE]
    metadata: RoutingMetadata


class Message(MessageContent, MessageFacts):
    """A complete message."""


class StartedMessage(MessageContent):
    """A message of which nothing was generated yet: its content is empty."""

    type: Literal["message"]
    id: str
    model: str
    usage: Annotated[MessageTokens, RELAYED, Meta(extra_json_schema={"required": []})]


class MessageStart(TypedDict):
    type: Literal["message_start"]
    message: Annotated[StartedMessage, RELAYED]


class BlockStart(TypedDict):
    type: Literal["content_block_start"]
    index: int
    content_block: Annotated[ContentBlock, RELAYED]


class BlockChange(TypedDict, total=False):
    """A piece of a block; its type decides which members it has."""

    type: Required[str]
    text: str
    thinking: str
    signature: str
    citation: JsonObject
    partial_json: str


class BlockDelta(TypedDict):
    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[BlockChange, RELAYED]


class BlockStop(TypedDict):
    type: Literal["content_block_stop"]
    index: int


class EndedMessage(TypedDict):
    type: Literal["message_delta"]
    delta: Annotated[MessageEnding, RELAYED]


class MessageDelta(EndedMessage):
    """The end of a message, with its usage and cost."""

    usage: Annotated[MessageUsage, RELAYED_USAGE]
    metadata: RoutingMetadata


class StreamMark(TypedDict):
    """An event without content."""

    type: Literal["ping", "message_stop"]


MessageEvent = (
    MessageStart | BlockStart | BlockDelta | BlockStop | Annotated[MessageDelta, RELAYED] | StreamMark | MessageError
)


Block = ContentBlock
NO_USAGE: Any = {}


def reply(result: ChatResult, facts: Facts) -> bytes:
    """Return the body of a message. A relayed one keeps all of the upstream's members but its id, model and cost."""
    body: Mapping[str, Any]
    usage: MessageTokens
    if result.native is not None:
        body = result.native.body
        usage = body.get("usage") or NO_USAGE
    else:
        choice = result.choices[0]
        write = write_silent if facts.hides_reasoning else write_part
        content: MessageContent = {
            "role": "assistant",
            "content": [block for part in choice.parts for block in write(part)],
            "stop_reason": write_stop(
                choice.finish,
                any(is_call(part) for part in choice.parts),
                any(isinstance(part, Refusal) for part in choice.parts),
            ),
            "stop_sequence": choice.stop_sequence or None,
        }
        body = content
        usage = write_usage(facts.usage)
    end: MessageFacts = {
        "type": "message",
        "id": facts.answer_id,
        "model": facts.requested_model,
        "usage": {**usage, **facts.cost()},
        "metadata": facts.metadata(),
    }
    return dumps({**body, **end}, result.large)


def write_stop(reason: FinishReason, called: bool, refused: bool) -> StopReason:
    """Return the stop_reason. Clients run tools on tool_use alone, so calls decide between it and end_turn. Other
    vendors end a refusal as any other answer."""
    if reason in ("stop", "tool_calls"):
        if called:
            return "tool_use"
        return "refusal" if refused else "end_turn"
    return STOP_WRITE[reason]


def is_call(part: Part) -> bool:
    """Return whether the caller has to run the part."""
    return isinstance(part, ToolCall) and not part.executed


def write_part(part: Part) -> list[Block]:
    """Return the blocks that show a part: none for a part that only another vendor's client understands."""
    match part:
        case Text():
            return _write_text(part)
        case Refusal():
            return [{"type": "text", "text": part.text}]
        case Reasoning():
            return [write_reasoning(part)]
        case ToolCall():
            return _write_call(part)
        case Image():
            return [{"type": "text", "text": write_image(part)}]
        case VendorPart(vendor=vendor) if vendor == NAME:
            own: Any = part.body
            return [own]
        case _:
            return []


def write_silent(part: Part) -> list[Block]:
    """Return the blocks of a part for a caller who disabled thinking: none of them is a thinking block. The signature
    of a call is on the call itself; that of a text is left out, since no vendor requires it."""
    if isinstance(part, Reasoning):
        return []
    if isinstance(part, Text):
        return _write_text(replace(part, signature=""))
    if isinstance(part, ToolCall) and part.signature:
        token = write_token(OpaqueToken(CALL + part.id, part.vendor, part.signature))
        return [{**block, "signature": token} for block in _write_call(replace(part, signature=""))]
    return write_part(part)


def _write_text(part: Text) -> list[Block]:
    if not part.text:
        if part.signature:
            return [mark(TEXT, part.vendor, part.signature)]
        return []
    block: Block = {"type": "text", "text": part.text}
    if part.sources:
        block["citations"] = [write_citation(source) for source in part.sources]
    if part.signature:
        return [mark(NEXT, part.vendor, part.signature), block]
    return [block]


def write_reasoning(part: Reasoning) -> Block:
    """Return a thinking block: signed by its own vendor, or by the gateway for another vendor."""
    if part.vendor == NAME and part.sealed:
        return {"type": "redacted_thinking", "data": part.sealed}
    return {"type": "thinking", "thinking": part.text, "signature": sign(part)}


def sign(part: Reasoning) -> str:
    """Return the signature of a reasoning block, as a client has to send it back."""
    if part.vendor == NAME:
        return part.signature
    token = OpaqueToken(
        vendor=part.vendor, signature=part.signature, sealed=part.sealed, ident=part.ident, summary=part.summary
    )
    return write_token(token)


def mark(what: str, vendor: str, signature: str) -> Block:
    """Return an empty thinking block that returns another part's signature to its vendor."""
    return {"type": "thinking", "thinking": "", "signature": write_token(OpaqueToken(what, vendor, signature))}


def _write_call(part: ToolCall) -> list[Block]:
    if part.executed:
        if part.vendor != NAME:
            return []
        return [{"type": "server_tool_use", "id": part.id, "name": part.name, "input": read_arguments(part)}]
    call: Block = {"type": "tool_use", "id": part.id, "name": part.name, "input": read_arguments(part)}
    if part.signature:
        return [mark(CALL + part.id, part.vendor, part.signature), call]
    return [call]


def write_image(image: Image) -> str:
    """Return an image as Markdown: responses of this format have no images, but its clients show Markdown."""
    media = image.media
    inline = f"data:{media.media_type or 'image/png'};base64,{media.data}"
    return f"![image]({media.url or inline})"
