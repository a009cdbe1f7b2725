"""Reads a ConverseStream response as batches of neutral events.

A stream is complete after `messageStop`; usage follows in `metadata`, the last event. Any other stream is truncated
(Amazon Bedrock API reference, ConverseStreamOutput).
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Failed,
    Finished,
    PartFound,
    ReasoningDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import ExecutedBy
from gateway.providers.answer_checks import (
    NOT_JSON,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    empty_answer,
    is_empty,
    text_in,
)
from gateway.providers.bedrock.content import SEALER, SIGNER
from gateway.providers.bedrock.eventstream import Frame, FrameReader
from gateway.providers.bedrock.reply import read_finish, read_image, read_source, read_stop, read_tier, read_usage
from gateway.providers.bedrock.service_errors import frame_failure, read_failure
from gateway.providers.failures import truncated
from gateway.providers.sse import EventFraming
from gateway.providers.wire_streams import WireStream

FRAMES = EventFraming("vnd.amazon.eventstream", FrameReader, read_failure)
Wire = dict[str, Any]


class BedrockStreamReader(WireStream):
    """Reads one stream.

    Blocks are numbered by index and kind, since some models change the kind of content without a new index.
    """

    framing = FRAMES

    def __init__(self) -> None:
        self._finish: FinishReason | None = None
        self._stop = ""
        self._tier = ""
        self._blocks: dict[tuple[int, str], int] = {}
        self._sealed: dict[int, bytearray] = {}
        self._formats: dict[int, str] = {}
        self._cited: dict[int, Batch] = {}  # by index: citations, which may arrive before their text

    def take(self, frames: list[Frame]) -> tuple[Batch, bool]:
        """Return the neutral events of some frames, and whether the last one is terminal."""
        batch: Batch = []
        for frame in frames:
            if frame.kind != "event":
                return self._fail(batch, frame_failure(frame)), True
            try:
                if self._take(frame, batch):
                    return batch, True
            except orjson.JSONDecodeError:
                return self._fail(batch, UpstreamFailed(NOT_JSON)), True
            except SHAPE_ERRORS:
                return self._fail(batch, UpstreamFailed(UNKNOWN_SHAPE)), True
            except GatewayError as error:
                return self._fail(batch, error), True
        return batch, False

    def finish(self, frames: list[Frame]) -> Batch:
        """Return the terminal event at the end of the connection; models without metadata end with messageStop."""
        return self._end([], self._last() if self._finish is not None else Failed(truncated(), self._usage))

    def _take(self, frame: Frame, batch: Batch) -> bool:
        if frame.payload:
            wire = self._read(frame.payload)
        else:
            wire = {}
        if frame.name == "metadata":
            self._usage = read_usage(wire.get("usage")) or self._usage
            self._tier = read_tier(wire)
            if self._finish is None:
                return False
            self._end(batch, self._last())
            return True
        taker = EVENT_HANDLERS.get(frame.name)
        if taker is not None:
            taker(self, wire, batch)
        return False

    def _read(self, payload: bytes) -> Any:
        try:
            return self.loads(payload)
        except orjson.JSONDecodeError:
            wire = self._read_joined(payload)
            if wire is None:
                raise
            return wire

    def _take_start(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)

    def _block(self, index: int, kind: str) -> int:
        return self._blocks.setdefault((index, kind), len(self._blocks))

    def _take_block_start(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        index = wire["contentBlockIndex"]
        start = wire["start"]
        call = start.get("toolUse")
        if call:
            executed: ExecutedBy = "provider" if call.get("type") == "server_tool_use" else ""
            block = self._block(index, "toolUse")
            ident = text_in(call["toolUseId"])
            batch.append(ToolCallDelta(block, id=ident, name=text_in(call["name"]), executed=executed))
            self._content = True
        if start.get("image"):
            self._formats[index] = text_in(start["image"].get("format") or "")

    def _take_delta(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        index = wire["contentBlockIndex"]
        delta = wire["delta"]
        before = len(batch)
        match delta:
            case {"text": str(text)}:
                if text:
                    batch.append(TextDelta(text, self._block(index, "text")))
            case {"toolUse": call}:
                batch.append(ToolCallDelta(self._block(index, "toolUse"), call.get("input") or ""))
            case {"reasoningContent": reasoning}:
                self._take_reasoning(index, reasoning, batch)
            case {"citation": citation}:
                source = read_source(citation)
                if source is not None:
                    self._content = True
                    self._cited.setdefault(index, []).append(SourceFound(source, self._block(index, "text")))
            case {"image": {"source": source}}:
                image = {"format": self._formats.get(index, ""), "source": source}
                batch.append(PartFound(read_image(image), self._block(index, "image")))
        self._content = self._content or len(batch) > before

    def _take_reasoning(self, index: int, delta: Wire, batch: Batch) -> None:
        """Read a delta of reasoning; redacted content is passed on once its block is whole.

        Each piece of redacted content is separate base64, so the pieces cannot be joined as text.
        """
        if delta.get("redactedContent"):
            try:
                piece = base64.b64decode(delta["redactedContent"], validate=True)
            except binascii.Error:
                raise UpstreamFailed(UNKNOWN_SHAPE) from None
            self._sealed.setdefault(index, bytearray()).extend(piece)
            self._content = True
            return
        text = delta.get("text") or ""
        signature = text_in(delta.get("signature") or "")
        if text or signature:
            block = self._block(index, "reasoning")
            batch.append(ReasoningDelta(text, signature, vendor=SIGNER if signature else "", block=block))

    def _take_block_stop(self, wire: Wire, batch: Batch) -> None:
        index = wire["contentBlockIndex"]
        sealed = self._sealed.pop(index, None)
        if sealed is not None:
            text = base64.b64encode(sealed).decode()
            batch.append(ReasoningDelta(sealed=text, vendor=SEALER, block=self._block(index, "sealed")))
        batch += self._cited.pop(index, ())
        batch.extend(BlockDone(block) for (block_index, _), block in self._blocks.items() if block_index == index)

    def _take_stop(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        self._stop = read_stop(wire)
        self._finish = read_finish(wire["stopReason"])

    def _last(self) -> Finished | Failed:
        finish = self._finish or "stop"
        if is_empty(self._content, finish, self._usage):
            return Failed(empty_answer(finish, self._usage), self._usage)
        return Finished(finish, self._usage, self._stop, self._tier)


# A table of the module: bound methods in each reader would be reference cycles that only the garbage collector frees.
EVENT_HANDLERS: dict[str, Callable[[BedrockStreamReader, Wire, Batch], None]] = {
    "messageStart": BedrockStreamReader._take_start,
    "contentBlockStart": BedrockStreamReader._take_block_start,
    "contentBlockDelta": BedrockStreamReader._take_delta,
    "contentBlockStop": BedrockStreamReader._take_block_stop,
    "messageStop": BedrockStreamReader._take_stop,
}
