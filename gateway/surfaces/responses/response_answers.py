"""Responses as types: the response object, its items, and the events of a stream.

Source: openai/types/responses of the OpenAI SDK.
"""

from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from gateway.dialects.responses_vocabulary import ResponseTokens
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, RoutingMetadata

ResponseStatus = Literal["completed", "failed", "in_progress", "incomplete", "cancelled", "queued"]


class ResponseItem(TypedDict, total=False):
    """An item of the output or the input; its type decides which members it has."""

    type: Required[str]
    id: str
    status: str | None
    role: str
    content: Any
    summary: list[JsonObject]
    encrypted_content: str | None
    call_id: str
    name: str
    namespace: str
    arguments: str | JsonObject
    execution: str
    operation: JsonObject
    input: str
    output: Any
    action: JsonObject
    result: str


ResponseItems = list[Annotated[ResponseItem, RELAYED]]


class ResponseUsage(ResponseTokens, AnswerCost):
    """Tokens, and their cost in US dollars."""


class ResponseError(TypedDict):
    code: str
    message: str


class IncompleteDetails(TypedDict):
    reason: str


class ResponseReasoning(TypedDict):
    effort: str | None
    summary: str | None


class RequestEcho(TypedDict):
    """Fields of the request that each response repeats; further ones are repeated under their name."""

    background: bool
    metadata: JsonObject
    parallel_tool_calls: bool
    reasoning: ResponseReasoning
    text: JsonObject
    tool_choice: Any
    tools: list[JsonObject]
    truncation: str


class Penalties(TypedDict):
    frequency_penalty: float
    presence_penalty: float


class ResponseState(Penalties):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    error: ResponseError | None
    incomplete_details: Annotated[IncompleteDetails, RELAYED] | None
    model: str
    output: ResponseItems
    service_tier: str
    store: bool
    usage: ResponseUsage | ResponseTokens | None
    llmgateway: NotRequired[RoutingMetadata]


class ResponseObject(ResponseState, RequestEcho):
    """A response. `llmgateway` has the routing, since `metadata` is the caller's."""


class EventPlace(TypedDict):
    item_id: str
    output_index: int


class PartPlace(EventPlace):
    content_index: int


class SummaryPlace(EventPlace):
    summary_index: int


class ResponseEvent(TypedDict, total=False):
    """An event of a stream; its type decides which members it has."""

    type: Required[str]
    sequence_number: int
    response: Annotated[ResponseObject, RELAYED]
    item: Annotated[ResponseItem, RELAYED]
    item_id: str
    output_index: int
    content_index: int
    summary_index: int
    annotation_index: int
    annotation: JsonObject
    part: JsonObject
    delta: Any
    text: str
    refusal: str
    arguments: str
    input: str
    logprobs: list[Any]
    error: JsonObject


class CompactedResponse(TypedDict):
    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: ResponseItems
    usage: ResponseUsage
    llmgateway: RoutingMetadata
