"""Provider rejections that one caller may have caused: counted until several callers have had them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from gateway.clock import Clock
from gateway.routing.cooldowns import count_down, provider_of

# Thresholds without a success in between: requests of this number of organizations, or consecutive requests of one.
ORGANIZATIONS = 2
CONSECUTIVE_REFUSALS = 3
RESET_AFTER_S = 600.0
CAPACITY = 2_000


class RefusalCount(Struct):
    count: int
    at: float


class Refusals:
    """Rejected requests of each organization since the last success, by key of the rejecting credential.

    `watched` counts by provider what a success ends. The number is bounded; the oldest are dropped first.
    """

    def __init__(self, clock: Clock, watched: Counter[str]) -> None:
        self._clock = clock
        self._watched = watched
        self._seen: dict[str, dict[str, RefusalCount]] = {}
        self._changed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._seen)

    def note(self, key: str, organization: str) -> None:
        """Count one more rejected request of `organization` at `key`."""
        seen = self._find(key).setdefault(organization, RefusalCount(0, 0.0))
        now = self._clock.monotonic()
        if now < seen.at + RESET_AFTER_S:
            seen.count = seen.count + 1
        else:
            seen.count = 1
        seen.at = now
        self._changed.add(key)

    def met_by_several(self, key: str) -> bool:
        """Return whether requests of several organizations were rejected."""
        return len(self._fresh(key)) >= ORGANIZATIONS

    def met_again(self, key: str, organization: str) -> bool:
        """Return whether several consecutive requests of `organization` were rejected."""
        seen = self._fresh(key).get(organization)
        return seen is not None and seen.count >= CONSECUTIVE_REFUSALS

    def clear(self, key: str) -> Iterator[str]:
        """Forget the rejections of `key` after a success, and return the organizations that had them."""
        removed = self._drop(key)
        if removed:
            self._changed.add(key)
        return iter(removed)

    def export(self) -> list[list[Any]]:
        """Return the changes since the last export.

        Each row is [key, organization, consecutive rejections]; the organization is "" after a success.
        """
        changed = self._changed
        self._changed = set()
        rows = []
        for key in changed:
            by_organization = self._seen.get(key)
            if by_organization:
                rows += [[key, name, seen.count] for name, seen in by_organization.items()]
            else:
                rows.append([key, "", 0])
        return rows

    def absorb(self, key: str, organization: str, count: int) -> None:
        """Merge the counts of another worker."""
        if not count:
            self._drop(key)
            return
        seen = self._find(key).setdefault(organization, RefusalCount(0, 0.0))
        seen.count, seen.at = max(seen.count, int(count)), self._clock.monotonic()

    def _fresh(self, key: str) -> dict[str, RefusalCount]:
        since = self._clock.monotonic() - RESET_AFTER_S
        return {name: seen for name, seen in self._seen.get(key, {}).items() if seen.at > since}

    def _find(self, key: str) -> dict[str, RefusalCount]:
        seen = self._seen.get(key)
        if seen is None:
            while len(self._seen) >= CAPACITY:
                self._drop(next(iter(self._seen)))
            seen = self._seen[key] = {}
            self._watched[provider_of(key)] += 1
        # Two entries decide; further ones add no information.
        while len(seen) > ORGANIZATIONS:
            del seen[next(iter(seen))]
        return seen

    def _drop(self, key: str) -> dict[str, RefusalCount]:
        removed = self._seen.pop(key, None)
        if removed is None:
            return {}
        count_down(self._watched, provider_of(key))
        return removed
