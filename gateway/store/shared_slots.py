"""So many of something at once, counted over all workers and nodes: documents that their holders renew."""

import secrets
from collections.abc import Collection

from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.runtime.threads import Job, spawn
from gateway.store.documents import Documents

KIND = "slot"
# How long one counts whose worker died, or whose holder does not go on.
LEASE_S = 60.0


class SharedSlots:
    """`size` of `what` may be taken at once for each name. Unavailable when the store is away."""

    def __init__(self, documents: Documents, clock: Clock, what: str, size: int) -> None:
        self._documents = documents
        self._clock = clock
        self._what = what
        self._size = size

    def take(self, names: Collection[str]) -> "HeldSlots | None":
        """One of each name; None, and none is taken, when one of them has none left. Who is killed meanwhile has
        none."""
        held = HeldSlots(self._documents, self._clock)
        taking = Job(self._take, names, held)
        try:
            taken = taking.result()
        except BaseException:
            spawn(_give_back, taking, held)
            raise
        if isinstance(taken, Unavailable):
            raise taken
        if taken:
            return held
        return None

    def _take(self, names: Collection[str], held: "HeldSlots") -> bool | Unavailable:
        """Whether all were free; an error as a value, which would be printed on leaving a greenlet."""
        try:
            for name in names:
                if not any(held.add(f"{self._what}/{name}/{number}") for number in range(self._size)):
                    held.give()
                    return False
        except Unavailable as error:
            return error
        return True


class HeldSlots:
    """What somebody took, until `give`. Who does not renew it for LEASE_S has it no more."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._keys: list[str] = []
        self._token = secrets.token_bytes(8)
        self._at = clock.monotonic()

    def add(self, key: str) -> bool:
        """Take one; whether it was free."""
        free = self._documents.put_if_absent(KIND, key, self._token, LEASE_S)
        if free:
            self._keys.append(key)
        return free

    def renew(self) -> None:
        """Keep it; to be called more often than LEASE_S. It asks the store at every third of that alone."""
        passed_s = self._clock.monotonic() - self._at
        if passed_s < LEASE_S / 3:
            return
        self._at += passed_s
        for key in self._own(passed_s):
            self._documents.put(KIND, key, self._token, LEASE_S)

    def give(self) -> None:
        """Give all of it back; a second time nothing. While the store is away it lapses by itself."""
        keys = self._own(self._clock.monotonic() - self._at)
        self._keys = []
        try:
            for key in keys:
                self._documents.delete(KIND, key)
        except Unavailable:
            return

    def _own(self, passed_s: float) -> list[str]:
        """What was not taken by somebody else meanwhile."""
        if passed_s >= LEASE_S:
            self._keys = [key for key in self._keys if self._documents.get(KIND, key) == self._token]
        return self._keys


def _give_back(taking: Job[bool | Unavailable], held: HeldSlots) -> None:
    """What somebody was taking who was killed."""
    taking.result()
    held.give()
