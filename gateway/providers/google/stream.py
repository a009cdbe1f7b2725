"""Reads a stream of generateContent responses as batches of neutral events.

A stream is complete when every candidate reported its finish reason (or the prompt was blocked) and the connection then
ended cleanly; the format has no other end mark. Any other stream is truncated.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import orjson
from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, field
from msgspec.json import Decoder

from gateway.dialects import google as dialect
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import (
    Batch,
    Event,
    Failed,
    Finished,
    NativeChunk,
    PartFound,
    Progress,
    ReasoningDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
    text_length,
)
from gateway.neutral.parts import Image, Part, Reasoning, Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.providers.answer_checks import (
    SHALLOW_BYTES,
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    check_choice,
    check_depth,
    empty_answer,
    is_empty,
)
from gateway.providers.failures import ERROR, stream_failure, text_failure, truncated
from gateway.providers.google.reply import (
    ReadPart,
    count_searches,
    failed_finish,
    finish_of,
    is_blocked,
    read_part,
    read_sources,
    read_tier,
    with_grounding,
)
from gateway.providers.protocol import UpstreamReply
from gateway.providers.sse import NO_EVENT, WireStream

# Fast path for stream chunks with one piece of the first candidate's text, which are most chunks of most streams.
#
# A typed decoder recognizes them. Any other chunk is parsed in full.

Nothing = None | UnsetType


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: Annotated[str, Meta(min_length=1)]


class _Content(Struct, gc=False):
    parts: tuple[_Part]


class _Candidate(Struct, rename="camel", gc=False):
    content: _Content
    index: Literal[0] = 0
    finish_reason: Nothing = UNSET
    grounding_metadata: Nothing = UNSET


class _Piece(Struct, rename="camel", gc=False):
    candidates: tuple[_Candidate]
    usage_metadata: dict[str, Any] | None = None
    prompt_feedback: Nothing = UNSET
    error: Nothing = UNSET


PIECE_DECODER = Decoder(_Piece)


def read_piece(data: bytes) -> tuple[str, dict[str, Any] | None] | None:
    """Return the text of a chunk and the usage so far, if it reports any.

    Returns None for any other data; the full parser then reports malformed chunks.
    """
    try:
        piece = PIECE_DECODER.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return piece.candidates[0].content.parts[0].text, piece.usage_metadata


class _Choice(Struct):
    """The state of one candidate. `texts` has the chunks of each text block."""

    block: int = -1
    kind: type[Part] | None = None
    signed: bool = False
    reason: str = ""
    calls: bool = False
    texts: dict[int, list[str]] = field(default_factory=dict)
    groundings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def continues_block(self) -> bool:
        """Whether another text would belong to the open block."""
        return self.kind is Text and not self.signed

    def open(self, part: Part) -> int:
        """Return the block of a part: the open block for more text of its kind without a signature, or the next."""
        joins = type(part) is self.kind and isinstance(part, Text | Reasoning) and not self.signed
        if not joins:
            self.block += 1
        self.kind = type(part)
        self.signed = isinstance(part, Text | Reasoning) and bool(part.signature)
        return self.block


class GoogleStreamReader(WireStream):
    """Reads one stream."""

    def __init__(self, relayed: bool = False) -> None:
        self._relayed = relayed
        self._choices: dict[int, _Choice] = {}
        self._wire_usage: Any = None
        self._images = 0
        self._headers: Mapping[str, str] = {}
        self._model = ""
        self._blocked = False
        self._in_text = False  # whether the next chunk may be another piece of the first choice's text

    def read(self, reply: UpstreamReply) -> Iterator[Batch]:
        self._headers = reply.headers
        return super().read(reply)

    def finish(self, events: list[tuple[str, bytes]]) -> Batch:
        batch, done = self.take(events)
        if done:
            return batch
        return self._end(batch, self._last(batch))

    def take(self, events: list[tuple[str, bytes]]) -> tuple[Batch, bool]:
        """Return the neutral events of some wire events, and whether the last one is terminal."""
        batch: Batch = []
        for name, data in events:
            if self._in_text and (piece := read_piece(data)) is not None:
                self._add_piece(*piece, batch)
                continue
            try:
                chunk = self.loads(data)
            except orjson.JSONDecodeError:
                if data.strip() in NO_EVENT:
                    continue
                chunk = self._read_joined(data)
                if chunk is None:
                    return self._fail(batch, text_failure(data) if name == ERROR else truncated()), True
            if type(chunk) is not dict or chunk.get("error"):
                return self._fail(batch, stream_failure(chunk)), True
            try:
                if len(data) > SHALLOW_BYTES:
                    check_depth(chunk, len(data))
                self._read_chunk(chunk, batch)
            except GatewayError as error:
                return self._fail(batch, error), True
            except SHAPE_ERRORS:
                return self._fail(batch, UpstreamFailed(UNKNOWN_SHAPE)), True
        return batch, False

    def _add_piece(self, text: str, usage: dict[str, Any] | None, batch: Batch) -> None:
        """Add a piece of text to the open block of the first choice, as `_read_chunk` does."""
        self._wire_usage = usage or self._wire_usage
        choice = self._choices[0]
        choice.texts[choice.block].append(text)
        batch.append(TextDelta(text, choice.block))

    def _read_chunk(self, chunk: dict[str, Any], batch: Batch) -> None:
        if not self._started:
            self._started = True
            model = chunk.get("modelVersion")
            if isinstance(model, str):
                self._model = model
            else:
                self._model = ""
            ident = chunk.get("responseId")
            batch.append(Started(self._model, ident if isinstance(ident, str) else "", used=self._used))
        # Usage is cumulative: the last report wins.
        self._wire_usage = chunk.get("usageMetadata") or self._wire_usage
        self._blocked = self._blocked or is_blocked(chunk)
        read: Batch = []
        for candidate in chunk.get("candidates") or ():
            self._read_candidate(candidate, read)
            if candidate.get("groundingMetadata") and (used := self._used()) is not None:
                batch.append(Progress(used))  # a caller who leaves now pays for the tool
        if self._relayed:
            content = bool(read)
            size = sum(map(text_length, read))
            batch.append(NativeChunk(dialect.NAME, chunk, content, size))
            return
        batch += read
        self._in_text = 0 in self._choices and self._choices[0].continues_block

    def _read_candidate(self, candidate: dict[str, Any], batch: Batch) -> None:
        number = candidate.get("index") or 0
        if number not in self._choices:
            check_choice(number)
        choice = self._choices.setdefault(number, _Choice())
        for wire in (candidate.get("content") or {}).get("parts") or ():
            part = read_part(wire)
            if part is not None:
                batch.append(_event(part, choice, number))
                self._content = True
                self._images += type(part) is Image
        if isinstance(candidate.get("groundingMetadata"), dict):
            choice.groundings.append(candidate["groundingMetadata"])
        choice.reason = candidate.get("finishReason") or choice.reason
        if choice.reason in dialect.FINISH_FAILED:
            raise failed_finish(choice.reason, candidate.get("finishMessage"))

    def _last(self, batch: Batch) -> Finished | Failed:
        """Add the sources to `batch`, and return the terminal event after an orderly end of the connection."""
        usage = self._used()
        tier = read_tier(self._wire_usage, self._headers)
        if not self._choices and self._blocked:
            return Finished("content_filter", usage, service_tier=tier)
        if not self._choices or not all(choice.reason for choice in self._choices.values()):
            return Failed(truncated(), usage)
        reasons = tuple(
            finish_of(choice.reason, choice.calls) for choice in (self._choices[n] for n in sorted(self._choices))
        )
        if is_empty(self._content, reasons[0], usage):
            return Failed(empty_answer(reasons[0], usage), usage)
        if not self._relayed:
            for number, choice in self._choices.items():
                batch.extend(_sources(choice, number))
        return Finished(reasons[0], usage, service_tier=tier, reasons=reasons)

    def _used(self) -> Usage | None:
        groundings = [grounding for choice in self._choices.values() for grounding in choice.groundings]
        usage = dialect.read_usage(self._wire_usage, count_searches(groundings, self._model), self._images)
        return with_grounding(usage, groundings)


def _event(part: ReadPart, choice: _Choice, number: int) -> Event:
    """Return a part as a delta of its block; a part is always whole or a piece of text."""
    block = choice.open(part)
    match part:
        case Text():
            choice.texts.setdefault(block, []).append(part.text)
            return TextDelta(part.text, block, number, part.signature, part.vendor)
        case Reasoning():
            return ReasoningDelta(
                part.text, part.signature, vendor=part.vendor, summary=part.summary, block=block, choice=number
            )
        case ToolCall():
            choice.calls = True
            return ToolCallDelta(block, part.arguments, part.id, part.name, part.signature, part.vendor, choice=number)
        case _:
            return PartFound(part, block, number)


def _sources(choice: _Choice, number: int) -> list[Event]:
    """Return the sources of the last grounding that has pages, at the last text block."""
    grounding = next((entry for entry in reversed(choice.groundings) if entry.get("groundingChunks")), None)
    if grounding is None or not choice.texts:
        return []
    text = "".join(next(iter(choice.texts.values()))) if len(choice.texts) == 1 else ""
    block = max(choice.texts)
    try:
        return [SourceFound(source, block, number) for source in read_sources(grounding, text)]
    except SHAPE_ERRORS:
        return []
