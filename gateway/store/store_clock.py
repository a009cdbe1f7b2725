"""The store's clock as a Clock: what several nodes agree on, where their own clocks may differ by hours."""

from gateway.clock import Clock
from gateway.store.database import Database


class StoreClock(Clock):
    """Wall time as the store has it; `now_us` raises Unavailable without it. Durations are those of `clock`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.monotonic = clock.monotonic

    def now_us(self) -> int:
        return self._database.now_us()
