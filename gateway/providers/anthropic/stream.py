"""Reads a stream of messages events as neutral batches.

Wire facts: Anthropic documentation, "Streaming messages". A stream is message_start, the blocks one after another,
message_delta (cumulative usage) and message_stop; pings may come anywhere, and an error event ends the stream. Only a
stream with message_stop is complete.
"""

from collections.abc import Callable
from typing import Annotated, Any

import orjson
from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway import ids
from gateway.dialects import anthropic as dialect
from gateway.dialects.anthropic import (
    CONTAINER,
    HOSTED_RESULT_SUFFIX,
    NAME,
    container_of,
    plus,
    read_citation,
    shown_in,
    with_tools,
)
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    PartFound,
    Progress,
    ReasoningDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
    has_content,
    text_length,
)
from gateway.neutral.parts import LENGTH, VendorPart
from gateway.neutral.tool_arguments import plain_arguments
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.answer_checks import (
    SHALLOW_BYTES,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    check_depth,
    empty_answer,
    is_empty,
    number_in,
    text_in,
)
from gateway.providers.anthropic.reply import CALLS, read_stop, read_tier, word
from gateway.providers.failures import stream_failure
from gateway.providers.sse import NO_EVENT, WireStream

# Fast path for the deltas of text, thinking and tool input, which are most events of most streams.
#
# A typed decoder recognizes them. Any other event is parsed in full.

DELTA_EVENT = "content_block_delta"


class _Text(Struct, tag_field="type", tag="text_delta", gc=False):
    text: str


class _Thinking(Struct, tag_field="type", tag="thinking_delta", gc=False):
    thinking: str


class _Input(Struct, tag_field="type", tag="input_json_delta", gc=False):
    partial_json: Annotated[str, Meta(min_length=1)]


class _Piece(Struct, tag_field="type", tag=DELTA_EVENT, gc=False):
    index: Annotated[int, Meta(ge=0, lt=1 << 31)]
    delta: _Text | _Thinking | _Input


PIECE_DECODER = Decoder(_Piece)


def read_piece(data: bytes) -> TextDelta | ReasoningDelta | ToolCallDelta | None:
    """Return the event of a delta, or None for any other data; the full parser then reports malformed events."""
    try:
        piece = PIECE_DECODER.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    delta = piece.delta
    if isinstance(delta, _Text):
        return TextDelta(delta.text, piece.index)
    if isinstance(delta, _Thinking):
        return ReasoningDelta(delta.thinking, vendor=NAME, block=piece.index)
    return ToolCallDelta(piece.index, delta.partial_json)


UNRELAYED = (Started, Progress)  # events that the gateway needs also when it relays the stream


class AnthropicStreamReader(WireStream):
    """Reads one stream."""

    _cited: dict[int, list[Event]] | None = None  # by block: citations, which may arrive before their text

    def __init__(self, relayed: bool) -> None:
        self._relayed = relayed
        self._wire_usage: dict[str, Any] = {}
        self._shown = NO_USAGE
        self._given: tuple[str, ...] = ()  # the container
        self._called = False
        self._pings = 0
        self._stop: FinishReason | None = None
        self._stop_sequence = ""
        # Deltas may take the fast path: the stream began, is not relayed, and `_inputs` is empty.
        self._in_pieces = False
        self._inputs: dict[int, str] = {}  # by block: input in the start of a call, until its first delta

    def take(self, events: list[tuple[str, bytes]]) -> tuple[Batch, bool]:
        """Return the neutral events of some wire events, and whether the last one is terminal."""
        batch: Batch = []
        for name, data in events:
            if name == DELTA_EVENT and self._in_pieces and (piece := read_piece(data)) is not None:
                self._content = True
                batch.append(piece)
                continue
            try:
                wire = self.loads(data)
            except orjson.JSONDecodeError:
                if data.strip() in NO_EVENT:
                    continue
                wire = self._read_joined(data)
                if wire is None:
                    return self._fail(batch, self._unreadable(name, data)), True
            kind = wire.get("type") if type(wire) is dict else None
            if kind == "error" or kind is None:
                return self._fail(batch, stream_failure(wire)), True
            if kind == "message_stop":
                return self._end(batch, self._last()), True
            try:
                self._read_event(kind, wire, len(data), batch)
            except SHAPE_ERRORS:
                return self._fail(batch, UpstreamFailed(UNKNOWN_SHAPE)), True
        return batch, False

    def _read_event(self, kind: str, wire: dict[str, Any], size: int, batch: Batch) -> None:
        read = READERS.get(kind)
        if read is None:
            # The first ping follows the start at once; later ones show that a silent connection is alive.
            if kind == "ping":
                self._pings += 1
                if self._pings > 1 and not batch:
                    batch.append(Heartbeat())
            return
        if not self._started and kind != "message_start":
            raise ValueError("an event before message_start")
        content = False
        length = 0
        for event in read(self, wire):
            if type(event) is TextDelta:  # the most frequent event
                content = True
                length += LENGTH(event.text)
            elif has_content(event):
                content = True
                length += text_length(event)
            if not self._relayed or type(event) in UNRELAYED:
                batch.append(event)
        self._content = self._content or content
        if self._relayed and (size <= SHALLOW_BYTES or check_depth(wire, size)):
            batch.append(NativeChunk(dialect.NAME, wire, content, length, kind))

    def _start(self, wire: dict[str, Any]) -> list[Event]:
        message = wire["message"]
        self._started = True
        self._in_pieces = not self._relayed
        self._note(message.get("usage"))
        return [Started(word(message.get("model")), word(message.get("id")), self._used())]

    def _note(self, usage: Any) -> None:
        """Keep the last value of each count, since counts are cumulative."""
        if isinstance(usage, dict):
            self._wire_usage.update({name: value for name, value in usage.items() if value is not None})

    def _used(self) -> Usage | None:
        return with_tools(dialect.read_usage(self._wire_usage), self._shown, self._wire_usage)

    def _open(self, wire: dict[str, Any]) -> list[Event]:
        number = number_in(wire["index"])
        block = wire["content_block"]
        kind = block["type"]
        if kind == "text":
            if block.get("text"):
                return [TextDelta(block["text"], number)]
            return []
        if kind == "thinking":
            text = word(block.get("thinking"))
            signature = word(block.get("signature"))
            if text or signature:
                return [ReasoningDelta(text, signature, vendor=dialect.NAME, block=number)]
            return []
        if kind == "redacted_thinking":
            return [ReasoningDelta(sealed=text_in(block["data"]), vendor=dialect.NAME, block=number)]
        if kind in CALLS:
            return [self._call(number, block)]
        check_depth(block)
        found: list[Event] = [PartFound(VendorPart(dialect.NAME, kind, block), number)]
        if kind.endswith(HOSTED_RESULT_SUFFIX) and (shown := shown_in(block)) is not NO_USAGE:
            self._shown = plus(self._shown, shown)
            used = self._used()
            if used is not None:  # a caller who leaves now pays for the tool
                found.append(Progress(used))
        return found

    def _call(self, number: int, block: dict[str, Any]) -> ToolCallDelta:
        """Return the start of a call. Some servers send the whole input here and no deltas."""
        executed = CALLS[block["type"]]
        block["id"] = word(block.get("id")) or f"toolu_{ids.new_hex()}"
        name = text_in(block["name"])
        self._called = self._called or not executed
        if block.get("input"):
            self._in_pieces = False
            self._inputs[number] = plain_arguments(block["input"])
        vendor = dialect.NAME if executed else ""
        return ToolCallDelta(number, id=block["id"], name=name, vendor=vendor, executed=executed)

    def _delta(self, wire: dict[str, Any]) -> list[Event]:
        number = number_in(wire["index"])
        delta = wire["delta"]
        kind = delta["type"]
        if kind == "text_delta":
            return [TextDelta(delta["text"], number)]
        if kind == "input_json_delta":
            if not delta["partial_json"]:
                return []
            self._inputs.pop(number, None)
            return [ToolCallDelta(number, delta["partial_json"])]
        if kind == "thinking_delta":
            return [ReasoningDelta(delta["thinking"], vendor=dialect.NAME, block=number)]
        if kind == "signature_delta":
            return [ReasoningDelta(signature=text_in(delta["signature"]), vendor=dialect.NAME, block=number)]
        if kind == "citations_delta":
            source = read_citation(delta["citation"])
            if source is not None:
                self._content = True
                self._cited = self._cited or {}
                self._cited.setdefault(number, []).append(SourceFound(source, number))
        return []

    def _close(self, wire: dict[str, Any]) -> list[Event]:
        number = number_in(wire["index"])
        whole = self._inputs.pop(number, "")
        done: list[Event] = [BlockDone(number)]
        if self._cited is not None:
            done = [*self._cited.pop(number, ()), *done]
        if whole:
            return [ToolCallDelta(number, whole), *done]
        return done

    def _turn(self, wire: dict[str, Any]) -> list[Event]:
        """Read message_delta: the stop reason, and the usage so far."""
        if not isinstance(wire.get("usage"), dict):
            wire["usage"] = {}
        self._note(wire["usage"])
        delta = wire.get("delta") or {}
        if delta.get("stop_reason"):
            self._stop = read_stop(delta["stop_reason"])
            self._stop_sequence = word(delta.get("stop_sequence"))
        if delta.get("container"):
            self._shown = plus(self._shown, CONTAINER)
            self._given = container_of(delta)
        usage = self._used()
        if usage is not None:
            return [Progress(usage)]
        return []

    def _last(self) -> Finished | Failed:
        usage = self._used()
        reason = self._stop or ("tool_calls" if self._called else "stop")
        if is_empty(self._content, reason, usage):
            return Failed(empty_answer(reason, usage), usage)
        tier = read_tier(self._wire_usage)
        return Finished(reason, usage, self._stop_sequence, tier, given=self._given if self._relayed else ())


# A table of the module: bound methods in each reader would be reference cycles that only the garbage collector frees.
READERS: dict[str, Callable[[AnthropicStreamReader, dict[str, Any]], list[Event]]] = {
    "message_start": AnthropicStreamReader._start,
    "content_block_start": AnthropicStreamReader._open,
    "content_block_delta": AnthropicStreamReader._delta,
    "content_block_stop": AnthropicStreamReader._close,
    "message_delta": AnthropicStreamReader._turn,
}
