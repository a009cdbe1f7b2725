"""Several iterators that are read concurrently as one, and items that several greenlets deliver to one."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from gevent.queue import Empty, Queue

from gateway.runtime.threads import Job

T = TypeVar("T")


class MergedIterators(Generic[T]):
    """Yields the items of several iterators as they arrive, each with the number of its iterator.

    At most `at_once` are read at a time, in their order, each a few items ahead of its reader. An exception of one
    iterator is raised by this one. `stop()` ends all reading.
    """

    def __init__(self, makers: list[Callable[[], Iterator[T]]], at_once: int, ahead: int = 16) -> None:
        self._makers = list(enumerate(makers))
        self._queue: Queue = Queue(maxsize=ahead)
        self._jobs: list[Job[None]] = []
        self._running = 0
        for _ in range(min(at_once, len(makers))):
            self._begin()

    def _begin(self) -> None:
        self._running += 1
        self._jobs.append(Job(self._read, *self._makers.pop(0)))

    def _read(self, number: int, make: Callable[[], Iterator[T]]) -> None:
        failure: Exception | None = None
        try:
            for item in make():
                self._queue.put((number, item, False))
        except Exception as error:
            failure = error
        self._queue.put((number, failure, True))

    def __iter__(self) -> Iterator[tuple[int, T]]:
        while self._running:
            number, item, ended = self._queue.get()
            if not ended:
                yield number, item
                continue
            if item is not None:
                raise item
            self._running -= 1
            if self._makers:
                self._begin()

    def stop(self) -> None:
        for job in self._jobs:
            job.stop()


class Arrivals(Generic[T]):
    """Items of several greenlets in the order of their arrival. `put` never waits."""

    def __init__(self) -> None:
        self._queue: Queue = Queue()

    def put(self, item: T) -> None:
        self._queue.put(item)

    def take(self, timeout_s: float | None = None) -> T | None:
        """Wait for the next item; None after `timeout_s`."""
        try:
            item: T = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        return item
