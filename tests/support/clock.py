from datetime import UTC, datetime

from gateway.clock import SECOND_US, Clock


class FakeClock(Clock):
    """A clock that runs like the real clock; `advance` moves it forward, `freeze` stops it, `set` sets the wall
    time."""

    def __init__(self) -> None:
        self._ahead_us = 0
        self._wall_us = 0
        self._frozen: tuple[int, float] | None = None

    def now_us(self) -> int:
        base = self._frozen[0] if self._frozen else super().now_us()
        return base + self._ahead_us + self._wall_us

    def monotonic(self) -> float:
        base = self._frozen[1] if self._frozen else super().monotonic()
        return base + self._ahead_us / SECOND_US

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_us() / SECOND_US, UTC)

    def advance(self, seconds: float) -> None:
        self._ahead_us += round(seconds * SECOND_US)

    def freeze(self) -> None:
        self._frozen = (Clock.now_us(self), Clock.monotonic())

    def set(self, at_us: int) -> None:
        """Set the wall time to `at_us` without moving the monotonic clock."""
        self._wall_us += at_us - self.now_us()
