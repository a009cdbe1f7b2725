"""A worker's memory budget for large bodies: requests, upstream responses, and responses that callers have yet to
read.
"""

from gateway.errors import Overloaded

RETRY_AFTER_S = 1.0
UNATTRIBUTED = "anyone"  # owner of bodies that cannot be attributed


class ByteBudget:
    """A budget of bytes in memory: `maximum` in total, `max_each` for each owner.

    An owner may hold `max_each` while others hold nothing, and less the less is free, so that owners who take all that
    they may leave room for others: with half of the total for each, as much as is left free.
    """

    def __init__(self, maximum: int, max_each: int) -> None:
        self._maximum = maximum
        self._max_each = max_each
        self._each: dict[str, int] = {}
        self.held = 0

    def held_by(self, owner: str) -> int:
        """Return the bytes that `owner` holds."""
        return self._each.get(owner, 0)

    def has_room(self, owner: str, size: int, share: float = 1.0) -> bool:
        """Return whether `size` more bytes fit into this share of both budgets."""
        within = self.held + size <= self._maximum * share
        own = self.held_by(owner) + size
        return within and own <= self._max_each * share and self._leaves_room(own, size)

    def _leaves_room(self, own: int, size: int) -> bool:
        """Return whether an owner with `own` bytes, `size` of them new, leaves enough to others."""
        return own * (self._maximum - self._max_each) <= self._max_each * (self._maximum - self.held - size)

    def grow(self, owner: str, size: int) -> None:
        """Add `size` bytes (negative: release). Raise Overloaded if it exceeds a budget; nothing changes then."""
        own = self.held_by(owner) + size
        if size > 0 and own > self._max_each:
            raise _full("Your organization is sending or receiving too many large bodies; try again.")
        if size > 0 and not (self.held + size <= self._maximum and self._leaves_room(own, size)):
            raise _full("The gateway is processing too many large bodies; try again.")
        self.held += size
        if own:
            self._each[owner] = own
        else:
            self._each.pop(owner, None)


class HeldBytes:
    """Bytes that a request holds in a budget, together with the greenlets that it starts (`threads.hold`). They are
    released when the last holder has released them."""

    __slots__ = ("_budget", "_holders", "_owner", "_size")

    def __init__(self, budget: ByteBudget, owner: str = "") -> None:
        self._budget = budget
        self._owner = owner
        self._size = 0
        self._holders = 1

    def grow(self, size: int) -> None:
        """Hold `size` more bytes. Raise Overloaded if there is no room."""
        self._budget.grow(self._owner, size)
        self._size += size

    def share(self) -> None:
        """Add a holder, which calls `release` when it needs the bytes no longer."""
        self._holders += 1

    def release(self) -> None:
        """Remove a holder; the last one releases all bytes."""
        self._holders -= 1
        if not self._holders:
            self.free()

    def free(self) -> None:
        """Release all bytes that are held now."""
        size = self._size
        self._size = 0
        self._budget.grow(self._owner, -size)


def _full(message: str) -> Overloaded:
    return Overloaded(message, retry_after=RETRY_AFTER_S)
