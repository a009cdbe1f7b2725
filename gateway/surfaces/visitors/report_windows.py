"""The time range of a report: from a named range, two dates or a number of days to its steps and their labels."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import DAY_US, HOUR_US, from_datetime, to_datetime
from gateway.errors import InvalidRequest
from gateway.metering.activity import Span
from gateway.metering.rollups.queries import Shifts, monday_of, week_of
from gateway.metering.rollups.rollup_table import HOURS

RANGES = {"1h": 1, "4h": 4, "24h": 24, "7d": 7, "30d": 30, "365d": 365}
DEFAULT_DAYS = 7
MAX_DAYS = 366
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
EPOCH = date(1970, 1, 1)
EARLIEST = date(2000, 1, 1)
LATEST = date(2999, 12, 31)


class ReportRange(Struct, frozen=True):
    """A span and the names of its hours or days in a time zone; `padding` are those that are shown even when empty.

    Usage is aggregated by UTC hours. In a zone with an offset of half an hour, such an hour counts to the local hour or
    day in which it begins, so that a range has the same total in every zone.
    """

    span: Span
    granularity: Literal["hourly", "daily"]
    zone: tzinfo
    padding: tuple[str, ...] = ()

    def label(self, step: int) -> str:
        """Return the label of a step: `YYYY-MM-DD`, the first day of a week, or `YYYY-MM-DDTHH:00:00` for hours."""
        if self.span.step == "week":
            step = monday_of(step)
        elif self.span.step == "hour":
            return _label(step * HOUR_US, self.zone)
        return (EPOCH + timedelta(days=step)).isoformat()

    def by_week(self) -> "ReportRange":
        """Return the same range by week, for one by day. Its first and last week may lie partly outside of it."""
        days = [(date.fromisoformat(label) - EPOCH).days for label in self.padding]
        weekly = replace(self, span=replace(self.span, step="week"))
        return replace(weekly, padding=tuple(dict.fromkeys(weekly.label(week_of(day)) for day in days)))

    def whole(self) -> "ReportRange":
        """Return the same range as one step."""
        return replace(self, span=replace(self.span, step="all"), padding=())

    def earlier(self, hours: int) -> "ReportRange":
        """Return the range that lies so many hours earlier, with the same steps; whole days for one by day. For UTC."""
        span = replace(self.span, first=self.span.first - hours, end=self.span.end - hours)
        if span.step == "hour":
            padding = tuple(_label(hour * HOUR_US, self.zone) for hour in range(span.first, span.end))
        else:
            shift = timedelta(hours=hours)
            padding = tuple((date.fromisoformat(label) - shift).isoformat() for label in self.padding)
        return replace(self, span=span, padding=padding)


def length_of(time_range: str) -> int:
    """Return the length of a named range in µs."""
    unit = HOUR_US if time_range.endswith("h") else DAY_US
    return RANGES[time_range] * unit


def read_window(given: Mapping[str, Any], now_us: int) -> ReportRange:
    """Return the window of `timeRange`, else of `first` and `last`, else of `days`, in days of the zone `timezone`.

    `first` alone extends to today; `last` alone ends the window of `days`. Raises InvalidRequest for an unknown zone,
    an invalid date, or more than 366 days.
    """
    zone = _read_zone(given.get("timezone", "UTC"))
    chosen = given.get("timeRange", "")
    if chosen.endswith("h"):
        return _hours(RANGES[chosen], zone, now_us)
    today = to_datetime(now_us).astimezone(zone).date()
    if chosen:
        return _days(today - timedelta(days=RANGES[chosen] - 1), today, zone, padded=True)
    last = _read_date(given["last"], "to") if "last" in given else today
    if "first" in given:
        return _days(_read_date(given["first"], "from"), last, zone, padded=True)
    return _days(last - timedelta(days=given.get("days", DEFAULT_DAYS) - 1), last, zone, padded="last" in given)


def _hours(count: int, zone: tzinfo, now_us: int) -> ReportRange:
    """Return the range from the clock hour that lies `count` hours back to the current one."""
    return hours_between((now_us - count * HOUR_US) // HOUR_US, now_us // HOUR_US + 1, zone)


def hours_between(first: int, end: int, zone: tzinfo = UTC) -> ReportRange:
    """Return the range of the hours [first, end) since the epoch."""
    padding = dict.fromkeys(_label(hour * HOUR_US, zone) for hour in range(first, end))
    return ReportRange(Span(first, end, "hour"), "hourly", zone, tuple(padding))


def _days(first: date, last: date, zone: tzinfo, *, padded: bool) -> ReportRange:
    count = (last - first).days + 1
    if count < 1:
        raise InvalidRequest(f"'from' ({first}) is later than 'to' ({last}).", param="from")
    if count > MAX_DAYS:
        raise InvalidRequest(f"A report covers at most {MAX_DAYS} days; {first} to {last} are {count}.", param="from")
    begin, end = (-(-_midnight(day, zone) // HOUR_US) for day in (first, last + timedelta(days=1)))
    padding = tuple((first + timedelta(days=i)).isoformat() for i in range(count)) if padded else ()
    shifts = () if zone is UTC else _offset_changes(begin, end, zone)
    return ReportRange(Span(begin, end, "day", shifts), "daily", zone, padding)


def _offset_changes(first: int, end: int, zone: tzinfo) -> Shifts:
    """Return, for the hours [first, end), from which hour on the zone is how many minutes ahead of UTC."""
    changes = [(first, _minutes_ahead(first, zone))]
    for day in range(first, end, HOURS):
        last = min(day + HOURS, end) - 1
        # Only days with a clock change are examined hour by hour.
        if last > first and _minutes_ahead(last, zone) != changes[-1][1]:
            for hour in range(day, last + 1):
                minutes = _minutes_ahead(hour, zone)
                if minutes != changes[-1][1]:
                    changes.append((hour, minutes))
    return tuple(changes)


def _minutes_ahead(hour: int, zone: tzinfo) -> int:
    ahead = to_datetime(hour * HOUR_US).astimezone(zone).utcoffset() or timedelta()
    return ahead // timedelta(minutes=1)


def _label(at_us: int, zone: tzinfo) -> str:
    return to_datetime(at_us).astimezone(zone).strftime("%Y-%m-%dT%H:00:00")


def _midnight(day: date, zone: tzinfo) -> int:
    return from_datetime(datetime.combine(day, time(), zone))


def _read_date(text: str, param: str) -> date:
    try:
        day = date.fromisoformat(text) if DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or not EARLIEST <= day <= LATEST:
        raise InvalidRequest(f"{text!r} is not a date such as 2027-01-31.", param=param)
    return day


def _read_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(f"{name!r} is not a time zone such as Europe/Berlin.", param="timezone") from None
