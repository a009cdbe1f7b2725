"""Selection of the rates in force: dated lists, tiers by input tokens, daily peaks and service tiers. Pure
functions.
"""

import functools
from collections.abc import Iterable
from datetime import date
from decimal import Decimal

from gateway.catalogue.entries import Mapping, Peak, Prices, TokenRates
from gateway.clock import DAY_US, MINUTE_US
from gateway.neutral.request import TIERS_JOINED

EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY = 3
WEEK_DAYS = 7  # 1970-01-01 was a Thursday; Monday is 0
DAY_MINUTES = DAY_US // MINUTE_US
UNPRICED = TokenRates()

# Names of the ordinary service tier, as providers report it.
ORDINARY_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))


def rates_at(mapping: Mapping, at_us: int, input_tokens: int) -> TokenRates:
    """Return the rates of a request made at `at_us` with `input_tokens` tokens, including cached ones."""
    if mapping.steady is not None:
        return mapping.steady
    prices = prices_at(mapping.prices, at_us)
    if prices is None:
        return UNPRICED
    if prices.peaks:
        day, since = divmod(at_us, DAY_US)
        for peak in prices.peaks:
            if _within(day, since // MINUTE_US, peak):
                return peak.rates
    for tier in prices.tiers:
        if tier.up_to is None or input_tokens <= tier.up_to:
            return tier.rates
    return prices.base


def prices_at(lists: tuple[Prices, ...], at_us: int) -> Prices | None:
    """Return the newest price list that has begun; before the first date the oldest list, None without any."""
    if len(lists) < 2:
        if lists:
            return lists[0]
        return None
    current = lists[0]
    for prices in lists[1:]:
        if _starts_us(prices.from_date) > at_us:
            break
        current = prices
    return current


def reachable_rates(mapping: Mapping, at_us: int, input_tokens: int) -> Iterable[TokenRates]:
    """Yield all rates at which a request of at most `input_tokens`, started at `at_us`, may be billed.

    A list that begins within the next day is included: a long request may end under it.
    """
    current = prices_at(mapping.prices, at_us)
    for prices in mapping.prices:
        if prices is current or at_us < _starts_us(prices.from_date) <= at_us + DAY_US:
            yield from _rates_of(prices, input_tokens)


def multiplier(mapping: Mapping, service_tier: str) -> tuple[int, int]:
    """Return the token price multiplier of a service tier as an exact fraction; (1, 1) for the ordinary or an unknown
    tier.

    Multipliers of several tiers ("fast+us") are multiplied.
    """
    numerator = 1
    denominator = 1
    if service_tier not in ORDINARY_TIERS:
        for name in service_tier.split(TIERS_JOINED):
            text = mapping.service_tiers.get(name)
            if text:
                over, under = _fraction(text)
            else:
                over, under = (1, 1)
            numerator = numerator * over
            denominator = denominator * under
    return numerator, denominator


def _rates_of(prices: Prices, input_tokens: int) -> Iterable[TokenRates]:
    for peak in prices.peaks:
        yield peak.rates
    for tier in prices.tiers:
        yield tier.rates
        if tier.up_to is None or input_tokens <= tier.up_to:
            return
    yield prices.base


def _within(day: int, minute: int, peak: Peak) -> bool:
    """Return whether `minute` of a `day` since 1970 is in a span that began then, or on the evening before."""
    if peak.start > peak.end and minute < peak.end:
        day -= 1
    elif not peak.start <= minute < (peak.end if peak.start <= peak.end else DAY_MINUTES):
        return False
    return (day + FIRST_DAY) % WEEK_DAYS in peak.days and day not in peak.holidays


@functools.lru_cache(maxsize=4096)
def _starts_us(from_date: str) -> int:
    if not from_date:
        return -(2**63)
    return (date.fromisoformat(from_date).toordinal() - EPOCH) * DAY_US


@functools.lru_cache(maxsize=256)
def _fraction(text: str) -> tuple[int, int]:
    return Decimal(text).as_integer_ratio()
