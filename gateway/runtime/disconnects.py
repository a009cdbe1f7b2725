"""Work that may continue for a while after its caller disconnected, such as reading an answer on for its usage.

A greenlet that waits for something that must be paid in any case sets the attribute `paid_work`, which decides how long
the work continues.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import gevent

from gateway.runtime.threads import later, spawn

current: Callable[[], Any] = gevent.getcurrent
ATTRIBUTE = "paid_work"


class CallerGone(gevent.GreenletExit):
    """Ends the greenlet of a request with a disconnected caller, once its paid work is complete."""


class PaidWork(Protocol):
    """Work that must be paid whether or not it is completed."""

    def after_disconnect(self) -> float:
        """Return the seconds for which it continues without its caller, 0 to end it at once."""
        ...


def dismiss(greenlet: Any, reason: BaseException | None = None, unless: Callable[[], bool] = bool) -> bool:
    """End the work of a greenlet with a disconnected caller by raising `reason` (GreenletExit) in it.

    Return whether it continues as paid work instead; it is ended after the time for that, `unless` the caller
    returned.
    """
    reason = reason or gevent.GreenletExit()
    if _continues(greenlet, reason, unless):
        return True
    gevent.get_hub().loop.run_callback(_end_unpaid, greenlet, reason, unless)
    return False


def _continues(greenlet: Any, reason: BaseException, unless: Callable[[], bool]) -> bool:
    """Return whether the greenlet's work is paid and continues; set its end."""
    work: PaidWork | None = getattr(greenlet, ATTRIBUTE, None)
    seconds = 0.0 if work is None else work.after_disconnect()
    if work is None or not seconds:
        return False
    gevent.spawn_later(seconds, _end, greenlet, work, reason, unless)
    return True


def _end_unpaid(greenlet: Any, reason: BaseException, unless: Callable[[], bool]) -> None:
    """End a greenlet from the event loop, unless it has begun paid work since. `kill` would end that as well, after
    its request was sent."""
    if not greenlet.dead and not unless() and not _continues(greenlet, reason, unless):
        greenlet.throw(reason)


def _end(greenlet: Any, work: PaidWork, reason: BaseException, unless: Callable[[], bool]) -> None:
    # After that work the greenlet ends normally, and must not be interrupted in its `finally` blocks.
    if getattr(greenlet, ATTRIBUTE, None) is work and not unless():
        greenlet.kill(reason, block=False)


# Answers that are read on for their usage after their callers disconnected.

MAX_ANSWERS = 256  # simultaneous answers of a worker
MAX_ANSWERS_PER_ORGANIZATION = 64  # simultaneous answers of one organization
STOP_TIMEOUT_S = 0.5


class ReadingOn:
    """Bounds how many answers a worker reads on, in total and per organization, and ends them with the worker."""

    def __init__(self, maximum: int = MAX_ANSWERS, max_of_one: int = MAX_ANSWERS_PER_ORGANIZATION) -> None:
        self._maximum = maximum
        self._max_of_one = max_of_one
        self._counts: Counter[str] = Counter()
        self._reading: set[Any] = set()

    @property
    def count(self) -> int:
        """How many answers are being read on."""
        return self._counts.total()

    def enter(self, organization: str) -> bool:
        """Count one more answer; False when the bound is reached. Call `leave` once after True."""
        if self.count >= self._maximum or self._counts[organization] >= self._max_of_one:
            return False
        self._counts[organization] += 1
        return True

    def leave(self, organization: str) -> None:
        self._counts[organization] -= 1
        if not self._counts[organization]:
            del self._counts[organization]

    def start(self, seconds: float, work: Callable[..., object], *args: object) -> None:
        """Run `work` in a greenlet that is killed after `seconds`."""
        greenlet = spawn(self._run, seconds, work, args)
        self._reading.add(greenlet)
        greenlet.rawlink(self._reading.discard)

    def stop(self, wait_s: float = STOP_TIMEOUT_S) -> None:
        """End all greenlets; each records what it has read."""
        reading = list(self._reading)
        for greenlet in reading:
            greenlet.kill(block=False)
        for greenlet in reading:
            greenlet.join(wait_s)

    @staticmethod
    def _run(seconds: float, work: Callable[..., object], args: tuple[object, ...]) -> None:
        expiry = later(seconds, _kill, current())
        try:
            work(*args)
        finally:
            expiry.kill(block=False)


def _kill(greenlet: Any) -> None:
    greenlet.kill(block=False)
