"""Recurring work at what others own, none of whom may delay the rest: providers and addresses that never answer."""

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.clock import Clock
from gateway.runtime.threads import Job

# Whatever is not done by then goes on beside the next rounds.
WAIT_S = 1.0


class Rounds:
    """Begins what is due, at most `of_one` works of an owner and `of_all` together at a time."""

    def __init__(self, of_one: int, of_all: int, clock: Clock) -> None:
        self.of_one = of_one
        self.of_all = of_all
        self._clock = clock
        self._under_way: list[tuple[str, Job[None]]] = []

    def run(self, due: Iterable[tuple[str, Callable[[], None]]], go_on: Callable[[], bool]) -> None:
        """One round: works by their owners, the most urgent first. Whatever finds no place is left out; works handle
        their own errors."""
        self._under_way = [one for one in self._under_way if not one[1].is_over]
        owners = Counter(owner for owner, _ in self._under_way)
        for owner, work in due:
            if len(self._under_way) >= self.of_all or not go_on():
                break
            if owners[owner] < self.of_one:
                owners[owner] += 1
                self._under_way.append((owner, Job(work)))
        self._wait()

    def _wait(self) -> None:
        end = self._clock.monotonic() + WAIT_S
        for _, job in self._under_way:
            try:
                job.result(max(0.0, end - self._clock.monotonic()))
            except TimeoutError:
                return
