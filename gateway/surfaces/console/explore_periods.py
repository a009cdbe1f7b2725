"""The period of Explore, and the periods with which it is compared."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from gateway.clock import HOUR_US, from_datetime, to_datetime
from gateway.metering.rollups.rollup_table import HOURS
from gateway.surfaces.visitors.report_windows import (
    DEFAULT_DAYS,
    EARLIEST,
    MAX_DAYS,
    ReportRange,
    hours_between,
    read_window,
)
from gateway.surfaces.visitors.usage_report import ActivityQuery
from gateway.surfaces.visitors.validation_schemas import read_fields

# The period: a number of hours or days until now, or the days or hours between two times.

CUSTOM = "custom"
# Value of the field → its label; the first is the default.
RANGES = {
    "7d": "7 days",
    "1h": "1 hour",
    "24h": "24 hours",
    "30d": "30 days",
    "365d": "1 year",
    CUSTOM: "Custom",
}
HOUR_LENGTH = len("2026-01-31T14")
MAX_HOURS = 7 * HOURS
MAX_BARS = 100  # a plot of more days has a bar for each week
WEEK_HOURS = 7 * HOURS


class UsagePeriod(NamedTuple):
    """A period. `report` are the parameters of the usage report. `first` and `last` are the days or hours of a period
    between two times."""

    name: str
    label: str
    window: ReportRange
    report: Mapping[str, str]
    first: str = ""
    last: str = ""
    today: str = ""

    @property
    def is_of_hours(self) -> bool:
        """Return whether its steps are hours."""
        return self.window.span.step == "hour"

    @property
    def is_custom(self) -> bool:
        """Return whether it lies between two times."""
        return self.name == CUSTOM

    @property
    def bars(self) -> ReportRange:
        """Return the period by the steps of the plot."""
        return by_bars(self.window)


def by_bars(window: ReportRange) -> ReportRange:
    """Return a period by hours, days or weeks, so that a plot has few enough bars."""
    if window.span.step != "hour" and len(window.padding) > MAX_BARS:
        return window.by_week()
    return window


def read_period(arguments: Mapping[str, str], now_us: int) -> UsagePeriod:
    """Return the period that the parameters of the page name. Times in the wrong order are exchanged, and a period that
    is longer than a report may be ends with its last day."""
    name = arguments.get("timeRange", "")
    if name not in RANGES:
        name = next(iter(RANGES))
    if name != CUSTOM:
        report = {"timeRange": name}
        return UsagePeriod(name, RANGES[name], _window_of(report, now_us), report)
    first, last = arguments.get("from", ""), arguments.get("to", "")
    if "T" in first and "T" in last:
        return _read_hours(first[:HOUR_LENGTH], last[:HOUR_LENGTH], now_us)
    return _read_days(first, last, now_us)


def _read_days(first_text: str, last_text: str, now_us: int) -> UsagePeriod:
    today = to_datetime(now_us).astimezone(UTC).date()
    last = _read_day(last_text, today, today)
    first = _read_day(first_text, today, last - timedelta(days=DEFAULT_DAYS - 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - timedelta(days=MAX_DAYS - 1))
    days = (last - first).days + 1
    label = "day" if days == 1 else f"{days} days"
    dates = {"from": first.isoformat(), "to": last.isoformat()}
    window = _window_of(dates, now_us)
    return UsagePeriod(CUSTOM, label, window, dates, dates["from"], dates["to"], today.isoformat())


def _read_hours(first_text: str, last_text: str, now_us: int) -> UsagePeriod:
    """Return the hours between two hours like 2026-01-31T14, both included."""
    this = now_us // HOUR_US
    last = min(this, _read_hour(last_text, this))
    first = min(this, _read_hour(first_text, last - HOURS + 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - MAX_HOURS + 1)
    hours = last - first + 1
    label = "hour" if hours == 1 else f"{hours} hours"
    texts = [write_hour(hour) for hour in (first, last)]
    days = {"from": texts[0][:10], "to": texts[1][:10]}
    return UsagePeriod(CUSTOM, label, hours_between(first, last + 1), days, texts[0], texts[1], write_hour(this)[:10])


def _window_of(report: Mapping[str, str], now_us: int) -> ReportRange:
    return read_window(read_fields(ActivityQuery, report), now_us)


def _read_day(text: str, today: date, otherwise: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return otherwise
    return min(today, max(EARLIEST, day))


def _read_hour(text: str, otherwise: int) -> int:
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return otherwise
    return from_datetime(max(at, datetime.combine(EARLIEST, datetime.min.time(), UTC))) // HOUR_US


def write_hour(hour: int) -> str:
    return to_datetime(hour * HOUR_US).astimezone(UTC).strftime("%Y-%m-%dT%H")


# The period of the comparison; the first is the default.

COMPARISONS = {"before": "Period before", "weekdays": "Same weekdays", "model": "Another model", "none": "Nothing"}
COMPARED_TEXTS = {"before": "the period before", "weekdays": "the same weekdays before", "model": "", "none": ""}


def find_earlier(window: ReportRange, comparison: str) -> ReportRange | None:
    """Return the earlier period of a comparison, by the steps of the plot; None for a comparison with none."""
    hours = window.span.end - window.span.first
    if comparison not in COMPARED_TEXTS or not COMPARED_TEXTS[comparison]:
        return None
    if comparison == "weekdays":
        hours = -(-hours // WEEK_HOURS) * WEEK_HOURS
    return by_bars(window.earlier(hours))
