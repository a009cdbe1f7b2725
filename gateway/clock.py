"""The only source of wall-clock and monotonic time; tests replace it with another Clock."""

import time
from datetime import UTC, datetime

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US


class Clock:
    """Reads the time: integer microseconds since the epoch (UTC); durations use `monotonic()` seconds."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    # The function itself, without a method around it, because each request calls it about a dozen times.
    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)


def to_iso(at_us: int) -> str:
    """Format microseconds as ISO 8601 in UTC with milliseconds, e.g. 2026-01-15T08:30:00.000Z."""
    seconds, micro = divmod(at_us, SECOND_US)
    stamp = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()  # strftime writes the year 177 so
    return f"{stamp}.{micro // 1000:03d}Z"


def from_datetime(moment: datetime) -> int:
    """Convert an aware datetime to microseconds since the epoch."""
    whole = moment.astimezone(UTC)
    return int(whole.timestamp()) * SECOND_US + whole.microsecond


def to_datetime(at_us: int) -> datetime:
    seconds, micro = divmod(at_us, SECOND_US)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micro)
