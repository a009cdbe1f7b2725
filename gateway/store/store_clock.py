"""The store's clock as a Clock: a time that several nodes agree on, while their own clocks may differ by hours."""

from gateway.clock import Clock
from gateway.store.database import Database


class StoreClock(Clock):
    """Wall time of the store; `now_us` raises Unavailable without it. Durations are those of `clock`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.monotonic = clock.monotonic

    def now_us(self) -> int:
        return self._database.now_us()
