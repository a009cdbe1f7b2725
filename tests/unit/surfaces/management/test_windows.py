from datetime import UTC, datetime

import pytest

from gateway.clock import from_datetime
from gateway.errors import InvalidRequest
from gateway.surfaces.management.windows import DAY_US, HOUR_US, read_window

NOW = from_datetime(datetime(2026, 3, 29, 10, 30, tzinfo=UTC))


def span(given: dict) -> tuple[str, str]:
    found = read_window(given, NOW).span
    return tuple(datetime.fromtimestamp(at / 1e6, UTC).isoformat() for at in (found.start_us, found.end_us))


def test_without_a_wish_it_is_the_last_seven_days_unpadded() -> None:
    window = read_window({}, NOW)
    assert span({}) == ("2026-03-23T00:00:00+00:00", "2026-03-30T00:00:00+00:00")
    assert window.padding == () and window.granularity == "daily" and window.span.step_us == DAY_US


@pytest.mark.parametrize("name, hours", [("1h", 2), ("4h", 5), ("24h", 25)])
def test_ranges_of_hours_are_hourly_to_the_minute(name, hours) -> None:
    window = read_window({"timeRange": name}, NOW)
    assert window.granularity == "hourly" and len(window.padding) == hours
    assert window.span.end_us - window.span.start_us == int(name[:-1]) * HOUR_US + 1
    assert window.padding[-1] == "2026-03-29T10:00:00"


@pytest.mark.parametrize("name, days", [("7d", 7), ("30d", 30), ("365d", 365)])
def test_ranges_of_days_end_today_and_are_padded(name, days) -> None:
    window = read_window({"timeRange": name}, NOW)
    assert len(window.padding) == days and window.padding[-1] == "2026-03-29"


def test_a_range_wins_over_dates_and_dates_win_over_days() -> None:
    dates = {"first": "2026-01-01", "last": "2026-01-02", "days": 3}
    assert span(dates) == ("2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00")
    assert span({**dates, "timeRange": "7d"})[1] == "2026-03-30T00:00:00+00:00"
    assert span({"first": "2026-01-01", "days": 1})[0] == "2026-03-29T00:00:00+00:00"


def test_days_of_a_zone_begin_at_its_midnight_even_when_the_clock_changes() -> None:
    given = {"first": "2026-03-29", "last": "2026-03-29", "timezone": "Europe/Berlin"}
    assert span(given) == ("2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00")


def test_a_step_is_named_by_its_day_in_the_zone() -> None:
    window = read_window({"days": 1, "timezone": "Asia/Kolkata"}, NOW)
    evening = from_datetime(datetime(2026, 3, 28, 18, 30, tzinfo=UTC))
    assert window.label(evening // window.span.step_us) == "2026-03-29"
    assert window.label(evening // window.span.step_us - 1) == "2026-03-28"


@pytest.mark.parametrize("given", [
    {"first": "2026-02-30", "last": "2026-03-01"}, {"first": "2026-03-02", "last": "2026-03-01"},
    {"first": "2025-01-01", "last": "2026-01-02"}, {"timezone": "Mars/Olympus"}, {"timezone": "../etc/passwd"},
    {"timezone": "."}, {"first": "0001-01-01", "last": "0001-01-01"}, {"first": "9999-12-31", "last": "9999-12-31"},
], ids=str)  # fmt: skip
def test_an_impossible_window_is_refused(given) -> None:
    with pytest.raises(InvalidRequest):
        read_window(given, NOW)


def test_366_days_are_the_longest() -> None:
    assert len(read_window({"first": "2025-01-01", "last": "2026-01-01"}, NOW).padding) == 366
