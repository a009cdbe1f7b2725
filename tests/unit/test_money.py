"""Amounts as text are exact and as short as possible."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.money import NANO, format_usd, parse_usd, price_per_million


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
    with pytest.raises(ValueError, match="more than"):
        parse_usd(text)


@pytest.mark.parametrize("text", ["1001", "1e30", "1e999999"])
def test_a_price_above_the_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="above"):
        price_per_million(text)
