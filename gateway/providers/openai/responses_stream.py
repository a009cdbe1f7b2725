"""Reads streams of Responses events as batches of neutral events, or as events to relay.

A stream is complete only with its terminal event (`response.completed` or `response.incomplete`); otherwise it is
truncated. Any terminal event may contain usage.
"""

from typing import Any

import orjson
from msgspec import Struct, field

from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import UpstreamFailed
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Failed,
    Finished,
    NativeChunk,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Reasoning, Source, VendorPart
from gateway.providers.answer_checks import (
    SHALLOW_BYTES,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    check_depth,
    empty_answer,
    is_empty,
    text_in,
)
from gateway.providers.failures import stream_failure, truncated
from gateway.providers.openai.responses_reply import (
    PARAGRAPH,
    call_id_of,
    length_of_part,
    read_content,
    read_failure,
    read_finish,
    read_image,
    read_reasoning,
    read_search,
    read_source,
    read_usage,
    text_of,
    written_length,
)
from gateway.providers.sse import WireStream

# Converts Responses stream events to neutral events, and keeps the state of each block.

Wire = dict[str, Any]
SUMMARY = "summary"
CONTENT = "content"
ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}


class _Block(Struct):
    """A block in progress. `has_content`: some of its text arrived. `kind`: for reasoning, SUMMARY or CONTENT,
    depending on which arrived first. `part`: the index of the current reasoning part. `cited`: citations, which may
    arrive before their text."""

    number: int
    has_content: bool = False
    kind: str = ""
    part: int = 0
    cited: list[Source] = field(default_factory=list)


class EventRebuilder:
    """Converts wire events, in their order, to neutral events."""

    def __init__(self) -> None:
        self._blocks: dict[
            tuple[int, int], _Block
        ] = {}  # by output index and content index (only messages have several)

    def add(self, wire: Wire, kind: str, batch: Batch) -> None:
        """Append the neutral events for `wire` to `batch`. Raises SHAPE_ERRORS for an unexpected shape."""
        reader = READERS.get(kind)
        if reader is not None:
            reader(self, wire, batch)

    def _block(self, wire: Wire) -> _Block:
        key = (wire["output_index"], wire.get("content_index") or 0)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(len(self._blocks))
        return block

    def _read_text(self, wire: Wire, batch: Batch) -> None:
        block = self._block(wire)
        block.has_content = True
        batch.append(TextDelta(wire["delta"], block=block.number))

    def _read_refusal(self, wire: Wire, batch: Batch) -> None:
        block = self._block(wire)
        block.has_content = True
        batch.append(RefusalDelta(wire["delta"], block=block.number))

    def _read_summary(self, wire: Wire, batch: Batch) -> None:
        self._read_thought(wire, SUMMARY, wire.get("summary_index") or 0, batch)

    def _read_reasoning(self, wire: Wire, batch: Batch) -> None:
        self._read_thought(wire, CONTENT, wire.get("content_index") or 0, batch)

    def _read_thought(self, wire: Wire, kind: str, part: int, batch: Batch) -> None:
        """Read a piece of reasoning. If summary and full text arrive, only the first of the two is read."""
        block = self._block({"output_index": wire["output_index"]})
        block.kind = block.kind or kind
        if block.kind != kind:
            return
        text = wire["delta"]
        if part != block.part:
            block.part = part
            text = (PARAGRAPH if block.has_content else "") + text
        block.has_content = True
        batch.append(
            ReasoningDelta(
                text,
                vendor=dialect.NAME,
                ident=text_of(wire.get("item_id")),
                summary=kind == SUMMARY,
                block=block.number,
            )
        )

    def _read_arguments(self, wire: Wire, batch: Batch) -> None:
        block = self._block(wire)
        block.has_content = True
        batch.append(ToolCallDelta(block.number, wire["delta"]))

    def _read_annotation(self, wire: Wire, batch: Batch) -> None:
        source = read_source(wire.get("annotation"))
        if source is not None:
            block = self._block(wire)
            if block.has_content:
                block.kind = CONTENT  # the closing event repeats the citations, which must then be skipped
                batch.append(SourceFound(source, block.number))
            else:
                block.cited.append(source)

    def _read_added(self, wire: Wire, batch: Batch) -> None:
        item = wire["item"]
        if item["type"] in ARGUMENTS:
            batch.append(self._open_call(item, self._block(wire)))

    def _open_call(self, item: Wire, block: _Block) -> ToolCallDelta:
        block.kind = item["type"]
        return ToolCallDelta(
            block.number,
            id=call_id_of(item),
            name=text_of(item.get("name")),
            custom=item["type"] == "custom_tool_call",
        )

    def _read_done(self, wire: Wire, batch: Batch) -> None:
        """Read a complete item, without the content that already arrived in pieces."""
        item = wire["item"]
        kind = item["type"]
        if kind == "message":
            self._close_message(wire, item, batch)
            return
        block = self._block(wire)
        if kind in ARGUMENTS:
            self._close_call(item, block, batch)
        elif kind == "reasoning":
            self._close_reasoning(read_reasoning(item), block, batch)
        elif kind == "web_search_call":
            call = read_search(item)
            batch.append(
                ToolCallDelta(block.number, call.arguments, call.id, call.name, "", call.vendor, executed="provider")
            )
        elif kind == "image_generation_call" and item.get("result"):
            batch.append(PartFound(read_image(item), block.number))
        else:
            part = VendorPart(dialect.NAME, kind, item)
            batch.append(PartFound(part, block.number, size=length_of_part(part)))
        batch.append(BlockDone(block.number))

    def _close_call(self, item: Wire, block: _Block, batch: Batch) -> None:
        if not block.kind:
            batch.append(self._open_call(item, block))
        arguments = text_of(item.get(ARGUMENTS[item["type"]]))
        if arguments and not block.has_content:
            batch.append(ToolCallDelta(block.number, arguments))

    def _close_reasoning(self, part: Reasoning, block: _Block, batch: Batch) -> None:
        text = "" if block.has_content else part.text
        if text or part.sealed:
            summary = part.summary or block.kind == SUMMARY
            batch.append(ReasoningDelta(text, "", part.sealed, part.vendor, part.ident, summary, block.number))

    def _close_message(self, wire: Wire, item: Wire, batch: Batch) -> None:
        for place, content in enumerate(item.get("content") or ()):
            block = self._block({"output_index": wire["output_index"], "content_index": place})
            part = read_content(content)
            if not block.has_content and part.text:
                refused = content.get("type") == "refusal"
                batch.append((RefusalDelta if refused else TextDelta)(part.text, block=block.number))
            sources = getattr(part, "sources", ()) or block.cited if block.kind != CONTENT else block.cited
            batch.extend(SourceFound(source, block.number) for source in sources)
            batch.append(BlockDone(block.number))


READERS = {
    "response.output_text.delta": EventRebuilder._read_text,
    "response.refusal.delta": EventRebuilder._read_refusal,
    "response.reasoning_summary_text.delta": EventRebuilder._read_summary,
    "response.reasoning_text.delta": EventRebuilder._read_reasoning,
    "response.function_call_arguments.delta": EventRebuilder._read_arguments,
    "response.custom_tool_call_input.delta": EventRebuilder._read_arguments,
    "response.output_text.annotation.added": EventRebuilder._read_annotation,
    "response.output_item.added": EventRebuilder._read_added,
    "response.output_item.done": EventRebuilder._read_done,
}


OPENING = ("response.created", "response.in_progress")
COMPLETE_ENDS = ("response.completed", "response.incomplete")
FAILED_ENDS = ("response.failed", "response.cancelled")
ANSWERED = ("function_call", "custom_tool_call")  # calls that results refer to by call_id
DONE = b"[DONE]"
DONE_ITEM = "response.output_item.done"
UNWRITTEN = frozenset(("response.audio.delta",))  # deltas of sound, in base64


class ResponsesStreamReader(WireStream):
    """Reads one stream."""

    def __init__(self, relayed: bool) -> None:
        if relayed:
            self._rebuilder = None
        else:
            self._rebuilder = EventRebuilder()
        self._calls = False
        self._done: set[int] = set()  # indices of complete output items
        self._call_ids: dict[int, str] = {}
        self._billed: list[Wire] = []  # uses of the provider's tools
        self._in_pieces: set[Any] = set()  # indices of output items of which pieces arrived

    def finish(self, events: list[tuple[str, bytes]]) -> Batch:
        batch, done = self.take(events, cut=True)
        if done:
            return batch
        return self._fail(batch, truncated())

    def take(self, events: list[tuple[str, bytes]], cut: bool = False) -> tuple[Batch, bool]:
        """Return the neutral events of some wire events, and whether the last is terminal. `cut`: the stream ended
        after them."""
        batch: Batch = []
        for name, data in events:
            text = data.strip()
            if not text:
                continue
            if text == DONE:
                return self._fail(batch, truncated()), True
            try:
                wire = self.loads(data)
            except orjson.JSONDecodeError:
                wire = self._read_joined(data)
                if wire is None:
                    return self._fail(batch, truncated() if cut else self._unreadable(name, data)), True
            if len(data) > SHALLOW_BYTES:
                check_depth(wire, len(data))
            try:
                last = self._read_event(wire, name, len(data), batch)
            except SHAPE_ERRORS:
                last = Failed(UpstreamFailed(UNKNOWN_SHAPE), self._usage)
            if last is not None:
                return self._end(batch, last), True
        return batch, False

    def _read_event(self, wire: Wire, name: str, size: int, batch: Batch) -> Finished | Failed | None:
        """Add the neutral events for a wire event to the batch. Return a terminal event instead of adding it."""
        kind = wire.get("type")
        if not kind:
            kind = wire["type"] = name  # some servers only send the name of the event
        if kind == "error" or (wire.get("error") and not wire.get("response")):
            return Failed(read_failure(wire) if wire.get("error") else stream_failure({"error": wire}), self._usage)
        if kind in OPENING:
            self._start(wire, batch)
        elif kind in COMPLETE_ENDS:
            return self._finish(wire["response"], kind, batch)
        elif kind in FAILED_ENDS:
            self._usage = read_usage(wire["response"]) or self._usage
            return Failed(read_failure(wire["response"]), self._usage)
        else:
            self._start({}, batch)
            self._note(wire, kind)
            self._add(wire, kind, batch)
            if kind == DONE_ITEM and wire["item"]["type"] in dialect.BILLED_ITEMS:
                self._count(wire["item"], batch)
        return None

    def _count(self, item: Wire, batch: Batch) -> None:
        """Report a use of the provider's tools at once: a caller who leaves now pays for it."""
        kept = ("type", "id", "status", "action", "container_id", "environment", "quality")
        self._billed.append({name: item[name] for name in kept if name in item} | {"result": bool(item.get("result"))})
        self._usage = read_usage({"output": self._billed}) or self._usage
        if self._usage is not None:
            batch.append(Progress(self._usage))

    def _given(self) -> tuple[str, ...]:
        return dialect.containers_of(self._billed) if self._billed and self._rebuilder is None else ()

    def _start(self, wire: Wire, batch: Batch) -> None:
        if not self._started:
            self._started = True
            response = wire.get("response") or {}
            batch.append(Started(text_of(response.get("model")), text_of(response.get("id"))))

    def _note(self, wire: Wire, kind: str) -> None:
        """Record complete items, and make all events of a call use the same id."""
        if not kind.startswith("response.output_item."):
            return
        item = wire["item"]
        index = wire["output_index"]
        if text_in(item["type"]) in ANSWERED:
            item["call_id"] = self._call_ids.setdefault(index, call_id_of(item))
        if kind == DONE_ITEM:
            self._done.add(index)
            self._calls = self._calls or item["type"] in dialect.CALLS

    def _add(self, wire: Wire, kind: str, batch: Batch) -> None:
        before = len(batch)
        if self._rebuilder is not None:
            self._rebuilder.add(wire, kind, batch)
            self._content = self._content or len(batch) > before
            return
        shown = not kind.endswith((".added", ".in_progress")) or kind == "response.output_text.annotation.added"
        size = self._length_of(wire, kind)
        self._content = self._content or shown
        batch.append(NativeChunk(dialect.NAME, wire, shown, size, kind))

    def _length_of(self, wire: Wire, kind: str) -> int:
        """Return the length of the text in an event. A complete item counts only if no piece of it arrived."""
        delta = wire.get("delta")
        if type(delta) is str:
            if kind in UNWRITTEN:
                return 0
            self._in_pieces.add(wire.get("output_index"))
            return len(delta)
        if kind == DONE_ITEM and wire["output_index"] not in self._in_pieces:
            return written_length(wire["item"])
        return 0

    def _finish(self, response: Wire, kind: str, batch: Batch) -> Finished | Failed:
        """Return the terminal event. Items that the stream did not contain are read from the complete response."""
        self._start({"response": response}, batch)
        for index, item in enumerate(response.get("output") or ()):
            if index not in self._done:
                for step in ("added", "done"):
                    name = f"response.output_item.{step}"
                    wire = {"type": name, "output_index": index, "item": item}
                    self._note(wire, name)
                    self._add(wire, name, batch)
        self._usage = read_usage(response) or self._usage
        status = kind.removeprefix("response.")
        reason = read_finish({**response, "status": status}, self._calls)
        if is_empty(self._content, reason, self._usage):
            return Failed(empty_answer(reason, self._usage), self._usage)
        tier = text_of(response.get("service_tier"))
        native = response if self._rebuilder is None else {}
        return Finished(reason, self._usage, service_tier=tier, reasons=(reason,), native=native, given=self._given())
