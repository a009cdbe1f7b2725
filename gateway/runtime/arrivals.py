"""Items that several greenlets deliver to one."""

from typing import Generic, TypeVar

from gevent.queue import Empty, Queue

T = TypeVar("T")


class Arrivals(Generic[T]):
    """A queue of items in the order of their arrival. `put` never waits."""

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
