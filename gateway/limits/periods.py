"""Lengths of rolling windows: 12h, 1d, 2w, 1mo. Pure calendar arithmetic in UTC."""

import calendar
import re
from dataclasses import dataclass
from datetime import timedelta

from gateway.clock import SECOND_US, from_datetime, to_datetime
from gateway.errors import InvalidRequest

# Unit → (its letters, its maximum).
UNITS = {"hour": ("h", 8760), "day": ("d", 365), "week": ("w", 52), "month": ("mo", 12)}
LETTERS = {letters: unit for unit, (letters, _) in UNITS.items()}
SECONDS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
AMOUNT_FIELD = "periodUsageDurationValue"
UNIT_FIELD = "periodUsageDurationUnit"
PATTERN = re.compile(r"(\d{1,5})(h|d|w|mo)")


@dataclass(frozen=True, slots=True)
class Period:
    """An amount of units; `str()` returns the text that `read_period` accepts."""

    amount: int
    unit: str

    def __str__(self) -> str:
        return f"{self.amount}{UNITS[self.unit][0]}"

    def end(self, start_us: int) -> int:
        """Return when a window that began at `start_us` ends: a month later is the same day of the month, or its last
        day."""
        if self.unit != "month":
            return start_us + self.amount * SECONDS[self.unit] * SECOND_US
        start = to_datetime(start_us)
        year, month = divmod(start.year * 12 + start.month - 1 + self.amount, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return from_datetime(start.replace(year=year, month=month + 1, day=min(start.day, last)))

    def span(self) -> timedelta | None:
        """Return the length; None for months, because their lengths differ."""
        if self.unit == "month":
            return None
        return timedelta(seconds=self.amount * SECONDS[self.unit])


def make_period(amount: int, unit: str) -> Period:
    """Return a validated period. InvalidRequest for an unknown unit, or outside 1–8760 hours, 1–365 days, 1–52 weeks,
    1–12 months."""
    if unit not in UNITS:
        raise InvalidRequest(f"Unknown period unit {unit!r}: use hour, day, week or month.", param=UNIT_FIELD)
    most = UNITS[unit][1]
    if not 1 <= amount <= most:
        raise InvalidRequest(f"A period must be 1 to {most} {unit}s long, not {amount}.", param=AMOUNT_FIELD)
    return Period(amount, unit)


def read_period(text: str) -> Period:
    """Parse a period written as 12h, 1d, 2w or 1mo. InvalidRequest."""
    match = PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidRequest(f"{text!r} is not a period: write it like 12h, 1d, 2w or 1mo.")
    return make_period(int(match[1]), LETTERS[match[2]])
