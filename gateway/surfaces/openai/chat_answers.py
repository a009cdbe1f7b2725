"""Chat completions as types: the complete answer, and the chunks of a stream."""

from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from gateway.dialects.google import ExtraContent
from gateway.dialects.openai import ChatFinish, ChatTokens
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, RoutingMetadata

ID_PREFIX = "chatcmpl-"
FINGERPRINT = "fp_llmgateway"
# The format before `tools` has a finish reason of its own.
FinishReasonShown = ChatFinish | Literal["function_call"]
ReasoningKind = Literal["reasoning.text", "reasoning.summary", "reasoning.encrypted"]


class DetailPlace(TypedDict, total=False):
    format: str
    index: int
    id: str


class ReasoningDetail(DetailPlace, total=False):
    """An item of `reasoning_details`; its kind decides which members it has."""

    type: Required[ReasoningKind]
    text: str
    summary: str
    signature: str
    data: str


class CalledFunction(TypedDict, total=False):
    name: str
    arguments: str


class CalledCustomTool(TypedDict, total=False):
    name: str
    input: str


class ChatToolCall(TypedDict, total=False):
    """A call, or in a stream a piece of it: all pieces of one call have its index."""

    index: int
    id: str
    type: Literal["function", "custom"]
    function: CalledFunction
    custom: CalledCustomTool
    extra_content: ExtraContent


class ChatImageUrl(TypedDict):
    url: str


class ChatImage(TypedDict):
    """An image; `index` is its place among those of a stream."""

    type: Literal["image_url"]
    image_url: ChatImageUrl
    index: NotRequired[int]


class UrlCitation(TypedDict):
    url: str
    title: str
    start_index: int
    end_index: int


class ChatAnnotation(TypedDict):
    """A citation; `index` is its place among those of a stream."""

    type: Literal["url_citation"]
    url_citation: Annotated[UrlCitation, RELAYED]
    index: NotRequired[int]


class MessageMembers(TypedDict, total=False):
    refusal: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: list[Annotated[ReasoningDetail, RELAYED]]
    tool_calls: list[Annotated[ChatToolCall, RELAYED]] | None
    function_call: CalledFunction | None
    annotations: list[Annotated[ChatAnnotation, RELAYED]]
    images: list[Annotated[ChatImage, RELAYED]]


class ChatDelta(MessageMembers, total=False):
    """The members that a chunk adds to a message."""

    role: Literal["assistant"]
    content: str | None


class CompletionMessage(MessageMembers):
    role: Literal["assistant"]
    content: str | None


class ChatChoice(TypedDict):
    index: int
    message: Annotated[CompletionMessage, RELAYED]
    finish_reason: FinishReasonShown


class ChatChunkChoice(TypedDict):
    index: int
    delta: Annotated[ChatDelta, RELAYED]
    finish_reason: FinishReasonShown | None
    logprobs: NotRequired[Any]


class ChatUsage(ChatTokens, AnswerCost):
    """Tokens, and their cost in US dollars."""


class UsageOfStream(TypedDict):
    """Where the clients of Groq read the usage of a stream."""

    id: str
    usage: ChatUsage


class ChatHead(TypedDict):
    id: str
    created: int
    model: str


class ChatCompletionHead(ChatHead):
    """The members of an answer and of each chunk. `system_fingerprint` never changes, but the SDKs of OpenRouter and
    Cerebras require it."""

    system_fingerprint: str


class ChatCompletion(ChatCompletionHead):
    """A chat completion. For clients that expect only texts in `metadata`, the whole of it is in `llmgateway`."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: ChatUsage
    metadata: RoutingMetadata | dict[str, str]
    llmgateway: NotRequired[RoutingMetadata]
    service_tier: NotRequired[str]
    search_results: NotRequired[list[JsonObject]]


class ChatChunkContent(TypedDict):
    choices: list[Annotated[ChatChunkChoice, RELAYED]]
    usage: NotRequired[ChatUsage]
    metadata: NotRequired[RoutingMetadata]
    service_tier: NotRequired[str]
    x_groq: NotRequired[UsageOfStream]
    citations: NotRequired[list[str]]
    search_results: NotRequired[list[JsonObject]]


class ChatCompletionChunk(ChatCompletionHead, ChatChunkContent):
    object: Literal["chat.completion.chunk"]
