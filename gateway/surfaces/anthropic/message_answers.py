"""Messages as types: the complete answer, its content blocks, and the events of a stream.

Source: Anthropic API reference, "Messages" and "Streaming messages".
"""

from typing import Annotated, Any, Literal, Required, TypedDict

from msgspec import Meta

from gateway.dialects.anthropic import MessageError, MessageTokens, StopReason
from gateway.surfaces.answer_structs import RELAYED, JsonObject
from gateway.surfaces.facts import AnswerCost, RoutingMetadata


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
