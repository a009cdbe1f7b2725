"""Converts Responses stream events to neutral events, and keeps the state of each block."""

from typing import Any

from msgspec import Struct, field

from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.events import (
    Batch,
    BlockDone,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Reasoning, Source, VendorPart
from gateway.providers.openai.responses_reply import (
    PARAGRAPH,
    call_id_of,
    length_of_part,
    read_content,
    read_image,
    read_reasoning,
    read_search,
    read_source,
    text_of,
)

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
            if block.kind != CONTENT:
                sources = getattr(part, "sources", ()) or block.cited
            else:
                sources = block.cited
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
