"""One upstream call in progress that all equal requests of this worker share."""

import threading
from collections.abc import Callable, Generator
from typing import Any

from gateway.billing.outcome import Outcome
from gateway.clock import Clock
from gateway.engine.answer_serialization import read_batch, write_batch
from gateway.engine.cache import CachedAnswer
from gateway.errors import GatewayError, UpstreamFailed, UpstreamTimeout
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat
from gateway.neutral.request import Result
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.disconnects import dismiss
from gateway.runtime.threads import spawn
from gateway.transport.answer_room import KeptBytes

MAX_BYTES = 4 << 20
UNKNOWN_FRAME_SIZE = 1024  # assumed size of a frame that cannot be serialized
MAX_FRAMES_AHEAD = 32  # frames that an oversized answer may be ahead of its slowest reader
READER_TIMEOUT_S = 600.0  # wait for the slowest reader of an oversized answer
ABANDONED = "The request that this one waited for was given up."


class SharedCall:
    """An answer that a dedicated greenlet produces; the greenlet is cancelled when no reader is left.

    `frames` are (milliseconds after the previous frame, bytes). A batch that cannot be serialized is kept as it is and
    makes the call `uncacheable`: it can be read now, but not stored. `landed`: the answer is complete and settled.
    `locked`: this worker holds the cache's lock, for which other workers wait.
    """

    def __init__(
        self,
        clock: Clock,
        request_id: str,
        mappings: frozenset[str],
        max_bytes: int = MAX_BYTES,
        budget: ByteBudget | None = None,
    ) -> None:
        """`mappings` are the keys of all mappings that may answer. Only the unread frames are
        kept of an answer above `max_bytes`, or without room in the `budget`, so it can be neither stored nor joined any
        more (`overgrown`)."""
        self._clock = clock
        self.request_id = request_id
        self._wake = threading.Event()
        self._task: Any = None
        self._at = 0.0
        self.mappings = mappings
        self.outcome: Outcome | None = None
        self.frames: list[tuple[int, bytes | Batch]] = []
        self.entry: CachedAnswer | None = None
        self.result: Result | None = None
        self.failed: Failed | None = None
        self.failure: Exception | None = None
        self.landed = self.uncacheable = self.locked = False
        self.overgrown = False
        self.readers = 0
        self._max_bytes = max_bytes
        self._kept = KeptBytes(budget)
        self._size = 0
        self._dropped = 0  # frames of an oversized answer that every reader has read
        self._places: dict[int, int] = {}  # positions of the readers of batches
        self._room = threading.Event()

    def start(self, outcome: Outcome, work: Callable[["SharedCall"], None]) -> None:
        """Start `work`, which fills this call and ends it. The caller must have joined it."""
        self.outcome = outcome
        self._at = self._clock.monotonic()
        self._task = spawn(work, self)

    def join(self) -> None:
        """Add a reader, which calls `leave` when done."""
        self.readers += 1

    def leave(self) -> None:
        """Remove a reader. Without readers the upstream call is cancelled, or read on while its usage is expected."""
        self.readers -= 1
        if self.readers <= 0 and not self.ended and self._task is not None:
            dismiss(self._task, unless=self._has_readers)

    def _has_readers(self) -> bool:
        return self.readers > 0

    @property
    def ended(self) -> bool:
        return self.landed or self.failure is not None

    def add(self, frame: bytes | Batch) -> None:
        now = self._clock.monotonic()
        gap_ms = round((now - self._at) * 1000) if self.frames else 0
        self._at = now
        self.frames.append((gap_ms, frame))
        size = len(frame) if isinstance(frame, bytes) else UNKNOWN_FRAME_SIZE
        self._size += size
        self.overgrown = self.overgrown or self._size > self._max_bytes or not self._kept.fits(size)
        self._notify()
        if self.overgrown:
            self._drop_read_frames()

    def _drop_read_frames(self) -> None:
        """Drop the frames that all readers have read, and wait for the slowest reader."""
        while True:
            behind = min(self._places.values(), default=self._dropped + len(self.frames))
            del self.frames[: behind - self._dropped]
            self._dropped = max(self._dropped, behind)
            if len(self.frames) <= MAX_FRAMES_AHEAD:
                return
            self._room.clear()
            if not self._room.wait(READER_TIMEOUT_S):
                raise UpstreamFailed(ABANDONED)

    def complete(self, entry: CachedAnswer | None = None) -> None:
        """Mark the answer as complete; `entry` is its cacheable form, None where it cannot be shared."""
        self.entry = entry
        self.landed = True
        self._notify()

    def fail(self, error: Exception | None = None, event: Failed | None = None) -> None:
        """End without a complete answer; `event` is the last event of a stream that had begun."""
        self.failure = error or (event.error if event else UpstreamFailed(ABANDONED))
        self.failed = event
        self._notify()

    def wait(self, seconds: float | None) -> None:
        """Wait until the call succeeded. Raises its error; UpstreamTimeout after `seconds`."""
        until = None if seconds is None else self._clock.monotonic() + seconds
        left = seconds
        while not self.ended:
            if until is not None:
                left = until - self._clock.monotonic()
            if left is not None and left <= 0:
                raise UpstreamTimeout("The model did not answer in time.")
            self._wake.wait(left)
        if self.failure is not None:
            raise self.failure

    def batches(self, heartbeat_s: float) -> Generator[Batch, None, None]:
        """Return the stream from its beginning, then as it arrives, with a Heartbeat after each silent interval.

        A failure before the first batch is raised, a later one is a Failed event.
        """
        batches = self._batches(heartbeat_s)
        next(batches)  # registers the reader's position, which closing the generator removes
        return batches

    def _batches(self, heartbeat_s: float) -> Generator[Batch, None, None]:
        begun = False
        reader = object()
        self._places[id(reader)] = self._dropped
        try:
            yield []
            while True:
                while (place := self._places[id(reader)] - self._dropped) < len(self.frames):
                    _, frame = self.frames[place]
                    self._places[id(reader)] += 1
                    self._room.set()
                    begun = True
                    yield read_batch(frame) if isinstance(frame, bytes) else frame
                if self.ended:
                    break
                if not self._wake.wait(heartbeat_s):
                    begun = True
                    yield [Heartbeat()]
        finally:
            del self._places[id(reader)]
            self._room.set()
        if self.failure is not None:
            if not begun or not isinstance(self.failure, GatewayError):
                raise self.failure
            yield [self.failed or Failed(self.failure)]

    def _notify(self) -> None:
        wake = self._wake
        self._wake = threading.Event()
        wake.set()


def fill(
    shared_call: SharedCall, batches: Generator[Batch, None, None], entry_of: Callable[[SharedCall], CachedAnswer]
) -> None:
    """Fill a shared call from a stream, and end it."""
    for batch in batches:
        last = batch[-1]
        if type(last) is Failed:
            if len(batch) > 1:
                _add(shared_call, batch[:-1])
            shared_call.fail(event=last)
            return
        _add(shared_call, batch)
        if type(last) is Finished:
            shared_call.complete(None if shared_call.uncacheable or shared_call.overgrown else entry_of(shared_call))
            return


def _add(shared_call: SharedCall, batch: Batch) -> None:
    if all(type(event) is Heartbeat for event in batch):
        return  # every reader measures silence itself
    try:
        shared_call.add(write_batch(batch))
    except TypeError:
        shared_call.uncacheable = True
        shared_call.add(batch)
