"""Native threads that owners use in turns, so that the work of one owner does not delay others."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gevent.event import Event
from gevent.monkey import get_original
from gevent.threadpool import ThreadPool

T = TypeVar("T")
# The result of work, or its exception.
Outcome = tuple[T | None, BaseException | None]

native_id = get_original("_thread", "get_native_id")


class QueueFull(Exception):
    """The limit of waiting work is reached."""


class FairSlots:
    """A number of slots for work, of which each owner occupies at most `each` at a time.

    Waiting owners take turns, one piece of work at a time; urgent work precedes all other. At most `max_waiting`
    pieces may wait in each of the two queues, and `max_each` of one owner (0: unlimited). The queues belong to one
    event loop.
    """

    def __init__(self, size: int, each: int, max_waiting: int = 0, max_each: int = 0) -> None:
        self._free = size
        self._each = each
        self._max_waiting = max_waiting
        self._max_each = max_each
        self._running: dict[str, int] = {}
        # The order of each dictionary is the order of the owners' turns.
        self._urgent: dict[str, deque[Event]] = {}
        self._ordinary: dict[str, deque[Event]] = {}

    @property
    def waiting(self) -> int:
        """Return the number of pieces of work that wait for a slot."""
        return _count(self._urgent) + _count(self._ordinary)

    def enter(self, owner: str, urgent: bool = False) -> None:
        """Wait until `owner` has a slot. Raise QueueFull if too much work is already waiting."""
        if self._free and self._running.get(owner, 0) < self._each:
            self._begin(owner)
            return
        queue = self._urgent if urgent else self._ordinary
        mine = queue.get(owner, ())
        if 0 < self._max_waiting <= _count(queue) or 0 < self._max_each <= len(mine):
            raise QueueFull
        turn = Event()
        queue.setdefault(owner, deque()).append(turn)
        try:
            turn.wait()
        except BaseException:
            if turn.is_set():
                self.leave(owner)
            else:
                _remove(queue, owner, turn)
            raise

    def leave(self, owner: str) -> None:
        """Release a slot of `owner` and start the next turns. Called in the hub too."""
        self._free += 1
        left = self._running[owner] - 1
        if left:
            self._running[owner] = left
        else:
            del self._running[owner]
        while self._free and (self._give_turn(self._urgent) or self._give_turn(self._ordinary)):
            continue

    @contextmanager
    def turn(self, owner: str) -> Iterator[None]:
        """Hold a slot for the duration of the context. Raise QueueFull."""
        self.enter(owner)
        try:
            yield
        finally:
            self.leave(owner)

    def _begin(self, owner: str) -> None:
        self._free -= 1
        self._running[owner] = self._running.get(owner, 0) + 1

    def _give_turn(self, queue: dict[str, deque[Event]]) -> bool:
        """Start the next owner's turn, if one of the queue may begin; return whether one did.

        At most as many owners are skipped as there are slots.
        """
        for owner in queue:
            if self._running.get(owner, 0) < self._each:
                break
        else:
            return False
        turns = queue.pop(owner)
        self._begin(owner)
        turns.popleft().set()
        if turns:
            queue[owner] = turns  # after all other owners
        return True


class FairThreads:
    """A pool of `size` native threads that owners use in turns, like `FairSlots`.

    `nice` above 0 lowers the priority of the threads and of those that they start.
    """

    def __init__(
        self, size: int, each: int, max_waiting: int = 0, max_each: int = 0, nice: int = 0, hub: Any = None
    ) -> None:
        self._pool = ThreadPool(size, hub=hub)
        self._slots = FairSlots(size, each, max_waiting, max_each)
        self._nice = nice

    @property
    def waiting(self) -> int:
        """Return the number of pieces of work that wait for a thread."""
        return self._slots.waiting

    def run(self, owner: str, work: Callable[[], T], urgent: bool = False) -> T:
        """Call `work` in a native thread, wait for its result, and raise its exception here.

        Raise QueueFull if too much work is already waiting. A thread that has begun finishes its work even if the
        caller is killed.
        """

        def attempt() -> T:
            if self._nice:
                _lower_priority(self._nice)
            return work()

        self._slots.enter(owner, urgent)
        try:
            pending = self._pool.spawn(outcome_of, attempt)
        except BaseException:
            self._slots.leave(owner)
            raise

        def leave(_: object) -> None:
            self._slots.leave(owner)

        pending.rawlink(leave)
        result: T = result_of(pending.get())
        return result

    def close(self) -> None:
        self._pool.kill()


def outcome_of(work: Callable[[], T]) -> Outcome[T]:
    """Call `work` in a thread of a pool. Its exception is returned: the pool would print each that is raised, also
    those of callers' mistakes."""
    try:
        return work(), None
    except BaseException as error:
        return None, error


def result_of(outcome: Outcome[T]) -> T:
    """Return the result of the work, or raise its exception."""
    result, error = outcome
    if error is None:
        return result  # type: ignore[return-value]
    try:
        raise error
    finally:
        # The traceback contains this frame: the reference cycle would keep all objects of the work until garbage
        # collection.
        del error, outcome


def _count(queue: dict[str, deque[Event]]) -> int:
    return sum(map(len, queue.values()))


def _remove(queue: dict[str, deque[Event]], owner: str, turn: Event) -> None:
    turns = queue[owner]
    turns.remove(turn)
    if not turns:
        del queue[owner]


def _lower_priority(nice: int) -> None:
    """Set the priority of this thread, on Linux; elsewhere do nothing."""
    try:
        if os.getpriority(os.PRIO_PROCESS, native_id()) < nice:
            os.setpriority(os.PRIO_PROCESS, native_id(), nice)
    except OSError:
        return
