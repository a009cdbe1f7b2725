"""Several streamed answers where the provider streams fewer per call: several calls, merged as they arrive.

Together the calls are one attempt, as in `split_calls`. Answers are numbered in the order of their calls. Started comes
once; Finished comes when all calls have finished, with the sum of their usage. When one call fails the stream fails,
and the usage of the others until then is paid.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import structs

from gateway.engine.split_calls import CONCURRENT_CALLS, estimated_part
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, split
from gateway.neutral.events import (
    Batch,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Notice,
    Progress,
    Started,
    has_content,
    text_length,
)
from gateway.neutral.usage import Usage, added
from gateway.providers.call_paths import Answering
from gateway.providers.openers import CallListener
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.runtime.merged_iterators import MergedIterators


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
        self._open = partial(_open, upstreams, target, deadline, listener)
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


def _open(
    upstreams: Upstreams, target: Target, deadline: float, listener: CallListener | None, part: ChatRequest
) -> Answering:
    return upstreams.stream(part, target, deadline, listener)


def _numbered(event: Any, first: int) -> Event:
    """Return the event with the number of its answer among those of all calls."""
    event.choice += first
    numbered: Event = event
    return numbered
