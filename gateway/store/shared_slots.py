"""Limits on simultaneous use, counted across all workers and nodes by documents that their holders renew."""

import secrets
from collections.abc import Collection, Iterator

from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.runtime.threads import Job, spawn
from gateway.store.documents import Documents

KIND = "slot"
# How long a slot stays taken after its worker died or its holder stopped renewing it.
LEASE_S = 60.0
# One slot is read first, then READ_GROWTH times as many at once each time, at most MAX_READ.
READ_GROWTH = 8
MAX_READ = 512


class SharedSlots:
    """Limits each name to `size` simultaneous slots of the kind `what`. Unavailable when the store is down."""

    def __init__(self, documents: Documents, clock: Clock, what: str, size: int) -> None:
        self._documents = documents
        self._clock = clock
        self._what = what
        self._size = size

    def take(self, names: Collection[str]) -> "HeldSlots | None":
        """Take one slot for each name, or none and return None when one of the names has no free slot. The slots are
        given back when the greenlet is killed while it takes them."""
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
        """Return whether all slots were free; an error is returned, since gevent prints exceptions that end a
        greenlet."""
        try:
            for name in names:
                if not any(held.add(key) for key in self._free(name)):
                    held.give()
                    return False
        except Unavailable as error:
            return error
        return True

    def _free(self, name: str) -> Iterator[str]:
        """Yield the slots that are free, read in few steps: a refused caller may try again at once, and often.

        Reading first keeps callers that are refused from waiting for the store's writer, which every commit needs.
        """
        first = secrets.randbelow(self._size)  # of many slots, one of the first ones would mostly be taken
        begin = 0
        length = 1
        while begin < self._size:
            numbers = range(begin, min(begin + length, self._size))
            keys = [f"{self._what}/{name}/{(first + number) % self._size}" for number in numbers]
            taken = self._documents.present(KIND, keys)
            yield from (key for key in keys if key not in taken)
            begin += length
            length = min(length * READ_GROWTH, MAX_READ)


class HeldSlots:
    """Slots that one holder has taken, until `give`, or until they were not renewed for LEASE_S."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._keys: list[str] = []
        self._token = secrets.token_bytes(8)
        self._at = clock.monotonic()

    def add(self, key: str) -> bool:
        """Take a slot; returns whether it was free."""
        free = self._documents.put_if_absent(KIND, key, self._token, LEASE_S)
        if free:
            self._keys.append(key)
        return free

    def renew(self) -> None:
        """Renew the slots; call it more often than LEASE_S. It accesses the store only every third of LEASE_S."""
        passed_s = self._clock.monotonic() - self._at
        if passed_s < LEASE_S / 3:
            return
        self._at += passed_s
        for key in self._own(passed_s):
            self._documents.put(KIND, key, self._token, LEASE_S)

    def give(self) -> None:
        """Give all slots back; further calls do nothing. Slots expire if the store is down."""
        keys = self._own(self._clock.monotonic() - self._at)
        self._keys = []
        try:
            for key in keys:
                self._documents.delete(KIND, key)
        except Unavailable:
            return

    def _own(self, passed_s: float) -> list[str]:
        """Return the slots that no other holder has taken after their lease."""
        if passed_s >= LEASE_S:
            self._keys = [key for key in self._keys if self._documents.get(KIND, key) == self._token]
        return self._keys


class SessionsFull(Exception):
    """A key or an organization has as many sessions as it may; the text names it and their number."""


class SessionSlots:
    """Limits the simultaneous sessions of the kind `what` of each key and each organization; 0 is no limit."""

    def __init__(self, documents: Documents, clock: Clock, what: str, *, organization: int, key: int) -> None:
        self._key, self._key_size = SharedSlots(documents, clock, f"{what} key", key), key
        self._organization = SharedSlots(documents, clock, f"{what} organization", organization)
        self._organization_size = organization

    def take(self, organization_id: str, key_id: str) -> tuple[HeldSlots, ...]:
        """Take a slot of the key and one of the organization. Raises SessionsFull, Unavailable."""
        held: tuple[HeldSlots, ...] = ()
        for slots, size, name, owner in (
            (self._key, self._key_size, key_id, "This API key's"),
            (self._organization, self._organization_size, organization_id, "This organization's"),
        ):
            try:
                taken = slots.take((name,)) if size else None
            except BaseException:
                give(held)
                raise
            if taken is not None:
                held += (taken,)
            elif size:
                give(held)
                raise SessionsFull(f"{owner} {size}")
        return held


def give(slots: tuple[HeldSlots, ...]) -> None:
    """Give back the slots of a session; further calls do nothing."""
    for held in slots:
        held.give()


def _give_back(taking: Job[bool | Unavailable], held: HeldSlots) -> None:
    """Give back slots after an interrupted `take`."""
    taking.result()
    held.give()
