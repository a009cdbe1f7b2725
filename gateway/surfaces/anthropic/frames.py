"""Writes a neutral stream as the events of a streamed message (Anthropic documentation, "Streaming messages")."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from typing import Protocol as Interface

import orjson

from gateway.dialects.anthropic import NAME, MessageTokens, error_body, write_citation, write_usage
from gateway.dialects.anthropic import NAME as SURFACE
from gateway.dialects.field_names import reword
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import (
    Batch,
    BlockDone,
    BlockEvent,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Reasoning
from gateway.neutral.usage import Usage
from gateway.runtime.threads import compute_if
from gateway.surfaces.anthropic.opaque_tokens import CALL, TEXT, OpaqueToken, write_token
from gateway.surfaces.anthropic.writer import (
    NO_USAGE,
    Block,
    BlockChange,
    BlockDelta,
    BlockStart,
    BlockStop,
    ContentBlock,
    EndedMessage,
    MessageDelta,
    MessageEnding,
    MessageStart,
    StartedMessage,
    StreamMark,
    mark,
    sign,
    write_part,
    write_stop,
)
from gateway.surfaces.bodies.token_estimates import estimate_tokens
from gateway.surfaces.web.facts import Facts
from gateway.surfaces.web.http_responses import write_frames

# The events of a streamed message as frames, and the numbering of its blocks.


def frame(event: Mapping[str, Any]) -> bytes:
    """Return one server-sent event, named by its type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


class BlockFramer:
    """Numbers the blocks and writes the events of the open one."""

    def __init__(self) -> None:
        self._index = -1

    def start(self, shown: ContentBlock) -> bytes:
        self._index += 1
        event: BlockStart = {"type": "content_block_start", "index": self._index, "content_block": shown}
        return frame(event)

    def change(self, delta: BlockChange) -> bytes:
        event: BlockDelta = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return b"event: content_block_delta\ndata: %b\n\n" % orjson.dumps(event)

    def stop(self) -> bytes:
        event: BlockStop = {"type": "content_block_stop", "index": self._index}
        return frame(event)

    def lone(self, shown: ContentBlock) -> bytes:
        """Return the events of a block that arrives complete: clients still expect text and signature in a delta."""
        if shown["type"] == "text":
            text = self.start({**shown, "text": ""}) + self.change({"type": "text_delta", "text": shown["text"]})
            return text + self.stop()
        if shown["type"] == "thinking":
            signature: BlockChange = {"type": "signature_delta", "signature": shown["signature"]}
            return self.start({**shown, "signature": ""}) + self.change(signature) + self.stop()
        return self.start(shown) + self.stop()


# Writes the blocks of a streamed message one after the other, from a neutral stream with interleaved blocks.
#
# Anthropic documentation, "Streaming messages": each block is started, changed and stopped before the next starts.
# Chunks of a later block are buffered here until the earlier one is complete.

SHORT = 4096  # shorter arguments are parsed each time that they may be complete
MAX_PARSED_LENGTH = 1 << 18  # longer ones are never parsed: the end of the block decides
MAX_PARSES = 64
THREAD_EVENTS = 500  # buffered events; more are written in a thread
MAX_BUFFERED = 100_000


class _Writer(Interface):
    """Writes one block. `whole`: it is complete."""

    number: int
    whole: bool

    def add(self, event: Any, framer: BlockFramer) -> bytes: ...
    def close(self, framer: BlockFramer) -> bytes: ...


class _TextWriter:
    """Writes text with its citations; `late` is the block that carries its signature, which is known only at its
    end."""

    whole = True

    def __init__(self, number: int) -> None:
        self.number = number
        self._begun = False
        self._signatures: list[str] = []
        self._vendor = ""

    def add(self, event: TextDelta | RefusalDelta | SourceFound, framer: BlockFramer) -> bytes:
        if isinstance(event, TextDelta) and event.signature:
            self._signatures.append(event.signature)
            self._vendor = self._vendor or event.vendor
        if isinstance(event, SourceFound):
            return self._begin(framer) + framer.change(
                {"type": "citations_delta", "citation": write_citation(event.source)}
            )
        if not event.text:
            return b""
        return self._begin(framer) + framer.change({"type": "text_delta", "text": event.text})

    def _begin(self, framer: BlockFramer) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return framer.start({"type": "text", "text": ""})

    def close(self, framer: BlockFramer) -> bytes:
        return framer.stop() if self._begun else b""

    @property
    def late(self) -> Block | None:
        return mark(TEXT, self._vendor, "".join(self._signatures)) if self._signatures else None


class _ThoughtWriter:
    """Writes reasoning: text as it arrives; signature and token in one delta at the end, since clients keep only the
    last."""

    whole = True

    def __init__(self, number: int) -> None:
        self.number = number
        self._begun = False
        self._pieces: list[ReasoningDelta] = []

    def add(self, event: ReasoningDelta, framer: BlockFramer) -> bytes:
        if event.signature or event.sealed or not self._pieces:
            self._pieces.append(event)
        if not event.text:
            return b""
        return self._begin(framer) + framer.change({"type": "thinking_delta", "thinking": event.text})

    def _begin(self, framer: BlockFramer) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return framer.start({"type": "thinking", "thinking": "", "signature": ""})

    def close(self, framer: BlockFramer) -> bytes:
        part = Reasoning(
            signature="".join(piece.signature for piece in self._pieces),
            sealed="".join(piece.sealed for piece in self._pieces),
            vendor=next((piece.vendor for piece in self._pieces if piece.vendor), ""),
            ident=next((piece.ident for piece in self._pieces if piece.ident), ""),
            summary=any(piece.summary for piece in self._pieces),
        )
        if part.vendor == NAME and part.sealed:
            return framer.lone({"type": "redacted_thinking", "data": part.sealed})
        signature = sign(part)
        sent = self._begin(framer)
        if signature:
            sent += framer.change({"type": "signature_delta", "signature": signature})
        return sent + framer.stop()


class _CallWriter:
    """Writes a tool call: started once its name is known, complete once its arguments are JSON."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._begun = False
        self._id = self._name = self._vendor = ""
        self._pieces: list[str] = []
        self._signatures: list[str] = []
        self._executed = self._custom = False
        self._kept = ""  # its signature as a member of the block
        self._size = self._looks = 0

    @property
    def whole(self) -> bool:
        if not self._begun or self._custom or not self._may_end():
            return False
        try:
            orjson.loads("".join(self._pieces))
        except orjson.JSONDecodeError:
            return False
        return True

    def _may_end(self) -> bool:
        """Return whether the arguments should be parsed: long ones only a few times, then the end of the block
        decides."""
        if not self._pieces or not self._pieces[-1].rstrip().endswith("}"):
            return False
        self._looks += self._size > SHORT
        return self._looks <= MAX_PARSES and self._size <= MAX_PARSED_LENGTH

    def add(self, event: ToolCallDelta, framer: BlockFramer) -> bytes:
        self._id = self._id or event.id
        self._name = self._name or event.name
        self._executed = self._executed or bool(event.executed)
        self._custom = self._custom or event.custom
        if event.signature:
            self._signatures.append(event.signature)
        self._vendor = self._vendor or event.vendor
        if event.arguments:
            self._pieces.append(event.arguments)
            self._size += len(event.arguments)
        if self._begun:
            return self._show(event.arguments, framer)
        return self._begin(framer) if self._name else b""

    def _begin(self, framer: BlockFramer) -> bytes:
        """Write the start and the arguments so far; a signature of the call precedes it."""
        self._begun = True
        sent = b""
        if self._signatures:
            sent = self._mark(framer)
        sent += framer.start(self._block())
        return sent + self._show("".join(self._pieces), framer)

    def _block(self) -> Block:
        """Return the block as it starts."""
        kind = "server_tool_use" if self._executed else "tool_use"
        return {"type": kind, "id": self._id, "name": self._name, "input": {}}

    def _mark(self, framer: BlockFramer) -> bytes:
        signature = "".join(self._signatures)
        self._signatures = []
        return framer.lone(mark(CALL + self._id, self._vendor, signature))

    def _show(self, piece: str, framer: BlockFramer) -> bytes:
        """Write a piece of the arguments. Free text of a custom tool is not JSON and is written at the end."""
        if not piece or self._custom:
            return b""
        return framer.change({"type": "input_json_delta", "partial_json": piece})

    def close(self, framer: BlockFramer) -> bytes:
        sent = b"" if self._begun else self._begin(framer)
        if self._custom:
            text = orjson.dumps({"input": "".join(self._pieces)}).decode()
            sent += framer.change({"type": "input_json_delta", "partial_json": text})
        sent += framer.stop()
        return sent + self._mark(framer) if self._signatures else sent


class _SilentCallWriter(_CallWriter):
    """Writes a tool call that carries its signature itself, for callers who disabled thinking blocks."""

    def _block(self) -> Block:
        block = super()._block()
        if self._kept:
            block["signature"] = self._kept
        return block

    def _mark(self, framer: BlockFramer) -> bytes:
        signature = "".join(self._signatures)
        self._signatures = []
        self._kept = write_token(OpaqueToken(CALL + self._id, self._vendor, signature))
        return b""


class _PartWriter:
    """Writes a part that arrives complete."""

    whole = True

    def __init__(self, number: int) -> None:
        self.number = number

    def add(self, event: PartFound, framer: BlockFramer) -> bytes:
        return b"".join(framer.lone(shown) for shown in write_part(event.part))

    def close(self, framer: BlockFramer) -> bytes:
        return b""


WRITERS: dict[type, type] = {
    TextDelta: _TextWriter,
    RefusalDelta: _TextWriter,
    SourceFound: _TextWriter,
    ReasoningDelta: _ThoughtWriter,
    ToolCallDelta: _CallWriter,
    PartFound: _PartWriter,
}


def _family(writer: _Writer) -> type:
    """Return the key of a writer's kind in WRITERS."""
    return _CallWriter if isinstance(writer, _CallWriter) else type(writer)


class BlockOrder:
    """Takes block events and returns frames in block order. `called`: the caller has a tool to run; `refused`: the
    model refused to answer.

    The signature of a text is sent before the next block. That of the last text is left out: clients take the last
    block for the response, and no vendor requires it (Google, "Thought signatures": only those of calls are checked).
    """

    def __init__(self, silent: bool = False) -> None:
        """`silent`: the caller disabled thinking, so that there is no thinking block."""
        self.called = False
        self.refused = False
        self._silent = silent
        self._framer = BlockFramer()
        self._open: _Writer | None = None
        self._late: Block | None = None
        self._queue: deque[tuple[_Writer, list[BlockEvent]]] = deque()
        self._waiting = 0  # number of buffered events
        # Blocks that are open or waiting, by the key of their events; texts in their order.
        self._known: dict[tuple[type, int], tuple[_Writer, list[BlockEvent]]] = {}
        self._text: _Writer | None = None
        self._done: set[int] = set()  # complete blocks that are still waiting

    def write(self, event: BlockEvent) -> bytes:
        """Return the frames of one event, now or when its turn comes; nothing for events that the format does not
        show."""
        last = self._open if not self._queue else None
        if type(event) is TextDelta and type(last) is _TextWriter and last.number == event.block:
            return last.add(event, self._framer)  # most events of most streams
        if isinstance(event, BlockDone):
            return self._end(event.block)
        kind = WRITERS.get(type(event))
        if self._silent and isinstance(event, ReasoningDelta):
            return b""
        if kind is None or (isinstance(event, ToolCallDelta) and self._is_hidden(event)):
            return b""
        if isinstance(event, ToolCallDelta) and not event.executed:
            self.called = True
        self.refused = self.refused or type(event) is RefusalDelta
        known = self._find(kind, event)
        if known is None:
            self._append((_SilentCallWriter if self._silent and kind is _CallWriter else kind)(event.block), event)
        elif known[0] is self._open:
            return known[0].add(event, self._framer) + self._drain()
        else:
            known[1].append(event)
            self._waiting += 1
        if self._waiting > MAX_BUFFERED:
            raise UpstreamFailed("The provider interleaved more parts than the gateway buffers.")
        return self._drain()

    def _append(self, writer: _Writer, event: BlockEvent) -> None:
        entry = writer, [event]
        self._waiting += 1
        self._queue.append(entry)
        if not isinstance(writer, _PartWriter):
            self._known[_family(writer), writer.number] = entry
        if isinstance(writer, _TextWriter):
            self._text = writer

    def close(self) -> bytes:
        """Complete all blocks that are still open or waiting."""
        return compute_if(self._waiting > THREAD_EVENTS, self._close_all)

    def _close_all(self) -> bytes:
        sent = [self._close()]
        while self._queue:
            sent += (self._open_next(), self._close())
        return b"".join(sent)

    def _is_hidden(self, event: ToolCallDelta) -> bool:
        """Return whether the event is hidden: calls that another vendor's server executed, and their pieces, mean
        nothing in this format."""
        if event.executed and event.vendor != NAME:
            return True
        return not event.id and not event.name and self._find(_CallWriter, event) is None

    def _find(self, kind: type, event: Any) -> tuple[_Writer, list[BlockEvent]] | None:
        """Return the writer of the event's block and its buffer; a source without a block belongs to the current
        text."""
        if isinstance(event, SourceFound):
            return self._known.get((kind, self._text.number)) if self._text is not None else None
        return self._known.get((kind, event.block))

    def _drain(self) -> bytes:
        """Open waiting blocks as long as the previous one is complete."""
        if not self._queue:
            return b""
        return compute_if(self._waiting > THREAD_EVENTS and (self._open is None or self._open.whole), self._drain_all)

    def _drain_all(self) -> bytes:
        sent: list[bytes] = []
        while self._queue and (self._open is None or self._open.whole):
            sent += (self._close(), self._open_next())
        return b"".join(sent)

    def _open_next(self) -> bytes:
        writer, events = self._queue.popleft()
        self._waiting -= len(events)
        self._open = writer
        sent = self._framer.lone(self._late) if self._late else b""
        self._late = None
        sent += b"".join(writer.add(event, self._framer) for event in events)
        return sent + self._close() if writer.number in self._done else sent

    def _end(self, number: int) -> bytes:
        if self._open is not None and self._open.number == number:
            return self._close() + self._drain()
        self._done.add(number)
        return b""

    def _close(self) -> bytes:
        writer = self._open
        self._open = None
        if isinstance(writer, _TextWriter):
            self._late = None if self._silent else writer.late
            self._text = None if self._text is writer else self._text
        if writer is not None:
            self._known.pop((_family(writer), writer.number), None)
        return writer.close(self._framer) if writer is not None else b""


PING: StreamMark = {"type": "ping"}
STOP: StreamMark = {"type": "message_stop"}
PING_FRAME = frame(PING)
STOP_FRAME = frame(STOP)


def frames(batches: Iterable[Batch], facts: Facts) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with message_stop; a failed one with an
    `error` event as its last, so that no client takes it for complete."""
    stream = _Stream(facts)
    return write_frames(batches, stream.write, stream.fail)


class _Stream:
    """The state of one stream."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._started = False
        self._usage: Usage | None = None  # as the upstream reported it at the start
        self._blocks = BlockOrder(silent=facts.hides_reasoning)
        self._end: Any = None  # the upstream's own message_delta, when it is relayed
        self._warnings: list[str] = []

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                sent.append(self._relay(event))
            elif type(event) is TextDelta and event.choice == 0:
                sent += (self._start(), self._blocks.write(event))
            elif type(event) is Heartbeat:
                sent.append(PING_FRAME)
            elif type(event) is Started:
                self._usage = event.usage
            elif type(event) is Notice:
                self._warnings.append(reword(SURFACE, event.message))
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(self.fail(event.error))
            elif type(event) is not Progress and event.choice == 0:
                sent += (self._start(), self._blocks.write(event))
        return b"".join(sent)

    def fail(self, error: GatewayError) -> bytes:
        """Return the error event, the last event of a failed stream."""
        return frame(error_body(error, self._facts.context.shown_id))

    def _start(self, message: Any = None) -> bytes:
        """Return message_start, once; sent with the first content, since only then the serving model is certain."""
        if self._started:
            return b""
        self._started = True
        started: StartedMessage = {
            "type": "message",
            "role": "assistant",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._usage or self._estimate_prompt()),
            "id": self._facts.answer_id,
            "model": self._facts.requested_model,
            "content": [],
        }
        if message is not None:
            started = {**started, **message, "id": started["id"], "model": started["model"], "content": []}
        event: MessageStart = {"type": "message_start", "message": started}
        return frame(event)

    def _estimate_prompt(self) -> Usage:
        """Return the estimated tokens of the prompt: many clients read them at the start of a stream, most providers
        report them at its end."""
        asked = self._facts.outcome.request.requirements
        return Usage(input=estimate_tokens(asked.prompt_bytes, asked.messages, asked.media, 0, False))

    def _relay(self, chunk: NativeChunk) -> bytes:
        """Return the upstream's event; the last one waits for the cost."""
        if chunk.event == "message_start":
            return self._start(chunk.body["message"])
        if chunk.event == "message_delta":
            self._end = chunk.body
            return b""
        return frame(chunk.body)

    def _finish(self, event: Finished) -> bytes:
        """Close open blocks, then return message_delta with usage and cost, then message_stop."""
        sent = self._start() + self._blocks.close()
        try:
            return sent + frame(self._last(event)) + STOP_FRAME
        except GatewayError as error:
            return sent + self.fail(error)

    def _last(self, event: Finished) -> MessageDelta:
        facts = self._facts
        last: EndedMessage
        usage: MessageTokens
        if self._end is not None:
            last = self._end
            usage = self._end.get("usage") or NO_USAGE
        else:
            reason = write_stop(event.reason, self._blocks.called, self._blocks.refused)
            ending: MessageEnding = {"stop_reason": reason, "stop_sequence": event.stop_sequence or None}
            last = {"type": "message_delta", "delta": ending}
            usage = write_usage(facts.usage)
        metadata = facts.metadata()
        if self._warnings:
            metadata["warnings"] = list(dict.fromkeys([*metadata.get("warnings", ()), *self._warnings]))
        return {**last, "usage": {**usage, **facts.cost()}, "metadata": metadata}
