"""Rounds of recurring work for several owners, and the clock that all nodes share."""

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.clock import Clock
from gateway.runtime.loop_turns import ShouldContinue
from gateway.runtime.threads import Job
from gateway.store.database import Database

# The store's clock as a Clock: a time that several nodes agree on, while their own clocks may differ by hours.


class StoreClock(Clock):
    """Wall time of the store; `now_us` raises Unavailable without it. Durations are those of `clock`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.monotonic = clock.monotonic

    def now_us(self) -> int:
        return self._database.now_us()


# Recurring work for several owners, where slow providers or URLs of one owner must not delay the others.

# Unfinished work continues in parallel with the next rounds.
ROUND_TIMEOUT_S = 1.0


class Rounds:
    """Starts due work, at most `of_one` items of an owner and `of_all` in total at a time."""

    def __init__(self, of_one: int, of_all: int, clock: Clock) -> None:
        self.of_one = of_one
        self.of_all = of_all
        self._clock = clock
        self._under_way: list[tuple[str, Job[None]]] = []

    def run(self, due: Iterable[tuple[str, Callable[[], None]]], should_continue: ShouldContinue) -> None:
        """Run one round of work items by owner, the most urgent first. Items above the limits are left out; items
        handle their own errors."""
        self._under_way = [(owner, job) for owner, job in self._under_way if not job.is_over]
        owners = Counter(owner for owner, _ in self._under_way)
        for owner, work in due:
            if len(self._under_way) >= self.of_all or not should_continue():
                break
            if owners[owner] < self.of_one:
                owners[owner] += 1
                self._under_way.append((owner, Job(work)))
        self._wait()

    def _wait(self) -> None:
        end = self._clock.monotonic() + ROUND_TIMEOUT_S
        for _, job in self._under_way:
            try:
                job.result(max(0.0, end - self._clock.monotonic()))
            except TimeoutError:
                return
