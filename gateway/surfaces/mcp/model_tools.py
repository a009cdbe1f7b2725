"""The tools that list models: those that the caller's key may call, first those with a credential, with prices and
capabilities."""

from collections import Counter
from collections.abc import Iterator
from typing import TypedDict

import orjson

from gateway.accounts.access import CUSTOM, Predicate, predicate
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model, TokenRates
from gateway.catalogue.lifecycle import shown_on
from gateway.catalogue.price_rates import UNPRICED, prices_at
from gateway.money import format_price, usd_number
from gateway.surfaces import image_uploads, listing
from gateway.surfaces.availability import prefer_reachable, reach_of
from gateway.surfaces.mcp import generation, tool_schemas
from gateway.surfaces.mcp.tool_results import Json, ToolContext, structured, text_of

IMAGES = "images"
MILLION = 1_000_000
ABILITIES = ("vision", "tools", "reasoning", "streaming")


class ModelPrices(TypedDict):
    """Prices in US dollars for one token."""

    input: str
    output: str


class CallableModel(TypedDict):
    id: str
    name: str
    family: str
    providers: list[str]
    capabilities: dict[str, bool]
    pricing: ModelPrices
    context_length: int
    free: bool


class ModelList(TypedDict):
    models: list[CallableModel]


class CallableImageModel(TypedDict):
    """A model with the price of an image, null where it has none."""

    id: str
    name: str
    description: str
    family: str
    requestPrice: float | None
    providers: list[str]


class ImageModelList(TypedDict):
    models: list[CallableImageModel]
    default: str
    altDefault: str


def list_models(ctx: ToolContext, arguments: tool_schemas.ListArguments) -> Json:
    """Return models by family, with capabilities and prices; those without a credential come last."""
    visible = list(_visible(ctx, arguments.include_deactivated, arguments.exclude_deprecated))
    family_name = (arguments.family or "").lower()
    matching = [candidate for candidate in visible if not family_name or candidate[1].family.lower() == family_name]
    reach = reach_of(ctx.services, ctx.caller)
    matching.sort(
        key=lambda candidate: (not _is_within(reach, candidate[2]), candidate[1].family.lower(), candidate[1].id)
    )
    shown = [_entry(ctx, reach, *candidate) for candidate in matching[: arguments.limit]]
    lines = [f"# Models (showing {len(shown)} of {len(matching)})"]
    family = None
    for entry in shown:
        if entry["family"] != family:
            family = entry["family"]
            lines += ["", f"## {family or 'Other'}", ""]
        lines.append(_line(entry))
    if len(shown) < len(matching) or not matching:
        sizes = Counter(model.family.lower() for _, model, _ in visible if model.family)
        counted = ", ".join(f"{name} ({count})" for name, count in sorted(sizes.items()))
        lines += ["", f"For more models, raise limit or set family to one of {counted}."]
    listed: ModelList = {"models": shown}
    return _listed("models", "\n".join(lines), listed)


def list_image_models(ctx: ToolContext, arguments: tool_schemas.AnyArguments) -> Json:
    """Return models that generate images; `default` is the default of generate-image, `altDefault` that of
    generate-alt-image."""
    default = image_uploads.model_of(ctx.services, ctx.caller, "").rpartition("/")[2]
    alt = generation.alt_model_of(ctx).rpartition("/")[2]
    reach = reach_of(ctx.services, ctx.caller)
    shown: list[CallableImageModel] = []
    ready = set()
    for _, model, mappings in _visible(ctx, False, False):
        image_models = [mapping for mapping in mappings if IMAGES in mapping.operations]
        if image_models:
            if _is_within(reach, image_models):
                ready.add(model.id)
            prices = [price for mapping in image_models if (price := _image_price(_rates(ctx, mapping))) is not None]
            shown.append(
                {
                    "id": model.id,
                    "name": model.name or model.id,
                    "description": model.description,
                    "family": model.family,
                    "requestPrice": min(prices) if prices else None,
                    "providers": _providers(image_models),
                }
            )
    shown.sort(key=lambda entry: (entry["id"] != default, entry["id"] not in ready, entry["id"]))
    lines = ["# Image models", "", *(_image_line(entry, default) for entry in shown)]
    lines += ["", f"Default model of generate-image: {default}", f"Model of generate-alt-image: {alt}"]
    listed: ImageModelList = {"models": shown, "default": default, "altDefault": alt}
    return _listed("image-models", "\n".join(lines), listed)


def _image_line(entry: CallableImageModel, default: str) -> str:
    if entry["id"] == default:
        marked = " (default)"
    else:
        marked = ""
    if entry["requestPrice"] is None:
        price = ""
    else:
        price = f", ${entry['requestPrice']:g} per image"
    return f"- **{entry['id']}**{marked}: {entry['name']}, by {', '.join(entry['providers'])}{price}"


def _listed(kind: str, text: str, listed: ModelList | ImageModelList) -> Json:
    more: Json = {**listed}
    shown = more.pop("models")
    data = orjson.dumps({"type": kind, "data": shown, **more}).decode().replace("--", "-\\u002d")
    return structured(listed, text_of(text), text_of(f"<!-- {data} -->"))


def _visible(
    ctx: ToolContext, deactivated: bool, active_only: bool
) -> Iterator[tuple[Catalogue, Model, list[Mapping]]]:
    """Return the models that the caller's rules allow, with their mappings."""
    services = ctx.services
    caller = ctx.caller
    at_us = services.clock.now_us()
    day = day_of(at_us)
    refuse = predicate(caller.rules, at_us)
    catalogue = services.routing.catalogue.current()
    if caller.key_kind == "user":
        own = services.routing.custom_catalogue.of(caller)
    else:
        own = None
    rooms = [(catalogue, list(catalogue.models.values()))]
    if own is not None:
        rooms.insert(0, (own.current(), listing.own_models(catalogue, own.current())))
    for room, models in rooms:
        for model in models:
            allowed = (mapping for mapping in model.mappings if mapping.priced and _passes(room, mapping, refuse))
            mappings = shown_on(allowed, day, include_deactivated=deactivated, exclude_deprecated=active_only)
            if mappings:
                yield room, model, mappings


def _is_within(reach: frozenset[str], mappings: list[Mapping]) -> bool:
    """Return whether a credential exists for one of the mappings; the organization's own models always have one."""
    return any(mapping.provider.partition(":")[0] == CUSTOM or mapping.key in reach for mapping in mappings)


def _passes(catalogue: Catalogue, mapping: Mapping, refuse: Predicate | None) -> bool:
    return refuse is None or refuse(mapping, catalogue.providers[mapping.provider]) is None


def _entry(
    ctx: ToolContext, reach: frozenset[str], catalogue: Catalogue, model: Model, mappings: list[Mapping]
) -> CallableModel:
    measured = prefer_reachable(mappings, reach)
    rates = _rates(ctx, measured[0])
    abilities = {name: any(getattr(mapping, name) for mapping in mappings) for name in ABILITIES}
    abilities["imageGeneration"] = any(IMAGES in mapping.operations for mapping in mappings)
    return {
        "id": model.id,
        "name": model.name or model.id,
        "family": model.family,
        "providers": _providers(mappings),
        "capabilities": abilities,
        "pricing": {"input": format_price(rates.prompt or 0), "output": format_price(rates.completion or 0)},
        "context_length": max(mapping.context_length for mapping in measured) or model.context_length,
        "free": model.free,
    }


def _providers(mappings: list[Mapping]) -> list[str]:
    return list(dict.fromkeys(mapping.provider.removeprefix(f"{CUSTOM}:") for mapping in mappings))


def _line(entry: CallableModel) -> str:
    can = [name for name, able in entry["capabilities"].items() if able]
    price = f"${entry['pricing']['input']} in, ${entry['pricing']['output']} out per token"
    if entry["context_length"]:
        context = f"{entry['context_length']} tokens"
    else:
        context = "unknown"
    return (
        f"- **{entry['id']}**: by {', '.join(entry['providers'])}; {'free' if entry['free'] else price}; "
        f"context {context}; {', '.join(can) or 'text'}"
    )


def _rates(ctx: ToolContext, mapping: Mapping) -> TokenRates:
    prices = prices_at(mapping.prices, ctx.services.clock.now_us())
    if prices is not None:
        return prices.base
    return UNPRICED


def _image_price(rates: TokenRates) -> float | None:
    """Return the price of one image in US dollars, where it has a separate price."""
    known = rates.per_image.get("default", min(rates.per_image.values(), default=None))
    if known is None:
        return None
    return usd_number(known) / MILLION
