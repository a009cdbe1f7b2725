"""Writes a neutral answer as a chat in Cohere's format: one body, or the events of a stream."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from gateway.dialects.cohere import FAILED, FINISH_WRITE, NAME, CohereTokens, write_usage
from gateway.dialects.field_names import reword
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    Notice,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Source, Text, ToolCall
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata
from gateway.surfaces.web.http_responses import write_event, write_frames

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


# Writes a neutral stream as the events of a chat in Cohere's format.

PING = b": keep-alive\n\n"
NO_ARGUMENTS = {"function": {"arguments": "{}"}}
EMPTY: dict[str, Any] = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}


def frames(batches: Iterable[Batch], facts: Facts) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A failed stream ends with a message-end of the reason ERROR."""
    stream = ChatEvents(facts, _frame, PING)
    return write_frames(batches, stream.write, stream.fail)


def write_failure(error: GatewayError, request_id: str) -> bytes:
    """Return the last event of a failed stream, in which clients read the error."""
    return _frame(failure_of(error, request_id))


def failure_of(error: GatewayError, request_id: str) -> CohereEvent:
    delta: CohereEventDelta = {"finish_reason": FAILED, "error": error.message}
    return {"type": "message-end", "id": request_id, "delta": delta}


def _frame(event: CohereEvent) -> bytes:
    return write_event(event, event["type"])


class ChatEvents:
    """The state of one stream. The format numbers contents, calls and citations separately. `frame` writes an event,
    and `ping` keeps the connection open."""

    def __init__(self, facts: Facts, frame: Callable[[CohereEvent], bytes], ping: bytes) -> None:
        self._facts = facts
        self._frame = frame
        self._ping = ping
        self._blocks: dict[int, tuple[str, int]] = {}  # kind and number, by block
        self._open: dict[int, tuple[str, int]] = {}
        self._lengths: dict[int, int] = {}  # of the texts, by block
        self._last_text = -1  # the block of the newest text
        self._bare: set[int] = set()  # calls without any arguments so far
        self._counts = {"content": 0, "tool-call": 0, "citation": 0}
        self._warnings: list[str] = []

    def write(self, batch: Batch) -> bytes:
        """Return all events of one batch, joined."""
        return b"".join([self._write(event) for event in batch])

    def fail(self, error: GatewayError) -> bytes:
        return self._frame(failure_of(error, self._facts.answer_id))

    def _write(self, event: Event) -> bytes:
        write = WRITERS.get(type(event))
        if write is None:
            return b""
        return write(self, event)

    def _start(self, event: Started) -> bytes:
        return self._frame({"type": "message-start", "id": self._facts.answer_id, "delta": {"message": EMPTY}})

    def _relay(self, event: NativeChunk) -> bytes:
        return self._frame(cast(CohereEvent, event.body))

    def _text(self, event: TextDelta | RefusalDelta) -> bytes:
        self._last_text = event.block
        self._lengths[event.block] = self._lengths.get(event.block, 0) + len(event.text)
        return self._content(event.block, "text", event.text)

    def _think(self, event: ReasoningDelta) -> bytes:
        if self._facts.hides_reasoning:
            return b""
        return self._content(event.block, "thinking", event.text)

    def _part(self, event: PartFound) -> bytes:
        block = write_block(event.part)
        if block is None:
            return b""
        return self._begin(event.block, "content", content=block)

    def _heartbeat(self, event: Heartbeat) -> bytes:
        return self._ping

    def _notice(self, event: Notice) -> bytes:
        self._warnings.append(reword(NAME, event.message))
        return b""

    def _done(self, event: BlockDone) -> bytes:
        return self._fill([event.block]) + self._close(event.block)

    def _failed(self, event: Failed) -> bytes:
        return self.fail(event.error)

    def _content(self, block: int, kind: str, text: str) -> bytes:
        if not text:
            return b""
        begun = b""
        if block not in self._blocks:
            begun = self._begin(block, "content", content={"type": kind, kind: ""})
        return begun + self._message("content-delta", self._blocks[block][1], content={kind: text})

    def _call(self, event: ToolCallDelta) -> bytes:
        """Return the events of a piece of a call; none for a call that the provider executed."""
        begun = b""
        if event.block not in self._blocks:
            if event.executed or not event.name:
                return b""
            call = {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}}
            begun = self._begin(event.block, "tool-call", tool_calls=call)
            self._bare.add(event.block)
        if not event.arguments:
            return begun
        self._bare.discard(event.block)
        piece = {"function": {"arguments": event.arguments}}
        return begun + self._message("tool-call-delta", self._blocks[event.block][1], tool_calls=piece)

    def _begin(self, block: int, kind: str, **message: Any) -> bytes:
        """Return the start of a block, behind the ends of those that are open."""
        ended = self._close_all()
        number = self._number(kind)
        self._blocks[block] = self._open[block] = kind, number
        return ended + self._message(f"{kind}-start", number, **message)

    def _message(self, kind: str, index: int, **message: Any) -> bytes:
        return self._frame({"type": kind, "index": index, "delta": {"message": message}})

    def _number(self, kind: str) -> int:
        number = self._counts[kind]
        self._counts[kind] += 1
        return number

    def _close(self, block: int) -> bytes:
        if block not in self._open:
            return b""
        kind, number = self._open.pop(block)
        return self._frame({"type": f"{kind}-end", "index": number})

    def _fill(self, blocks: list[int]) -> bytes:
        """Return the arguments of complete calls without any: clients parse them, so they must be an empty object."""
        filled = [self._blocks[block][1] for block in blocks if block in self._bare]
        self._bare.difference_update(blocks)
        return b"".join([self._message("tool-call-delta", number, tool_calls=NO_ARGUMENTS) for number in filled])

    def _close_all(self) -> bytes:
        return b"".join([self._close(block) for block in list(self._open)])

    def _cite(self, event: SourceFound) -> bytes:
        block = event.block
        if block not in self._lengths:
            block = self._last_text
        _, index = self._blocks.get(block, ("content", 0))
        citation = write_citation(event.source, index, self._lengths.get(block, 0))
        number = self._number("citation")
        return self._message("citation-start", number, citations=citation) + self._frame(
            {"type": "citation-end", "index": number}
        )

    def _finish(self, event: Finished) -> bytes:
        """Return the ends of open blocks, and the last event with the reason, the usage and the cost."""
        facts = self._facts
        relayed = event.native or None
        delta: Any = relayed or {"finish_reason": FINISH_WRITE[event.reason]}
        metadata = facts.metadata()
        if self._warnings:
            metadata["warnings"] = list(dict.fromkeys([*metadata.get("warnings", ()), *self._warnings]))
        return (
            self._fill(sorted(self._bare))
            + self._close_all()
            + self._frame(
                {
                    "type": "message-end",
                    "id": facts.answer_id,
                    "delta": {**delta, "usage": usage_of(facts, relayed)},
                    "model": facts.served,
                    "metadata": metadata,
                }
            )
        )


WRITERS: dict[type, Callable[[ChatEvents, Any], bytes]] = {
    Started: ChatEvents._start,
    NativeChunk: ChatEvents._relay,
    TextDelta: ChatEvents._text,
    RefusalDelta: ChatEvents._text,
    ReasoningDelta: ChatEvents._think,
    ToolCallDelta: ChatEvents._call,
    SourceFound: ChatEvents._cite,
    PartFound: ChatEvents._part,
    BlockDone: ChatEvents._done,
    Notice: ChatEvents._notice,
    Heartbeat: ChatEvents._heartbeat,
    Finished: ChatEvents._finish,
    Failed: ChatEvents._failed,
}
