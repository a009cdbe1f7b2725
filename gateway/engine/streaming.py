"""Streamed answers. Events are buffered until the first content, so that an earlier failure can fail over."""

from collections.abc import Generator, Iterator

from msgspec import structs

from gateway.billing.outcome import Attempt
from gateway.engine.empty_answers import meant_end
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
from gateway.providers.protocol import Target
from gateway.providers.upstream import MUTE, SILENCE_CHECK
from gateway.runtime.disconnects import current
from gateway.runtime.threads import give_way

FINAL_EVENTS = (Finished, Failed)
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
                for batch in _attempt(run, attempt):
                    begun = True
                    yield batch
                return
            except GatewayError as error:
                target = run.failed(attempt, error)
    except GatewayError as error:
        if not begun:
            raise
        yield [Failed(error)]
    finally:
        run.settlement.close()


def _attempt(run: Run, attempt: Attempt) -> Iterator[Batch]:
    """Yield the batches of one attempt. Raises only before the first content."""
    answering: Answering | SplitAnswering | None = None
    ended = suspended = False
    last: Event | None = None
    greenlet = current()
    greenlet.paid_work = run
    try:
        target = attempt.target
        answering = _open(run, target)
        for batch in _hold(run, attempt, answering.batches):
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
        if not ended:
            _hung_up(run, attempt, answering, last if suspended else None)
        elif answering is not None:
            answering.close()


def _open(run: Run, target: Target) -> Answering | SplitAnswering:
    """Open the stream of one call, or of several calls where one returns too few answers."""
    request = run.request_for(target)
    listener = run.listener(target)
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
    attempt.service_tier = event.service_tier
    try:
        run.finished(attempt)
    except GatewayError as error:
        return Failed(error, attempt.usage)
    run.learn_first_byte(attempt)
    return event


def _hold(run: Run, attempt: Attempt, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Buffer events until the first content, or MAX_HELD_EVENTS of them. A Heartbeat passes at once; a Failed event
    before content is raised."""
    held: Batch = []
    until = run.time_limits()
    for batch in batches:
        content = observe(attempt, batch, run.outcome.warnings)
        if attempt.first_at:
            yield batch
            continue
        if not content:
            _check_wait(run, attempt, batch, bool(held), until)
        if Heartbeat in map(type, batch):
            held += [event for event in batch if type(event) is not Heartbeat]
        else:
            held += batch
        last = held[-1] if held else None
        if type(last) is Failed and not content:
            held[-1] = last = _end_without_content(run, attempt, last)
        if content or type(last) is Finished or len(held) > MAX_HELD_EVENTS:
            attempt.first_at = run.clock.monotonic()
            yield held
        elif len(batch) == 1 and type(batch[0]) is Heartbeat and batch is not SILENCE_CHECK:
            yield batch
    if not attempt.first_at or type(batch[-1]) not in FINAL_EVENTS:
        raise StreamTruncated(TRUNCATED)


def _check_wait(run: Run, attempt: Attempt, batch: Batch, begun: bool, until: float) -> None:
    """Raise UpstreamTimeout when the provider has been silent for too long."""
    if run.clock.monotonic() > until:
        raise UpstreamTimeout(LATE_ANSWER)
    if not begun and type(batch[-1]) is Heartbeat and run.should_abandon(attempt):
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
