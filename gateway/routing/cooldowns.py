"""Cooldowns: what failed is tried last for a while, longer each time; then one request probes it before all return."""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from gateway.clock import Clock

Kind = Literal["unreachable", "failing", "refused", "limited"]
# Called with the key, the kind ("" at the end), its seconds, and the organization that owns the key ("": none does).
OnCooldown = Callable[[str, Kind | Literal[""], float, str], None]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """`first_s` doubles with each failure after a cooldown, up to `longest_s`. `probe`: after the cooldown one request
    goes ahead alone. `shut`: during the cooldown at most one request in RETRY_S may try at all."""

    first_s: float
    longest_s: float
    probe: bool
    text: str
    shut: bool = False


POLICIES: dict[str, CooldownPolicy] = {
    "unreachable": CooldownPolicy(1.0, 60.0, True, "nothing answers there", shut=True),
    "failing": CooldownPolicy(5.0, 60.0, True, "it failed several times in a row"),
    "refused": CooldownPolicy(30.0, 600.0, True, "it refused our credential or this model"),
    "limited": CooldownPolicy(1.0, 60.0, False, "it limits our rate"),
}
# A provider may ask for more than `longest_s`, but not for ever.
LONGEST_RETRY_AFTER_S = 3600.0
# A probe that has not failed by now lets the others follow: refusals show at once, slow answers are no failure.
PROBE_S = 5.0
# Where nothing answers every try costs its caller the wait for a connection, so only one in so many seconds is made.
RETRY_S = 1.0
# What another worker tried is known here a moment later: it goes on trying; when it does not, not all begin at once.
LAG_S = (0.8, 2.0)
# After this much peace a failure counts as the first again.
FORGET_S = 600.0
TIDY_S = 10.0
CAPACITY = 10_000
SEPARATORS = re.compile("[/:#]")  # every key begins with its provider's id


@dataclass(slots=True)
class Cooldown:
    """`again`: when the next request may try, where the policy is `shut`; `organization` owns what cools down ("": the
    platform does)."""

    until: float
    trips: int
    kind: Kind
    probe_until: float = 0.0
    again: float = 0.0
    organization: str = ""


class Cooldowns:
    """Cooldowns by key, in seconds of the monotonic clock. Bounded; the oldest go first.

    `providers` counts by provider what may cool down there; `watched` all that a success ends, of others too.
    """

    def __init__(
        self,
        clock: Clock,
        watched: Counter[str] | None = None,
        on_change: OnCooldown = lambda *change: None,
    ) -> None:
        """`on_change` is called with each cooldown that this worker began or ended itself."""
        self._clock = clock
        self._on_change = on_change
        self._cooldowns: dict[str, Cooldown] = {}
        self._changed: set[str] = set()
        self._tidy_at = 0.0
        self._watched: Counter[str] = Counter() if watched is None else watched
        self.providers: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._cooldowns)

    def concern(self, provider: str) -> bool:
        """Whether anything of a provider may be cooling down: a cheap first check."""
        return provider in self.providers

    def trip(self, key: str, kind: Kind, retry_after_s: float | None = None, organization: str = "") -> None:
        """Start the cooldown of `key` after a failure, for at least `retry_after_s`. Failures during a cooldown
        do not lengthen it: they are of requests that were in progress already. `organization` owns the key."""
        now = self._clock.monotonic()
        cooldown = self._cooldowns.get(key)
        policy = POLICIES[kind]
        strikes = 1
        if cooldown is not None and now < cooldown.until + FORGET_S:
            if now < cooldown.until:
                strikes = cooldown.trips
            else:
                strikes = cooldown.trips + 1
        length = min(policy.first_s * 2.0 ** min(strikes - 1, 16), policy.longest_s)
        retry_after_s = min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
        until = now + max(length, retry_after_s)
        if cooldown is not None and now < cooldown.until:
            until = max(cooldown.until, now + retry_after_s)
            kind = cooldown.kind
        # Earlier tries may fail long after a later one began: they do not put off the next.
        if cooldown:
            again = cooldown.again
        else:
            again = now + RETRY_S
        self._put(key, Cooldown(until, strikes, kind, again=again, organization=organization))
        self._changed.add(key)
        self._on_change(key, kind, until - now, organization)

    def clear(self, key: str) -> None:
        """`key` works: forget its failures."""
        cooldown = self._cooldowns.get(key)
        if cooldown is not None:
            self._drop(key)
            self._changed.add(key)
            self._on_change(key, "", 0.0, cooldown.organization)

    def until(self, key: str, now: float) -> float:
        """When `key` has its turn again: 0.0 for at once."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None:
            return 0.0
        if now < cooldown.until:
            return cooldown.until
        if now < cooldown.probe_until:
            return cooldown.probe_until
        return self.shut_until(key, now)

    def shut_until(self, key: str, now: float) -> float:
        """When the next request may try `key` at all: 0.0 for at once."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None or not POLICIES[cooldown.kind].shut:
            return 0.0
        if now < cooldown.again:
            return cooldown.again
        return 0.0

    def active(self) -> dict[str, Kind]:
        """What is cooling down now, and why."""
        now = self._clock.monotonic()
        return {key: cooldown.kind for key, cooldown in self._cooldowns.items() if now < cooldown.until}

    def kind(self, key: str) -> str:
        cooldown = self._cooldowns.get(key)
        if cooldown:
            return cooldown.kind
        return ""

    def begin(self, key: str) -> None:
        """A request goes there now. After a cooldown it is the probe, and the others wait a moment for its outcome."""
        cooldown = self._cooldowns.get(key)
        if cooldown is None or not POLICIES[cooldown.kind].probe:
            return
        now = self._clock.monotonic()
        if cooldown.until <= now:
            cooldown.probe_until = now + PROBE_S
        if POLICIES[cooldown.kind].shut:
            cooldown.again = now + RETRY_S
            self._changed.add(key)

    def tidy(self) -> None:
        """Forget cooldowns that ended long ago, so that their providers are planned on the fast path again; cheap to
        call."""
        now = self._clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_S
            self._forget(now)

    def export(self) -> list[list]:
        """Changes since the last export: [key, seconds left, strikes, kind ("" = works again), seconds until the next
        may try]."""
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
        """Take over what another worker found; the longer cooldown holds."""
        if not kind:
            self._drop(key)
            return
        now = self._clock.monotonic()
        cooldown = self._cooldowns.get(key)
        again = now + min(again_s, RETRY_S) + random.uniform(*LAG_S)
        known = next((one for one in KINDS if one == kind), None)
        if known is not None and left_s > 0:
            until = now + min(left_s, LONGEST_RETRY_AFTER_S)
            if cooldown is None or cooldown.until < until:
                cooldown = Cooldown(until, max(1, strikes), known, again=cooldown.again if cooldown else 0.0)
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
        # A tenth at a time, so that a full table is not searched for every new key.
        for key in list(self._cooldowns)[: max(0, len(self._cooldowns) - CAPACITY * 9 // 10)]:
            self._drop(key)

    def _forget(self, now: float) -> None:
        for key in [key for key, cooldown in self._cooldowns.items() if now >= cooldown.until + FORGET_S]:
            self._drop(key)


def count_down(counts: Counter[str], name: str) -> None:
    """One less, and no entry for none: it is asked whether there are any at all."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def provider_of(key: str) -> str:
    """The provider that a key of any kind belongs to."""
    return SEPARATORS.split(key, maxsplit=1)[0]
