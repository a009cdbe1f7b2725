"""Provider refusals that one caller may have caused: counted until several callers met them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.routing.cooldowns import count_down, provider_of

# Requests of so many organizations, or so many of one in a row, without one success between.
ORGANIZATIONS = 2
IN_A_ROW = 3
FORGET_S = 600.0
CAPACITY = 2_000


@dataclass(slots=True)
class Seen:
    count: int
    at: float


class Refusals:
    """By key of what refused: how often requests of each organization were refused since the last success there.

    `watched` counts by provider what a success ends. Bounded; the oldest go first.
    """

    def __init__(self, clock: Clock, watched: Counter[str]) -> None:
        self._clock = clock
        self._watched = watched
        self._seen: dict[str, dict[str, Seen]] = {}
        self._changed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._seen)

    def note(self, key: str, organization: str) -> None:
        """One more request of `organization` was refused at `key`."""
        one = self._find(key).setdefault(organization, Seen(0, 0.0))
        now = self._clock.monotonic()
        if now < one.at + FORGET_S:
            one.count = one.count + 1
        else:
            one.count = 1
        one.at = now
        self._changed.add(key)

    def met_by_several(self, key: str) -> bool:
        """Whether requests of several organizations were refused."""
        return len(self._fresh(key)) >= ORGANIZATIONS

    def met_again(self, key: str, organization: str) -> bool:
        """Whether several requests of `organization` in a row were refused."""
        one = self._fresh(key).get(organization)
        return one is not None and one.count >= IN_A_ROW

    def clear(self, key: str) -> Iterator[str]:
        """It works: forget its refusals; the organizations that had met them."""
        gone = self._drop(key)
        if gone:
            self._changed.add(key)
        return iter(gone)

    def export(self) -> list[list]:
        """Changes since the last export: [key, organization, in a row]; no organization where it works again."""
        changed = self._changed
        self._changed = set()
        rows = []
        for key in changed:
            seen = self._seen.get(key)
            rows += [[key, name, one.count] for name, one in seen.items()] if seen else [[key, "", 0]]
        return rows

    def absorb(self, key: str, organization: str, count: int) -> None:
        """Take over what another worker counted."""
        if not count:
            self._drop(key)
            return
        one = self._find(key).setdefault(organization, Seen(0, 0.0))
        one.count, one.at = max(one.count, int(count)), self._clock.monotonic()

    def _fresh(self, key: str) -> dict[str, Seen]:
        since = self._clock.monotonic() - FORGET_S
        return {name: one for name, one in self._seen.get(key, {}).items() if one.at > since}

    def _find(self, key: str) -> dict[str, Seen]:
        seen = self._seen.get(key)
        if seen is None:
            while len(self._seen) >= CAPACITY:
                self._drop(next(iter(self._seen)))
            seen = self._seen[key] = {}
            self._watched[provider_of(key)] += 1
        # Two decide, so more than a few tell nothing new.
        while len(seen) > ORGANIZATIONS:
            del seen[next(iter(seen))]
        return seen

    def _drop(self, key: str) -> dict[str, Seen]:
        gone = self._seen.pop(key, None)
        if gone is None:
            return {}
        count_down(self._watched, provider_of(key))
        return gone
