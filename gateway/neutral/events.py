"""Events of a streamed response.

A stream is an iterator of **batches** (lists of events): everything that one read of the upstream returned, so that
one receive becomes one send. It begins with exactly one Started and ends with exactly one Finished or Failed. Deltas
of one block carry the same `block` number within their `choice`; a block has one kind and blocks start in order.
Events are distinguished by their exact type: no event class is subclassed.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

from msgspec import Struct

from gateway.errors import GatewayError, StreamTruncated
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.parts import Image, Media, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.neutral.parts import text_length as text_length
from gateway.neutral.usage import Usage


@final
class Started(Struct, eq=False):
    """The answer has begun. Equal ones may be of different readers, which `used` belongs to."""

    model: str = ""
    upstream_id: str = ""
    usage: Usage | None = None  # usage known at the start (prompt side), if the protocol reports it
    used: Callable[[], Usage | None] | None = None  # returns the usage so far, if later events may report it

    def __eq__(self, other: object) -> bool:
        if type(other) is not Started:
            return NotImplemented
        return (self.model, self.upstream_id, self.usage) == (other.model, other.upstream_id, other.usage)

    def __repr__(self) -> str:
        return f"Started({self.model!r}, {self.upstream_id!r}, {self.usage!r})"


@final
class MediaPiece(Struct):
    """The next bytes of a response that is an audio file."""

    data: bytes
    size: int = 0  # length of the text in it
    block: int = 0
    choice: int = 0


@final
class ImageMade(Struct):
    """A generated image. `partial` numbers preliminary versions from 0 on; -1 is the final image. Fields that are ""
    were not reported.
    """

    media: Media
    partial: int = -1
    edges: str = ""  # widthxheight
    quality: str = ""
    background: str = ""
    output_format: str = ""
    size: int = 0  # length of the text in it
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
    """A piece of reasoning: any of text, signature (pieces are appended) and sealed (always whole)."""

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
    """A piece of a tool call. The first delta of a block has id and name; later deltas only have pieces of
    `arguments`.
    """

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
    """The end of a block, for protocols that report it. Writers may also infer block ends."""

    block: int
    choice: int = 0


@final
class SourceFound(Struct):
    source: Source
    block: int = -1
    choice: int = 0


@final
class PartFound(Struct):
    """A part that arrives whole: an image or a vendor's own block."""

    part: Image | VendorPart
    block: int = 0
    choice: int = 0
    size: int = 0  # length of the text in it that the model wrote


@final
class Notice(Struct):
    """A part of the request that the target does not support, described for the caller."""

    message: str
    field: str = ""


@final
class NativeChunk(Struct):
    """A decoded chunk in the caller's own dialect (relay lane).

    `content` says whether the caller sees anything in it (text, reasoning, tool call); `size` is the length of that
    text. Only the writer of the dialect frames it. `ready` is used instead of a body for any number of chunks that
    each bring one more piece of text and nothing that a writer would change: their JSON as it is relayed; `size` is
    then the total.
    """

    dialect: str
    body: dict[str, Any]
    content: bool
    size: int = 0
    event: str = ""
    ready: list[bytes] = []


@final
class Heartbeat(Struct):
    """The upstream has sent nothing for the heartbeat time."""


@final
class Progress(Struct):
    """Usage so far, if the protocol reports it mid-stream; the last event counts."""

    usage: Usage


@final
class Finished(Struct):
    """The upstream's own terminal event arrived.

    `usage` None: the upstream reported none. `reasons` has one entry for each choice. `native` is the complete
    response as repeated in the upstream's last event (relay lane). `given` are the ids of containers that the provider
    made for the answer.
    """

    reason: FinishReason
    usage: Usage | None = None
    stop_sequence: str = ""
    service_tier: str = ""
    reasons: tuple[FinishReason, ...] = ()
    native: dict[str, Any] = {}
    given: tuple[str, ...] = ()


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
    """Return whether a caller sees anything of this event: after the first such event the provider is not switched."""
    if type(event) is NativeChunk:
        return event.content
    return isinstance(event, CONTENT)


class Collector:
    """Folds events into the ChatResult that the same response would be without streaming."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], list[Event]] = {}
        self._loose: dict[int, list[Source]] = {}
        self._started = Started()
        self._finished: Finished | None = None
        self._usage: Usage | None = None
        self._warnings: list[str] = []

    def add(self, event: Event) -> None:
        """Process one event.

        Raise the error of a Failed, and TypeError for a NativeChunk, which has no neutral form.
        """
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
        """Return the complete result. Raise StreamTruncated if there was no terminal event."""
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
        reason = finished.reasons[number] if number < len(finished.reasons) else finished.reason
        return Choice(tuple(parts), reason, finished.stop_sequence)


def collect(batches: Iterable[Batch]) -> ChatResult:
    """Read a whole stream into one result; raise the error of a Failed event."""
    collector = Collector()
    for batch in batches:
        for event in batch:
            collector.add(event)
    return collector.result()


def fold(deltas: list[Event]) -> Part:
    """Merge all deltas of one block into its part."""
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
    """Attach the sources without a block to the last text."""
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if isinstance(part, Text):
            parts[place] = Text(part.text, part.cache, part.sources + sources, part.signature, part.vendor)
            return parts
    return [*parts, Text("", sources=sources)]
