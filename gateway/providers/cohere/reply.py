"""Reads a chat response as a neutral result, or a stream of chat events as batches of neutral events.

Wire facts: Cohere API reference, v2/chat, response; guide, citations (positions count characters of their block).
"""

from collections.abc import Callable
from typing import Any

import orjson

from gateway import ids
from gateway.dialects import cohere as dialect
from gateway.dialects.openai import read_unknown
from gateway.errors import GatewayError, UpstreamFailed, UpstreamTimeout
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    NativeChunk,
    ReasoningDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
    has_content,
    text_length,
)
from gateway.neutral.parts import Part, Reasoning, Source, SourceRange, Text, ToolCall
from gateway.neutral.tool_arguments import plain_arguments
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, read_object
from gateway.providers.failures import scrub, stream_failure
from gateway.providers.sse import NO_EVENT, WireStream

ENDED_WITH_ERROR = "The provider ended its response with an error."
TIMED_OUT_ANSWER = "The provider did not complete its response in time."
TEXT_CITED = ("TEXT_CONTENT", None)


def read_result(body: bytes, relayed: bool = False) -> ChatResult:
    """Return the result of a 2xx body, with the body if it is `relayed`. UpstreamFailed for another shape, a failure
    inside it, or no content."""
    wire = read_object(body)
    if "message" not in wire or isinstance(wire["message"], str):
        raise stream_failure(wire)
    usage = dialect.read_usage(wire.get("usage"))
    try:
        parts = _read_message(wire["message"])
        calls = any(isinstance(part, ToolCall) for part in parts)
        finish = read_finish(wire.get("finish_reason"), "", calls)
    except GatewayError as error:
        error.spent = usage
        raise
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise empty_answer(finish, usage)
    native = Native(dialect.NAME, wire) if relayed else None
    return ChatResult((Choice(parts, finish),), usage, upstream_id=word(wire.get("id")), native=native)


def read_finish(reason: Any, message: Any, calls: bool) -> FinishReason:
    """Return the neutral finish reason. UpstreamFailed or UpstreamTimeout, with `message`, for a failed response."""
    if reason in (dialect.FAILED, dialect.TIMED_OUT):
        details = {"responseText": scrub(word(message) or reason)}
        if reason == dialect.TIMED_OUT:
            raise UpstreamTimeout(TIMED_OUT_ANSWER, details=details, upstream_status=200)
        raise UpstreamFailed(ENDED_WITH_ERROR, details=details, upstream_status=200)
    finish = dialect.FINISH_READ.get(word(reason)) or read_unknown(reason)
    if finish in ("stop", "tool_calls"):
        return "tool_calls" if calls else "stop"
    return finish


def _read_message(message: dict[str, Any]) -> tuple[Part, ...]:
    """Return plan, blocks and calls in this order; each text has its citations."""
    plan = word(message.get("tool_plan"))
    parts: list[Reasoning | Text] = [Reasoning(plan)] if plan else []
    citations = [citation for citation in message.get("citations") or () if citation.get("type") in TEXT_CITED]
    texts = [block for block in message.get("content") or () if block["type"] == "text"]
    for index, block in enumerate(message.get("content") or ()):
        if block["type"] == "thinking":
            parts.append(Reasoning(block["thinking"]))
        elif block["type"] == "text":
            cited = [entry for entry in citations if len(texts) == 1 or entry.get("content_index") == index]
            sources = tuple(source for citation in cited for source in read_sources(citation))
            parts.append(Text(block["text"], sources=sources))
    return (*(part for part in parts if part.text), *(read_call(call) for call in message.get("tool_calls") or ()))


def read_call(wire: dict[str, Any]) -> ToolCall:
    """Return a call. A call without an id gets a new id, since its result needs one."""
    function = wire.get("function") or {}
    ident = word(wire.get("id")) or f"call_{ids.new_hex()}"
    return ToolCall(ident, word(function.get("name")), plain_arguments(function.get("arguments")))


def read_sources(citation: dict[str, Any]) -> tuple[Source, ...]:
    """Return the sources of one citation, with the URL if the document or the tool output reports one."""
    start = citation.get("start")
    end = citation.get("end")
    span = (start, end) if type(start) is int and type(end) is int else (-1, -1)
    quote = word(citation.get("text"))
    return tuple(_read_source(source, quote, span) for source in citation.get("sources") or ())


def _read_source(wire: dict[str, Any], quote: str, span: tuple[int, int]) -> Source:
    ident = word(wire.get("id"))
    document = wire.get("document") or wire.get("tool_output") or {}
    url = word(document.get("url"))
    title = word(document.get("title")) or ident
    return Source(url, title, quote, *span, place=None if url else SourceRange("result", 0, file_id=ident))


def word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""


# Reads a stream of chat events as batches of neutral events.
#
# Wire facts: Cohere guide, streaming: message-start, blocks, plan, calls and citations, message-end with reason and
# usage. A stream without message-end is truncated.

PLAN = ("plan", 0)
START = "message-start"
MESSAGE_END = "message-end"
Wire = dict[str, Any]


class CohereStreamReader(WireStream):
    """Reads one stream, and numbers blocks as they begin, since the format numbers contents and calls separately."""

    def __init__(self, relayed: bool = False) -> None:
        self._relayed = relayed
        self._blocks: dict[tuple[str, int], int] = {}
        self._called = False
        self._cited: dict[int, list[Source]] = {}  # by content: citations that arrive before their text

    def take(self, events: list[tuple[str, bytes]]) -> tuple[Batch, bool]:
        """Return the neutral events of some wire events, and whether the last one is terminal."""
        batch: Batch = []
        for name, data in events:
            try:
                wire = self.loads(data)
            except orjson.JSONDecodeError:
                if data.strip() in NO_EVENT:
                    continue
                wire = self._read_joined(data)
                if wire is None:
                    return self._fail(batch, self._unreadable(name, data)), True
            kind = wire.get("type") if type(wire) is dict else None
            try:
                if kind == MESSAGE_END:
                    return self._end(batch, self._last(wire.get("delta") or {})), True
                if kind is None or kind == "error":
                    raise stream_failure(wire)
                self._read_event(kind, wire, batch)
            except GatewayError as error:
                return self._fail(batch, error), True
            except SHAPE_ERRORS:
                return self._fail(batch, UpstreamFailed(UNKNOWN_SHAPE)), True
        return batch, False

    def _read_event(self, kind: str, wire: Wire, batch: Batch) -> None:
        read = READERS.get(kind)
        neutral: list[Event] = read(self, wire) if read else []
        content = any(has_content(event) for event in neutral)
        self._content = self._content or content
        if self._relayed and kind != START:
            neutral = [NativeChunk(dialect.NAME, wire, content, sum(text_length(event) for event in neutral))]
        batch += neutral

    def _start(self, wire: Wire) -> list[Event]:
        self._started = True
        return [Started("", word(wire.get("id")))]

    def _block(self, kind: str, index: Any) -> int:
        return self._blocks.setdefault((kind, index or 0), len(self._blocks))

    def _text(self, wire: Wire) -> list[Event]:
        """Read a piece of text or of thinking; the start of a block may contain the first piece."""
        content = wire["delta"]["message"]["content"]
        if content.get("thinking"):
            return [ReasoningDelta(content["thinking"], block=self._block("content", wire.get("index")))]
        if content.get("text"):
            return [TextDelta(content["text"], self._block("content", wire.get("index")))]
        return []

    def _end_text(self, wire: Wire) -> list[Event]:
        """Read the end of a content: the citations that came before it."""
        index = wire.get("index") or 0
        sources = self._cited.pop(index, ())
        return [SourceFound(source, self._block("content", index)) for source in sources]

    def _plan(self, wire: Wire) -> list[Event]:
        text = wire["delta"]["message"].get("tool_plan")
        if text:
            return [ReasoningDelta(text, block=self._block(*PLAN))]
        return []

    def _call(self, wire: Wire) -> list[Event]:
        self._called = True
        wire_call = wire["delta"]["message"]["tool_calls"]
        call = read_call(wire_call)
        arguments = word((wire_call.get("function") or {}).get("arguments"))
        return [ToolCallDelta(self._block("call", wire.get("index")), arguments, call.id, call.name)]

    def _arguments(self, wire: Wire) -> list[Event]:
        text = wire["delta"]["message"]["tool_calls"]["function"].get("arguments")
        if text:
            return [ToolCallDelta(self._block("call", wire.get("index")), text)]
        return []

    def _close(self, wire: Wire) -> list[Event]:
        """Read the end of a call. Text blocks stay open, since their citations may follow."""
        number = self._blocks.get(("call", wire.get("index") or 0))
        if number is not None:
            return [BlockDone(number)]
        return []

    def _cite(self, wire: Wire) -> list[Event]:
        citation = wire["delta"]["message"]["citations"]
        if citation.get("type") not in TEXT_CITED:
            return []
        index = citation.get("content_index") or 0
        number = self._blocks.get(("content", index))
        if number is None:
            self._cited.setdefault(index, []).extend(read_sources(citation))
            return []
        return [SourceFound(source, number) for source in read_sources(citation)]

    def _last(self, delta: Wire) -> Finished | Failed:
        self._usage = dialect.read_usage(delta.get("usage"))
        finish = read_finish(delta.get("finish_reason"), delta.get("error"), self._called)
        if is_empty(self._content, finish, self._usage):
            return Failed(empty_answer(finish, self._usage), self._usage)
        return Finished(finish, self._usage, native=delta if self._relayed else {})


# A table of the module: bound methods in each reader would be reference cycles that only the garbage collector frees.
READERS: dict[str, Callable[[CohereStreamReader, Wire], list[Event]]] = {
    START: CohereStreamReader._start,
    "content-start": CohereStreamReader._text,
    "content-delta": CohereStreamReader._text,
    "content-end": CohereStreamReader._end_text,
    "tool-plan-delta": CohereStreamReader._plan,
    "tool-call-start": CohereStreamReader._call,
    "tool-call-delta": CohereStreamReader._arguments,
    "tool-call-end": CohereStreamReader._close,
    "citation-start": CohereStreamReader._cite,
}
