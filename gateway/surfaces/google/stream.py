"""Writes a neutral stream as GenerateContentResponses: server-sent events, or the items of one JSON array.

Every item has a content with a part, since clients forget a turn of which an item has none (google-genai, chats). Calls
are sent when they are complete, because the format has no pieces of arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from gateway.dialects.field_names import reword
from gateway.dialects.google import NAME, error_body, write_usage
from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
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
    TextDelta,
    ToolCallDelta,
    fold,
)
from gateway.neutral.parts import Reasoning, Source, ToolCall
from gateway.surfaces.google.opaque_tokens import SignedData
from gateway.surfaces.google.writer import (
    EMPTY,
    NO_USAGE,
    GeminiBeginning,
    GeminiCandidate,
    GeminiItem,
    GeminiPart,
    GeminiResponse,
    write_call,
    write_end,
    write_finish,
    write_grounding,
    write_part,
    write_text,
    write_thought,
)
from gateway.surfaces.web.facts import Facts
from gateway.surfaces.web.http_responses import write_frames

Json = dict[str, Any]

PING = b": keep-alive\n\n"
SPACE = b"\n"  # between the items of an array
SEPARATOR = b",\r\n"


def events(batches: Iterable[Batch], facts: Facts) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A failed stream ends with an error object."""
    stream = _Stream(facts)
    return write_frames(batches, stream.write, stream.fail)


def items(batches: Iterable[Batch], facts: Facts) -> Iterator[bytes]:
    """Write the items of one JSON array."""
    stream = _ArrayStream(facts)
    return write_frames(batches, stream.write, stream.fail)


def write_event(body: Mapping[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % orjson.dumps(body)


def write_failure(error: GatewayError, request_id: str) -> bytes:
    """Return the last event of a failed stream."""
    return write_event(error_body(error, request_id))


def write_failed_item(error: GatewayError, request_id: str) -> bytes:
    """Return the last item of an array that failed after its first item, and the array's end."""
    return SEPARATOR + orjson.dumps(error_body(error, request_id)) + b"]"


class _Stream:
    """The state of one stream."""

    ping = PING

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._calls: dict[tuple[int, int], list[Event]] = {}
        self._texts: dict[int, list[str]] = {}
        self._refused: set[int] = set()  # choices
        self._sources: dict[int, list[Source]] = {}
        # By choice and block: the pieces with data that a thought's vendor needs back.
        self._sealed: dict[tuple[int, int], list[Event]] = {}
        self._last: Json | None = None  # the upstream's own last item, when it is relayed: it waits for the cost
        self._warnings: list[str] = []

    def frame(self, body: Mapping[str, Any]) -> bytes:
        return write_event(body)

    def end(self) -> bytes:
        return b""

    def write(self, batch: Batch) -> bytes:
        """Return all items of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                sent.append(self._relay(event.body))
            elif type(event) is Heartbeat:
                sent.append(self.ping)
            elif type(event) is Notice:
                self._warnings.append(reword(NAME, event.message))
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(self.fail(event.error))
            else:
                sent.append(self._show(event))
        return b"".join(sent)

    def fail(self, error: GatewayError) -> bytes:
        """Return the error object, the last item of a failed stream."""
        return self.frame(error_body(error, self._facts.context.shown_id)) + self.end()

    def _show(self, event: Any) -> bytes:
        """Return the item of an event with content; nothing for events that the format does not show yet."""
        match event:
            case TextDelta():
                self._texts.setdefault(event.choice, []).append(event.text)
                return self._item(event.choice, write_text(event.text, SignedData(event.vendor, event.signature)))
            case RefusalDelta():
                self._refused.add(event.choice)
                return self._item(event.choice, write_text(event.text, SignedData()))
            case ReasoningDelta():
                return self._think(event)
            case ToolCallDelta():
                self._calls.setdefault((event.choice, event.block), []).append(event)
            case BlockDone():
                return self._seal(event.choice) + self._call((event.choice, event.block))
            case PartFound():
                return self._item(event.choice, write_part(event.part, silent=False))
            case SourceFound():
                self._sources.setdefault(event.choice, []).append(event.source)
        return b""

    def _think(self, event: ReasoningDelta) -> bytes:
        """Return the item of a piece of a thought. Its opaque data follows when the thought is complete."""
        if self._facts.hides_reasoning:
            return b""
        place = (event.choice, event.block)
        sent = b""
        if self._sealed and place not in self._sealed:
            sent = self._seal(event.choice)
        if event.signature or event.sealed or event.ident:
            self._sealed.setdefault(place, []).append(event)
        if event.text:
            return sent + self._frame_of(event.choice, [{"text": event.text, "thought": True}])
        return sent

    def _seal(self, choice: int) -> bytes:
        """Return the items with the opaque data of complete thoughts."""
        parts: list[GeminiPart] = []
        for place in [place for place in self._sealed if place[0] == choice]:
            part = fold(self._sealed.pop(place))
            if isinstance(part, Reasoning):
                parts += write_thought(replace(part, text=""))
        return self._frame_of(choice, parts) if parts else b""

    def _call(self, place: tuple[int, int]) -> bytes:
        """Return the complete call of a block, if it is one."""
        deltas = self._calls.pop(place, None)
        if deltas is None:
            return b""
        part = fold(deltas)
        return self._item(place[0], write_call(part) if isinstance(part, ToolCall) and part.name else [])

    def _item(self, choice: int, parts: list[GeminiPart]) -> bytes:
        """Return the item of some parts, behind what completes the thoughts before them."""
        if not parts:
            return b""
        if self._sealed:
            return self._seal(choice) + self._frame_of(choice, parts)
        return self._frame_of(choice, parts)

    def _frame_of(self, choice: int, parts: list[GeminiPart]) -> bytes:
        candidate: GeminiCandidate = {"content": {"parts": parts, "role": "model"}, "index": choice}
        item: GeminiItem = {
            "candidates": [candidate],
            "modelVersion": self._facts.served,
            "responseId": self._facts.answer_id,
        }
        return self.frame(item)

    def _relay(self, chunk: Json) -> bytes:
        """Return the upstream's item; one with a finish reason may be the last, which waits for the cost."""
        held = self._last
        self._last = None
        sent = self.frame(held) if held is not None else b""
        body = {**chunk, "responseId": self._facts.answer_id}
        if is_last(body):
            self._last = body
            return sent
        return sent + self.frame(body)

    def _finish(self, event: Finished) -> bytes:
        """Send the calls that are still open, then the item with the finish reasons, the usage and the cost."""
        sent = b"".join([self._seal(choice) for choice in dict.fromkeys(place[0] for place in self._sealed)])
        sent += b"".join([self._call(place) for place in list(self._calls)])
        try:
            return sent + self.frame(self._end_of(event)) + self.end()
        except GatewayError as error:
            return sent + self.fail(error)

    def _end_of(self, event: Finished) -> GeminiResponse:
        facts = self._facts
        last: Any = self._last
        if last is not None:
            end = write_end(last.get("usageMetadata") or NO_USAGE, facts)
        else:
            reasons = event.reasons or (event.reason,)
            beginning: GeminiBeginning = {
                "candidates": [self._close(place, reason) for place, reason in enumerate(reasons)],
                "modelVersion": facts.served,
            }
            last = beginning
            end = write_end(write_usage(facts.usage), facts)
        if self._warnings:
            warnings = end["metadata"].get("warnings", ())
            end["metadata"]["warnings"] = list(dict.fromkeys([*warnings, *self._warnings]))
        return {**last, **end}

    def _close(self, place: int, reason: FinishReason) -> GeminiCandidate:
        candidate: GeminiCandidate = {
            "content": {"parts": [EMPTY], "role": "model"},
            "finishReason": write_finish(reason, place in self._refused),
            "index": place,
        }
        grounding = write_grounding(self._sources.get(place, ()), "".join(self._texts.get(place, ())))
        if grounding:
            candidate["groundingMetadata"] = grounding
        return candidate


class _ArrayStream(_Stream):
    """The same as one JSON array, which is complete also where the stream failed."""

    ping = SPACE

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._begun = False

    def frame(self, body: Mapping[str, Any]) -> bytes:
        head = SEPARATOR if self._begun else b"["
        self._begun = True
        return head + orjson.dumps(body)

    def end(self) -> bytes:
        return b"]"


def is_last(body: Json) -> bool:
    """Return whether an item may be the last one of its stream."""
    if "promptFeedback" in body:
        return True
    candidates = body.get("candidates")
    if not isinstance(candidates, list):
        return True  # only usage
    return any(isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidates)
