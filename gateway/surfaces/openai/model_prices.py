"""Prices of an entry of the model list."""

from collections.abc import Sequence
from typing import Any

from gateway.catalogue.catalogue import day_of
from gateway.catalogue.entries import Mapping, Prices, TokenRates
from gateway.money import format_price

# Prices of both levels, in the order of the pricing object, and those of the model level only.
PRICES = (
    "prompt", "completion", "image", "input_audio", "input_audio_cache_read", "output_audio", "request",
    "input_cache_read", "input_cache_write", "input_cache_write_1h", "ocr_page", "input_audio_hour",
)  # fmt: skip
MODEL_PRICES = ("web_search", "internal_reasoning")
# Prices without a field in the original pricing object: members of the gateway's own, where a price exists.
MORE_PRICES = (
    "character", "output_image", "web_search", "file_search", "code_session", "internal_reasoning",
    "thinking_completion",
)  # fmt: skip
NO_RATES = TokenRates()


def write_pricing(mapping: Mapping, at_us: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Return today's base prices, exact decimal strings of USD per unit; "0" where there is none."""
    rates = _base_rates(mapping.prices, day_of(at_us))
    pricing: dict[str, Any] = {name: format_price(getattr(rates, name) or 0) for name in names}
    for name in MORE_PRICES:
        if (price := getattr(rates, name)) is not None:
            pricing[name] = format_price(price)
    for name in ("per_second", "per_image"):
        pricing[name] = {key: format_price(price) for key, price in getattr(rates, name).items()}
    if rates.per_video_token:
        pricing["per_video_token"] = {key: format_price(price) for key, price in rates.per_video_token.items()}
    return pricing


def _base_rates(lists: tuple[Prices, ...], day: str) -> TokenRates:
    """Return the base prices of the newest price list in force, else of the oldest."""
    begun = [prices for prices in lists if prices.from_date <= day] or list(lists[:1])
    if begun:
        return begun[-1].base
    return NO_RATES


def highest_of(among: Sequence[Mapping]) -> tuple[Prices, ...]:
    """Return the highest text prices at any of the mappings: the most that a choice among them costs."""
    rates = [prices.base for one in among for prices in one.prices]
    if not rates:
        return ()
    return (
        Prices(
            TokenRates(
                prompt=max(one.prompt or 0 for one in rates), completion=max(one.completion or 0 for one in rates)
            )
        ),
    )
