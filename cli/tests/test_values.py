"""Values as people type and read them."""

from datetime import UTC, datetime

import pytest

from llmgateway_cli.errors import CliError
from llmgateway_cli.values import Period, read_expiry, read_limit, read_period, show_number, show_time, show_usd

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
PERIODS = {
    "12h": Period(12, "hour"),
    "1 hr": Period(1, "hour"),
    "3hours": Period(3, "hour"),
    "1d": Period(1, "day"),
    "2 Days": Period(2, "day"),
    "2w": Period(2, "week"),
    "1 week": Period(1, "week"),
    "1mo": Period(1, "month"),
    "12months": Period(12, "month"),
}
NO_PERIODS = ("", "1", "d", "1m", "1y", "-1d", "1.5d", "1d2h", "1hs", "8761h", "366d", "53w", "13mo", "0h", "１d", "٢w")
EXPIRIES = {
    "30d": "2026-01-31T12:30:00.000Z",
    "12h": "2026-01-02T00:30:00.000Z",
    "1mo": "2026-01-31T12:30:00.000Z",
    "2w": "2026-01-15T12:30:00.000Z",
    "2027-01-01": "2027-01-01T00:00:00.000Z",
    "2027-01-01T02:00:00+02:00": "2027-01-01T00:00:00.000Z",
    "2027-01-01T10:00": "2027-01-01T10:00:00.000Z",
}
NO_EXPIRIES = ("", "soon", "0d", "2025-12-31", "2026-01-01T12:30", "99999999999d", "2027-13-01", "３0d")
AMOUNTS = [
    ("12.34", "$12.34"),
    (0, "$0.00"),
    ("1234.5", "$1,234.50"),
    ("0.004", "$0.004"),
    ("0.0041", "$0.0041"),
    (0.00000812, "$0.00000812"),
    ("0.000000001", "$0.000000001"),
    ("0.00123456", "$0.00123"),
    ("0.5", "$0.50"),
    ("0.123456", "$0.123"),
    ("0.9996", "$1.00"),
    ("1.005", "$1.00"),
    (0.01, "$0.01"),
    (-0.004, "-$0.004"),
    ("-3", "-$3.00"),
    (None, "—"),
    ("", "—"),
    ("many", "many"),
    ("Infinity", "Infinity"),
]


@pytest.mark.parametrize("typed", PERIODS)
def test_periods_have_these_spellings(typed: str) -> None:
    assert read_period(typed) == PERIODS[typed]


@pytest.mark.parametrize("typed", NO_PERIODS)
def test_other_texts_are_no_periods(typed: str) -> None:
    with pytest.raises(CliError, match="--period"):
        read_period(typed)


@pytest.mark.parametrize("typed", EXPIRIES)
def test_an_expiry_is_a_moment_in_utc(typed: str) -> None:
    assert read_expiry(typed, NOW) == EXPIRIES[typed]


@pytest.mark.parametrize("typed", NO_EXPIRIES)
def test_other_texts_are_no_expiry(typed: str) -> None:
    with pytest.raises(CliError, match="--expires"):
        read_expiry(typed, NOW)


@pytest.mark.parametrize("typed", ["100", "49.99", "0", "0.000001", ".5", " 10 "])
def test_a_limit_is_sent_as_typed(typed: str) -> None:
    assert read_limit(typed, "-l") == typed.strip()


@pytest.mark.parametrize("typed", ["none", "Never"])
def test_a_limit_and_an_expiry_are_removed_by_a_word(typed: str) -> None:
    assert read_limit(typed, "-l") is None and read_expiry(typed, NOW) is None


@pytest.mark.parametrize("typed", ["", "-1", "1e3", "1,000", "$5", "ten", "1.", "nan", "１2", "1.٥"])
def test_other_texts_are_no_limits(typed: str) -> None:
    with pytest.raises(CliError, match="not an amount"):
        read_limit(typed, "--limit")


@pytest.mark.parametrize(("amount", "shown"), AMOUNTS)
def test_amounts_are_shown_in_dollars(amount: object, shown: str) -> None:
    assert show_usd(amount) == shown


def test_times_and_numbers_are_shown() -> None:
    assert show_time("2026-01-01T12:30:45.123Z") == "2026-01-01 12:30"
    assert show_time("2026-01-01T12:30:00+02:00") == "2026-01-01 10:30"
    assert [show_time(None), show_time("never")] == ["—", "never"]
    assert [show_number(number) for number in (1234567, 2.0, 1.5, 0, None)] == ["1,234,567", "2", "1.5", "0", "—"]
