"""Chats in version 1 of Cohere's format as types: the complete answer, and the events of a stream.

Source: Cohere API reference, v1 "Chat" and "Chat with streaming".
"""

from typing import Annotated, NotRequired, TypedDict

from gateway.dialects.cohere import CohereCounts
from gateway.surfaces.answer_structs import RELAYED, JsonObject
from gateway.surfaces.cohere.embed import CohereVersion
from gateway.surfaces.facts import AnswerCost, RoutingMetadata


class V1ToolCall(TypedDict):
    name: str
    parameters: JsonObject


class V1Citation(TypedDict):
    start: int
    end: int
    text: str
    document_ids: list[str]


class V1Meta(TypedDict):
    api_version: CohereVersion
    billed_units: NotRequired[Annotated[CohereCounts, RELAYED]]
    tokens: NotRequired[Annotated[CohereCounts, RELAYED]]
    cached_tokens: NotRequired[int]
    warnings: NotRequired[list[str]]


class V1ChatAnswer(TypedDict):
    """A complete answer. `chat_history` is that of the request with the new messages."""

    response_id: str
    generation_id: str
    text: str
    finish_reason: str
    chat_history: list[JsonObject]
    meta: V1Meta
    model: str
    usage: AnswerCost
    metadata: RoutingMetadata
    citations: NotRequired[list[V1Citation]]
    documents: NotRequired[list[JsonObject]]
    tool_calls: NotRequired[list[V1ToolCall]]


class V1CallDelta(TypedDict, total=False):
    index: int
    name: str
    parameters: str


class V1ChatEvent(TypedDict, total=False):
    """An event, one JSON object in a line. Its type decides which members it has."""

    event_type: str
    is_finished: bool
    generation_id: str
    text: str
    citations: list[V1Citation]
    tool_calls: list[V1ToolCall]
    tool_call_delta: V1CallDelta
    finish_reason: str
    response: V1ChatAnswer
    error: str
