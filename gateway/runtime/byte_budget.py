"""A worker's memory budget for large bodies: requests, upstream responses, and responses that callers have yet to
read.
"""

from gateway.errors import Overloaded

RETRY_S = 1.0
ANYONE = "anyone"  # owner of bodies that cannot be attributed


class ByteBudget:
    """A budget of bytes in memory: `most` in total, `most_each` for each owner."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._each: dict[str, int] = {}
        self.held = 0

    def held_by(self, owner: str) -> int:
        """Return the bytes that `owner` holds."""
        return self._each.get(owner, 0)

    def has_room(self, owner: str, size: int, share: float = 1.0) -> bool:
        """Return whether `size` more bytes fit into this share of both budgets."""
        within = self.held + size <= self._most * share
        return within and self.held_by(owner) + size <= self._most_each * share

    def grow(self, owner: str, size: int) -> None:
        """Add `size` bytes (negative: release). Raise Overloaded if it exceeds a budget; nothing changes then."""
        own = self.held_by(owner) + size
        if size > 0 and self.held + size > self._most:
            raise _full("The gateway is processing too many large bodies; try again.")
        if size > 0 and own > self._most_each:
            raise _full("Your organization is sending or receiving too many large bodies; try again.")
        self.held += size
        if own:
            self._each[owner] = own
        else:
            self._each.pop(owner, None)


def _full(message: str) -> Overloaded:
    return Overloaded(message, retry_after=RETRY_S)
