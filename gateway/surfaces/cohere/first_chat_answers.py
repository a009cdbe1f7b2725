"""Chats in version 1 of Cohere's format as types: the complete answer, and the events of a stream.

Source: Cohere API reference, v1 "Chat" and "Chat with streaming".
"""

from typing import Annotated, NotRequired, TypedDict

from gateway.dialects.cohere import CohereCounts
from gateway.surfaces.answer_structs import RELAYED, JsonObject
from gateway.surfaces.cohere.embed import CohereVersion
from gateway.surfaces.facts import AnswerCost, RoutingMetadata


class FirstToolCall(TypedDict):
    name: str
    parameters: JsonObject


class FirstCitation(TypedDict):
    start: int
    end: int
    text: str
    document_ids: list[str]


class FirstMeta(TypedDict):
    api_version: CohereVersion
    billed_units: NotRequired[Annotated[CohereCounts, RELAYED]]
    tokens: NotRequired[Annotated[CohereCounts, RELAYED]]
    cached_tokens: NotRequired[int]
    warnings: NotRequired[list[str]]


class FirstChatAnswer(TypedDict):
    """A complete answer. `chat_history` is that of the request with the new messages."""

    response_id: str
    generation_id: str
    text: str
    finish_reason: str
    chat_history: list[JsonObject]
    meta: FirstMeta
    model: str
    usage: AnswerCost
    metadata: RoutingMetadata
    citations: NotRequired[list[FirstCitation]]
    documents: NotRequired[list[JsonObject]]
    tool_calls: NotRequired[list[FirstToolCall]]


class FirstCallDelta(TypedDict, total=False):
    index: int
    name: str
    parameters: str


class FirstChatEvent(TypedDict, total=False):
    """An event, one JSON object in a line. Its type decides which members it has."""

    event_type: str
    is_finished: bool
    generation_id: str
    text: str
    citations: list[FirstCitation]
    tool_calls: list[FirstToolCall]
    tool_call_delta: FirstCallDelta
    finish_reason: str
    response: FirstChatAnswer
    error: str
