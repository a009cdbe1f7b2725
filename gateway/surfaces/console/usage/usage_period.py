"""The period of the usage page: a number of hours or days until now, or the days between two dates."""

from collections.abc import Mapping
from datetime import UTC, date, timedelta
from typing import NamedTuple

from gateway.clock import to_datetime
from gateway.surfaces.report_windows import DEFAULT_DAYS, EARLIEST, MAX_DAYS

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


class UsagePeriod(NamedTuple):
    """A period. `report` are the parameters of the usage report, `logs` those that find its requests in the request
    log, in addition to the first step. `first` and `last` are the days of a period between two dates."""

    name: str
    label: str
    report: Mapping[str, str]
    logs: Mapping[str, str]
    first: str = ""
    last: str = ""
    today: str = ""

    @property
    def is_of_hours(self) -> bool:
        """Return whether its steps are hours."""
        return self.name.endswith("h")

    @property
    def is_custom(self) -> bool:
        """Return whether it lies between two dates."""
        return self.name == CUSTOM


def read_period(arguments: Mapping[str, str], now_us: int) -> UsagePeriod:
    """Return the period that the parameters of the page name. Days in the wrong order are exchanged, and a period that
    is longer than a report may be ends with its last day."""
    name = arguments.get("timeRange", "")
    if name not in RANGES:
        name = next(iter(RANGES))
    if name != CUSTOM:
        return UsagePeriod(name, RANGES[name], {"timeRange": name}, {})
    today = to_datetime(now_us).astimezone(UTC).date()
    last = _read_day(arguments.get("to", ""), today, today)
    first = _read_day(arguments.get("from", ""), today, last - timedelta(days=DEFAULT_DAYS - 1))
    first, last = min(first, last), max(first, last)
    first = max(first, last - timedelta(days=MAX_DAYS - 1))
    days = (last - first).days + 1
    label = "day" if days == 1 else f"{days} days"
    dates = {"from": first.isoformat(), "to": last.isoformat()}
    logs = {"to": (last + timedelta(days=1)).isoformat()}
    return UsagePeriod(name, label, dates, logs, dates["from"], dates["to"], today.isoformat())


def _read_day(text: str, today: date, otherwise: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return otherwise
    return min(today, max(EARLIEST, day))
