"""Streamed answers. Events are buffered until the first content, so that an earlier failure can fail over."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain
from typing import Any, ClassVar

from msgspec import structs

from gateway.billing.context import Attempt
from gateway.engine.hedging import Race, RacingAttempt, begin_hedge, may_hedge, should_hedge
from gateway.engine.run import Run, meant_end
from gateway.engine.split_calls import CONCURRENT_CALLS, estimated_part
from gateway.errors import GatewayError, StreamTruncated, UpstreamFailed, UpstreamTimeout
from gateway.neutral.chat import ChatRequest, split
from gateway.neutral.events import (
    Batch,
    Event,
    Failed,
    Finished,
    Heartbeat,
    MediaPiece,
    NativeChunk,
    Notice,
    Progress,
    Started,
    TextDelta,
    has_content,
    text_length,
)
from gateway.neutral.parts import LENGTH
from gateway.neutral.sound_length import SoundLength
from gateway.neutral.speech import length_as_text
from gateway.neutral.usage import Usage, added
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.protocol import Target
from gateway.providers.upstream import MUTE, SILENCE_CHECK, Upstreams
from gateway.providers.upstream_calls import PREPARING, Answering, CallListener
from gateway.runtime.disconnects import current
from gateway.runtime.merged_iterators import MergedIterators
from gateway.runtime.threads import give_way

# Several streamed answers where the provider streams fewer per call: several calls, merged as they arrive.
#
# Together the calls are one attempt, as in `split_calls`. Answers are numbered in the order of their calls. Started
# comes once; Finished comes when all calls have finished, with the sum of their usage. When one call fails the stream
# fails, and the usage of the others until then is paid.


class _Part:
    """One of the calls: the number of its first answer, its usage so far, and its end."""

    def __init__(self, request: ChatRequest, first: int, target: Target) -> None:
        self.request = request
        self.first = first
        self.target = target
        self.answering: Answering | None = None
        self.begun = False
        self.usage: Usage | None = None
        self.reported: Callable[[], Usage | None] | None = None
        self.length = 0
        self.finished: Finished | None = None

    def read(self, open_stream: Callable[[ChatRequest], Answering]) -> Iterator[Batch]:
        self.begun = True
        self.answering = open_stream(self.request)
        yield from self.answering.batches

    def used(self) -> Usage:
        """Return its usage, estimated where the provider has not reported any."""
        usage = self.usage
        if self.finished is None and self.reported is not None:
            usage = self.reported() or usage
        return estimated_part(self.request, usage, self.target, self.length)


class SplitAnswering:
    """Like Answering: the batches of all calls, and `close()`, which ends them."""

    is_sent: ClassVar[bool] = True

    def __init__(
        self,
        upstreams: Upstreams,
        request: ChatRequest,
        choices: int,
        target: Target,
        deadline: float,
        listener: CallListener | None,
    ) -> None:
        """`choices` is how many answers one call gives."""
        self._parts = [_Part(part, number * choices, target) for number, part in enumerate(split(request, choices))]
        self._open = partial(_open_split, upstreams, target, deadline, listener)
        self._at_once = CONCURRENT_CALLS if listener is None else 1
        self._merged: MergedIterators[Batch] | None = None
        self.batches: Iterator[Batch] = self._read()

    @property
    def head_at(self) -> float:
        """When the first response began (monotonic seconds), 0.0 while nothing has arrived."""
        begun = [part.answering.head_at for part in self._parts if part.answering is not None]
        return min(filter(None, begun), default=0.0)

    def close(self) -> None:
        if self._merged is not None:
            self._merged.stop()
        for part in self._parts:
            if part.answering is not None:
                part.answering.close()
        self.batches = iter(())

    def _read(self) -> Iterator[Batch]:
        self._merged = MergedIterators([partial(part.read, self._open) for part in self._parts], self._at_once)
        started = False
        try:
            for number, batch in self._merged:
                part = self._parts[number]
                events: Batch = []
                for event in batch:
                    self._take(part, event, events, started)
                    started = started or type(event) is Started
                if events:
                    yield events
                if type(batch[-1]) is Failed:
                    return
        except GatewayError as error:
            error.spent = error.spent or self._spent()
            raise
        yield [self._finish()]

    def _take(self, part: _Part, event: Event, events: Batch, started: bool) -> None:
        """Add to `events` the parts of a call's event that belong to the whole answer."""
        match event:
            case Started():
                part.usage = event.usage
                part.reported = event.used
                if not started:
                    events.append(structs.replace(event, usage=None, used=self._sum))
                events.append(Progress(self._sum()))
            case Progress():
                part.usage = event.usage
                events.append(Progress(self._sum()))
            case Finished():
                part.finished = event
                part.usage = event.usage or part.usage
            case Failed():
                part.usage = event.usage or part.usage
                events.append(Failed(event.error, self._sum()))
            case Heartbeat() | Notice():
                events.append(event)
            case _:
                if has_content(event):
                    part.length += text_length(event)
                events.append(_numbered(event, part.first))

    def _sum(self) -> Usage:
        """Return the usage of all calls that have begun."""
        used = [part.used() for part in self._parts if part.begun]
        return structs.replace(added(used), calls=len(used))

    def _spent(self) -> Usage | None:
        """Return the usage of calls with any data, when another call failed before the answer began."""
        used = [part.used() for part in self._parts if part.finished is not None or part.usage is not None]
        if used:
            return structs.replace(added(used), calls=len(used))
        return None

    def _finish(self) -> Finished:
        ends = [part.finished for part in self._parts if part.finished is not None]
        reasons = [reason for end in ends for reason in (end.reasons or (end.reason,))]
        return Finished(ends[0].reason, self._sum(), ends[0].stop_sequence, ends[0].service_tier, tuple(reasons))


def _open_split(
    upstreams: Upstreams, target: Target, deadline: float, listener: CallListener | None, part: ChatRequest
) -> Answering:
    return upstreams.stream(part, target, deadline, listener)


def _numbered(event: Any, first: int) -> Event:
    """Return the event with the number of its answer among those of all calls."""
    event.choice += first
    numbered: Event = event
    return numbered


FINAL_EVENTS = (Finished, Failed)
NO_BATCHES: Iterator[Batch] = iter(())
# Events that are held before the first content. A provider sends a few; one that hides its reasoning may send an empty
# event for each token of it.
MAX_HELD_EVENTS = 10_000
COUNTED_BYTES = 8_192  # of sound in one turn of the event loop
LATE_ANSWER = "The provider did not begin its answer in time."
TRUNCATED = "The provider's answer ended before it was complete."


def events(run: Run) -> Generator[Batch, None, None]:
    """Yield the caller's batches. Every end of this generator, including close(), settles the request.

    Errors before the first batch are raised; later ones become a Failed event.
    """
    begun = False
    target = run.walk.first()
    try:
        while True:
            attempt = run.begin(target)
            try:
                read = _hedged if run.context.caller.settings and may_hedge(run) else _attempt
                for batch in read(run, attempt):
                    begun = True
                    yield batch
                return
            except GatewayError as error:
                target = run.failed(run.outcome.serving, error)
    except GatewayError as error:
        if not begun:
            raise
        yield [Failed(error)]
    finally:
        run.settlement.close()


def _hedged(run: Run, attempt: Attempt) -> Iterator[Batch]:
    """Do the same as `_attempt`, with another attempt beside it while it is silent for long."""
    answering: Answering | SplitAnswering | None = None
    greenlet = current()
    greenlet.paid_work = run
    try:
        answering = _open(run, attempt)
        batches, hedge = yield from _await_content(run, attempt, answering)
    except GatewayError:
        if answering is not None:
            answering.close()
        raise
    except GeneratorExit:
        _hung_up(run, attempt, answering, SILENCE_CHECK[-1])  # the upstream's batches can still be read
        raise
    except BaseException:
        _hung_up(run, attempt, answering, None)
        raise
    finally:
        greenlet.paid_work = None
    if hedge is not None:
        first = RacingAttempt(attempt, run.settlement, run.outcome.warnings, answering, batches)
        attempt, answering, batches = yield from _race(run, first, hedge)
    yield from _attempt(run, attempt, answering, batches)


def _attempt(
    run: Run,
    attempt: Attempt,
    answering: Answering | SplitAnswering | None = None,
    batches: Iterator[Batch] = NO_BATCHES,
) -> Iterator[Batch]:
    """Yield the batches of one attempt. Raises only before the first content. `answering` and `batches` are those of an
    answer that has begun."""
    ended = suspended = False
    last: Event | None = None
    greenlet = current()
    greenlet.paid_work = run
    try:
        if answering is None:
            answering = _open(run, attempt)
            batches = _hold(run, attempt, answering, run.outcome.warnings)
        for batch in batches:
            last = batch[-1]
            if attempt.output_length > run.settlement.checked_length and _grows(attempt, last):
                # Record what was delivered; if the answer is longer than its reservation, reserve more or end it.
                run.settlement.grow(attempt)
            if not isinstance(last, FINAL_EVENTS):
                yield batch
                continue
            if len(batch) > 1:
                yield batch[:-1]
            ended = True
            yield [_end(run, attempt, last)]
            return
    except GatewayError as error:
        ended = True
        if not attempt.first_at:
            raise
        run.broken(attempt, error)
        yield [Failed(error, attempt.usage)]
    except GeneratorExit:
        suspended = True  # this generator waits at a `yield`, so the upstream's batches can still be read
        raise
    finally:
        greenlet.paid_work = None
        _close(run, attempt, answering, ended, last if suspended else None)


def _await_content(
    run: Run, attempt: Attempt, answering: Answering | SplitAnswering
) -> Generator[Batch, None, tuple[Iterator[Batch], RacingAttempt | None]]:
    """Yield heartbeats until the first content, or until a second attempt is begun; return the other batches, and that
    attempt."""
    batches = _hold(run, attempt, answering, run.outcome.warnings)
    for batch in batches:
        if attempt.first_at:
            return chain((batch,), batches), None
        if should_hedge(run, attempt, not answering.head_at) and (hedge := begin_hedge(run)) is not None:
            return batches, hedge
        if batch is not SILENCE_CHECK:
            yield batch
    return iter(()), None


def _race(
    run: Run, first: RacingAttempt, hedge: RacingAttempt
) -> Generator[Batch, None, tuple[Attempt, Answering | SplitAnswering, Iterator[Batch]]]:
    """Read two attempts at once until one has content; return that one, with its stream. Raises the error of the last
    one when both fail."""
    race = Race(run, first)
    race.add(hedge)
    greenlet = current()
    greenlet.paid_work = race
    try:
        for lane in (first, hedge):
            race.start(lane, _read_in_race)
        while (arrival := race.next()) is not None:
            lane, batch = arrival
            if isinstance(batch, GatewayError):
                race.failed(lane, batch)
            elif type(batch[0]) is not Heartbeat:  # a heartbeat may still wait here when the content has been read
                race.won(lane)
                break
            elif lane is race.live[0] and batch is not SILENCE_CHECK:
                yield batch
    except GatewayError:
        raise
    except BaseException:
        race.left()
        raise
    finally:
        greenlet.paid_work = None
    return lane.attempt, lane.answering, chain((batch,), lane.batches)


def _read_in_race(race: Race, lane: RacingAttempt) -> None:
    """Read the stream of an attempt until its first content; when another one serves, to its end."""
    run = race.run
    attempt = lane.attempt
    if lane.batches is None:
        lane.answering = _open(run, attempt)
        lane.batches = _hold(run, attempt, lane.answering, lane.warnings)
    for batch in lane.batches:
        if not lane.dropped:
            race.put(lane, batch)
            if attempt.first_at:
                lane.verdict.wait()
            if lane.won:
                return
        last = batch[-1]
        if lane.dropped and isinstance(last, FINAL_EVENTS):
            _take_end(attempt, last)
            return


def _open(run: Run, attempt: Attempt) -> Answering | SplitAnswering:
    """Open the stream of one call, or of several calls where one returns too few answers."""
    target = attempt.target
    request = run.request_for(target)
    listener = run.listener(attempt)
    choices = run.choices_a_call(target)
    if choices and isinstance(request, ChatRequest):
        return SplitAnswering(run.upstreams, request, choices, target, run.deadline, listener)
    return run.upstreams.stream(request, target, run.deadline, listener)


def _grows(attempt: Attempt, last: Event) -> bool:
    """Return whether a batch may need a larger reservation: unless the answer ended, and always for sound, which is
    measured at its end."""
    return not isinstance(last, FINAL_EVENTS) or attempt.sound is not None


def _end(run: Run, attempt: Attempt, event: Finished | Failed) -> Finished | Failed:
    """Settle at the upstream's terminal event; when the store is unavailable, success becomes a failure."""
    attempt.usage = event.usage or attempt.usage
    if type(event) is Failed:
        run.broken(attempt, event.error)
        return event
    attempt.finish = event.reason
    attempt.given = event.given
    attempt.service_tier = event.service_tier
    try:
        run.finished(attempt)
    except GatewayError as error:
        return Failed(error, attempt.usage)
    run.learn_first_byte(attempt)
    return event


def _hold(run: Run, attempt: Attempt, answering: Answering | SplitAnswering, warnings: list[str]) -> Iterator[Batch]:
    """Buffer events until the first content, or MAX_HELD_EVENTS of them. A Heartbeat passes at once, and so does a
    SILENCE_CHECK where a second attempt may begin; a Failed event before content is raised."""
    held: Batch = []
    until = run.time_limits()
    for batch in answering.batches:
        content = observe(attempt, batch, warnings)
        attempt.preparing = batch is PREPARING
        if attempt.preparing:  # which is no silence of the target
            attempt.started = run.clock.monotonic()
            until = run.time_limits()
            yield [Heartbeat()]
            continue
        if attempt.first_at:
            yield batch
            continue
        if not content:
            _check_wait(run, attempt, batch, bool(held), until, not answering.head_at)
        if Heartbeat in map(type, batch):
            held += [event for event in batch if type(event) is not Heartbeat]
        else:
            held += batch
        last = held[-1] if held else None
        if type(last) is Failed and not content:
            held[-1] = last = _end_without_content(run, attempt, last)
        if content or type(last) is Finished or len(held) > MAX_HELD_EVENTS:
            attempt.first_at = run.clock.monotonic()
            attempt.head_at = answering.head_at
            yield held
            held = []
            run.forget_prompt()
        elif len(batch) == 1 and type(batch[0]) is Heartbeat and (batch is not SILENCE_CHECK or run.hedges):
            yield batch
    if not attempt.first_at or type(batch[-1]) not in FINAL_EVENTS:
        raise StreamTruncated(TRUNCATED)


def _check_wait(run: Run, attempt: Attempt, batch: Batch, begun: bool, until: float, headless: bool) -> None:
    """Raise UpstreamTimeout when the provider has been silent for too long."""
    if run.clock.monotonic() > until:
        raise UpstreamTimeout(LATE_ANSWER)
    if not begun and type(batch[-1]) is Heartbeat and run.should_abandon(attempt, headless):
        raise UpstreamTimeout(MUTE)


def _end_without_content(run: Run, attempt: Attempt, failed: Failed) -> Finished:
    """Return the end of an empty answer that the request allows. Raises any other error before the first content."""
    attempt.usage = failed.usage or attempt.usage
    finish = meant_end(failed.error, run.request)
    if finish is None:
        raise failed.error
    return Finished(finish, failed.usage)


def observe(attempt: Attempt, batch: Batch, warnings: list[str]) -> bool:
    """Record a batch on the attempt and return whether it has content.

    UpstreamFailed for text that is not a string.
    """
    content = False
    size = 0
    for event in batch:
        if type(event) is NativeChunk:  # the most frequent event
            if event.content:
                content = True
                size += event.size
        elif type(event) is TextDelta or has_content(event):  # the second most frequent
            content = True
            try:
                size += LENGTH(event.text) if type(event) is TextDelta else _length_of(attempt, event)
            except TypeError:
                raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        elif type(event) is Started:
            attempt.model = event.model
            attempt.upstream_id = event.upstream_id
            attempt.usage = event.usage or attempt.usage
            attempt.used = event.used
        elif type(event) is Progress:
            attempt.usage = event.usage
        elif type(event) is Notice:
            warnings.append(event.message)
    attempt.output_length += size
    return content


def _length_of(attempt: Attempt, event: Event) -> int:
    """Return the length of the content of an event that is not a TextDelta, as characters of text."""
    if type(event) is not MediaPiece:
        return text_length(event)
    sound = attempt.sound = attempt.sound or SoundLength()
    before = sound.milliseconds
    data = event.data
    sound.add(data[:COUNTED_BYTES])
    for start in range(COUNTED_BYTES, len(data), COUNTED_BYTES):
        give_way()  # bytes that belong to no frame are examined one by one
        sound.add(data[start : start + COUNTED_BYTES])
    return length_as_text(sound.milliseconds) - length_as_text(before)


def _close(
    run: Run, attempt: Attempt, answering: Answering | SplitAnswering | None, ended: bool, last: Event | None
) -> None:
    if not ended:
        _hung_up(run, attempt, answering, last)
    elif answering is not None:
        answering.close()


def _hung_up(run: Run, attempt: Attempt, answering: Answering | SplitAnswering | None, last: Event | None) -> None:
    """Read on for the usage after the caller disconnected, or cancel the upstream call and settle with what is known.

    `last` is the last event that was read, None where the upstream's batches can no longer be read.
    """
    if last is not None and isinstance(last, FINAL_EVENTS):
        _take_end(attempt, last)  # it came with content that was not delivered
    elif answering is not None and not answering.is_sent:
        run.left_unsent(attempt)
        answering.close()
        return
    elif answering is not None and last is not None and run.leave(attempt):
        run.settlement.keep(attempt)
        run.reading_on.start(run.read_on_s(attempt), _read_on, run, attempt, answering)
        return
    run.hung_up(attempt)
    if answering is not None:
        answering.close()


def _take_end(attempt: Attempt, event: Finished | Failed) -> None:
    """Record the usage of an upstream's terminal event that is not delivered to a caller."""
    attempt.usage = event.usage and structs.replace(event.usage, basis="drained")
    if type(event) is Finished:
        attempt.service_tier = event.service_tier
        attempt.given = event.given
    else:
        attempt.service_tier = ""


def _read_on(run: Run, attempt: Attempt, answering: Answering | SplitAnswering) -> None:
    try:
        for batch in answering.batches:
            observe(attempt, batch, run.outcome.warnings)
            last = batch[-1]
            if isinstance(last, FINAL_EVENTS):
                _take_end(attempt, last)
                break
    except GatewayError:
        pass  # the usage that was seen before the error is billed
    finally:
        answering.close()
        run.hung_up(attempt)
        run.settlement.close()
