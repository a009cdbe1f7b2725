"""Cooldowns: providers that failed are tried last for a while, longer each time; then one request probes them before
all return.
"""

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, get_args

from msgspec import Struct

from gateway.clock import Clock

Kind = Literal["unreachable", "failing", "refused", "limited"]
# Called with the key, the kind ("" at the end), its seconds, and the organization that owns the key ("": none).
OnCooldown = Callable[[str, Kind | Literal[""], float, str], None]
KINDS: tuple[Kind, ...] = get_args(Kind)


class CooldownPolicy(Struct, frozen=True):
    """Rules for one kind of failure.

    `first_s` doubles with each failure after a cooldown, up to `longest_s`. `probe`: after the cooldown a single
    request tests the provider. `shut`: during the cooldown at most one request in RETRY_INTERVAL_S may try it.
    """

    first_s: float
    longest_s: float
    probe: bool
    text: str
    shut: bool = False


POLICIES: dict[str, CooldownPolicy] = {
    "unreachable": CooldownPolicy(1.0, 60.0, True, "the provider accepts no connections", shut=True),
    "failing": CooldownPolicy(5.0, 60.0, True, "the provider failed several times in a row"),
    "refused": CooldownPolicy(30.0, 600.0, True, "the provider rejected the credential or this model"),
    "limited": CooldownPolicy(1.0, 60.0, False, "the provider limits the request rate"),
}
# A provider may request a longer pause than `longest_s`, up to this limit.
MAX_RETRY_AFTER_S = 3600.0
# After this time without a failure of the probe, other requests follow: rejections arrive at once, and a slow response
# is no failure.
PROBE_TIMEOUT_S = 5.0
# Each attempt at an unreachable provider costs its caller the connection timeout, so only one attempt is made in this
# time.
RETRY_INTERVAL_S = 1.0
# Other workers learn of an attempt with a delay. The random addition prevents all workers from retrying at once.
GOSSIP_LAG_S = (0.8, 2.0)
# After this time without a failure, the next failure counts as the first.
RESET_AFTER_S = 600.0
CLEANUP_INTERVAL_S = 10.0
CAPACITY = 10_000
SEPARATORS = re.compile("[/:#]")  # every key begins with its provider's id


def ignore_change(key: str, kind: Kind | Literal[""], seconds: float, organization: str) -> None:
    """Do nothing: the default for `on_change`."""


class Cooldown(Struct):
    """One cooldown.

    `again` is when the next request may try, if the policy is `shut`; `organization` owns the key ("": the platform).
    """

    until: float
    trips: int
    kind: Kind
    probe_until: float = 0.0
    again: float = 0.0
    organization: str = ""


class Cooldowns:
    """Cooldowns by key, in seconds of the monotonic clock. The number is bounded; the oldest are dropped first.

    `providers` counts by provider the keys that may be cooling down; `watched` counts everything that a success ends,
    including entries of other objects.
    """

    def __init__(
        self,
        clock: Clock,
        watched: Counter[str] | None = None,
        on_change: OnCooldown | None = None,
    ) -> None:
        """`on_change` is called with each cooldown that this worker began or ended."""
        self._clock = clock
        self._on_change = on_change or ignore_change
        self._cooldowns: dict[str, Cooldown] = {}
        self._changed: set[str] = set()
        self._tidy_at = 0.0
        self._watched: Counter[str] = Counter() if watched is None else watched
        self.providers: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._cooldowns)

    def may_be_cooling(self, provider: str) -> bool:
        """Return whether anything of a provider may be cooling down: a cheap first check."""
        return provider in self.providers

    def trip(self, key: str, kind: Kind, retry_after_s: float | None = None, organization: str = "") -> None:
        """Start the cooldown of `key` after a failure, for at least `retry_after_s`.

        Failures during a cooldown do not extend it: they belong to requests that were already in progress.
        `organization` owns the key.
        """
        now = self._clock.monotonic()
        cooldown = self._cooldowns.get(key)
        policy = POLICIES[kind]
        strikes = 1
        if cooldown is not None and now < cooldown.until + RESET_AFTER_S:
            strikes = cooldown.trips if now < cooldown.until else cooldown.trips + 1
        length = min(policy.first_s * 2.0 ** min(strikes - 1, 16), policy.longest_s)
        retry_after_s = min(retry_after_s or 0.0, MAX_RETRY_AFTER_S)
        until = now + max(length, retry_after_s)
        if cooldown is not None and now < cooldown.until:
            until = max(cooldown.until, now + retry_after_s)
            kind = cooldown.kind
        # Earlier attempts may fail long after a later one began: they do not postpone the next attempt.
        again = cooldown.again if cooldown else now + RETRY_INTERVAL_S
        self._put(key, Cooldown(until, strikes, kind, again=again, organization=organization))
        self._changed.add(key)
        self._on_change(key, kind, until - now, organization)

    def clear(self, key: str) -> None:
        """Forget the failures of `key` after a success."""
        cooldown = self._cooldowns.get(key)
        if cooldown is not None:
            self._drop(key)
            self._changed.add(key)
            self._on_change(key, "", 0.0, cooldown.organization)

    def until(self, key: str, now: float) -> float:
        """Return when `key` is available again; 0.0 if it is now."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None:
            return 0.0
        if now < cooldown.until:
            return cooldown.until
        if now < cooldown.probe_until:
            return cooldown.probe_until
        return self.blocked_until(key, now)

    def blocked_until(self, key: str, now: float) -> float:
        """Return when the next request may try `key` at all; 0.0 if it may now."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None or not POLICIES[cooldown.kind].shut:
            return 0.0
        if now < cooldown.again:
            return cooldown.again
        return 0.0

    def active(self) -> dict[str, Kind]:
        """Return the keys that are cooling down now, with their kinds."""
        now = self._clock.monotonic()
        return {key: cooldown.kind for key, cooldown in self._cooldowns.items() if now < cooldown.until}

    def kind(self, key: str) -> str:
        cooldown = self._cooldowns.get(key)
        if cooldown:
            return cooldown.kind
        return ""

    def begin(self, key: str) -> None:
        """Note that a request is sent. After a cooldown it is the probe, and others wait a moment for its result."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None or not POLICIES[cooldown.kind].probe:
            return
        now = self._clock.monotonic()
        if cooldown.until <= now:
            cooldown.probe_until = now + PROBE_TIMEOUT_S
        if POLICIES[cooldown.kind].shut:
            cooldown.again = now + RETRY_INTERVAL_S
            self._changed.add(key)

    def remove_expired(self) -> None:
        """Remove cooldowns that ended long ago, so that their providers are planned on the fast path again; cheap to
        call.
        """
        now = self._clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + CLEANUP_INTERVAL_S
            self._forget(now)

    def export(self) -> list[list[Any]]:
        """Return the changes since the last export.

        Each row is [key, seconds left, strikes, kind ("" = works again), seconds until the next attempt].
        """
        now = self._clock.monotonic()
        changed = self._changed
        self._changed = set()
        rows = []
        for key in changed:
            cooldown = self._cooldowns.get(key)
            if cooldown is None:
                rows.append([key, 0, 0, "", 0])
                continue
            left_s, again_s = (round(max(0.0, at - now), 3) for at in (cooldown.until, cooldown.again))
            rows.append([key, left_s, cooldown.trips, cooldown.kind, again_s])
        return rows

    def absorb(self, key: str, left_s: float, strikes: int, kind: str, again_s: float = 0.0) -> None:
        """Merge the state that another worker exported; the longer cooldown applies."""
        if not kind:
            self._drop(key)
            return
        now = self._clock.monotonic()
        cooldown = self._cooldowns.get(key)
        again = now + min(again_s, RETRY_INTERVAL_S) + random.uniform(*GOSSIP_LAG_S)
        known = next((name for name in KINDS if name == kind), None)
        if known is not None and left_s > 0:
            until = now + min(left_s, MAX_RETRY_AFTER_S)
            if cooldown is None or cooldown.until < until:
                again_before = cooldown.again if cooldown else 0.0
                cooldown = Cooldown(until, max(1, strikes), known, again=again_before)
                self._put(key, cooldown)
        if cooldown is not None:
            cooldown.again = max(cooldown.again, again)

    def _put(self, key: str, cooldown: Cooldown) -> None:
        self._drop(key)
        if len(self._cooldowns) >= CAPACITY:
            self._purge()
        self._cooldowns[key] = cooldown
        for counts in (self.providers, self._watched):
            counts[provider_of(key)] += 1

    def _drop(self, key: str) -> bool:
        if self._cooldowns.pop(key, None) is None:
            return False
        for counts in (self.providers, self._watched):
            count_down(counts, provider_of(key))
        return True

    def _purge(self) -> None:
        self._forget(self._clock.monotonic())
        # Drop a tenth at once, so that a full table is not scanned for every new key.
        for key in list(self._cooldowns)[: max(0, len(self._cooldowns) - CAPACITY * 9 // 10)]:
            self._drop(key)

    def _forget(self, now: float) -> None:
        for key in [key for key, cooldown in self._cooldowns.items() if now >= cooldown.until + RESET_AFTER_S]:
            self._drop(key)


def count_down(counts: Counter[str], name: str) -> None:
    """Decrement a count and remove it at zero, because the presence of entries is checked."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def provider_of(key: str) -> str:
    """Return the provider of a key of any kind."""
    return SEPARATORS.split(key, maxsplit=1)[0]
