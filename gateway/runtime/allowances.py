"""Token buckets of owners: a burst, then a rate per second, for work and rows that cost their owner nothing."""

from collections.abc import Callable

MAX_OWNERS = 4096


class Allowance:
    """A token bucket: a burst, then a rate per second."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, at: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._at = at

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Take `amount` at `now` (monotonic seconds); return whether there was as much."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


class Allowances:
    """An Allowance for each owner, and one for all owners of the worker together. The owners that were quiet for the
    longest are forgotten first, and begin with a full burst again."""

    def __init__(
        self, burst: float, rate: float, all_burst: float, all_rate: float, monotonic: Callable[[], float]
    ) -> None:
        self._burst = burst
        self._rate = rate
        self._monotonic = monotonic
        self._all = Allowance(all_burst, all_rate, monotonic())
        self._owners: dict[bytes | str, Allowance] = {}

    def take(self, owner: bytes | str, amount: float = 1.0) -> bool:
        """Take `amount` for `owner` from both; return whether there was as much in both."""
        now = self._monotonic()
        own = self._owners.pop(owner, None)
        if own is None:
            if len(self._owners) >= MAX_OWNERS:
                self._owners.pop(next(iter(self._owners)))
            own = Allowance(self._burst, self._rate, now)
        self._owners[owner] = own
        return own.take(now, amount) and self._all.take(now, amount)
