from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.clock import HOUR_US, from_datetime, to_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.limits.periods import make_period, read_period

JANUARY_31 = 1_769_846_400_000_000 + 30 * 60 * 10**6  # 2026-01-31T08:30Z
LEAP = 1_706_689_800_000_000  # 2024-01-31T08:30Z


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("12h", "2026-01-31T20:30"),
        ("1d", "2026-02-01T08:30"),
        ("2w", "2026-02-14T08:30"),
        ("1mo", "2026-02-28T08:30"),
        ("12mo", "2027-01-31T08:30"),
        ("365d", "2027-01-31T08:30"),
    ],
)
def test_a_window_ends_by_the_calendar_in_utc(text, end):
    assert to_iso(read_period(text).end(JANUARY_31)).startswith(end)


def test_a_month_from_the_last_of_january_is_the_leap_day():
    assert to_iso(read_period("1mo").end(LEAP)).startswith("2024-02-29T08:30")


def test_a_day_is_24_hours_on_the_nights_when_clocks_change():
    spring = 1_774_738_800_000_000  # 2026-03-28T23:00Z, the night of the change in Europe
    assert read_period("1d").end(spring) - spring == 24 * 3600 * 10**6


@pytest.mark.parametrize("text", ["", "0h", "8761h", "366d", "53w", "13mo", "1y", "-1d", "1.5h", "h", "1 d", "１d"])
def test_an_invalid_period_is_rejected(text):
    with pytest.raises(InvalidRequest):
        read_period(text)


@pytest.mark.parametrize("text", ["1h", "8760h", "365d", "52w", "12mo"])
def test_a_period_reads_back_as_it_was_written(text):
    assert str(read_period(text)) == text


@pytest.mark.parametrize(
    ("amount", "unit", "field"), [(1, "year", "periodUsageDurationUnit"), (366, "day", "periodUsageDurationValue")]
)
def test_a_period_out_of_bounds_is_refused_by_the_name_of_its_field(amount, unit, field):
    with pytest.raises(InvalidRequest) as refused:
        make_period(amount, unit)
    assert refused.value.param == field


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("day@UTC", "2026-01-31T08:30Z", "2026-02-01T00:00"),
        ("day@Asia/Tokyo", "2026-01-31T15:30Z", "2026-02-01T15:00"),
        ("week@UTC", "2026-01-31T08:30Z", "2026-02-02T00:00"),
        ("week@UTC", "2026-02-02T00:00Z", "2026-02-09T00:00"),
        ("month@UTC", "2026-12-31T23:59Z", "2027-01-01T00:00"),
        ("month@Europe/Berlin", "2026-03-15T12:00Z", "2026-03-31T22:00"),
        ("day@Europe/Berlin", "2026-03-28T23:30Z", "2026-03-29T22:00"),
    ],
)
def test_a_calendar_period_ends_at_midnight_in_its_zone(text, start, end):
    start_us = from_datetime(datetime.fromisoformat(start))
    period = read_period(text)
    assert str(period) == text and to_iso(period.end(start_us)).startswith(end)


# Zones with a clock change at or near midnight, by half an hour, or over a whole day that they skipped (Apia, 2011).
CHANGES = {
    "Africa/Cairo": 2024, "America/Havana": 2025, "America/Nuuk": 2024, "America/Santiago": 2026,
    "America/Sao_Paulo": 2018, "Asia/Beirut": 2026, "Atlantic/Azores": 2026, "Australia/Lord_Howe": 2026,
    "Pacific/Apia": 2011,
}  # fmt: skip


@pytest.mark.parametrize("unit", ["day", "week", "month"])
@pytest.mark.parametrize("zone", CHANGES)
def test_calendar_periods_follow_each_other_where_clocks_change_at_midnight(zone: str, unit: str) -> None:
    place = ZoneInfo(zone)
    period = read_period(f"{unit}@{zone}")
    hours = {"day": (23, 25), "week": (6 * 24 - 1, 7 * 24 + 1), "month": (27 * 24, 31 * 24 + 1)}[unit]
    start = from_datetime(datetime(CHANGES[zone], 1, 1, tzinfo=place))
    if unit == "week":
        start = period.end(start)
    while to_datetime(start).year <= CHANGES[zone]:
        end = period.end(start)
        assert hours[0] <= (end - start) / HOUR_US <= hours[1]
        assert period.end(end - 1) == period.end(start + HOUR_US) == end
        before, after = (to_datetime(moment).astimezone(place).date() for moment in (end - 1, end))
        assert before < after
        start = end


@pytest.mark.parametrize("text", ["hour@UTC", "2day@UTC", "month@", "month@Nowhere/City", "month@../../etc/passwd"])
def test_an_invalid_calendar_period_is_rejected(text):
    with pytest.raises(InvalidRequest):
        read_period(text)


def test_a_year_before_1000_has_four_digits() -> None:
    assert to_iso(-56_578_952_354_000_000) == "0177-01-31T00:20:46.000Z"


@pytest.mark.parametrize(
    "text", ["1h", "12h", "1d", "2w", "1mo", "12mo", "day@Europe/Berlin", "week@UTC", "month@Asia/Tokyo"]
)
def test_the_earliest_window_that_runs_begins_when_the_one_before_it_ended(text: str) -> None:
    period = read_period(text)
    now = from_datetime(datetime(2026, 7, 15, 9, 30, tzinfo=ZoneInfo("UTC")))
    earliest = period.earliest_start(now)
    assert period.end(earliest) > now >= period.end(earliest - 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1d", "per day"),
        ("12h", "per 12 hours"),
        ("1mo", "per month"),
        ("2w", "per 2 weeks"),
        ("day@UTC", "each day (UTC)"),
        ("month@Europe/Berlin", "each month (Europe/Berlin)"),
    ],
)
def test_a_period_is_described_in_words(text: str, words: str) -> None:
    assert read_period(text).describe() == words


def test_periods_of_equal_length_are_equal_in_other_units() -> None:
    assert read_period("24h").is_as_long_as(read_period("1d")) and read_period("7d").is_as_long_as(read_period("1w"))
    assert not read_period("1mo").is_as_long_as(read_period("30d"))
    assert not read_period("1d").is_as_long_as(read_period("day@UTC"))
