"""Chats in Cohere's format as types: the complete answer, and the events of a stream.

Source: Cohere API reference, v2 "Chat" and "Chat with streaming".
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from gateway.dialects.cohere import CohereTokens
from gateway.surfaces.answer_structs import RELAYED, JsonObject
from gateway.surfaces.facts import AnswerCost, RoutingMetadata


class CohereContent(TypedDict, total=False):
    """A block of text, thinking or an image."""

    type: str
    text: str
    thinking: str
    image_url: JsonObject


class CohereFunctionCall(TypedDict, total=False):
    name: str
    arguments: str


class CohereToolCall(TypedDict, total=False):
    id: str
    type: Literal["function"]
    function: CohereFunctionCall


class CohereSource(TypedDict):
    type: str
    id: NotRequired[str]
    document: NotRequired[JsonObject]


class CohereCitation(TypedDict, total=False):
    start: int
    end: int
    text: str
    sources: list[Annotated[CohereSource, RELAYED]]
    content_index: int
    type: str


class CohereReply(TypedDict):
    """The message of an answer."""

    role: Literal["assistant"]
    content: NotRequired[list[Annotated[CohereContent, RELAYED]] | None]
    tool_plan: NotRequired[str]
    tool_calls: NotRequired[list[Annotated[CohereToolCall, RELAYED]]]
    citations: NotRequired[list[Annotated[CohereCitation, RELAYED]]]


class CohereUsage(CohereTokens, AnswerCost):
    """Tokens, and their cost in US dollars."""


class CohereChatAnswer(TypedDict):
    """A complete answer."""

    id: str
    finish_reason: str
    message: Annotated[CohereReply, RELAYED]
    model: str
    usage: Annotated[CohereUsage, RELAYED]
    metadata: RoutingMetadata
    logprobs: NotRequired[list[JsonObject]]


class CohereEventDelta(TypedDict, total=False):
    message: dict[str, Any]
    error: str
    finish_reason: str
    usage: Annotated[CohereUsage, RELAYED]


class CohereEvent(TypedDict, total=False):
    """An event. Its type decides which members it has."""

    type: str
    id: str
    index: int
    delta: Annotated[CohereEventDelta, RELAYED]
    model: str
    metadata: RoutingMetadata
