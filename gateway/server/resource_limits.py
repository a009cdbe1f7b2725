"""Limits on what callers can occupy in a worker: the bytes of request bodies held at once, and connections per
address."""

from collections.abc import Callable

from gateway.errors import Overloaded
from gateway.surfaces.proxies import network_of

RETRY_S = 1.0
UNREAD = "unread"  # owner of requests that are still incomplete and cannot be attributed
ANYONE = "anyone"  # owner of requests that nobody can attribute


class BodyBudget:
    """A budget of request body bytes held at once: `most` in total, `most_each` per owner."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._each: dict[str, int] = {}
        self.held = 0

    def grow(self, owner: str, size: int) -> None:
        """Add `size` bytes (negative: release). Overloaded when that is too much; then nothing changes."""
        own = self._each.get(owner, 0) + size
        if size > 0 and self.held + size > self._most:
            raise _full("The gateway holds as many request bodies as it can; try again.")
        if size > 0 and own > self._most_each:
            raise _full("Your organization has as many request bodies under way as it may; try again.")
        self.held += size
        if own:
            self._each[owner] = own
        else:
            self._each.pop(owner, None)


class BodyReservation:
    """The bytes that one request reserves. `ask` returns its owner, from its head; it is called, and may refuse, once
    the request holds more than `free` bytes."""

    __slots__ = ("_bodies", "_ask", "_free", "_owner", "_size")

    def __init__(self, bodies: BodyBudget, ask: Callable[[], str], free: int) -> None:
        self._bodies, self._ask, self._free = bodies, ask, free
        self._owner, self._size = "", 0

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes. Overloaded (see `BodyBudget.grow`), and whatever `ask` raises."""
        if not self._owner and self._size + size > self._free:
            owner, held = self._ask(), self._size
            self.release()
            self._owner = owner or ANYONE
            size += held
        self._bodies.grow(self._owner, size)
        self._size += size

    def release(self) -> None:
        """Release everything; the request is over."""
        size, self._size = self._size, 0
        self._bodies.grow(self._owner, -size)


class ConnectionCounts:
    """Connections per caller address: at most `most` each (0: unlimited); addresses that `shared` accepts are not
    limited."""

    def __init__(self, most: int, shared: Callable[[str], bool]) -> None:
        self._most, self._shared = most, shared
        self._open: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """Count one more; False, counting nothing, when that is too many."""
        if not self._most or self._shared(address):
            return True
        place = network_of(address)
        found = self._open.get(place, 0)
        if found >= self._most:
            return False
        self._open[place] = found + 1
        return True

    def leave(self, address: str) -> None:
        """Count one fewer."""
        place = network_of(address)
        left = self._open.get(place, 0) - 1
        if left > 0:
            self._open[place] = left
        else:
            self._open.pop(place, None)


def _full(message: str) -> Overloaded:
    return Overloaded(message, retry_after=RETRY_S)
