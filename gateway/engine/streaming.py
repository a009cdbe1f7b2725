"""Streamed answers. Events are buffered until the first content, so that an earlier failure can fail over."""

from collections.abc import Generator, Iterator
from itertools import chain

from msgspec import structs

from gateway.billing.outcome import Attempt
from gateway.engine.empty_answers import meant_end
from gateway.engine.hedging import Race, RacingAttempt, begin_hedge, may_hedge, should_hedge
from gateway.engine.run import Run
from gateway.engine.split_streams import SplitAnswering
from gateway.errors import GatewayError, StreamTruncated, UpstreamFailed, UpstreamTimeout
from gateway.neutral.chat import ChatRequest
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
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.call_paths import Answering
from gateway.providers.upstream import MUTE, SILENCE_CHECK
from gateway.runtime.disconnects import current
from gateway.runtime.threads import give_way

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
            elif lane.attempt.first_at:
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
