import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.clock import from_datetime
from gateway.errors import InvalidRequest
from gateway.surfaces.visitors.report_windows import HOUR_US, ReportRange, read_window

NOW = from_datetime(datetime(2026, 3, 29, 10, 30, tzinfo=UTC))


def span(given: dict) -> tuple[str, str]:
    found = read_window(given, NOW).span
    return tuple(datetime.fromtimestamp(at / 1e6, UTC).isoformat() for at in (found.start_us, found.end_us))


def at(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * 3600, UTC)


def day_of(window: ReportRange, hour: int) -> int:
    """The local day that an hour counts to."""
    minutes = [ahead for begin, ahead in window.span.shifts or ((0, 0),) if begin <= hour][-1]
    return (hour * 60 + minutes) // 1440


def test_without_an_option_it_is_the_last_seven_days_unpadded() -> None:
    window = read_window({}, NOW)
    assert span({}) == ("2026-03-23T00:00:00+00:00", "2026-03-30T00:00:00+00:00")
    assert window.padding == () and window.granularity == "daily" and window.span.step == "day"


@pytest.mark.parametrize("name, hours", [("1h", 2), ("4h", 5), ("24h", 25)])
def test_ranges_of_hours_begin_with_the_clock_hour_in_which_they_begin(name, hours) -> None:
    window = read_window({"timeRange": name}, NOW)
    assert window.granularity == "hourly" and len(window.padding) == hours
    assert window.span.end_us - window.span.start_us == hours * HOUR_US
    assert window.padding[-1] == "2026-03-29T10:00:00"


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Europe/Berlin", "UTC"])
def test_an_hour_counts_to_the_local_hour_or_day_in_which_it_begins_so_that_none_counts_twice(zone) -> None:
    days = [
        read_window({"first": f"2026-03-{day}", "last": f"2026-03-{day}", "timezone": zone}, NOW)
        for day in (28, 29, 30)
    ]
    for before, after in itertools.pairwise(days):
        assert before.span.end == after.span.first
    whole = read_window({"first": "2026-03-28", "last": "2026-03-30", "timezone": zone}, NOW)
    assert (whole.span.first, whole.span.end) == (days[0].span.first, days[2].span.end)
    labels = [whole.label(day_of(whole, hour)) for hour in range(whole.span.first, whole.span.end)]
    begins = [
        at(hour).astimezone(ZoneInfo(zone)).date().isoformat() for hour in range(whole.span.first, whole.span.end)
    ]
    assert labels == begins == sorted(labels) and set(labels) == set(whole.padding)
    hours = read_window({"timeRange": "24h", "timezone": zone}, NOW)
    assert (hours.span.first, hours.span.end) == (read_window({"timeRange": "24h"}, NOW).span.first, NOW // HOUR_US + 1)


@pytest.mark.parametrize("name, days", [("7d", 7), ("30d", 30), ("365d", 365)])
def test_ranges_of_days_end_today_and_are_padded(name, days) -> None:
    window = read_window({"timeRange": name}, NOW)
    assert len(window.padding) == days and window.padding[-1] == "2026-03-29"


def test_a_range_wins_over_dates_and_dates_win_over_days() -> None:
    dates = {"first": "2026-01-01", "last": "2026-01-02", "days": 3}
    assert span(dates) == ("2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00")
    assert span({**dates, "timeRange": "7d"})[1] == "2026-03-30T00:00:00+00:00"


def test_from_alone_reaches_until_today_and_to_alone_ends_the_days_before_it() -> None:
    assert span({"first": "2026-01-01", "days": 1}) == ("2026-01-01T00:00:00+00:00", "2026-03-30T00:00:00+00:00")
    assert span({"last": "2026-01-31"}) == ("2026-01-25T00:00:00+00:00", "2026-02-01T00:00:00+00:00")
    window = read_window({"last": "2026-01-31", "days": 2}, NOW)
    assert window.padding == ("2026-01-30", "2026-01-31")


def test_days_of_a_zone_begin_at_its_midnight_even_when_the_clock_changes() -> None:
    given = {"first": "2026-03-29", "last": "2026-03-29", "timezone": "Europe/Berlin"}
    assert span(given) == ("2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00")


def test_a_step_is_named_by_its_day_in_the_zone() -> None:
    window = read_window({"days": 1, "timezone": "Asia/Kolkata"}, NOW)
    evening = from_datetime(datetime(2026, 3, 28, 19, tzinfo=UTC)) // HOUR_US
    assert window.span.first == evening and window.label(day_of(window, evening)) == "2026-03-29"
    assert window.label(day_of(window, evening) - 1) == "2026-03-28"


@pytest.mark.parametrize("given", [
    {"first": "2026-02-30", "last": "2026-03-01"}, {"first": "2026-03-02", "last": "2026-03-01"},
    {"first": "2025-01-01", "last": "2026-01-02"}, {"first": "2026-03-30"}, {"first": "2025-03-28"},
    {"first": "2026-W01-1"}, {"first": "2026-1-1"},
    {"timezone": "Mars/Olympus"}, {"timezone": "../etc/passwd"},
    {"timezone": "."}, {"first": "0001-01-01", "last": "0001-01-01"}, {"first": "9999-12-31", "last": "9999-12-31"},
], ids=str)  # fmt: skip
def test_an_impossible_window_is_refused(given) -> None:
    with pytest.raises(InvalidRequest):
        read_window(given, NOW)


def test_366_days_are_the_longest() -> None:
    assert len(read_window({"first": "2025-01-01", "last": "2026-01-01"}, NOW).padding) == 366


def test_an_invalid_date_is_refused_at_any_length(shared_tenants) -> None:
    status, answer = shared_tenants.call("GET", "/activity?from=2026-1-1", shared_tenants["acme owner"])
    assert status == 400 and answer["message"] == "'2026-1-1' is not a date such as 2027-01-31."
