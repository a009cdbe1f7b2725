"""The times by which a query sums up hours: hours, days, weeks from Monday, or all of them. Days and weeks are those of
UTC or of a time zone."""

from collections.abc import Callable
from typing import Literal

from gateway.metering.rollups.rollup_table import HOURS

Bucket = Literal["hour", "day", "week", "all"]
# Pairs of the first hour and the minutes by which the clock of a time zone is ahead from then on.
Shifts = tuple[tuple[int, int], ...]

DAY_MINUTES = HOURS * 60
WEEK_DAYS = 7
FIRST_WEEKDAY = 3  # of the epoch, a Thursday; Monday is 0


def _divide(number: str, divisor: int) -> str:
    return f"({number}) / {divisor}"


def bucket_sql(
    bucket: Bucket, minutes: int | None, hour: str = "hour", divide: Callable[[str, int], str] = _divide
) -> str:
    """Return the SQL for the number of an hour's bucket since the epoch, 0 for "all". `minutes` is the offset of the
    time zone, None for UTC; `hour` is the SQL of the hour, `divide` that of an integer division."""
    if bucket == "all":
        return "0"
    if bucket == "hour":
        return hour
    if minutes is None:
        day = divide(hour, HOURS)
    else:
        day = divide(f"{hour} * 60 + {minutes}", DAY_MINUTES)
    if bucket == "day":
        return day
    return divide(f"{day} + {FIRST_WEEKDAY}", WEEK_DAYS)


def week_of(day: int) -> int:
    """Return the number of the week of a day."""
    return (day + FIRST_WEEKDAY) // WEEK_DAYS


def monday_of(week: int) -> int:
    """Return the first day of a week."""
    return week * WEEK_DAYS - FIRST_WEEKDAY
