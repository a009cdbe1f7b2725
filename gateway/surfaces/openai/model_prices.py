"""Prices of an entry of the model list."""

from collections.abc import Sequence
from typing import Any

from gateway.catalogue.catalogue import day_of
from gateway.catalogue.entries import RATE_NAMES, TABLE_RATES, Mapping, Prices, TokenRates
from gateway.money import format_price
from gateway.neutral.units import DERIVED_PRICES, UNITS

# Prices that are shown if there is none, as "0" or an empty table: at a mapping, and at a model.
MAPPING_PRICES = frozenset(unit.price for unit in UNITS if unit.listed == "everywhere")
MODEL_PRICES = frozenset(unit.price for unit in UNITS if unit.listed)
SHOWN_RATES = tuple(name for name in RATE_NAMES if name not in DERIVED_PRICES)
NO_RATES = TokenRates()


def write_pricing(mapping: Mapping, at_us: int, shown: frozenset[str]) -> dict[str, Any]:
    """Return today's base prices, exact decimal strings of USD per unit. Prices outside of `shown` only if they
    exist."""
    rates = _base_rates(mapping.prices, day_of(at_us))
    pricing: dict[str, Any] = {}
    for name in SHOWN_RATES:
        rate = getattr(rates, name)
        if name in TABLE_RATES:
            if rate or name in shown:
                pricing[name] = {key: format_price(price) for key, price in rate.items()}
        elif rate is not None or name in shown:
            pricing[name] = format_price(rate or 0)
    return pricing


def _base_rates(lists: tuple[Prices, ...], day: str) -> TokenRates:
    """Return the base prices of the newest price list in force, else of the oldest."""
    begun = [prices for prices in lists if prices.from_date <= day] or list(lists[:1])
    if begun:
        return begun[-1].base
    return NO_RATES


def highest_of(among: Sequence[Mapping]) -> tuple[Prices, ...]:
    """Return the highest text prices at any of the mappings: the most that a choice among them costs."""
    rates = [prices.base for mapping in among for prices in mapping.prices]
    if not rates:
        return ()
    return (
        Prices(
            TokenRates(
                prompt=max(rate.prompt or 0 for rate in rates), completion=max(rate.completion or 0 for rate in rates)
            )
        ),
    )
