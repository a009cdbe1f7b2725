"""Loads the catalogue: snapshot < config/catalogue < the operator's folder, with checks that report every mistake."""

import dataclasses
import re
from calendar import month_name
from collections.abc import Callable, Iterable
from collections.abc import Mapping as Environment
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import (
    BACKGROUND_APIS,
    BATCH_APIS,
    FILES_APIS,
    IDENTITIES,
    PROTOCOLS,
    Mapping,
    Model,
    Prices,
    ProtocolEntry,
    Provider,
    Tier,
    TokenRates,
)
from gateway.catalogue.environment_credentials import PREFIX, credentials_for, settings_for, variables_of
from gateway.catalogue.field_checks import required_fields
from gateway.catalogue.layers import Fields, Layer, overlay, read_folder, read_snapshot, read_tables
from gateway.catalogue.lifecycle import dates_of
from gateway.configuration.file import NAME, SettingsError, TomlPlace, missing_file
from gateway.configuration.setting_checks import suggest_similar, unknown_variables
from gateway.configuration.settings import CONFIG, Settings
from gateway.neutral.hosted_uses import LONG, TOOL_MODEL_COUNTS, undated
from gateway.neutral.units import PRICE_OF_COUNT

# Prices of the tools that providers run, as every mapping of a provider gets them.

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


# Generated descriptions of models without one in their entry.

KIND_WORDS = {
    "embedding": "embedding model",
    "rerank": "reranking model",
    "transcription": "transcription model",
    "ocr": "document reading model",
    "decision": "decision model",
    "video": "video model",
    "image": "image model",
    "audio": "speech model",
}
INPUT_WORDS = {"image": "images", "audio": "audio", "video": "video", "pdf": "PDF files"}
MILLION = 1_000_000


def describe(model: Model, mappings: tuple[Mapping, ...], vendor: str) -> str:
    """Return a few sentences: kind and vendor of the model, its inputs, capabilities and limits."""
    origin = f" by {vendor}" if vendor else ""
    first = f"{model.name or model.id} is {_kind(model, mappings)}{origin}"
    if model.released:
        first += f", released in {month_name[int(model.released[5:7])]} {model.released[:4]}"
    sentences = [first, *_abilities(model, mappings), *_sizes(mappings)]
    return ". ".join(sentences) + "."


def _kind(model: Model, mappings: tuple[Mapping, ...]) -> str:
    outputs = model.output_modalities
    if "text" not in outputs:
        words = next((word for kind, word in KIND_WORDS.items() if kind in outputs), "model")
    elif any(mapping.reasoning for mapping in mappings):
        words = "reasoning model"
    else:
        words = "language model"
    also = " that also makes images" if "text" in outputs and "image" in outputs else ""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}{also}"


def _abilities(model: Model, mappings: tuple[Mapping, ...]) -> list[str]:
    sentences = []
    read = [word for kind, word in INPUT_WORDS.items() if kind in model.input_modalities]
    if read:
        sentences.append(f"It reads {_join(['text', *read] if 'text' in model.input_modalities else read)}")
    able = [
        words
        for words, has in (
            ("tool calls", any(mapping.tools for mapping in mappings)),
            ("structured output", any(mapping.json_output_schema for mapping in mappings)),
            ("web search", any(mapping.web_search for mapping in mappings)),
        )
        if has
    ]
    if able:
        sentences.append(f"It supports {_join(able)}")
    return sentences


def _sizes(mappings: tuple[Mapping, ...]) -> list[str]:
    context = max(mapping.context_length for mapping in mappings)
    output = max(mapping.max_output for mapping in mappings)
    if not context:
        return []
    limit = f" and writes up to {_short(output)}" if output and "chat" in mappings[0].operations else ""
    return [f"It takes up to {_short(context)} tokens{limit}"]


def _short(tokens: int) -> str:
    if tokens >= MILLION and tokens % MILLION < MILLION // 10:
        return f"{tokens // MILLION} million"
    return f"{tokens:,}"


def _join(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


FOLDER = CONFIG / "catalogue"
SNAPSHOT = "snapshot.json.gz"
# Operations that are split into several calls if one call accepts or generates too few items.
EMBEDDINGS = "embeddings"
IMAGES = "images"
CHAT = "chat"
OTHER_FAMILY = "other"  # the family of models from many small vendors
VERSION_END = re.compile(r"/v\d[a-z0-9]*+$")
DATE = re.compile(r"20\d\d-[01]\d-[0-3]\d")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
Tables = Environment[str, Any]
# Catalogues without problems that something still uses: the same files are the same catalogue.
_in_use: WeakValueDictionary[tuple[Any, ...], Catalogue] = WeakValueDictionary()


class CatalogueError(SettingsError):
    """All problems of the catalogue, one line each."""


@dataclass(frozen=True, slots=True)
class CatalogueSources:
    """The sources of a catalogue.

    `folder` is the gateway's own, `path` the operator's folder ("" = none), and `tables` the catalogue's part of the
    operator's `file`. `sandbox` False excludes the built-in provider. `environment` is checked for unknown variables
    of providers, except those that are `referred` to; None disables the check.
    """

    path: str = ""
    sandbox: bool = True
    folder: Path = FOLDER
    tables: Tables = field(default_factory=dict)
    environment: Environment[str, str] | None = None
    referred: frozenset[str] = frozenset()
    file: TomlPlace = field(default=TomlPlace(NAME), compare=False)


def sources_of(settings: Settings) -> CatalogueSources:
    """Return the sources that the settings name."""
    chosen = settings.catalogue
    file = settings.file
    place = TomlPlace(Path(file.path).name or NAME, "", file.lines)
    return CatalogueSources(
        chosen.path, chosen.sandbox, FOLDER, file.catalogue, settings.environment, file.variables, place
    )


def load(path: str = "", *, sandbox: bool = True, folder: Path = FOLDER, tables: Tables | None = None) -> Catalogue:
    """Load the catalogue. CatalogueError lists every mistake."""
    return load_from(CatalogueSources(path, sandbox, folder, tables or {}))


def load_from(sources: CatalogueSources) -> Catalogue:
    """Load the catalogue from these sources. CatalogueError lists every mistake."""
    catalogue, problems = examine(sources)
    if problems:
        raise CatalogueError("\n".join(problems))
    return catalogue


def check(path: str = "", *, folder: Path = FOLDER) -> list[str]:
    """Return every mistake in all catalogue files, one line each; empty if there are none."""
    return find_problems(CatalogueSources(path, folder=folder))


def find_problems(sources: CatalogueSources) -> list[str]:
    """Return every mistake in these sources, one line each."""
    return examine(sources)[1]


def examine(sources: CatalogueSources) -> tuple[Catalogue, list[str]]:
    """Return the valid part of the catalogue in these sources, and every mistake, one line each."""
    path = sources.path
    folder = sources.folder
    layers = [read_snapshot(folder / SNAPSHOT), read_folder(folder)]
    missing = [] if not path or Path(path).is_dir() else [f"GATEWAY_CATALOGUE_PATH: {missing_file(Path(path))}"]
    if path and not missing:
        layers.append(read_folder(Path(path)))
    if sources.tables:
        layers.append(read_tables(dict(sources.tables), sources.file))
    merged = overlay(layers)
    problems = missing + merged.problems + _unknown_providers(layers, merged)
    catalogue, mistakes = _build(merged, sources.sandbox)
    problems.extend(mistakes)
    if sources.environment is not None:
        problems.extend(_unknown_variables(layers, merged, sources.environment, sources.referred))
        problems.extend(_unreadable(catalogue.providers.values(), sources.environment))
    return catalogue, problems


def _build(merged: Layer, sandbox: bool) -> tuple[Catalogue, list[str]]:
    """Return the catalogue of merged layers, and its mistakes."""
    # Extensions may add protocols, whose defaults the entries get.
    key = (merged.digest, sandbox, *PROTOCOLS)
    known = _in_use.get(key)
    if known is not None and not merged.problems:
        return known, []
    problems: list[str] = []
    providers = _build_providers(merged, sandbox, problems)
    models = _build_models(merged, providers, problems)
    problems.extend(_unknown_dates(providers.values(), models))
    aliases = _resolve_aliases(merged, models, problems)
    catalogue = Catalogue(_with_names(models, aliases), providers.values(), aliases, merged.digest)
    if not problems and not merged.problems:
        _in_use[key] = catalogue
    return catalogue, problems


def _unknown_providers(layers: list[Layer], merged: Layer) -> list[str]:
    """Return problems for providers that the operator's file mentions but no layer defines."""
    return [
        f"{dataclasses.replace(layers[-1].places[Provider, ident], entry='')}: "
        f"there is no provider {ident}{suggest_similar(ident, merged.providers)}"
        for ident in layers[-1].named
        if ident not in merged.providers and ident not in layers[-1].providers
    ]


def _unknown_variables(
    layers: list[Layer], merged: Layer, environment: Environment[str, str], referred: frozenset[str]
) -> list[str]:
    """Return problems for LLM_* variables of no provider; those of a removed provider are accepted."""
    fields: dict[str, list[Fields]] = {}
    for layer in layers:
        for ident, entry in layer.providers.items():
            fields.setdefault(ident, []).append(entry)
    known = {name for ident in merged.named for name in variables_of(ident, fields.get(ident, []))} | referred
    return unknown_variables(environment, PREFIX, known)


def _unreadable(providers: Iterable[Provider], environment: Environment[str, str]) -> list[str]:
    """Return problems for unreadable files of keys and settings that a variable names."""
    problems = []
    for provider in providers:
        for look_up in (credentials_for, settings_for):
            try:
                look_up(provider, environment)
            except SettingsError as error:
                problems.append(str(error))
    return list(dict.fromkeys(problems))


def _with_names(models: dict[str, Model], aliases: dict[str, str]) -> Iterable[Model]:
    """Return the models with all their aliases, without aliases that mean another model."""
    names: dict[str, list[str]] = {}
    for alias, ident in aliases.items():
        names.setdefault(ident, []).append(alias)
    full = [(model, tuple(names.get(ident, ()))) for ident, model in models.items()]
    return [model if model.aliases == own else dataclasses.replace(model, aliases=own) for model, own in full]


def _unknown_dates(providers: Iterable[Provider], models: dict[str, Model]) -> list[str]:
    """Return problems for dates of models that their provider does not serve."""
    served = {(mapping.provider, ident) for ident, model in models.items() for mapping in model.mappings}
    return [
        f"provider {provider.id}: a date for {ident}, which it does not serve"
        for provider in providers
        for ident in (*provider.deprecated_models, *provider.deactivated_models)
        if (provider.id, ident) not in served
    ]


def _build_providers(merged: Layer, sandbox: bool, problems: list[str]) -> dict[str, Provider]:
    ready = {}
    for ident, fields in merged.providers.items():
        where = _place(merged, Provider, ident, f"provider {ident}")
        if not _complete(Provider, fields, where, [] if (Provider, ident) in merged.faulty else problems):
            continue
        provider = Provider(**_with_defaults(fields))
        problems.extend(_provider_mistakes(provider, where))
        if sandbox or provider.protocol != "sandbox":
            ready[ident] = provider
    return ready


def _with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Fill in `auth` by protocol, and `version_path` by the address, or by protocol for a provider without one."""
    address = fields.get("address", "")
    version = VERSION_END.search(address)
    usual = PROTOCOLS.get(fields["protocol"]) or ProtocolEntry()
    version_path = "" if address else usual.version_path
    if version:
        version_path = version.group()
    defaults = {"auth": usual.auth, "version_path": version_path}
    return defaults | fields


def _place(merged: Layer, kind: type, key: Any, name: str) -> TomlPlace | str:
    """Return the location of an entry, else its name; the line is searched only if a message needs it."""
    return merged.places.get((kind, key)) or name


def _provider_mistakes(provider: Provider, where: TomlPlace | str) -> list[str]:
    problems = [
        f"{where}: address has {{{name}}} but settings does not"
        for name in PLACEHOLDER.findall(provider.address or provider.version_path)
        if name not in provider.settings
    ]
    if provider.identity and provider.identity not in IDENTITIES:
        known = ", ".join(IDENTITIES)
        problems.append(f"{where}: there is no workload identity {provider.identity!r}; there are {known}")
    if provider.address and not provider.address.endswith(provider.version_path):
        problems.append(f"{where}: address does not end with version_path {provider.version_path}")
    for table in (provider.deprecated_models, provider.deactivated_models):
        problems += [
            f"{where}: {model} = {text!r} is no date" for model, text in table.items() if not DATE.fullmatch(text)
        ]
    if provider.batch_api and provider.batch_api not in BATCH_APIS:
        problems.append(f"{where}: there is no batch API {provider.batch_api!r}; there are {', '.join(BATCH_APIS)}")
    if bool(provider.batch_api) != bool(provider.batch_multiplier):
        problems.append(f"{where}: batch_api and batch_multiplier belong together")
    if provider.files_api and provider.files_api not in FILES_APIS:
        problems.append(f"{where}: there is no files API {provider.files_api!r}; there are {', '.join(FILES_APIS)}")
    if bool(provider.files_api) != bool(provider.upload_mb):
        problems.append(f"{where}: files_api and upload_mb belong together")
    if provider.background_api and provider.background_api not in BACKGROUND_APIS:
        known = ", ".join(BACKGROUND_APIS)
        problems.append(f"{where}: there is no background API {provider.background_api!r}; there are {known}")
    if any(not text for text in provider.service_tiers.values()):
        problems.append(f"{where}: service_tiers needs a multiplier for each tier")
    return problems


def _build_models(merged: Layer, providers: dict[str, Provider], problems: list[str]) -> dict[str, Model]:
    served: dict[str, list[Mapping]] = {}
    for (provider_id, model_id, region), fields in merged.mappings.items():
        name = f"mapping {provider_id}/{model_id}{':' + region if region else ''}"
        key = (provider_id, model_id, region)
        where = _place(merged, Mapping, key, name)
        provider = providers.get(provider_id)
        if provider_id not in merged.providers:
            problems.append(f"{where}: no such provider {provider_id}{suggest_similar(provider_id, merged.providers)}")
        if model_id not in merged.models:
            problem = f"no such model {model_id}{suggest_similar(model_id, merged.models)}"
            problems.append(f"{where}: {problem}; a new one needs an entry in [[models]]")
        elif provider and not (provider.protocol or fields.get("protocol")):
            problems.append(f"{where}: the provider {provider_id} has no protocol, so the entry needs one")
        elif _complete(Mapping, fields, where, [] if (Mapping, key) in merged.faulty else problems) and provider:
            served.setdefault(model_id, []).append(_finish_mapping(fields, provider, where, problems))
    served = with_tool_models(served, providers)
    ready = {}
    vendors = {
        provider.id: provider.name for provider in providers.values() if provider.sources.get("maker") == provider.id
    }
    for ident, fields in merged.models.items():
        if ident in served:
            vendor = fields.get("family", "")
            model = _finish_model(fields, _first_party_first(served[ident], providers, vendor))
            maker = vendors.get(vendor) or ("" if vendor == OTHER_FAMILY else vendor.title())
            description = model.description or describe(model, model.mappings, maker)
            ready[ident] = dataclasses.replace(model, description=description)
    return ready


def _first_party_first(mappings: list[Mapping], providers: dict[str, Provider], vendor: str) -> tuple[Mapping, ...]:
    def is_other(mapping: Mapping) -> bool:
        return not _is_first_party(providers[mapping.provider], vendor)

    return tuple(sorted(mappings, key=is_other))


def _is_first_party(provider: Provider, vendor: str) -> bool:
    """Return whether the provider is the vendor's own: it comes first because the model list shows its price."""
    return bool(vendor) and vendor == provider.sources.get("maker", "")


_compile = cache(re.compile)  # of patterns of providers, for each of their models


def _finish_mapping(fields: dict[str, Any], provider: Provider, where: TomlPlace | str, problems: list[str]) -> Mapping:
    tiers = fields.get("service_tiers")
    if tiers:
        full = {name: text or provider.service_tiers.get(name, "") for name, text in tiers.items()}
        problems.extend(f"{where}: no multiplier for tier {name}" for name, text in full.items() if not text)
        fields = fields | {"service_tiers": {name: text for name, text in full.items() if text}}
    if provider.batch_multiplier and "batch_multiplier" not in fields:
        taken = _compile(provider.batch_models)
        if taken.search(fields["model"]):
            price, cached = provider.batch_multiplier, provider.batch_cache_multiplier
            fields = {**fields, "batch_multiplier": price, "batch_cache_multiplier": cached}
    usual = usual_prices(fields, provider)
    if usual:
        fields = fields | {"prices": tuple(with_tools(prices, usual) for prices in fields.get("prices", ()))}
    dates = {
        name: table[fields["model"]]
        for name, table in (("deprecated", provider.deprecated_models), ("deactivated", provider.deactivated_models))
        if fields["model"] in table and not fields.get(name)
    }
    return Mapping(**_with_most_of_a_call(fields, provider) | dates)


def _with_most_of_a_call(fields: dict[str, Any], provider: Provider) -> dict[str, Any]:
    """Return the fields with the item limits of one call, if the entry does not state them."""
    protocol = PROTOCOLS.get(fields.get("protocol") or provider.protocol) or ProtocolEntry()
    operations = fields.get("operations", ())
    if EMBEDDINGS in operations and not fields.get("max_inputs"):
        fields = fields | {"max_inputs": protocol.max_inputs}
    if IMAGES in operations and not fields.get("max_n"):
        parameters = fields.get("supported_parameters")
        maximum = 1 if parameters and "n" not in parameters else protocol.max_images
        fields = fields | {"max_n": maximum}
    if fields.get("supports_n") and not fields.get("max_streamed_n"):
        fields = fields | {"max_streamed_n": protocol.max_streamed_n}
    return fields


def _finish_model(fields: dict[str, Any], mappings: tuple[Mapping, ...]) -> Model:
    """Return the model with limits and dates derived from its mappings.

    Its mappings get the model's own dates if they have none.
    """
    model = Model(**fields)
    if model.deprecated or model.deactivated:
        mappings = tuple(_with_dates_of(model, mapping) for mapping in mappings)
    dates = dates_of(mappings)
    max_output = model.max_output or max(mapping.max_output for mapping in mappings)
    mappings = tuple(_with_limit(mapping, max_output) for mapping in mappings)
    return dataclasses.replace(
        model,
        name=model.name or model.id,
        context_length=model.context_length or max(mapping.context_length for mapping in mappings),
        max_output=max_output,
        deprecated=dates.deprecated,
        deactivated=dates.deactivated,
        mappings=mappings,
    )


def _with_limit(mapping: Mapping, max_output: int) -> Mapping:
    """Return the mapping with the model's own output limit if its provider states none."""
    if mapping.max_output or not max_output or CHAT not in mapping.operations:
        return mapping
    return dataclasses.replace(mapping, max_output=max_output)


def _with_dates_of(model: Model, mapping: Mapping) -> Mapping:
    return dataclasses.replace(
        mapping,
        deprecated=mapping.deprecated or model.deprecated,
        deactivated=mapping.deactivated or model.deactivated,
    )


def _complete(kind: type, fields: dict[str, Any], where: TomlPlace | str, problems: list[str]) -> bool:
    absent = [name for name in required_fields(kind) if name not in fields]
    problems.extend(f"{where}: {name} is missing" for name in absent)
    return not absent


def _resolve_aliases(merged: Layer, models: dict[str, Model], problems: list[str]) -> dict[str, str]:
    """Return alias → model id. An alias of the file takes precedence over a model's own; a model's id over any
    alias.
    """
    aliases: dict[str, str] = {}
    for model in models.values():
        for alias in model.aliases:
            other = aliases.setdefault(alias, model.id)
            if other != model.id and alias not in merged.aliases:
                problems.append(f"alias {alias}: claimed by {other} and {model.id}")
    for alias, ident in merged.aliases.items():
        if ident in models:
            aliases[alias] = ident
        elif ident not in merged.models:
            place = merged.places.get((str, alias)) or TomlPlace("aliases.toml")
            problems.append(
                f"{place.at(alias)}: {alias} means an unknown model {ident}{suggest_similar(ident, models)}"
            )
    return {alias: ident for alias, ident in aliases.items() if alias not in models}
