"""Memory for large upstream responses while they are read: without room their connections wait."""

from collections.abc import Callable

from msgspec import Struct

from gateway.errors import Overloaded
from gateway.runtime.byte_budget import UNATTRIBUTED, ByteBudget
from gateway.runtime.threads import Slots, pause, work_owner

FREE = 1 << 17  # bytes of a response that are not counted, since few responses have more
# The share of the budgets for reading. The rest is for responses that callers have yet to take, so that new responses
# do not cause those to be refused.
LARGE_OWNER_SHARE = 0.5
CHECK_INTERVAL_S = 0.05
SLOT_TTL_S = 3600.0  # longer than any request


class AnswerRoom:
    """The part of a worker's budget in which responses are read.

    An owner without another large body may always read one. A response that found no room for `wait_s` is read anyway,
    since the provider bills it, but only one at a time: its cost is settled, and the server refuses it if there is
    still no room.
    """

    def __init__(self, budget: ByteBudget, wait_s: float, now: Callable[[], float]) -> None:
        self.budget = budget
        self.wait_s = wait_s
        self.now = now
        self.beyond = Slots(1)

    def hold(self) -> "HeldAnswer":
        """Return a reservation for the response that this greenlet reads."""
        return HeldAnswer(self, work_owner() or UNATTRIBUTED)


class HeldAnswer(Struct, eq=False):
    """The bytes of one response that is being read."""

    _room: AnswerRoom
    _owner: str
    _size: int = 0
    _beyond: bool = False

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes, waiting until there is room."""
        if self._beyond:
            return
        room = self._room
        until = room.now() + room.wait_s
        while not self._fits(size):
            if room.now() >= until:
                self._beyond = room.beyond.take(SLOT_TTL_S)
                return
            pause(CHECK_INTERVAL_S)
        room.budget.grow(self._owner, size)
        self._size += size

    def release(self) -> None:
        """Release all reserved bytes."""
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
        share = 1.0 if budget.held_by(self._owner) <= self._size else LARGE_OWNER_SHARE
        return budget.has_room(self._owner, size, share)


class KeptBytes:
    """Bytes that count against the budgets as long as this object exists: fetched media, to which their request refers,
    and answers that are kept for later requests."""

    def __init__(self, budget: ByteBudget | None) -> None:
        self._budget = budget
        self._owner = work_owner() or UNATTRIBUTED
        self._size = 0

    def grow(self, size: int) -> None:
        """Count `size` more bytes. Raise Overloaded if there is no room."""
        if self._budget is not None:
            self._budget.grow(self._owner, size)
            self._size += size

    def fits(self, size: int) -> bool:
        """Count `size` more bytes if there is room; return whether there was."""
        try:
            self.grow(size)
        except Overloaded:
            return False
        return True

    def release(self) -> None:
        """Count no byte anymore."""
        size = self._size
        self._size = 0
        if self._budget is not None:
            self._budget.grow(self._owner, -size)

    __del__ = release
