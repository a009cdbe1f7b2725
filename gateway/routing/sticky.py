"""Sticky routing: a session stays with its provider, a project with a provider that served it well."""

from hashlib import blake2b
from typing import Protocol

from gateway.clock import Clock
from gateway.errors import GatewayError

MAX_SESSION_LENGTH = 4096  # characters of a session id that are used
PIN_CAPACITY = 50_000
PREFERENCE_CAPACITY = 10_000
PREFERENCE_TTL_S = 3600.0
MISS_CACHE_S = 0.5
# A remembered provider is dropped below this uptime (percent), or if another one is better by this score.
UPTIME_FLOOR = 85.0
SCORE_MARGIN = 0.15


class Store(Protocol):
    """Shared storage for pins. `get` returns None for an absent key; both methods may raise GatewayError."""

    def get(self, key: str) -> str | None: ...
    def put(self, key: str, value: str, ttl_s: float) -> None: ...


class StickyMemory:
    """A bounded map with expiring entries; the oldest are dropped first when it is full."""

    def __init__(self, clock: Clock, ttl_s: float, capacity: int) -> None:
        self._clock = clock
        self._ttl_s = ttl_s
        self._capacity = capacity
        self._entries: dict[object, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: object) -> str | None:
        """Return the value, or None if it is absent or expired."""
        entry = self._entries.get(key)
        if entry is None or entry[1] <= self._clock.monotonic():
            return None
        return entry[0]

    def put(self, key: object, value: str) -> None:
        """Store `value` with the full time to live."""
        self._entries.pop(key, None)
        while len(self._entries) >= self._capacity:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, self._clock.monotonic() + self._ttl_s)

    def drop(self, key: object) -> None:
        self._entries.pop(key, None)


class Sticky:
    """The mapping that last served a session or a project; values are mapping keys."""

    def __init__(
        self, clock: Clock, ttl_s: float, store: Store | None = None, preference_ttl_s: float = PREFERENCE_TTL_S
    ) -> None:
        self._pins = StickyMemory(clock, ttl_s, PIN_CAPACITY)
        self._preferences = StickyMemory(clock, preference_ttl_s, PREFERENCE_CAPACITY)
        # Recent writes to the store: a pin is written when it is new, changed or half-way to its expiry.
        self._written = StickyMemory(clock, ttl_s / 2, PIN_CAPACITY)
        # Sessions that were not in the store a moment ago: one request looks them up once.
        self._missed = StickyMemory(clock, MISS_CACHE_S, PIN_CAPACITY)
        self._ttl_s = ttl_s
        self._store = store

    def pin_of(self, scope: str, session: str, requested_model: str) -> str | None:
        """Return the mapping that serves this session of `scope` (a project), None for a new session."""
        if self._ttl_s <= 0:
            return None
        key = _digest(scope, session, requested_model)
        return self._pins.get(key) or self._fetch(key)

    def pin(self, scope: str, session: str, requested_model: str, mapping: str) -> None:
        """Keep the session with `mapping`; its time to live restarts."""
        if self._ttl_s <= 0:
            return
        key = _digest(scope, session, requested_model)
        self._pins.put(key, mapping)
        if self._store is not None and self._written.get(key) != mapping:
            self._share(self._store, key, mapping)

    def preference_of(self, scope: str, requested_model: str) -> str | None:
        """Return the mapping that `scope` prefers for a model."""
        return self._preferences.get((scope, requested_model))

    def prefer(self, scope: str, requested_model: str, mapping: str) -> None:
        """Remember a choice; repeating the same choice does not prolong it."""
        if self._preferences.get((scope, requested_model)) != mapping:
            self._preferences.put((scope, requested_model), mapping)

    def _share(self, store: Store, key: str, mapping: str) -> None:
        try:
            store.put(key, mapping, self._ttl_s)
        except GatewayError:
            return  # a pin is optional: without the store it applies in this worker only
        self._written.put(key, mapping)

    def _fetch(self, key: str) -> str | None:
        if self._store is None or self._missed.get(key):
            return None
        try:
            value = self._store.get(key)
        except GatewayError:
            value = None
        if value:
            self._pins.put(key, value)
        else:
            self._missed.put(key, "missed")
        return value or None


def _digest(scope: str, session: str, requested_model: str) -> str:
    # Session names come from callers, with any length and possibly personal data: only their digest is stored.
    return blake2b(f"{scope}\0{requested_model}\0{session}".encode(errors="replace"), digest_size=16).hexdigest()
