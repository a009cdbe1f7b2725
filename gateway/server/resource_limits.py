"""Limits on the resources that callers occupy in a worker: bytes of request bodies, and connections per address."""

from collections.abc import Callable

from gateway.runtime.byte_budget import UNATTRIBUTED, ByteBudget, HeldBytes
from gateway.transport.addresses import network_of

UNREAD_OWNER = "unread"  # owner of incomplete requests, which cannot be attributed yet


class BodyReservation(HeldBytes):
    """The bytes that one request reserves. `ask` returns its owner from its head; it is called, and may refuse, when
    the request holds more than `free` bytes."""

    __slots__ = ("_ask", "_max_free")

    def __init__(self, bodies: ByteBudget, ask: Callable[[], str], free: int) -> None:
        super().__init__(bodies)
        self._ask = ask
        self._max_free = free

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes. Overloaded (see `ByteBudget.grow`), and the errors of `ask`."""
        if not self._owner and self._size + size > self._max_free:
            owner = self._ask()
            held = self._size
            self._free()
            self._owner = owner or UNATTRIBUTED
            size += held
        super().grow(size)


class ConnectionCounts:
    """The number of connections per caller address, at most `maximum` each (0: unlimited). Addresses that `shared`
    accepts are not limited."""

    def __init__(self, maximum: int, shared: Callable[[str], bool]) -> None:
        self._maximum = maximum
        self._shared = shared
        self._open: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """Count one more connection; False, counting nothing, when that is too many."""
        if not self._maximum or self._shared(address):
            return True
        place = network_of(address)
        count = self._open.get(place, 0)
        if count >= self._maximum:
            return False
        self._open[place] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Count one connection fewer."""
        place = network_of(address)
        left = self._open.get(place, 0) - 1
        if left > 0:
            self._open[place] = left
        else:
            self._open.pop(place, None)
