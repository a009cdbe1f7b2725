"""An entry of the model list: one for each model or, mapped, one for each provider mapping; with the reasoning efforts
of mappings that do not state any."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import orjson
from msgspec import Raw, Struct

from gateway.callers.access import CUSTOM, Predicate
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import RATE_NAMES, TABLE_RATES, Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.lifecycle import ACTIVE, DEACTIVATED, DEPRECATED, Dates, Lifecycle, dates_of, shown_on, state_on
from gateway.clock import from_datetime
from gateway.money import format_price
from gateway.neutral import parameters
from gateway.neutral.parameters import CAPABILITY_PARAMETERS, RISING
from gateway.neutral.request import AUTO
from gateway.neutral.units import DERIVED_PRICES, UNITS
from gateway.routes.route_book import SMART_LISTED
from gateway.surfaces.openai.model_answers import (
    ArchitectureAnswer,
    ModelAnswer,
    ModelStage,
    ProviderMappingAnswer,
    TopProviderAnswer,
)
from gateway.surfaces.web.listing import ROUTE_DESCRIPTION, SMART_DESCRIPTION, prefer_reachable

# Reasoning efforts of mappings that do not state any, as model lists show them.
#
# A catalogue entry may state the efforts that its provider accepts. Otherwise the levels follow from how the wire
# format requests reasoning: as a token budget, which has a size for every level, as a switch, or as levels. If the
# effort is passed on and the provider documents no levels, none are shown.

NONE = "none"
ALL_LEVELS = (NONE, *RISING)
ON_OFF_LEVELS = (NONE, "high")
DEPTHS = ("low", "high", "max")
BASIC = ("low", "medium", "high")
# Quirk → effective levels; the first match applies (gateway/providers/quirks.py).
BY_QUIRK: dict[str, tuple[str, ...]] = {
    "no_reasoning_effort": (),
    "effort_alone": DEPTHS,
    "thinking_and_effort": (NONE, *DEPTHS),
    "thinking_switch": ON_OFF_LEVELS,
    "enable_thinking": ON_OFF_LEVELS,
    "adaptive_thinking": ON_OFF_LEVELS,
    "template_thinking": ON_OFF_LEVELS,
    "none_or_high_effort": ON_OFF_LEVELS,
    "none_or_default_effort": ON_OFF_LEVELS,
    "basic_reasoning_effort": BASIC,
}
# Protocol, pattern of the provider's model id → levels; the first match applies. Sources: Google's guide, "Thinking":
# models of generation 2.5 have budgets, later ones levels, and the large ones cannot be switched off; Anthropic's and
# Amazon's guides, "Extended thinking"; OpenAI's model card of gpt-oss. A pattern with two parts begins at the first
# place of its first part, so that it takes linear time.
BY_FORMAT: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("google", re.compile(r"^(?:(?!gemini-2\.5).)*+gemini-2\.5.*-pro"), RISING),
    ("google", re.compile(r"gemini-2\."), ALL_LEVELS),
    ("google", re.compile(r"gemini-3-pro"), ("low", "high")),
    ("google", re.compile(r"^(?:(?!gemini-).)*+gemini-.*-pro"), BASIC),
    ("google", re.compile(r"gemini"), ("minimal", *BASIC)),
    ("google", re.compile(r"gemma"), ("minimal", "high")),
    ("anthropic", re.compile(r"claude"), ALL_LEVELS),
    ("bedrock", re.compile(r"claude"), ALL_LEVELS),
    ("bedrock", re.compile(r"kimi-k2"), BASIC),
    ("", re.compile(r"gpt-oss"), BASIC),
)


def shown_efforts(mapping: Mapping, provider: Provider) -> tuple[str, ...]:
    """Return the levels of a mapping; () if it does not reason, has no levels, or they are unknown."""
    if mapping.reasoning_efforts or not mapping.reasoning:
        return mapping.reasoning_efforts
    quirks = {*provider.quirks, *mapping.quirks}
    for quirk, levels in BY_QUIRK.items():
        if quirk in quirks:
            return levels
    protocol = mapping.protocol or provider.protocol
    for format_name, pattern, levels in BY_FORMAT:
        if format_name in ("", protocol) and pattern.search(mapping.external_id.lower()):
            return levels
    return ()


# Prices of an entry of the model list.

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


PSEUDO_PROVIDER = "llmgateway"
NAME_PLACEHOLDER = "\u2603name\u2603"  # placeholder for a model's name where entries are alike
PSEUDO_SINCE = "2026-01-01"
EPOCH = "1970-01-01"
STAGES: dict[Lifecycle, ModelStage] = {ACTIVE: "active", DEPRECATED: "deprecated", DEACTIVATED: "retired"}
PSEUDO_MODELS = (
    ("auto", "Auto", "The gateway selects the cheapest model that meets the requirements of the request."),
    *((name, "Smart", SMART_DESCRIPTION) for name in SMART_LISTED),
    ("custom", "Custom", "The organization's own provider: any model name that its base URL serves."),
)
PSEUDO_NAMES = frozenset(row[0] for row in PSEUDO_MODELS)
CHOOSING = (AUTO, *SMART_LISTED)  # those that choose among the models of the catalogue
PARAMETERS = ("temperature", "max_tokens", "top_p")
PENALTIES = tuple(row.field for row in CAPABILITY_PARAMETERS if row.capability is parameters.PENALTIES)
FORMAT = ("response_format",)
TOOLS = ("tools", "tool_choice")
CHAT = "chat"
NO_PENALTIES = frozenset(("anthropic",))
# Input besides text → the capability of a mapping that it requires.
MODALITIES = {"image": "vision", "audio": "audio", "pdf": "documents", "file": "documents"}

# Writes one mapping of an entry's `providers`, as an answer or as serialized JSON.
WriteProvider = Callable[[Catalogue, Mapping, int], Any]


class Query(Struct, frozen=True):
    """The filters of the list; a parameter is set when it is "true" (or "1")."""

    include_restricted: bool = False
    include_deactivated: bool = False
    exclude_deprecated: bool = False
    no_training: bool = False
    mapped: bool = False

    @property
    def narrows(self) -> bool:
        """Return whether it leaves out models that are in service."""
        return self.no_training or self.exclude_deprecated


def pseudo_entries(query: Query, names: frozenset[str], among: Sequence[Mapping] = ()) -> Iterator[ModelAnswer]:
    """Return the entries of the pseudo models in `names`; they promise nothing about training on data. An entry that
    chooses `among` mappings accepts as much as the largest of them; nothing is known of an organization's own
    provider."""
    if not query.no_training:
        shown = [row for row in PSEUDO_MODELS if row[0] in names]
        yield from (_pseudo_entry(*row, among if row[0] in CHOOSING else (), mapped=query.mapped) for row in shown)


def route_entries(query: Query, routes: Iterable[tuple[str, Sequence[Mapping]]]) -> Iterator[ModelAnswer]:
    """Return an entry for each name of a route, which accepts as much as the largest of its models."""
    if not query.no_training:
        for name, among in routes:
            yield _pseudo_entry(name, name, ROUTE_DESCRIPTION, among, mapped=query.mapped)


def write_entries(
    catalogue: Catalogue,
    models: Iterable[Model],
    query: Query,
    at_us: int,
    refuse: Predicate | None,
    reach: frozenset[str] = frozenset(),
) -> Iterator[ModelAnswer]:
    """Return the entries of the models of one catalogue that pass the query's filters and rules; sizes and price are
    those of the mappings in `reach`, if there are any."""
    for model in models:
        mappings = _shown(_allowed(catalogue, _offered(catalogue, model, query), refuse), query, day_of(at_us))
        if query.mapped:
            yield from (_mapped_entry(catalogue, model, mapping, at_us) for mapping in mappings)
        elif mappings:
            yield _model_entry(catalogue, model, mappings, at_us, prefer_reachable(mappings, reach))


class EntryParts:
    """The JSON of a catalogue's entries on one day. Each provider, and each entry that no rule affects, is serialized
    once for all lists."""

    def __init__(self, catalogue: Catalogue, at_us: int) -> None:
        self._catalogue = catalogue
        self._at_us = at_us
        self._providers: dict[str, Raw] = {}
        self._mapped: dict[str, bytes] = {}
        self._models: dict[tuple[str, ...], bytes] = {}  # by the model's id and the keys of the mappings shown

    def serialise(self, query: Query, refuse: Predicate | None, first: frozenset[str] = frozenset()) -> list[bytes]:
        """Return all entries of `write_entries` as JSON: those with a mapping whose key is in `first` come first."""
        former: list[bytes] = []
        latter: list[bytes] = []
        for entry, mappings in self._serialise(query, refuse, first):
            chosen = former if any(mapping.key in first for mapping in mappings) else latter
            chosen.append(entry)
        return former + latter

    def _serialise(
        self, query: Query, refuse: Predicate | None, first: frozenset[str]
    ) -> Iterator[tuple[bytes, list[Mapping]]]:
        """Return each entry as JSON, and the mappings that it shows."""
        catalogue = self._catalogue
        day = day_of(self._at_us)
        for model in catalogue.models.values():
            offered = _offered(catalogue, model, query)
            allowed = _allowed(catalogue, offered, refuse)
            mappings = _shown(allowed, query, day)
            if query.mapped:
                yield from ((self._mapped_entry(model, mapping), [mapping]) for mapping in mappings)
            elif mappings:
                measured = prefer_reachable(mappings, first)
                touched = len(allowed) < len(offered) or len(measured) < len(mappings)
                yield self._model_entry(model, mappings, measured, touched=touched), mappings

    def _mapped_entry(self, model: Model, mapping: Mapping) -> bytes:
        known = self._mapped.get(mapping.key)
        if known is None:
            entry = _mapped_entry(self._catalogue, model, mapping, self._at_us, self._provider)
            known = self._mapped[mapping.key] = entry.encode()
        return known

    def _model_entry(
        self, model: Model, mappings: list[Mapping], measured: Sequence[Mapping], *, touched: bool
    ) -> bytes:
        """Return the entry of a model. An entry `touched` by rules or credentials is not cached: they have too many
        combinations."""
        place = (model.id, *(mapping.key for mapping in mappings))
        known = None if len(measured) < len(mappings) else self._models.get(place)
        if known is None:
            known = _model_entry(self._catalogue, model, mappings, self._at_us, measured, self._provider).encode()
            if not touched:
                self._models[place] = known
        return known

    def _provider(self, catalogue: Catalogue, mapping: Mapping, at_us: int) -> Raw:
        known = self._providers.get(mapping.key)
        if known is None:
            written = _provider_entry(catalogue, mapping, at_us).encode()
            known = self._providers[mapping.key] = Raw(written)
        return known


def serialise_alike(
    own: Catalogue, models: Iterable[Model], query: Query, at_us: int, refuse: Predicate | None
) -> Iterator[bytes]:
    """Return the entries of an organization's own models as JSON, like `write_entries`. Most of them differ only by
    name, so their common part is serialized once: equal prices are one object."""
    forms: dict[tuple[Any, ...], list[bytes]] = {}
    for model in models:
        mapping = model.mappings[0]
        name = mapping.model
        known = (mapping.provider, id(mapping.prices), mapping.context_length, mapping.max_output)
        if query.narrows or NAME_PLACEHOLDER in name:
            yield from (entry.encode() for entry in write_entries(own, (model,), query, at_us, refuse))
            continue
        if refuse is not None and refuse(mapping, own.providers[mapping.provider]) is not None:
            continue
        form = forms.get(known)
        if form is None:
            form = forms[known] = _form(own, model, query, at_us)
        yield orjson.dumps(name)[1:-1].join(form)


def _form(own: Catalogue, model: Model, query: Query, at_us: int) -> list[bytes]:
    """Return the entry of a model as JSON, split where its name belongs."""
    mapping = replace(model.mappings[0], model=NAME_PLACEHOLDER, external_id=NAME_PLACEHOLDER)
    ident = model.id.removesuffix(model.name) + NAME_PLACEHOLDER
    marked = replace(model, id=ident, name=NAME_PLACEHOLDER, mappings=(mapping,))
    (entry,) = write_entries(own, (marked,), query, at_us, None)
    return entry.encode().split(NAME_PLACEHOLDER.encode())


def _offered(catalogue: Catalogue, model: Model, query: Query) -> list[Mapping]:
    """Return the model's callable mappings, which need a price, that pass the query's filter of providers."""
    priced = [mapping for mapping in model.mappings if mapping.priced]
    if not query.no_training:
        return priced
    providers = catalogue.providers
    return [mapping for mapping in priced if providers[mapping.provider].data_policy.api_training is False]


def _shown(mappings: list[Mapping], query: Query, day: str) -> list[Mapping]:
    """Return the mappings that pass the query's filters of state: an entry is left out according to the dates that it
    would show."""
    entries = [[mapping] for mapping in mappings] if query.mapped else [mappings]
    return [
        shown
        for entry in entries
        for shown in shown_on(
            entry, day, include_deactivated=query.include_deactivated, exclude_deprecated=query.exclude_deprecated
        )
    ]


def _allowed(catalogue: Catalogue, mappings: list[Mapping], refuse: Predicate | None) -> list[Mapping]:
    if refuse is None:
        return mappings
    providers = catalogue.providers
    return [mapping for mapping in mappings if refuse(mapping, providers[mapping.provider]) is None]


def _model_entry(
    catalogue: Catalogue,
    model: Model,
    mappings: list[Mapping],
    at_us: int,
    measured: Sequence[Mapping],
    provider: WriteProvider | None = None,
) -> ModelAnswer:
    """Return the entry of a model with its mappings; `measured` are those from which it has sizes and price."""
    write_provider = provider or _provider_entry
    return _entry(
        catalogue,
        model,
        mappings,
        ident=model.id,
        name=model.name,
        owner=model.family or mappings[0].provider,
        providers=[write_provider(catalogue, mapping, at_us) for mapping in mappings],
        pricing=write_pricing(measured[0], at_us, MODEL_PRICES),
        context_length=max(m.context_length for m in measured) or model.context_length,
        max_output=max(m.max_output for m in measured) or model.max_output,
        dates=dates_of(mappings),
        day=day_of(at_us),
        stability=model.stability,
    )


def _mapped_entry(
    catalogue: Catalogue, model: Model, mapping: Mapping, at_us: int, provider: WriteProvider | None = None
) -> ModelAnswer:
    """Return one mapping under the id that selects it: provider/model, with :region when it has one. An organization's
    own provider is called by its bare name."""
    write_provider = provider or _provider_entry
    return _entry(
        catalogue,
        model,
        [mapping],
        ident=mapping.key.removeprefix(f"{CUSTOM}:"),
        name=f"{model.name} ({catalogue.providers[mapping.provider].name})",
        owner=mapping.provider,
        providers=[write_provider(catalogue, mapping, at_us)],
        pricing=write_pricing(mapping, at_us, MODEL_PRICES),
        context_length=mapping.context_length or model.context_length,
        max_output=mapping.max_output or model.max_output,
        dates=dates_of((mapping,)),
        day=day_of(at_us),
        stability=mapping.stability,
    )


def _entry(
    catalogue: Catalogue,
    model: Model,
    mappings: list[Mapping],
    *,
    ident: str,
    name: str,
    owner: str,
    providers: list[Any],
    pricing: dict[str, Any],
    context_length: int,
    max_output: int,
    dates: Dates,
    day: str,
    stability: str,
) -> ModelAnswer:
    successor = catalogue.successor(model, day) if dates.deprecated or dates.deactivated else None
    return ModelAnswer(
        id=ident,
        owned_by=owner,
        name=name,
        display_name=name,
        aliases=list(model.aliases),
        created=_unix(model.released),
        created_at=_iso(model.released or EPOCH),
        description=model.description or f"{model.name} by {owner}.",
        family=model.family,
        architecture=ArchitectureAnswer(
            _inputs(model, mappings), list(model.output_modalities) or ["text"], model.tokenizer
        ),
        top_provider=TopProviderAnswer(),
        providers=providers,
        pricing=pricing,
        context_length=context_length,
        max_output=max_output,
        per_request_limits=_limits(model),
        supported_parameters=_parameters(model, mappings),
        json_output=any(m.json_output for m in mappings),
        structured_outputs=any(m.json_output_schema for m in mappings),
        free=model.free,
        deprecated_at=_iso(dates.deprecated),
        deactivated_at=_iso(dates.deactivated),
        successor="" if successor is None else successor.id,
        lifecycle=STAGES[state_on(dates, day)],
        stability=stability,
    )


def _provider_entry(catalogue: Catalogue, mapping: Mapping, at_us: int) -> ProviderMappingAnswer:
    """Return the provider's part of an entry, with the region that distinguishes variants."""
    provider = catalogue.providers[mapping.provider]
    return ProviderMappingAnswer(
        providerId=mapping.provider,
        externalId=mapping.external_id,
        region=mapping.region,
        supportedVideoSizes=list(mapping.video_sizes),
        supportsVideoAudio=mapping.video_audio,
        supportsVideoWithoutAudio=mapping.video_without_audio,
        pricing=write_pricing(mapping, at_us, MAPPING_PRICES),
        streaming=mapping.streaming and provider.streaming,
        vision=mapping.vision,
        realtime=mapping.realtime,
        cancellation=provider.cancellation,
        tools=mapping.tools,
        parallelToolCalls=mapping.parallel_tool_calls,
        reasoning=mapping.reasoning,
        reasoning_efforts=list(shown_efforts(mapping, provider)),
        reasoning_modes=list(mapping.reasoning_modes),
        min_cacheable_tokens=mapping.min_cacheable_tokens,
        max_output=mapping.max_output,
        stability=mapping.stability,
        batch_multiplier=mapping.batch_multiplier,
    )


def _pseudo_entry(ident: str, name: str, description: str, among: Sequence[Mapping], *, mapped: bool) -> ModelAnswer:
    """Return the entry of a pseudo model; its cost and capabilities depend on the chosen model."""
    mapping = Mapping(
        provider=PSEUDO_PROVIDER,
        model=ident,
        external_id=ident,
        prices=highest_of(among),
        context_length=max((mapping.context_length for mapping in among), default=0),
        max_output=max((mapping.max_output for mapping in among), default=0),
        tools=True,
        parallel_tool_calls=True,
        vision=True,
        reasoning=True,
        json_output=True,
        json_output_schema=True,
    )
    model = Model(
        id=ident,
        name=name,
        family=PSEUDO_PROVIDER,
        description=description,
        released=PSEUDO_SINCE,
        mappings=(mapping,),
    )
    pseudo = Catalogue((model,), (Provider(PSEUDO_PROVIDER, "LLM Gateway", "openai"),), {})
    if mapped:
        return _mapped_entry(pseudo, model, mapping, 0)
    return _model_entry(pseudo, model, [mapping], 0, [mapping])


def _inputs(model: Model, mappings: list[Mapping]) -> list[str]:
    """Return the inputs that the model and at least one of these mappings accept: a chat is never sent to a mapping
    that lacks one."""
    offered = {kind: any(getattr(m, ability) for m in mappings) for kind, ability in MODALITIES.items()}
    chats = all(CHAT in m.operations for m in mappings)
    kinds = [kind for kind in model.input_modalities if not chats or offered.get(kind, True)]
    return kinds + [kind for kind in ("image", "audio") if offered[kind] and kind not in kinds]


def _parameters(model: Model, mappings: list[Mapping]) -> list[str]:
    """Return the parameters of the first mapping, else those that chat models commonly accept, without those that this
    one does not support."""
    stated = mappings[0].supported_parameters
    if stated:
        names = list(stated)
    elif not any(CHAT in m.operations for m in mappings):
        return []
    else:
        names = [*PARAMETERS, *(() if model.family in NO_PENALTIES else PENALTIES)]
        names += FORMAT if any(m.json_output for m in mappings) else ()
        names += TOOLS if any(m.tools for m in mappings) else ()
    if any(m.reasoning for m in mappings) and "reasoning" not in names:
        names.append("reasoning")
    return names


def _limits(model: Model) -> dict[str, str]:
    seconds = model.max_video_seconds
    if seconds:
        return {"max_video_duration_seconds": str(seconds)}
    return {}


def _unix(day: str) -> int:
    if not day:
        return 0
    moment = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    return from_datetime(moment) // 1_000_000


def _iso(day: str) -> str:
    if day:
        return f"{day}T00:00:00.000Z"
    return ""
