"""Prices of the tools that providers run, as every mapping of a provider gets them."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from gateway.catalogue.entries import PROTOCOLS, Mapping, Prices, Provider, Tier, TokenRates
from gateway.neutral.hosted_uses import LONG, TOOL_MODEL_COUNTS, undated
from gateway.neutral.units import PRICE_OF_COUNT

# The price of a token of a tool's model → the prices of the model itself, of which the first that it has applies.
OWN_RATES = {
    PRICE_OF_COUNT[TOOL_MODEL_COUNTS["input"]]: ("prompt",),
    PRICE_OF_COUNT[TOOL_MODEL_COUNTS["cache_read"]]: ("input_cache_read", "prompt"),
    PRICE_OF_COUNT[TOOL_MODEL_COUNTS["cache_write"]]: ("input_cache_write", "prompt"),
    PRICE_OF_COUNT[TOOL_MODEL_COUNTS["cache_write_1h"]]: ("input_cache_write_1h", "input_cache_write", "prompt"),
    PRICE_OF_COUNT[TOOL_MODEL_COUNTS["output"]]: ("completion",),
}
Fill = Callable[[TokenRates], TokenRates]


def usual_prices(fields: dict[str, Any], provider: Provider) -> dict[str, Any]:
    """Return the prices of tools that a mapping of the provider has unless it states its own."""
    usual: dict[str, Any] = {}
    protocol = PROTOCOLS.get(fields.get("protocol") or provider.protocol)
    if fields.get("responses_api") or (protocol is not None and protocol.hosted_tools):
        usual |= provider.tool_prices
        for pattern, prices in provider.tool_prices_of.items():
            if re.search(pattern, fields["model"]):
                usual |= prices
    if provider.search_price is not None and fields.get("web_search"):
        usual["web_search"] = provider.search_price
    return usual


def with_tools(prices: Prices, usual: dict[str, Any]) -> Prices:
    """Return the prices, completed with those of the tools that the provider runs."""

    def fill(rates: TokenRates) -> TokenRates:
        absent: dict[str, Any] = {name: price for name, price in usual.items() if getattr(rates, name) in (None, {})}
        if absent:
            return dataclasses.replace(rates, **absent)
        return rates

    return _change(prices, fill)


def with_tool_models(served: dict[str, list[Mapping]], providers: dict[str, Provider]) -> dict[str, list[Mapping]]:
    """Return the mappings by model. Where a provider's tools call further models, its mappings have the prices of all
    its models."""
    tables: dict[str, dict[str, dict[str, int]]] = {
        ident: {name: {} for name in OWN_RATES} for ident, provider in providers.items() if provider.tool_models
    }
    if not tables:
        return served
    for mappings in served.values():
        for mapping in mappings:
            if mapping.provider in tables and "chat" in mapping.operations:
                _enter(mapping, tables[mapping.provider])
    return {
        model: [_with_tables(mapping, tables.get(mapping.provider)) for mapping in mappings]
        for model, mappings in served.items()
    }


def _enter(mapping: Mapping, table: dict[str, dict[str, int]]) -> None:
    """Add the prices of a model under its names: the highest one of all times for prompts of the usual size, and of all
    sizes for long ones."""
    usual = [prices.base for prices in mapping.prices]
    every = [rates for prices in mapping.prices for rates in _rates_of(prices)]
    for suffix, lists in (("", usual), (LONG, every)):
        names = (mapping.model + suffix, undated(mapping.external_id) + suffix)
        for name, own in OWN_RATES.items():
            known = [next((rate for key in own if (rate := getattr(rates, key)) is not None), None) for rates in lists]
            highest = max((rate for rate in known if rate is not None), default=None)
            if highest is not None:
                table[name].update(dict.fromkeys(names, highest))


def _with_tables(mapping: Mapping, table: dict[str, dict[str, int]] | None) -> Mapping:
    if table is None or not mapping.priced:
        return mapping
    usual: dict[str, Any] = {name: prices for name, prices in table.items() if prices}
    return dataclasses.replace(mapping, prices=tuple(with_tools(prices, usual) for prices in mapping.prices))


def _rates_of(prices: Prices) -> list[TokenRates]:
    return [
        prices.base,
        *(tier.rates for tier in prices.tiers),
        *(peak.rates for peak in prices.peaks),
    ]


def _change(prices: Prices, fill: Fill) -> Prices:
    return dataclasses.replace(
        prices,
        base=fill(prices.base),
        tiers=tuple(Tier(tier.up_to, fill(tier.rates)) for tier in prices.tiers),
        peaks=tuple(dataclasses.replace(peak, rates=fill(peak.rates)) for peak in prices.peaks),
    )
