"""Request coalescing: equal requests share one answer, from the cache or while it is being produced."""

import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

from gateway.billing.admission import Settlements
from gateway.billing.context import Outcome
from gateway.clock import Clock
from gateway.engine.answer_serialization import read_batch, write_batch, write_result
from gateway.engine.cache import AnswerOrigin, CachedAnswer, ResponseCache
from gateway.engine.free_answers import Batches, FreeAnswers, SharedRequest
from gateway.engine.routing_decisions import Decisions
from gateway.engine.run import Run
from gateway.errors import GatewayError, Internal, UpstreamFailed, UpstreamTimeout
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat
from gateway.neutral.request import Result
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.disconnects import dismiss
from gateway.runtime.threads import pause, spawn
from gateway.transport.answer_room import KeptBytes

# One upstream call in progress that all equal requests of this worker share.

MAX_SHARED_BYTES = 4 << 20
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
        max_bytes: int = MAX_SHARED_BYTES,
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


POLL_INTERVAL_S = 0.05
OTHER_WORKER_TIMEOUT_S = 30.0


class AnswerProducer(Protocol):
    """Interface of an executor that coalescing uses: `admit` begins the run, `answer` and `events` execute it."""

    def admit(self, shared: SharedRequest) -> Run: ...
    def answer(self, run: Run) -> Result: ...
    def events(self, run: Run) -> Batches: ...


class RequestCoalescing:
    """The response cache and the shared upstream calls of this worker."""

    def __init__(
        self,
        cache: ResponseCache,
        settlements: Settlements,
        decisions: Decisions,
        clock: Clock,
        heartbeat_s: float,
        budget: ByteBudget | None = None,
    ) -> None:
        """`budget` limits the bytes of the answers in progress."""
        self.cache = cache
        self._budget = budget
        self._free = FreeAnswers(settlements, decisions, clock)
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._shared_calls: dict[str, SharedCall] = {}

    def generate(self, shared: SharedRequest, producer: AnswerProducer) -> tuple[Result, Outcome]:
        """Return a complete answer: cached, in progress for another request, or produced now. Raises the errors of
        producing it."""
        entry = self._find(shared)
        shared_call = self._shared_calls.get(shared.key)
        if entry is None and shared_call is not None:
            if self._may_follow(shared, shared_call):
                entry = self._follow(shared, shared_call)
            if entry is None:
                return self._alone(shared, producer)
        if entry is not None:
            return self._free.replay(shared, entry)
        return self._lead(shared, producer)

    def stream(self, shared: SharedRequest, producer: AnswerProducer) -> tuple[Batches, Outcome]:
        """Return a streamed answer: a cached one at its original pace, one in progress as it arrives, or a new one."""
        entry = self._find(shared)
        if entry is not None:
            return self._free.replay_stream(shared, entry)
        shared_call = self._shared_calls.get(shared.key)
        if shared_call is None:
            return self._lead_stream(shared, producer)
        if self._may_follow(shared, shared_call) and not shared_call.overgrown:
            batches = shared_call.batches(self._heartbeat_s)
            shared_call.join()
            try:
                first = next(batches)
            except GatewayError:
                shared_call.leave()  # the call failed for another request but may succeed for this one
            except BaseException:
                shared_call.leave()
                raise
            else:
                outcome = self._free.begin(shared, shared.route_plan.groups[0][0], shared_call.request_id)
                following = self._follow_stream(shared, shared_call, first, batches, outcome)
                next(following)
                return following, outcome
        run = producer.admit(shared)
        return producer.events(run), run.outcome

    # Producing an answer that other requests may share.

    def _alone(self, shared: SharedRequest, producer: AnswerProducer) -> tuple[Result, Outcome]:
        run = producer.admit(shared)
        try:
            return producer.answer(run), run.outcome
        finally:
            run.settlement.close()

    def _lead(self, shared: SharedRequest, producer: AnswerProducer) -> tuple[Result, Outcome]:
        shared_call = self._open(shared)
        try:
            entry = self._await_elsewhere(shared, shared_call)
            if entry is not None:
                shared_call.complete(entry)
                self._close(shared.key, shared_call)
                return self._free.replay(shared, entry)
            run = producer.admit(shared)
        except BaseException:
            self._close(shared.key, shared_call)
            raise
        run.shared = True
        shared_call.start(run.outcome, partial(self._make, shared, run, producer))
        try:
            shared_call.wait(None)
            result = shared_call.result
            if result is None:
                raise Internal("The answer of a completed call is missing.")
            return result, run.outcome
        finally:
            shared_call.leave()

    def _lead_stream(self, shared: SharedRequest, producer: AnswerProducer) -> tuple[Batches, Outcome]:
        shared_call = self._open(shared)
        try:
            run = producer.admit(shared)
        except BaseException:
            self._close(shared.key, shared_call)
            raise
        run.shared = True
        shared_call.start(run.outcome, partial(self._make_stream, shared, run, producer))
        batches = _reading(shared_call, shared_call.batches(self._heartbeat_s))
        next(batches)  # started, so that closing it always leaves the shared call
        return batches, run.outcome

    def _open(self, shared: SharedRequest) -> SharedCall:
        mappings = frozenset(mapping.key for mapping in shared.route_plan.mappings)
        ident = shared.context.request_id
        shared_call = self._shared_calls[shared.key] = SharedCall(self._clock, ident, mappings, budget=self._budget)
        shared_call.join()
        return shared_call

    def _close(self, key: str, shared_call: SharedCall) -> None:
        if shared_call.locked:
            shared_call.locked = False
            self.cache.unlock(key)
        if self._shared_calls.get(key) is shared_call:
            del self._shared_calls[key]
        if not shared_call.ended:
            shared_call.fail()

    def _make(self, shared: SharedRequest, run: Run, producer: AnswerProducer, shared_call: SharedCall) -> None:
        try:
            result = producer.answer(run)
            shared_call.result = result
            shared_call.complete(_entry_of_result(shared_call, result))
            self._keep(shared, shared_call)
        except Exception as error:
            shared_call.fail(error)
        finally:
            run.settlement.close()
            self._close(shared.key, shared_call)

    def _make_stream(self, shared: SharedRequest, run: Run, producer: AnswerProducer, shared_call: SharedCall) -> None:
        batches = producer.events(run)
        try:
            fill(shared_call, batches, _entry_of)
            self._keep(shared, shared_call)
        except Exception as error:
            shared_call.fail(error)
        finally:
            batches.close()
            self._close(shared.key, shared_call)

    def _keep(self, shared: SharedRequest, shared_call: SharedCall) -> None:
        if shared_call.landed and shared_call.entry is not None:
            self.cache.put(shared.key, shared_call.entry, shared.context.caller.cache_ttl_s)

    def _await_elsewhere(self, shared: SharedRequest, shared_call: SharedCall) -> CachedAnswer | None:
        """Wait for the answer of another worker; None when this worker should produce it."""
        lock = self.cache.lock(shared.key)
        if lock is None:
            return None
        until = min(shared.deadline, self._clock.monotonic() + OTHER_WORKER_TIMEOUT_S)
        while True:
            shared_call.locked = lock is True
            # Under a lock too: another worker may have stored the answer since this request looked for it.
            entry = self._find(shared)
            if entry is not None or lock is not False or self._clock.monotonic() >= until:
                return entry
            pause(POLL_INTERVAL_S)
            lock = self.cache.lock(shared.key)

    # Returning an answer that was produced for another request.

    def _find(self, shared: SharedRequest) -> CachedAnswer | None:
        entry = self.cache.get(shared.key)
        if entry is not None and entry.origin.mapping in self._free.permitted(shared):
            return entry
        return None

    def _may_follow(self, shared: SharedRequest, shared_call: SharedCall) -> bool:
        """Return whether the caller may receive the answer of any mapping that the call may use."""
        return shared_call.mappings <= self._free.permitted(shared)

    def _follow(self, shared: SharedRequest, shared_call: SharedCall) -> CachedAnswer | None:
        """Return the answer of a shared call, None when it failed."""
        shared_call.join()
        try:
            shared_call.wait(max(0.0, shared.deadline - self._clock.monotonic()))
        except GatewayError:
            return None
        finally:
            shared_call.leave()
        return shared_call.entry

    def _follow_stream(
        self, shared: SharedRequest, shared_call: SharedCall, batch: Batch, batches: Batches, outcome: Outcome
    ) -> Batches:
        slot = None
        done = False
        try:
            slot = self._free.enter(shared)
            yield []
            while True:
                _name_target(outcome, shared_call)
                last = type(batch[-1])
                if last is Finished:
                    done = True
                    self._free.finish(shared, outcome, _origin_of(shared_call))
                elif last is Failed:
                    done = True
                    self._free.finish(shared, outcome, None, "error")
                yield batch
                if done:
                    return
                batch = next(batches)
        finally:
            batches.close()
            shared_call.leave()
            if slot is not None:
                slot.release()
                if not done:
                    self._free.finish(shared, outcome, None, self._free.end_of(shared))


def _reading(shared_call: SharedCall, batches: Batches) -> Batches:
    try:
        yield []
        yield from batches
    finally:
        batches.close()
        shared_call.leave()


def _name_target(outcome: Outcome, shared_call: SharedCall) -> None:
    """Copy the target of the shared call to the outcome of a request that shares it."""
    if shared_call.outcome is not None and shared_call.outcome.attempts:
        outcome.serving.target = shared_call.outcome.serving.target


def _origin_of(shared_call: SharedCall) -> AnswerOrigin:
    if shared_call.outcome is None:
        raise Internal("The answer has no origin yet.")
    serving = shared_call.outcome.serving
    return AnswerOrigin(
        request=shared_call.request_id,
        mapping=serving.target.mapping.key,
        usage=serving.usage,
        finish=serving.finish,
        service_tier=serving.service_tier,
        model=serving.model,
        upstream_id=serving.upstream_id,
    )


def _entry_of(shared_call: SharedCall) -> CachedAnswer:
    frames = [(gap_ms, frame) for gap_ms, frame in shared_call.frames if isinstance(frame, bytes)]
    return CachedAnswer(_origin_of(shared_call), frames)


def _entry_of_result(shared_call: SharedCall, result: Result) -> CachedAnswer | None:
    try:
        return CachedAnswer(_origin_of(shared_call), [(0, write_result(result))])
    except TypeError:
        return None  # an answer that cannot be serialized cannot be replayed
