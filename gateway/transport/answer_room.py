"""Memory for the large answers of upstreams while they are read: where there is none, their connections wait."""

from collections.abc import Callable

from msgspec import Struct

from gateway.runtime.byte_budget import ANYONE, ByteBudget
from gateway.runtime.threads import Slots, pause, work_owner

FREE = 1 << 17  # bytes of an answer that are not counted: few have more
# Of the budgets. The other half is for answers that have been read and that callers have yet to take, so that those are
# not refused for the sake of new ones.
SHARE = 0.5
LOOK_S = 0.05
SLOT_S = 3600.0  # longer than any request


class AnswerRoom:
    """The part of a worker's budget in which answers are read.

    An owner without another large body may always read one. An answer that found no room for `wait_s` is read all the
    same, since its provider bills it, but one at a time: what it cost is settled, and the server refuses it if there is
    still no room for it.
    """

    def __init__(self, budget: ByteBudget, wait_s: float, now: Callable[[], float]) -> None:
        self.budget = budget
        self.wait_s = wait_s
        self.now = now
        self.beyond = Slots(1)

    def hold(self) -> "HeldAnswer":
        """A reservation for the answer that this greenlet reads."""
        return HeldAnswer(self, work_owner() or ANYONE)


class HeldAnswer(Struct, eq=False):
    """The bytes of one answer that is being read."""

    _room: AnswerRoom
    _owner: str
    _size: int = 0
    _beyond: bool = False

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes; waits until there is room for them."""
        if self._beyond:
            return
        room = self._room
        until = room.now() + room.wait_s
        while not self._fits(size):
            if room.now() >= until:
                self._beyond = room.beyond.take(SLOT_S)
                return
            pause(LOOK_S)
        room.budget.grow(self._owner, size)
        self._size += size

    def release(self) -> None:
        """Give everything back."""
        size = self._size
        beyond = self._beyond
        self._size = 0
        self._beyond = False
        if size:
            self._room.budget.grow(self._owner, -size)
        if beyond:
            self._room.beyond.give()

    def _fits(self, size: int) -> bool:
        budget = self._room.budget
        if budget.held_by(self._owner) <= self._size:
            share = 1.0
        else:
            share = SHARE
        return budget.has_room(self._owner, size, share)
