"""Turns of owners: large work of one owner is done one piece at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import Overloaded
from gateway.runtime.threads import Slots

RETRY_AFTER_S = 1.0


class OwnerTurns:
    """Lets each owner do one piece of work at a time; others of the same owner wait for at most `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._slots: dict[str, Slots] = {}
        self._users: dict[str, int] = {}  # those that hold or wait for a slot

    @contextmanager
    def turn(self, owner: str) -> Iterator[None]:
        """Wait for the turn of `owner` and take it. Overloaded if it does not come in time."""
        slot = self._slots.setdefault(owner, Slots(1))
        self._users[owner] = self._users.get(owner, 0) + 1
        try:
            if not slot.take(self._wait_s):
                text = "Your organization is loading too many long conversations; try again."
                raise Overloaded(text, retry_after=RETRY_AFTER_S)
            try:
                yield
            finally:
                slot.give()
        finally:
            self._users[owner] -= 1
            if not self._users[owner]:
                del self._users[owner]
                del self._slots[owner]
