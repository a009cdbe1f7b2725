"""Turns at something scarce, shared fairly by owners."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairTurns:
    """At most `size` at once. Owners who wait are served in rotation, however many requests one of them has waiting."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: OrderedDict[str, deque[threading.Event]] = OrderedDict()

    @contextmanager
    def turn(self, owner: str, patience_s: float) -> Iterator[bool]:
        """Hold a turn during the block. False, without one, when none came within `patience_s`."""
        taken = self._take(owner, patience_s)
        try:
            yield taken
        finally:
            if taken:
                self._give()

    def _take(self, owner: str, patience_s: float) -> bool:
        if self._free:
            self._free -= 1
            return True
        mine = threading.Event()
        self._waiting.setdefault(owner, deque()).append(mine)
        taken = False
        try:
            taken = mine.wait(patience_s)
            return taken
        finally:
            if not taken:
                self._leave(owner, mine)

    def _leave(self, owner: str, mine: threading.Event) -> None:
        if mine.is_set():
            self._give()  # it was given a turn that nobody takes
            return
        queue = self._waiting[owner]
        queue.remove(mine)
        if not queue:
            del self._waiting[owner]

    def _give(self) -> None:
        """Pass the turn on to the owner who waited longest since the last turn."""
        if not self._waiting:
            self._free += 1
            return
        owner, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._waiting[owner] = queue
