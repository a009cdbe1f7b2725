"""Amounts as text are exact and as short as possible."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import money
from gateway.money import NANO, format_usd, parse_usd, price_per_million, round_usd


@given(st.integers(-(10**15), 10**15) | st.integers(-NANO, NANO))
@example(0)
@example(1)
@example(NANO - 1)
@example(NANO)
@example(-NANO // 2)
def test_an_amount_as_text_is_the_same_amount_without_an_idle_digit(nano: int) -> None:
    text = format_usd(nano)
    assert Decimal(text) * NANO == nano and parse_usd(text) == nano
    assert "e" not in text.lower() and not ("." in text and text.endswith(("0", ".")))


@pytest.mark.parametrize("text", ["1000000000.01", "-1000000001", "1e400", "1e999999"])
def test_an_amount_that_no_column_could_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"more than|not a decimal"):
        parse_usd(text)


@pytest.mark.parametrize("text", ["1001", "1e30", "1e999999"])
def test_a_price_above_the_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"above|not a price"):
        price_per_million(text)


@pytest.mark.parametrize(
    ("nano", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (1_230, "$0.00000123"),
        (1_234_567, "$0.00123"),
        (1_235_000, "$0.00124"),
        (NANO // 100, "$0.01"),
        (12_000_000, "$0.012"),
        (175_500_000, "$0.176"),
        (NANO // 2, "$0.50"),
        (999_499_999, "$0.999"),
        (999_500_000, "$1.00"),
        (2_404_999_999, "$2.40"),
        (1_234 * NANO, "$1,234.00"),
        (-1_234_567, "-$0.00123"),
    ],
)
def test_amounts_for_people_have_cents_and_three_significant_digits_below_a_dollar(nano: int, shown: str) -> None:
    assert round_usd(nano) == shown


@given(st.integers(1, 10**15), st.integers(1, 10**15))
def test_amounts_that_differ_in_their_first_three_digits_look_different(one: int, other: int) -> None:
    near = abs(one - other) * 100 <= max(one, other) or (min(one, other) >= NANO and abs(one - other) < NANO // 100)
    assert near or round_usd(one) != round_usd(other)


@pytest.mark.parametrize(
    "text", ["1e-300000000", "1e300000000", "0e-300000000", "9" * 100, "1e-81", "NaN", "Infinity", "0.１", "٠.٥", "1_0"]
)
@pytest.mark.parametrize("read", [money.read_decimal, money.parse_usd, money.price_per_million, money.parse_fraction])
def test_no_short_text_is_a_number_of_millions_of_digits(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="not a "):
        read(text)


@given(st.text("0123456789.eE+-", max_size=30))
def test_a_decimal_that_is_read_is_short_when_it_is_written_out(text: str) -> None:
    try:
        number = money.read_decimal(text)
    except ValueError:
        return
    assert len(f"{number:f}") <= 2 * money.MAX_DIGITS + 3
