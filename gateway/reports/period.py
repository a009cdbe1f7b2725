"""The days of a report: parsing, defaults and bounds."""

import re
from datetime import date, timedelta

from msgspec import Struct

from gateway.clock import to_datetime
from gateway.errors import InvalidRequest
from gateway.metering.activity import Span
from gateway.metering.rollups.rollup_table import HOURS

MAX_DAYS = 366
MAX_HOURLY_DAYS = 31
DEFAULT_DAYS = 30
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
EPOCH = date(1970, 1, 1)


class ReportDays(Struct, frozen=True):
    """Days in UTC, both inclusive."""

    first: date
    last: date

    def span(self, step: str) -> Span:
        """Return the hours of the period in buckets: "hour", "day", or any other value for one sum."""
        begin, end = ((day - EPOCH).days * HOURS for day in (self.first, self.last + timedelta(days=1)))
        if step == "hour":
            return Span(begin, end, "hour")
        if step == "day":
            return Span(begin, end, "day")
        return Span(begin, end, "all")


def read_period(from_date: str | None, to_date: str | None, now_us: int, granularity: str = "day") -> ReportDays:
    """Return the period of two dates, both optional. InvalidRequest describes an invalid period."""
    if to_date is None:
        last = to_datetime(now_us).date()
    else:
        last = _read(to_date, "to")
    if from_date is None:
        first = last - timedelta(days=DEFAULT_DAYS - 1)
    else:
        first = _read(from_date, "from")
    if granularity == "hour":
        maximum = MAX_HOURLY_DAYS
    else:
        maximum = MAX_DAYS
    count = (last - first).days + 1
    if count < 1:
        raise InvalidRequest(f"from ({first}) is later than to ({last}).", param="from")
    if count > maximum:
        raise InvalidRequest(
            f"A report by {granularity} covers at most {maximum} days; {first} to {last} are {count}.", param="from"
        )
    return ReportDays(first, last)


def _read(text: str, name: str) -> date:
    try:
        if isinstance(text, str) and DATE.fullmatch(text):
            day = date.fromisoformat(text)
        else:
            day = None
    except ValueError:
        day = None
    if day is None or day.year < 2000:
        raise InvalidRequest(f"{name} must be a date such as 2027-01-31.", param=name)
    return day
