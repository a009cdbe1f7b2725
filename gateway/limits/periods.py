"""Periods of limits: rolling ones (12h, 1d, 2w, 1mo), and those of a calendar (month@Europe/Berlin)."""

import calendar
import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from gateway.clock import SECOND_US, from_datetime, to_datetime
from gateway.errors import InvalidRequest

# Unit → (its letters, its maximum).
UNITS = {"hour": ("h", 8760), "day": ("d", 365), "week": ("w", 52), "month": ("mo", 12)}
LETTERS = {letters: unit for unit, (letters, _) in UNITS.items()}
SECONDS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
AMOUNT_FIELD = "periodUsageDurationValue"
UNIT_FIELD = "periodUsageDurationUnit"
ZONE_FIELD = "periodTimezone"
LONGEST_US = 367 * 86_400 * SECOND_US
PATTERN = re.compile(r"(\d{1,5})(h|d|w|mo)", re.ASCII)
CALENDAR = re.compile(r"(day|week|month)@([A-Za-z0-9_+/-]{1,50})")
CALENDAR_UNITS = ("day", "week", "month")


class Period(Struct, frozen=True):
    """An amount of units; `str()` returns the text that `read_period` accepts. With a time `zone` it is one day, week
    (from Monday) or month of the calendar there, else it rolls: it begins with the first use."""

    amount: int
    unit: str
    zone: str = ""

    def __str__(self) -> str:
        if self.zone:
            return f"{self.unit}@{self.zone}"
        return f"{self.amount}{UNITS[self.unit][0]}"

    def end(self, start_us: int) -> int:
        """Return when a window that began at `start_us` ends: a month later is the same day of the month, or its last
        day. A calendar period ends at midnight in its zone."""
        if self.zone:
            return _calendar_end(start_us, self.unit, self.zone)
        if self.unit != "month":
            return start_us + self.amount * SECONDS[self.unit] * SECOND_US
        start = to_datetime(start_us)
        year, month = divmod(start.year * 12 + start.month - 1 + self.amount, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return from_datetime(start.replace(year=year, month=month + 1, day=min(start.day, last)))

    def earliest_start(self, now_us: int) -> int:
        """Return the earliest start of a window that is still running; for months, hours around it at their ends."""
        low, high = now_us - LONGEST_US, now_us
        while low < high:  # a window that begins later ends no earlier
            middle = (low + high) // 2
            if self.end(middle) > now_us:
                high = middle
            else:
                low = middle + 1
        return low

    def is_as_long_as(self, other: "Period") -> bool:
        """Return whether windows of both end at the same time: 24h and 1d."""
        if self.zone or other.zone:
            return self == other
        return self == other or (self.span() is not None and self.span() == other.span())

    def describe(self) -> str:
        """Return the period for people: "each day (UTC)", "per 12 hours"."""
        if self.zone:
            return f"each {self.unit} ({self.zone})"
        return f"per {self.unit}" if self.amount == 1 else f"per {self.amount} {self.unit}s"

    def span(self) -> timedelta | None:
        """Return the length; None for months, because their lengths differ."""
        if self.unit == "month":
            return None
        return timedelta(seconds=self.amount * SECONDS[self.unit])


def _calendar_end(start_us: int, unit: str, zone: str) -> int:
    place = find_zone(zone)
    day = datetime.fromtimestamp(start_us / SECOND_US, place).date()
    if unit == "day":
        after = day + timedelta(days=1)
    elif unit == "week":
        after = day + timedelta(days=7 - day.weekday())
    else:
        after = date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return from_datetime(datetime(after.year, after.month, after.day, tzinfo=place))


@lru_cache(maxsize=64)
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone such as Europe/Berlin. InvalidRequest."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # an unknown name is a KeyError
        text = f"{name!r} is no time zone; use a name such as Europe/Berlin or UTC."
        raise InvalidRequest(text, param=ZONE_FIELD) from None


def make_calendar_period(amount: int, unit: str, zone: str) -> Period:
    """Return a day, week or month of the calendar in a time zone. InvalidRequest."""
    if amount != 1 or unit not in CALENDAR_UNITS:
        raise InvalidRequest("A period with a time zone is 1 day, 1 week or 1 month.", param=AMOUNT_FIELD)
    find_zone(zone)
    return Period(1, unit, zone)


def make_period(amount: int, unit: str) -> Period:
    """Return a validated period. InvalidRequest for an unknown unit, or outside 1–8760 hours, 1–365 days, 1–52 weeks,
    1–12 months."""
    if unit not in UNITS:
        raise InvalidRequest(f"Unknown period unit {unit!r}: use hour, day, week or month.", param=UNIT_FIELD)
    maximum = UNITS[unit][1]
    if not 1 <= amount <= maximum:
        raise InvalidRequest(f"A period must be 1 to {maximum} {unit}s long, not {amount}.", param=AMOUNT_FIELD)
    return Period(amount, unit)


def read_period(text: str) -> Period:
    """Parse a period written as 12h, 1d, 2w, 1mo or month@Europe/Berlin. InvalidRequest."""
    if found := CALENDAR.fullmatch(text.strip()):
        return make_calendar_period(1, found[1], found[2])
    match = PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidRequest(f"{text!r} is not a period: write it like 12h, 1d, 2w or 1mo.")
    return make_period(int(match[1]), LETTERS[match[2]])


def join_period(text: str | None, zone: str | None) -> str:
    """Return the period of a length, or of day, week or month with a time zone (UTC without one), as limits store it;
    "" without a length. InvalidRequest."""
    if text is None:
        if zone is not None:
            raise InvalidRequest("A time zone needs a period: day, week or month.", param="timezone")
        return ""
    if text in CALENDAR_UNITS:
        find_zone(zone or "UTC")
        return f"{text}@{zone or 'UTC'}"
    if zone is not None:
        raise InvalidRequest("A period with a time zone is day, week or month.", param="period")
    return text
