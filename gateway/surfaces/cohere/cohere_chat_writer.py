"""Writes a neutral answer as a chat in Cohere's format."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from gateway.dialects.cohere import FINISH_WRITE, CohereTokens, write_usage
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Source, Text, ToolCall
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata

# Chats in Cohere's format as types: the complete answer, and the events of a stream.
#
# Source: Cohere API reference, v2 "Chat" and "Chat with streaming".


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


NO_USAGE: Any = {}


def reply(result: ChatResult, facts: Facts) -> bytes:
    """Return the body of a response."""
    return dumps(answer_of(result, facts), result.large)


def answer_of(result: ChatResult, facts: Facts) -> dict[str, Any]:
    """Return an answer. A relayed one keeps all of the upstream's members but its id and its cost."""
    relayed = None
    if result.native is not None:
        body = relayed = result.native.body
    else:
        choice = result.choices[0]
        body = {"finish_reason": FINISH_WRITE[choice.finish], "message": _write_message(choice, facts.hides_reasoning)}
    end = {
        "id": facts.answer_id,
        "model": facts.served,
        "usage": usage_of(facts, relayed),
        "metadata": facts.metadata(),
    }
    return {**body, **end}


def usage_of(facts: Facts, relayed: dict[str, Any] | None) -> CohereUsage:
    """Return `usage` with the cost: the upstream's own where the answer is relayed."""
    counts: CohereTokens
    counts = write_usage(facts.usage) if relayed is None else relayed.get("usage") or NO_USAGE
    return {**counts, **facts.cost()}


def _write_message(choice: Choice, silent: bool) -> CohereReply:
    """Return the message; `silent`: the caller wants no thinking."""
    content: list[CohereContent] = []
    calls: list[CohereToolCall] = []
    citations: list[CohereCitation] = []
    for part in choice.parts:
        if isinstance(part, ToolCall):
            if not part.executed:
                calls.append(write_call(part))
        elif (block := write_block(part)) and not (silent and isinstance(part, Reasoning)):
            if isinstance(part, Text):
                citations += [write_citation(source, len(content), len(part.text)) for source in part.sources]
            content.append(block)
    message: CohereReply = {"role": "assistant"}
    if content or not calls:
        message["content"] = content
    if calls:
        message["tool_calls"] = calls
    if citations:
        message["citations"] = citations
    return message


def write_block(part: Part) -> CohereContent | None:
    """Return the content block of a part; None where the format has none."""
    match part:
        case Text() | Refusal() if part.text:
            return {"type": "text", "text": part.text}
        case Reasoning() if part.text:
            return {"type": "thinking", "thinking": part.text}
        case Image(media=media):
            return {"type": "image_url", "image_url": {"url": media.url or media.inline("image/png")}}
    return None


def write_call(call: ToolCall) -> CohereToolCall:
    arguments = call.arguments or "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def write_citation(source: Source, index: int, length: int) -> CohereCitation:
    """Return the citation of a source in the content block `index`, which has `length` characters. It covers the whole
    text where the source has no positions."""
    start = 0
    end = length
    if source.start >= 0 and source.end >= 0:
        start = source.start
        end = source.end
    named = {"title": source.title, "url": source.url}
    ident = source.url or (source.place.file_id if source.place else "") or source.title
    document = {"id": ident, **{name: value for name, value in named.items() if value}}
    return {
        "start": start,
        "end": end,
        "text": source.quote,
        "sources": [{"type": "document", "id": ident, "document": document}],
        "content_index": index,
        "type": "TEXT_CONTENT",
    }
