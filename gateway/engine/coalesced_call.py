"""One upstream call in progress, shared by all equal requests of this worker."""

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
from gateway.runtime.disconnects import dismiss
from gateway.runtime.threads import spawn

MOST_BYTES = 4 << 20
UNWRITTEN = 1024  # bytes that a frame without serialized bytes counts for
AHEAD = 256  # frames that an oversized answer may be ahead of its slowest reader
PATIENCE_S = 600.0
ABANDONED = "The request that this one waited for was given up."


class SharedCall:
    """An answer being produced in a dedicated greenlet, which ends early only when nobody reads it any more.

    `frames` are (milliseconds after the previous frame, bytes); what cannot be serialized stays as it is and makes the
    call `uncacheable`: it can be read now, but not stored. `landed`: the complete answer is there and settled.
    `locked`: other workers wait for it.
    """

    def __init__(self, clock: Clock, request_id: str, mappings: frozenset[str], most_bytes: int = MOST_BYTES) -> None:
        """`mappings`: the keys of all mappings that may serve it. Of an answer above `most_bytes` only what its readers
        have yet to read is kept: it can be neither stored nor joined any more (`overgrown`)."""
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
        self._most_bytes = most_bytes
        self._size = 0
        self._gone = 0  # frames that every reader has read, of an oversized answer
        self._places: dict[int, int] = {}  # positions of the readers of batches
        self._room = threading.Event()

    def start(self, outcome: Outcome, work: Callable[["SharedCall"], None]) -> None:
        """Start `work`, which fills the shared call and ends it. The caller must have joined it."""
        self.outcome = outcome
        self._at = self._clock.monotonic()
        self._task = spawn(work, self)

    def join(self) -> None:
        """Add a reader, which calls `leave` when done."""
        self.readers += 1

    def leave(self) -> None:
        """Remove a reader. Without any the upstream call is cancelled, or completed for as long as its usage is waited
        for."""
        self.readers -= 1
        if self.readers <= 0 and not self.ended and self._task is not None:
            dismiss(self._task, unless=lambda: self.readers > 0)

    @property
    def ended(self) -> bool:
        return self.landed or self.failure is not None

    def add(self, frame: bytes | Batch) -> None:
        now = self._clock.monotonic()
        if self.frames:
            gap_ms = round((now - self._at) * 1000)
        else:
            gap_ms = 0
        self._at = now
        self.frames.append((gap_ms, frame))
        self._size += len(frame) if isinstance(frame, bytes) else UNWRITTEN
        self.overgrown = self.overgrown or self._size > self._most_bytes
        self._notify()
        if self.overgrown:
            self._forget()

    def _forget(self) -> None:
        """Drop what all readers have read, and wait for the slowest."""
        while True:
            behind = min(self._places.values(), default=self._gone + len(self.frames))
            del self.frames[: behind - self._gone]
            self._gone = max(self._gone, behind)
            if len(self.frames) <= AHEAD:
                return
            self._room.clear()
            if not self._room.wait(PATIENCE_S):
                raise UpstreamFailed(ABANDONED)

    def complete(self, entry: CachedAnswer | None = None) -> None:
        """The answer is complete; `entry` is its form for others, None where it cannot be shared."""
        self.entry = entry
        self.landed = True
        self._notify()

    def fail(self, error: Exception | None = None, event: Failed | None = None) -> None:
        """End without a complete answer; `event` is what a stream that had begun ends with."""
        self.failure = error or (event.error if event else UpstreamFailed(ABANDONED))
        self.failed = event
        self._notify()

    def wait(self, seconds: float | None) -> None:
        """Wait until the shared call succeeded. Raises its error; UpstreamTimeout after `seconds`."""
        if seconds is None:
            until = None
        else:
            until = self._clock.monotonic() + seconds
        while not self.ended:
            if until is None:
                left = None
            else:
                left = until - self._clock.monotonic()
            if left is not None and left <= 0:
                raise UpstreamTimeout("The model did not answer in time.")
            self._wake.wait(left)
        if self.failure is not None:
            raise self.failure

    def batches(self, heartbeat_s: float) -> Generator[Batch, None, None]:
        """The stream from its beginning, then as it arrives; Heartbeat whenever nothing arrived for the heartbeat
        interval.

        A failure before the first batch is raised, a later one is a Failed event.
        """
        batches = self._batches(heartbeat_s)
        next(batches)  # its position is registered from now on, and removed with it
        return batches

    def _batches(self, heartbeat_s: float) -> Generator[Batch, None, None]:
        begun = False
        reader = object()
        self._places[id(reader)] = self._gone
        try:
            yield []
            while True:
                while (place := self._places[id(reader)] - self._gone) < len(self.frames):
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
    """Fill a shared call from a stream and end it."""
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
        return  # every reader notices silence by itself
    try:
        shared_call.add(write_batch(batch))
    except TypeError:
        shared_call.uncacheable = True
        shared_call.add(batch)
