"""The table of tools, and the execution of a tool call."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypedDict

import orjson
from msgspec import Struct

from gateway.callers.access import CUSTOM, Predicate, predicate
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model, TokenRates
from gateway.catalogue.lifecycle import shown_on
from gateway.catalogue.prices import UNPRICED, prices_at
from gateway.errors import GatewayError, RateLimited, Unavailable, UpstreamTimeout
from gateway.money import format_price, usd_number
from gateway.reports.report_answers import AccountReport, BreakdownReport, UsageReport
from gateway.reports.usage_reports import ReportScope, scope_of_caller
from gateway.routes.route_book import SMART_LISTED
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.mcp import generation, tool_schemas
from gateway.surfaces.mcp.json_rpc import TIMED_OUT, Fault
from gateway.surfaces.mcp.tool_schemas import Json, ToolContext, failed, structured, text_of
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.listing import prefer_reachable, reach_of

# The tools that list models: those that the caller's key may call, first those with a credential, with prices and
# capabilities.

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


class CallableRoute(TypedDict):
    """A name that chooses the model of each chat request by rules."""

    id: str
    description: str


class ModelList(TypedDict):
    models: list[CallableModel]
    routes: list[CallableRoute]


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
    """Return models by family, with capabilities and prices; those without a credential come last. Without a family
    the names of routes come first."""
    visible = list(_visible(ctx, arguments.include_deactivated, arguments.exclude_deprecated))
    family_name = (arguments.family or "").lower()
    matching = [candidate for candidate in visible if not family_name or candidate[1].family.lower() == family_name]
    reach = reach_of(ctx.services, ctx.caller)
    matching.sort(
        key=lambda candidate: (not _is_within(reach, candidate[2]), candidate[1].family.lower(), candidate[1].id)
    )
    shown = [_entry(ctx, reach, *candidate) for candidate in matching[: arguments.limit]]
    lines = [f"# Models (showing {len(shown)} of {len(matching)})"]
    routes = [] if family_name else _list_routes(ctx, reach)[: arguments.limit]
    if routes:
        lines += ["", "## Routes", "", *(f"- **{route['id']}**: {route['description']}" for route in routes)]
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
    listed: ModelList = {"models": shown, "routes": routes}
    return _listed("models", "\n".join(lines), listed)


def _list_routes(ctx: ToolContext, reach: frozenset[str]) -> list[CallableRoute]:
    """Return the names of routes that the caller can call."""
    named = {name: listing_module.SMART_DESCRIPTION for name in SMART_LISTED if name in reach}
    own = listing_module.organization_routes(ctx.services, ctx.caller)
    named |= {name: listing_module.ROUTE_DESCRIPTION for name, _ in own}
    return [{"id": name, "description": description} for name, description in named.items()]


def list_image_models(ctx: ToolContext, arguments: tool_schemas.AnyArguments) -> Json:
    """Return models that generate images; `default` is the default of generate-image, `altDefault` that of
    generate-alt-image."""
    default = uploads_module.model_of(ctx.services, ctx.caller, "").rpartition("/")[2]
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
    marked = " (default)" if entry["id"] == default else ""
    price = "" if entry["requestPrice"] is None else f", ${entry['requestPrice']:g} per image"
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
    own = services.routing.custom_catalogue.of(caller) if caller.key_kind == "user" else None
    rooms = [(catalogue, list(catalogue.models.values()))]
    if own is not None:
        rooms.insert(0, (own.current(), listing_module.own_models(catalogue, own.current())))
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
    context = f"{entry['context_length']} tokens" if entry["context_length"] else "unknown"
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


# The tools that report on the account: free, and available even when a limit is reached.


def _scope(ctx: ToolContext) -> ReportScope:
    """Return the caller's scope. It is read for each call, since permissions can change."""
    return scope_of_caller(ctx.caller)


def get_account(ctx: ToolContext, arguments: tool_schemas.NoArguments) -> Json:
    reports = ctx.services.billing.reports
    return structured(reports.get_account(_scope(ctx)))


def get_usage(ctx: ToolContext, arguments: tool_schemas.UsageArguments) -> Json:
    reports = ctx.services.billing.reports
    given = arguments.from_date, arguments.to_date, arguments.granularity
    return structured(reports.get_usage(_scope(ctx), *given))


def get_usage_breakdown(ctx: ToolContext, arguments: tool_schemas.BreakdownArguments) -> Json:
    reports = ctx.services.billing.reports
    given = arguments.group_by, arguments.sort_by, arguments.from_date, arguments.to_date
    return structured(reports.get_usage_breakdown(_scope(ctx), *given, arguments.limit, arguments.offset))


READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
MAKING = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}


class OfferedTool(Struct, frozen=True):
    """A tool: `arguments` is the struct that validates them; `output` the type of structured content, None
    without any."""

    name: str
    title: str
    description: str
    arguments: type
    run: Callable[[ToolContext, Any], Json]
    output: type | None = None
    hints: Json | None = None

    def show(self) -> Json:
        """Return its entry in the list of tools."""
        shown: Json = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": tool_schemas.schema_of(self.arguments),
        }
        if self.output is not None:
            shown["outputSchema"] = describe_answer(self.output)
        return shown | {"annotations": self.hints or READ_ONLY}


class Toolbox:
    """All tools by name: the product's, and `more`."""

    def __init__(self, more: Iterable[OfferedTool] = ()) -> None:
        self._tools = {tool.name: tool for tool in (*_tools(), *more)}
        self.shown = [tool.show() for tool in self._tools.values()]

    def find(self, name: Any) -> OfferedTool | None:
        if isinstance(name, str):
            return self._tools.get(name)
        return None


def call(tool: OfferedTool, ctx: ToolContext, given: Any) -> tuple[Json, GatewayError | None]:
    """Return the result, and the error if it reports one. RateLimited is raised, because clients read its header.
    Raises Fault for a timeout."""
    try:
        return tool.run(ctx, tool_schemas.read_arguments(tool.arguments, given)), None
    except RateLimited:
        raise
    except GatewayError as error:
        if isinstance(error, UpstreamTimeout) and ctx.services.clock.monotonic() >= ctx.deadline:
            raise _too_late(ctx, error) from None
        if isinstance(error, Unavailable) and tool.run.__module__ == __name__:
            error = Unavailable("Account data is temporarily unavailable; try again.")
        return failed(error), error


def _too_late(ctx: ToolContext, error: GatewayError) -> Fault:
    limit_s = ctx.services.settings.mcp.tool_timeout_s
    data = {"code": "tool_timeout", "timeout": round(limit_s * 1000)}
    return Fault(TIMED_OUT, f"The tool timed out after {limit_s:g} s.", data=data, error=error)


def _tools() -> list[OfferedTool]:
    return [
        OfferedTool(
            "get-account",
            "Account",
            "The owner of this API key (user, organization, project, role), its remaining limit, and credits.",
            tool_schemas.NoArguments,
            get_account,
            AccountReport,
        ),
        OfferedTool(
            "get-usage",
            "Usage",
            "Requests, tokens and costs over a period of at most 366 days (31 by the hour), in total and by day or "
            "hour, with the most used provider, model and app. Figures may lag by a minute.",
            tool_schemas.UsageArguments,
            get_usage,
            UsageReport,
        ),
        OfferedTool(
            "get-usage-breakdown",
            "Usage by provider, model, app or key",
            "Usage over a period, ranked; the next page starts at offset plus limit.",
            tool_schemas.BreakdownArguments,
            get_usage_breakdown,
            BreakdownReport,
        ),
        OfferedTool(
            "chat",
            "Chat",
            "Call a language model and return its complete response with token counts. Costs credits.",
            tool_schemas.ChatArguments,
            generation.chat,
            hints=MAKING,
        ),
        OfferedTool(
            "generate-image",
            "Generate images",
            "Generate images from a prompt. Costs credits.",
            tool_schemas.ImageArguments,
            generation.generate_image,
            hints=MAKING,
        ),
        OfferedTool(
            "generate-alt-image",
            "Generate an image by aspect ratio",
            "Generate one image from a prompt with the default image model; a server that keeps files stores it. "
            "Costs credits.",
            tool_schemas.AltImageArguments,
            generation.generate_alt_image,
            hints=MAKING,
        ),
        OfferedTool(
            "list-models",
            "Models",
            "Models that this key may call, with providers, capabilities and prices in US dollars per token.",
            tool_schemas.ListArguments,
            list_models,
            ModelList,
        ),
        OfferedTool(
            "list-image-models",
            "Image models",
            "Models that generate images, and the default model of generate-image.",
            tool_schemas.AnyArguments,
            list_image_models,
            ImageModelList,
        ),
    ]
