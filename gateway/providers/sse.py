"""A parser of server-sent events, and the read loop for upstream streams of all formats."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from itertools import repeat
from typing import Any
from typing import Protocol as Interface

import orjson
from msgspec import Struct, structs

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import (
    Batch,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.json_weight import join_halves
from gateway.neutral.long_json import loads_long
from gateway.neutral.usage import Usage
from gateway.providers.answer_checks import NOT_JSON, check_parts
from gateway.providers.failures import ERROR, MAX_ERROR_BYTES, explain_object, stream_failure, text_failure, truncated
from gateway.providers.protocol import UpstreamReply
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.threads import compute, compute_if, give_way

BOM = b"\xef\xbb\xbf"  # may precede a stream
EVENT_BREAK = b"\n\ndata: "
NAMED_EVENT = re.compile(
    rb"^event: ([^\n]*)\ndata: ([^\n]*)\n\n", re.MULTILINE
)  # an event with a name and one line of data
SEAM_BYTES = 1  # bytes of a blank line that may be at the end of the previous piece
THREAD_BYTES = 1 << 17  # bytes of an event that is parsed in a thread
SLICE_BYTES = 1 << 13  # bytes of a long piece of a stream that are read before other work has a turn
UNSLICED_BYTES = 1 << 14  # bytes of a piece that is read at once: tiny events of that size take 1.5 ms
MAX_EVENTS = 5_000  # neutral events of one long event
EVENTS_PER_TURN = 250
MAX_LINES = 65_536  # of an event
TEXT_PIECE = 1 << 16  # characters of a long text that are passed on at once
# The member with the text of an event, and the members that only its first piece has.
NO_MEMBERS: dict[str, str] = {}
LONG_TEXTS: dict[type, tuple[str, dict[str, str]]] = {
    TextDelta: ("text", {"signature": ""}),
    RefusalDelta: ("text", NO_MEMBERS),
    ReasoningDelta: ("text", {"signature": "", "sealed": ""}),
    ToolCallDelta: ("arguments", {"id": "", "name": "", "signature": ""}),
}
LINE_LIMIT = 16 * 1024 * 1024  # an image in base64 is one line


class LongEvent(Exception):
    """An event is too long to be parsed on the event loop. Raised once per stream and without data loss, so that the
    normal loop needs no check for each chunk."""


class Frames(Interface):
    """Splits a stream into frames. `feed` returns the complete frames (or raises LongEvent), `finish` the frames that a
    clean end completes; `held` is the number of buffered bytes."""

    @property
    def held(self) -> int: ...
    def feed(self, piece: bytes) -> list[Any]: ...
    def finish(self) -> list[Any]: ...


class EventStream(Interface):
    """The reader of one stream in one format.

    `take` returns the batch for some frames (may be empty) and whether it ends with the terminal event. `finish` takes
    the remaining frames after a clean end and always ends the stream; `fail` ends it with an error. After `expect_long`
    long events may come, which are decoded in pieces.
    """

    def expect_long(self) -> None: ...
    def take(self, pieces: list[Any]) -> tuple[Batch, bool]: ...
    def finish(self, pieces: list[Any]) -> Batch: ...
    def fail(self, error: GatewayError) -> Batch: ...


class EventFraming(Struct, frozen=True):
    """A stream format: a part of its content type, its `Frames`, and a function that returns the error for a response
    of another content type."""

    media: str
    frames: Callable[[], Frames]
    refuse: Callable[[UpstreamReply], GatewayError]


class EventReader:
    """An incremental parser of server-sent events (WHATWG HTML).

    `feed` returns the complete events as (name, data); the name is "" when the event has none. Comments, ids and retry
    times are skipped. LF, CRLF and a lone CR end a line.
    """

    __slots__ = ("_cr", "_held", "_limit", "_warned")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._held = bytearray()
        self._warned = False
        self._cr = False
        self._limit = limit

    def feed(self, piece: bytes) -> list[tuple[str, bytes]]:
        """Parse bytes and return the complete events. UpstreamFailed when one event exceeds the limit."""
        if self._cr or b"\r" in piece:
            piece = self._normalised(piece)
        held = self._held
        if held:
            # The buffer is examined only where a blank line ends, not at each line.
            if b"\n\n" not in held[-SEAM_BYTES:] + piece:
                self._hold(piece)
                if len(held) > THREAD_BYTES and not self._warned:
                    self._warned = True
                    raise LongEvent
                return []
            held += piece
            piece = bytes(held)
            held.clear()
            if len(piece) > THREAD_BYTES:
                check_parts(piece)
        if piece[-2:] != b"\n\n":
            whole, blank, rest = piece.rpartition(b"\n\n")
            self._hold(rest)
            piece = whole + blank
        if piece[:6] == b"data: ":
            parts = piece[6:-2].split(EVENT_BREAK)
            if b"\n" not in b"".join(parts):  # takes a fifth of the time of counting them
                # Every line feed belongs to a break between two single-line events, or to the end: no line is examined.
                return list(zip(repeat(""), parts, strict=False))
        named = NAMED_EVENT.findall(piece)
        if named and piece.count(b"\n") == 3 * len(named):
            # The same for named events: every line feed belongs to one of them.
            return [(name.decode("utf-8", "replace"), data) for name, data in named]
        return self._read(piece)

    @property
    def held(self) -> int:
        return len(self._held)

    def finish(self) -> list[tuple[str, bytes]]:
        """Return events that only lack their closing blank line at a clean end of the stream."""
        block = bytes(self._held).strip(b"\r\n")  # a CR that waits for its line feed is removed with them
        self._held.clear()
        self._cr = False
        events: list[tuple[str, bytes]] = []
        if block:
            check_parts(block)
            self._add(block, events)
        return events

    def _read(self, piece: bytes) -> list[tuple[str, bytes]]:
        events: list[tuple[str, bytes]] = []
        for block in piece.split(b"\n\n"):
            if block[:6] == b"data: " and b"\n" not in block:
                events.append(("", block[6:]))
            elif block:
                self._add(block, events)
        return events

    def _normalised(self, piece: bytes) -> bytes:
        """Return `piece` with LF line ends in linear time. A CR at the end is held until the next piece."""
        if self._cr:
            piece = b"\r" + piece
        self._cr = piece[-1:] == b"\r"
        if self._cr:
            piece = piece[:-1]
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, piece: bytes) -> None:
        self._held += piece
        if len(self._held) > self._limit:
            raise UpstreamFailed("The provider sent an event larger than the gateway accepts.")

    @staticmethod
    def _add(block: bytes, events: list[tuple[str, bytes]]) -> None:
        """Append the event of one block of lines, if it has data."""
        if block.count(b"\n") > MAX_LINES:
            raise UpstreamFailed("The provider sent an event of more lines than the gateway accepts.")
        name = ""
        data = []
        for line in block.removeprefix(BOM).split(b"\n"):
            field, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
        if data:
            events.append((name, data[0] if len(data) == 1 else b"\n".join(data)))


def read_failure(reply: UpstreamReply) -> GatewayError:
    """Return the error for a 2xx response that is not an event stream: the error in its body, or a generic one."""
    body = reply.read_all()[:MAX_ERROR_BYTES]
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        wire = None
    explanation = explain_object(wire, body)
    if explanation.shaped or explanation.message:
        return stream_failure(wire)
    return UpstreamFailed("The provider did not answer with an event stream.", upstream_status=reply.status)


EVENTS = EventFraming("event-stream", EventReader, read_failure)


def read_batches(reply: UpstreamReply, stream: EventStream, framing: EventFraming = EVENTS) -> Iterator[Batch]:
    """Yield batches up to and including the terminal one, and [Heartbeat] while no data arrives. Never raises a
    GatewayError: `stream.fail` converts it into a batch. A response without a content type is treated as a stream."""
    try:
        kind = reply.headers.get("content-type", "")
        if kind and framing.media not in kind and framing.media not in kind.lower():
            raise framing.refuse(reply)
        frames = framing.frames()
        feed = frames.feed
        take = stream.take
        pieces = reply.chunks()
        try:
            for piece in pieces:
                if not piece:
                    yield [Heartbeat()]
                    continue
                if len(piece) > UNSLICED_BYTES:
                    if (yield from _take_slices(piece, frames, stream)):
                        return
                    continue
                batch, done = take(feed(piece))
                if batch:
                    yield batch
                if done:
                    return
        except LongEvent:
            yield from _read_on(pieces, frames, stream)
            return
        yield stream.finish(frames.finish())
    except GatewayError as error:
        yield stream.fail(error)


def _read_on(pieces: Iterator[bytes], frames: Frames, stream: EventStream) -> Iterator[Batch]:
    """Yield the remainder of a stream with long events, which are parsed in a thread."""
    stream.expect_long()
    for piece in pieces:
        if not piece:
            yield [Heartbeat()]
            continue
        if frames.held + len(piece) > THREAD_BYTES:
            batch, done = compute(_take, frames, stream, piece)
            yield from _in_pieces(batch)
        else:
            done = yield from _take_slices(piece, frames, stream)
        if done:
            return
    yield from _in_pieces(compute_if(frames.held > THREAD_BYTES, _finish, frames, stream))


def _take_slices(piece: bytes, frames: Frames, stream: EventStream) -> Generator[Batch, None, bool]:
    """Yield the batches of a long piece, in turns with other work, since it may consist of thousands of tiny events.
    Return whether the last one is terminal. LongEvent is raised after the whole piece."""
    long = False
    for at in range(0, len(piece), SLICE_BYTES):
        if at:
            bulk_turn()
        try:
            batch, done = _take(frames, stream, piece[at : at + SLICE_BYTES])
        except LongEvent:
            long = True
            continue
        if batch:
            yield from _in_turns(batch)
        if done:
            return True
    if long:
        raise LongEvent
    return False


def _in_turns(batch: Batch) -> Iterator[Batch]:
    """Yield a few events at a time, so that processing them does not block the event loop. UpstreamFailed for more than
    MAX_EVENTS."""
    if len(batch) > MAX_EVENTS:
        raise UpstreamFailed(f"The provider sent an event of more than {MAX_EVENTS:,} texts and calls.")
    for at in range(0, len(batch), EVENTS_PER_TURN):
        if at:
            give_way()
        yield batch[at : at + EVENTS_PER_TURN]


def _in_pieces(batch: Batch) -> Iterator[Batch]:
    """Yield the events of a long event as `_in_turns` does, and a long text in several of them: writing 16 MB at once
    would silence the worker."""
    short: Batch = []
    for event in batch:
        if type(event) is NativeChunk and event.size >= TEXT_PIECE:
            yield from _in_turns(short)
            short = []
            give_way()
            yield [event]
            continue
        member, first_only = LONG_TEXTS.get(type(event), ("", NO_MEMBERS))
        text = getattr(event, member) if member else ""
        if type(text) is not str or len(text) <= TEXT_PIECE:
            short.append(event)
            continue
        yield from _in_turns(short)
        short = []
        for at in range(0, len(text), TEXT_PIECE):
            give_way()
            piece: Any = structs.replace(event, **{member: text[at : at + TEXT_PIECE]}, **(first_only if at else {}))
            yield [piece]
    yield from _in_turns(short)


def _finish(frames: Frames, stream: EventStream) -> Batch:
    return stream.finish(frames.finish())


def _take(frames: Frames, stream: EventStream, piece: bytes) -> tuple[Batch, bool]:
    return stream.take(frames.feed(piece))


# The base class of all stream readers: start, end, and usage.

NO_EVENT = (b"", b"[DONE]")  # data that is no event: some servers add OpenAI's end to streams of other formats


class WireStream(ABC):
    """Reads one stream, as an EventStream. Derived classes implement `take` for their format."""

    framing = EVENTS
    loads: Callable[[bytes], Any] = staticmethod(orjson.loads)
    _started = False  # whether a batch with Started was returned
    _content = False  # whether any content arrived
    _usage: Usage | None = None  # the last reported usage
    _half = b""  # the first half of a UTF-16 surrogate pair at the end of the last text

    def read(self, reply: UpstreamReply) -> Iterator[Batch]:
        """Yield batches up to and including the terminal one. Yields Failed instead of raising a GatewayError."""
        return read_batches(reply, self, self.framing)

    def expect_long(self) -> None:
        self.loads = loads_long

    @abstractmethod
    def take(self, pieces: list[Any]) -> tuple[Batch, bool]:
        """Return the neutral events for some frames, and whether the last is terminal."""

    def finish(self, pieces: list[Any]) -> Batch:
        """Return the last batch of a stream that the upstream closed cleanly: truncated, unless one of `pieces` is
        terminal."""
        batch, done = self.take(pieces)
        if done:
            return batch
        return self._fail(batch, truncated())

    def fail(self, error: GatewayError) -> Batch:
        """Return the last batch of a stream that broke."""
        return self._fail([], error)

    def _read_joined(self, data: bytes) -> Any:
        """Parse a piece that is invalid JSON because it ends or starts with half a surrogate pair, joined with the half
        of the previous piece. None when it is still not JSON."""
        joined, self._half = join_halves(data, self._half)
        try:
            return self.loads(joined)
        except orjson.JSONDecodeError:
            return None

    def _unreadable(self, name: str, data: bytes) -> GatewayError:
        """Return the error for a piece that is not JSON, with the provider's text where the event is named "error"."""
        if name == ERROR:
            return text_failure(data)
        return UpstreamFailed(NOT_JSON)

    def _used(self) -> Usage | None:
        """Return the usage to bill so far, as far as the upstream reported it."""
        return self._usage

    def _fail(self, batch: Batch, error: GatewayError) -> Batch:
        return self._end(batch, Failed(error, self._used()))

    def _begin(self, batch: Batch) -> None:
        if not self._started:
            self._started = True
            batch.insert(0, Started())

    def _end(self, batch: Batch, last: Finished | Failed) -> Batch:
        self._begin(batch)
        batch.append(last)
        return batch
