"""Events of a streamed answer.

A stream is an iterator of **batches** (lists of events): all that one read of the upstream brought, so that one
receive becomes one send. It has one Started first and ends with exactly one Finished or Failed. Deltas of one block
carry the same `block` number within their `choice`; a block is of one kind and blocks start in order. An event is told
by its very type: none is derived from.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, final

from msgspec import Struct

from gateway.errors import GatewayError, StreamTruncated
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.parts import Image, Media, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.neutral.parts import text_length as text_length
from gateway.neutral.usage import Usage


@final
class Started(Struct):
    model: str = ""
    upstream_id: str = ""
    usage: Usage | None = None  # what is known at the start (prompt side), when the protocol tells


@final
class MediaPiece(Struct):
    """The next bytes of an answer that is a file: sound."""

    data: bytes
    size: int = 0  # of its text
    block: int = 0
    choice: int = 0


@final
class ImageMade(Struct):
    """An image of an answer that is images; `partial` counts those that show it on its way from 0 on, -1: it is done.
    What is "" was not told."""

    media: Media
    partial: int = -1
    edges: str = ""  # widthxheight
    quality: str = ""
    background: str = ""
    output_format: str = ""
    size: int = 0  # of its text
    block: int = 0
    choice: int = 0


@final
class TextDelta(Struct):
    text: str
    block: int = 0
    choice: int = 0
    signature: str = ""
    vendor: str = ""


@final
class RefusalDelta(Struct):
    text: str
    block: int = 0
    choice: int = 0


@final
class ReasoningDelta(Struct):
    """Any of text, signature (may come in pieces: append) and sealed (whole)."""

    text: str = ""
    signature: str = ""
    sealed: str = ""
    vendor: str = ""
    ident: str = ""
    summary: bool = False
    block: int = 0
    choice: int = 0


@final
class ToolCallDelta(Struct):
    """The first delta of a block carries id and name; later ones only pieces of `arguments`, of any size."""

    block: int
    arguments: str = ""
    id: str = ""
    name: str = ""
    signature: str = ""
    vendor: str = ""
    executed: str = ""
    custom: bool = False
    choice: int = 0


@final
class BlockDone(Struct):
    """The block is whole (protocols that tell). Writers that need block ends may also infer them."""

    block: int
    choice: int = 0


@final
class SourceFound(Struct):
    source: Source
    block: int = -1
    choice: int = 0


@final
class PartFound(Struct):
    """A part that comes whole: an image, a foreign block."""

    part: Image | VendorPart
    block: int = 0
    choice: int = 0


@final
class Notice(Struct):
    """Something of the request that this target does not carry, named for the caller."""

    message: str
    field: str = ""


@final
class NativeChunk(Struct):
    """A chunk of the caller's own dialect, decoded (relay lane). `content` says whether a caller sees anything
    in it (text, reasoning, tool call); `size` the length of that text. Only the writer of that dialect frames it.
    `ready`, instead of a body: any number of chunks that bring one more piece of text each and nothing that a writer
    spells otherwise, as JSON of what is relayed of them; then `size` is that of all."""

    dialect: str
    body: dict[str, Any]
    content: bool
    size: int = 0
    event: str = ""
    ready: list[bytes] = []


@final
class Heartbeat(Struct):
    """The upstream has said nothing for the heartbeat time."""


@final
class Progress(Struct):
    """Usage so far, when the protocol reports it mid-stream; the last one wins."""

    usage: Usage


@final
class Finished(Struct):
    """The upstream's own terminal event arrived. `usage` None = the upstream told none. `reasons` by choice.
    `native`: the complete answer as the upstream's own last event repeats it (relay lane).
    """

    reason: FinishReason
    usage: Usage | None = None
    stop_sequence: str = ""
    service_tier: str = ""
    reasons: tuple[FinishReason, ...] = ()
    native: dict[str, Any] = {}


@final
class Failed(Struct):
    """The stream broke after it began. `usage` is what must be paid nevertheless, as far as it is known."""

    error: GatewayError
    usage: Usage | None = None


BlockEvent = (
    TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ToolCallDelta
    | BlockDone
    | SourceFound
    | PartFound
    | MediaPiece
    | ImageMade
)
Event = Started | BlockEvent | Notice | NativeChunk | Heartbeat | Progress | Finished | Failed
Delta = TypeVar("Delta", bound=BlockEvent)
Batch = list[Event]

CONTENT = (TextDelta, RefusalDelta, ReasoningDelta, ToolCallDelta, SourceFound, PartFound, MediaPiece, ImageMade)


def has_content(event: Event) -> bool:
    """Whether a caller sees anything of this event: after the first such one no provider is switched."""
    if type(event) is NativeChunk:
        return event.content
    return isinstance(event, CONTENT)


class Collector:
    """Folds events into the ChatResult that the same answer would be without streaming."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], list[Event]] = {}
        self._loose: dict[int, list[Source]] = {}
        self._started = Started()
        self._finished: Finished | None = None
        self._usage: Usage | None = None
        self._warnings: list[str] = []

    def add(self, event: Event) -> None:
        """Take one event. Raises the error of a Failed; NativeChunk cannot be folded (TypeError)."""
        match event:
            case Started():
                self._started = event
            case Failed():
                raise event.error
            case Finished():
                self._finished = event
            case Progress():
                self._usage = event.usage
            case Notice():
                self._warnings.append(event.message)
            case SourceFound() if event.block < 0:
                self._loose.setdefault(event.choice, []).append(event.source)
            case Heartbeat() | BlockDone():
                pass
            case NativeChunk():
                raise TypeError("a relayed chunk has no neutral form")
            case _:
                self._blocks.setdefault((event.choice, event.block), []).append(event)

    def result(self) -> ChatResult:
        """The complete answer. StreamTruncated when no terminal event came."""
        if self._finished is None:
            raise StreamTruncated("The provider's answer ended before it was complete.")
        finished = self._finished
        numbers = sorted({choice for choice, _ in self._blocks} | set(self._loose) | {0})
        return ChatResult(
            choices=tuple(self._choice(number, finished) for number in numbers),
            usage=finished.usage or self._usage,
            model=self._started.model,
            upstream_id=self._started.upstream_id,
            service_tier=finished.service_tier,
            warnings=tuple(self._warnings),
        )

    def _choice(self, number: int, finished: Finished) -> Choice:
        keys = sorted(key for key in self._blocks if key[0] == number)
        parts = [fold(self._blocks[key]) for key in keys]
        loose = tuple(self._loose.get(number, ()))
        if loose:
            parts = _attach(parts, loose)
        if number < len(finished.reasons):
            reason = finished.reasons[number]
        else:
            reason = finished.reason
        return Choice(tuple(parts), reason, finished.stop_sequence)


def collect(batches: Iterable[Batch]) -> ChatResult:
    """Read a whole stream into one result; raises what a Failed event carries."""
    collector = Collector()
    for batch in batches:
        for event in batch:
            collector.add(event)
    return collector.result()


def fold(deltas: list[Event]) -> Part:
    """All deltas of one block as its part."""
    first = next((d for d in deltas if not isinstance(d, SourceFound)), None)
    sources = tuple(d.source for d in _of(SourceFound, deltas))
    match first:
        case TextDelta():
            own = _of(TextDelta, deltas)
            signature = "".join(d.signature for d in own)
            vendor = next((d.vendor for d in own if d.vendor), "")
            return Text("".join(d.text for d in own), sources=sources, signature=signature, vendor=vendor)
        case RefusalDelta():
            return Refusal("".join(d.text for d in _of(RefusalDelta, deltas)))
        case ReasoningDelta():
            return _fold_reasoning(_of(ReasoningDelta, deltas))
        case ToolCallDelta():
            return _fold_call(_of(ToolCallDelta, deltas))
        case PartFound():
            return first.part
        case _:
            return Text("", sources=sources)


def _of(kind: type[Delta], events: list[Event]) -> list[Delta]:
    return [event for event in events if isinstance(event, kind)]


def _fold_reasoning(deltas: list[ReasoningDelta]) -> Reasoning:
    return Reasoning(
        text="".join(d.text for d in deltas),
        signature="".join(d.signature for d in deltas),
        sealed="".join(d.sealed for d in deltas),
        vendor=next((d.vendor for d in deltas if d.vendor), ""),
        ident=next((d.ident for d in deltas if d.ident), ""),
        summary=any(d.summary for d in deltas),
    )


def _fold_call(deltas: list[ToolCallDelta]) -> ToolCall:
    return ToolCall(
        id=next((d.id for d in deltas if d.id), ""),
        name=next((d.name for d in deltas if d.name), ""),
        arguments="".join(d.arguments for d in deltas),
        signature="".join(d.signature for d in deltas),
        vendor=next((d.vendor for d in deltas if d.vendor), ""),
        executed="provider" if any(d.executed for d in deltas) else "",
        custom=any(d.custom for d in deltas),
    )


def _attach(parts: list[Part], sources: tuple[Source, ...]) -> list[Part]:
    """Sources without a block belong to the last text."""
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if isinstance(part, Text):
            parts[place] = Text(part.text, part.cache, part.sources + sources, part.signature, part.vendor)
            return parts
    return [*parts, Text("", sources=sources)]
