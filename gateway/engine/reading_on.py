"""Answers that are read on for their usage after their callers disconnected."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from gateway.runtime.disconnects import current
from gateway.runtime.threads import later, spawn

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
