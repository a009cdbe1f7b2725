"""`GET /v1/models`: the catalogue as a caller may see it, one entry a model or, mapped, one a provider mapping."""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import orjson

from gateway.accounts.access import predicate
from gateway.catalogue.catalogue import Catalogue, day_of, state_on
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, Rates
from gateway.clock import from_datetime
from gateway.errors import NotFound
from gateway.money import format_price
from gateway.services import Services
from gateway.surfaces import auth
from gateway.surfaces.exchange import Inbound, Operation, Outbound

PSEUDO_PROVIDER = "llmgateway"
PSEUDO_MODELS = (
    ("auto", "Auto", "The gateway picks the cheapest model that can do what the request needs."),
    ("custom", "Custom", "The organization's own provider: any model name behind its base URL."),
)
# Prices of both levels, in the order of service.md's pricing object, and those of the model level only.
PRICES = (
    "prompt", "completion", "image", "input_audio", "input_audio_cache_read", "output_audio", "request",
    "input_cache_read", "input_cache_write", "input_cache_write_1h", "ocr_page", "input_audio_hour",
)  # fmt: skip
MODEL_PRICES = ("web_search", "internal_reasoning")
PARAMETERS = ("temperature", "max_tokens", "top_p")
PENALTIES = ("frequency_penalty", "presence_penalty")
REST = ("response_format", "tools", "tool_choice")
NO_PENALTIES = frozenset(("anthropic",))
NO_RATES = Rates()
DAY_US = 86_400_000_000
JSON = ("Content-Type", "application/json")
HEADERS = (("Cache-Control", "private, no-cache"), ("Vary", "Authorization, x-api-key"))

Allowed = Callable[[Mapping], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """The filters of service.md's table; a parameter counts when it is "true" (or "1")."""

    include_restricted: bool = False
    include_deactivated: bool = False
    exclude_deprecated: bool = False
    no_training: bool = False
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Audience:
    """Who reads the list. Equal keys share a cached list, so `key` stands for all that `allowed` and `extra` depend
    on; `extra` are entries of the caller's own custom models."""

    key: Hashable = ""
    allowed: Allowed | None = None
    extra: tuple[dict[str, Any], ...] = ()


PUBLIC = Audience()


def read_query(arguments: dict[str, str]) -> Query:
    """The query parameters of the list; unknown ones have no effect."""
    return Query(**{name: arguments.get(name, "").lower() in ("true", "1") for name in Query.__slots__})


def audience_of(services: Services, inbound: Inbound) -> Audience:
    """The public without a key; with one, what the caller's rules leave. Unauthenticated for a key that is not valid.

    The rules themselves are the cache key: callers under equal rules read one list.
    """
    token = auth.token_of(inbound)
    if not token:
        return PUBLIC
    caller = services.authentication.caller(token)
    refuse = predicate(caller.rules, services.clock.now_us())
    if refuse is None:
        return PUBLIC
    providers = services.catalogue.current().providers
    return Audience(caller.rules, lambda mapping: refuse(mapping, providers[mapping.provider]) is None)


def handle_models(services: Services, inbound: Inbound) -> Outbound:
    """The whole list, or 304 when the caller's If-None-Match names it. A key is checked even when the whole public
    catalogue is asked for."""
    query = read_query(inbound.arguments())
    audience = audience_of(services, inbound)
    tag, body = _listed(services, query, PUBLIC if query.include_restricted else audience)
    headers = [*HEADERS, ("ETag", tag), ("x-request-id", inbound.shown_id)]
    if _matches(inbound.header("if-none-match"), tag):
        return Outbound(304, headers)
    return Outbound(200, [JSON, *headers], body)


def handle_model(services: Services, inbound: Inbound) -> Outbound:
    """`GET /v1/models/<model>`: the entry of an id, an alias or provider/model. NotFound with near matches."""
    asked = inbound.params["model"]
    catalogue = services.catalogue.current()
    audience = audience_of(services, inbound)
    model = catalogue.find(asked if "/" not in asked else asked.split("/", 1)[1].split(":", 1)[0])
    wanted = model.id if model is not None and "/" not in asked else asked
    query = Query(include_deactivated=True, mapped="/" in asked)
    models = () if model is None else (model,)
    for entry in write_entries(catalogue, models, query, services.clock.now_us(), audience):
        if entry["id"] == wanted:
            return Outbound(200, [JSON, *HEADERS, ("x-request-id", inbound.shown_id)], orjson.dumps(entry))
    near = catalogue.suggest(asked)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise NotFound(f"The model '{asked[:100]}' does not exist.{hint}", param="model", code="model_not_found")


def _listed(services: Services, query: Query, audience: Audience) -> tuple[str, bytes]:
    """The ETag and the serialised list, made once for each catalogue, day, query and audience."""
    at_us = services.clock.now_us()
    holder = services.catalogue
    catalogue = holder.current()

    def make() -> tuple[str, bytes]:
        body = orjson.dumps(write_list(catalogue, query, at_us, audience))
        return f'"{hashlib.sha256(body).hexdigest()[:32]}"', body

    return holder.remember(("model list", catalogue.version, at_us // DAY_US, query, audience.key), make)


def write_list(catalogue: Catalogue, query: Query, at_us: int, audience: Audience = PUBLIC) -> dict[str, Any]:
    """The body of the list (service.md "Model list"), with what OpenAI's own clients expect beside it."""
    entries = list(write_entries(catalogue, catalogue.models.values(), query, at_us, audience))
    return {"object": "list", "data": entries}


def write_entries(
    catalogue: Catalogue, models: Iterable[Model], query: Query, at_us: int, audience: Audience
) -> Iterator[dict[str, Any]]:
    """The entries that pass the query's filters and the audience's, pseudo and custom models first."""
    day = day_of(at_us)
    if not query.no_training:
        yield from (_pseudo_entry(*told, mapped=query.mapped) for told in PSEUDO_MODELS)
        yield from audience.extra
    for model in models:
        mappings = [m for m in model.mappings if _is_listed(catalogue, m, query, day, audience.allowed)]
        if not mappings:
            continue
        if query.mapped:
            yield from (_mapped_entry(catalogue, model, mapping, at_us) for mapping in mappings)
        elif not (query.exclude_deprecated and state_on(model, day) != "active"):
            yield _model_entry(catalogue, model, mappings, at_us)


def _is_listed(catalogue: Catalogue, mapping: Mapping, query: Query, day: str, allowed: Allowed | None) -> bool:
    state = state_on(mapping, day)
    if state == "deactivated" and not query.include_deactivated:
        return False
    if state != "active" and query.exclude_deprecated and query.mapped:
        return False
    if query.no_training and catalogue.providers[mapping.provider].data_policy.api_training is not False:
        return False
    return allowed is None or allowed(mapping)


def _model_entry(catalogue: Catalogue, model: Model, mappings: list[Mapping], at_us: int) -> dict[str, Any]:
    priced = next((mapping for mapping in mappings if mapping.priced), mappings[0])
    return _entry(
        model,
        mappings,
        ident=model.id,
        name=model.name,
        owner=model.family or mappings[0].provider,
        providers=[_provider_entry(catalogue, mapping, at_us) for mapping in mappings],
        pricing=_pricing(priced, at_us, PRICES + MODEL_PRICES),
        context_length=max(m.context_length for m in mappings) or model.context_length,
        max_output=max(m.max_output for m in mappings) or model.max_output,
        dates=(_last(m.deprecated for m in mappings), _last(m.deactivated for m in mappings)),
        stability=model.stability,
    )


def _mapped_entry(catalogue: Catalogue, model: Model, mapping: Mapping, at_us: int) -> dict[str, Any]:
    """One mapping under the id that pins it: provider/model, with :region when it has one."""
    return _entry(
        model,
        [mapping],
        ident=mapping.key,
        name=f"{model.name} ({catalogue.providers[mapping.provider].name})",
        owner=mapping.provider,
        providers=[_provider_entry(catalogue, mapping, at_us)],
        pricing=_pricing(mapping, at_us, PRICES + MODEL_PRICES),
        context_length=mapping.context_length or model.context_length,
        max_output=mapping.max_output or model.max_output,
        dates=(mapping.deprecated, mapping.deactivated),
        stability=mapping.stability,
    )


def _entry(
    model: Model,
    mappings: list[Mapping],
    *,
    ident: str,
    name: str,
    owner: str,
    providers: list[dict[str, Any]],
    pricing: dict[str, Any],
    context_length: int,
    max_output: int,
    dates: tuple[str, str],
    stability: str,
) -> dict[str, Any]:
    return {
        "id": ident,
        "object": "model",
        "owned_by": owner,
        "name": name,
        "display_name": name,
        "aliases": list(model.aliases),
        "created": _unix(model.released),
        "description": model.description or f"{model.name} by {owner}.",
        "family": model.family,
        "architecture": {
            "input_modalities": _inputs(model, mappings),
            "output_modalities": list(model.output_modalities) or ["text"],
            "tokenizer": model.tokenizer,
        },
        "top_provider": {"is_moderated": True},
        "providers": providers,
        "pricing": pricing,
        "context_length": context_length,
        "max_output": max_output,
        "per_request_limits": _limits(model),
        "supported_parameters": _parameters(model, mappings),
        "json_output": any(m.json_output for m in mappings),
        "structured_outputs": any(m.json_output_schema for m in mappings),
        "free": model.free,
        "deprecated_at": _iso(dates[0]),
        "deactivated_at": _iso(dates[1]),
        "stability": stability,
    }


def _provider_entry(catalogue: Catalogue, mapping: Mapping, at_us: int) -> dict[str, Any]:
    """service.md "Provider mapping entry", and the region that tells variants apart."""
    provider = catalogue.providers[mapping.provider]
    return {
        "providerId": mapping.provider,
        "externalId": mapping.external_id,
        "region": mapping.region,
        "supportedVideoSizes": list(mapping.video_sizes),
        "supportsVideoAudio": mapping.video_audio,
        "supportsVideoWithoutAudio": mapping.video_without_audio,
        "pricing": _pricing(mapping, at_us, PRICES),
        "streaming": mapping.streaming and provider.streaming,
        "vision": mapping.vision,
        "realtime": mapping.realtime,
        "cancellation": provider.cancellation,
        "tools": mapping.tools,
        "parallelToolCalls": mapping.parallel_tool_calls,
        "reasoning": mapping.reasoning,
        "reasoning_efforts": list(mapping.reasoning_efforts),
        "reasoning_modes": list(mapping.reasoning_modes),
        "min_cacheable_tokens": mapping.min_cacheable_tokens,
        "max_output": mapping.max_output,
        "stability": mapping.stability,
    }


def _pricing(mapping: Mapping, at_us: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Today's base prices, exact decimal strings of USD a unit; "0" where there is none."""
    rates = _base_rates(mapping.prices, day_of(at_us))
    pricing: dict[str, Any] = {name: format_price(getattr(rates, name) or 0) for name in names}
    for name in ("per_second", "per_image"):
        pricing[name] = {key: format_price(price) for key, price in getattr(rates, name).items()}
    return pricing


def _base_rates(lists: tuple[Prices, ...], day: str) -> Rates:
    """The base of the newest price list that has begun, else of the oldest."""
    begun = [prices for prices in lists if prices.from_date <= day] or list(lists[:1])
    return begun[-1].base if begun else NO_RATES


def _pseudo_entry(ident: str, name: str, description: str, *, mapped: bool) -> dict[str, Any]:
    """A name that stands for a choice; what it costs and can do depends on what is chosen."""
    mapping = Mapping(
        provider=PSEUDO_PROVIDER,
        model=ident,
        external_id=ident,
        tools=True,
        parallel_tool_calls=True,
        vision=True,
        reasoning=True,
        json_output=True,
        json_output_schema=True,
    )
    model = Model(id=ident, name=name, family=PSEUDO_PROVIDER, description=description, mappings=(mapping,))
    pseudo = Catalogue((model,), (Provider(PSEUDO_PROVIDER, "LLM Gateway", "openai"),), {})
    return _mapped_entry(pseudo, model, mapping, 0) if mapped else _model_entry(pseudo, model, [mapping], 0)


def _inputs(model: Model, mappings: list[Mapping]) -> list[str]:
    found = list(model.input_modalities)
    for kind, offered in (("image", any(m.vision for m in mappings)), ("audio", any(m.audio for m in mappings))):
        if offered and kind not in found:
            found.append(kind)
    return found


def _parameters(model: Model, mappings: list[Mapping]) -> list[str]:
    """What the first mapping states, else what chat models commonly take, less what this one cannot do."""
    stated = mappings[0].supported_parameters
    if stated:
        names = list(stated)
    else:
        names = [*PARAMETERS, *(() if model.family in NO_PENALTIES else PENALTIES), *REST]
    if any(m.reasoning for m in mappings) and "reasoning" not in names:
        names.append("reasoning")
    return names


def _limits(model: Model) -> dict[str, str]:
    seconds = model.max_video_seconds
    return {"max_video_duration_seconds": str(seconds)} if seconds else {}


def _last(dates: Iterable[str]) -> str:
    """The last of the dates when every mapping has one: until then the model is served."""
    known = list(dates)
    return max(known) if all(known) else ""


def _unix(day: str) -> int:
    if not day:
        return 0
    moment = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    return from_datetime(moment) // 1_000_000


def _iso(day: str) -> str:
    return f"{day}T00:00:00.000Z" if day else ""


def _matches(header: str, tag: str) -> bool:
    """RFC 9110 section 13.1.2: any of a list, weak comparison, or "*"."""
    return header == "*" or any(part.strip().removeprefix("W/") == tag for part in header.split(",") if part.strip())


OPERATIONS = (
    Operation("GET", "/v1/models", handle_models),
    Operation("GET", "/v1/models/<path:model>", handle_model),
)
