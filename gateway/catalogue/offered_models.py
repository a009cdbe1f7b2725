"""Comparison of a provider's own model list with the catalogue: models that are new, changed or no longer
listed, and the entries that are proposed for them."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as AbcMapping
from collections.abc import Mapping as ReadOnly
from dataclasses import MISSING, fields
from typing import Any

from msgspec import Struct, field

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import RATE_NAMES, Mapping, Model, TokenRates
from gateway.catalogue.field_checks import MODEL_ID
from gateway.catalogue.lifecycle import has_ended
from gateway.catalogue.unlisted_entries import FINE_TUNED, FLAGS, nearest_of
from gateway.money import format_price
from gateway.neutral.units import DERIVED_PRICES

# Rules that decide which ids of different providers mean the same model, for the snapshot builder. Pure functions.
#
# [join] decides first. Otherwise an id is the part after its last slash, in lower case, with "@" as "-", without the
# parts that match the provider's `strip` pattern (region and vendor prefixes, version suffixes). Ids with equal
# letters and digits are one model, spelled as its vendor's own provider spells it. Dates, sizes and speeds stay part
# of an id.

ANY_VALUE = "*"


class ListedModel(Struct):
    """One model at one provider, as listed in an open data set.

    `ident` is its id after the rules above, `model` the canonical id once it is known, `vendor` its creator ("" =
    unknown), `first_party` whether the provider is the vendor.
    """

    provider: str
    external_id: str
    ident: str
    region: str = ""
    vendor: str = ""
    first_party: bool = False
    join_only: bool = False
    model: str = ""
    entry: dict[str, Any] = field(default_factory=dict)


def normalise(external_id: str, strip: str = "") -> str:
    """Return the id after the rules, e.g. "us.anthropic.claude-x-v1:0" with its strip pattern → "claude-x"."""
    ident = external_id.lower().rsplit("/", 1)[-1]
    if strip:
        ident = re.sub(strip, "", ident)
    return ident.replace("@", "-").replace(" ", "-")


def fingerprint(ident: str) -> str:
    """Return the letters and digits of an id, which are equal for ids of the same model."""
    return re.sub(r"[^a-z0-9]", "", ident)


def join_offers(offers: list[ListedModel], rules: AbcMapping[str, str]) -> list[str]:
    """Set the model of every offer, and return the conflicts that a [join] rule must resolve, one line each."""
    loose: dict[str, list[ListedModel]] = {}
    for offer in offers:
        ruled = rules.get(f"{offer.provider}/{offer.external_id}") or rules.get(f"{ANY_VALUE}/{offer.ident}")
        if ruled:
            offer.model = ruled
        loose.setdefault(fingerprint(ruled or offer.ident), []).append(offer)
    problems = []
    for group in loose.values():
        ident = next((offer.model for offer in group if offer.model), "") or spell(group)
        for offer in group:
            offer.model = offer.model or ident
        problems.extend(conflicts(ident, group, rules))
    return problems


def spell(group: list[ListedModel]) -> str:
    """Return the spelling of the vendor's own provider, else the most common, then the shortest, then the first
    alphabetically.
    """
    own = [offer.ident for offer in group if offer.first_party]
    counts = Counter(own or [offer.ident for offer in group])
    return min(counts, key=lambda ident: (-counts[ident], len(ident), ident))


def conflicts(ident: str, group: Iterable[ListedModel], rules: AbcMapping[str, str]) -> list[str]:
    """Return conflicts of vendors or operations under one id; an id that a rule names has none."""
    if ident in rules.values():
        return []
    group = list(group)
    problems = []
    vendors = {offer.vendor for offer in group if offer.vendor}
    if len(vendors) > 1:
        problems.append(f"{ident}: made by {' and '.join(sorted(vendors))}: {_names(group)}")
    kinds = {offer.entry.get("operations", ("chat",))[0] for offer in group}
    if len(kinds) > 1:
        problems.append(f"{ident}: used for {' and '.join(sorted(kinds))}: {_names(group)}")
    return problems


def keep_known(offers: list[ListedModel]) -> list[ListedModel]:
    """Remove the offers of join-only providers for models that no other provider has."""
    known = {offer.model for offer in offers if not offer.join_only}
    return [offer for offer in offers if offer.model in known]


def keep_one(offers: list[ListedModel]) -> list[ListedModel]:
    """Keep one offer for each provider, model and region: the one spelled like the model, else the shortest external
    id.
    """
    best: dict[tuple[str, str, str], ListedModel] = {}
    for offer in sorted(offers, key=lambda o: (o.ident != o.model, len(o.external_id), o.external_id)):
        best.setdefault((offer.provider, offer.model, offer.region), offer)
    return sorted(best.values(), key=lambda o: (o.model, o.provider, o.region))


def other_names(offers: Iterable[ListedModel]) -> dict[str, list[str]]:
    """Return model → further ids under which providers list it, if they are not the id of another model."""
    offers = list(offers)
    models = {offer.model for offer in offers}
    names: dict[str, set[str]] = {}
    for offer in offers:
        if offer.ident not in models and re.fullmatch(r"[a-z0-9][a-z0-9._:@+-]*", offer.ident):
            names.setdefault(offer.ident, set()).add(offer.model)
    aliases: dict[str, list[str]] = {}
    for name, meant in sorted(names.items()):
        if len(meant) == 1:
            aliases.setdefault(meant.pop(), []).append(name)
    return aliases


def _names(group: Iterable[ListedModel]) -> str:
    return ", ".join(sorted(f"{offer.provider}/{offer.external_id}" for offer in group))


DATES = ("deprecated", "deactivated")
LIMITS = ("context_length", "max_output")


class OfferedModel(Struct, frozen=True):
    """A model as its provider lists it. "", 0 and missing members: the list does not say. `prices` are exact decimal
    strings of USD per token by the names of the catalogue; `abilities` are fields of a mapping; dates are
    "YYYY-MM-DD"."""

    external_id: str
    name: str = ""
    released: str = ""
    context_length: int = 0
    max_output: int = 0
    deprecated: str = ""
    deactivated: str = ""
    operations: tuple[str, ...] = ()
    prices: ReadOnly[str, str] = field(default_factory=dict)
    abilities: ReadOnly[str, bool] = field(default_factory=dict)


class NewModel(Struct, frozen=True):
    """A model that the catalogue does not list for the provider. `model_id` is its id in the catalogue, where `known`
    is the model of other providers with this id (None: a new one). `nearest` is the provider's most similar model."""

    model_id: str
    offered: OfferedModel
    known: Model | None
    nearest: Mapping | None


class ChangedModel(Struct, frozen=True):
    """A mapping of which the provider states other values: field → (value of the catalogue, value of the list)."""

    mapping: Mapping
    fields: dict[str, tuple[Any, Any]]


class ListComparison(Struct, frozen=True):
    """The differences between a provider's list and the catalogue. `unnamed` are ids that cannot be ids here."""

    provider_id: str
    new: list[NewModel] = field(default_factory=list)
    changed: list[ChangedModel] = field(default_factory=list)
    gone: list[Mapping] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.changed or self.gone or self.unnamed)


def compare(catalogue: Catalogue, provider_id: str, offered: Iterable[OfferedModel], day: str) -> ListComparison:
    """Compare a complete list with the catalogue on `day`. Fine-tuned models are left out, since they belong to one
    account. An id of a list that is an alias of a listed model (a dated id) is that model."""
    comparison = ListComparison(provider_id)
    served = [
        mapping for model in catalogue.models.values() for mapping in model.mappings if mapping.provider == provider_id
    ]
    priced = [mapping for mapping in served if mapping.priced]
    by_id: dict[str, list[Mapping]] = {}
    for mapping in served:
        by_id.setdefault(mapping.external_id.lower(), []).append(mapping)
    strip = catalogue.providers[provider_id].sources.get("strip", "")
    seen: set[str] = set()
    for entry in offered:
        if entry.external_id.startswith(FINE_TUNED):
            continue
        mappings = by_id.get(entry.external_id.lower())
        if mappings is not None:
            seen.update(mapping.model for mapping in mappings)
            comparison.changed.extend(change for mapping in mappings if (change := _change_of(mapping, entry)).fields)
            continue
        ident = normalise(entry.external_id, strip)
        known = catalogue.find(ident)
        if known is not None and any(mapping.provider == provider_id for mapping in known.mappings):
            seen.add(known.id)
        elif MODEL_ID.fullmatch(ident):
            nearest = nearest_of(catalogue, priced, entry.external_id)
            comparison.new.append(NewModel(known.id if known else ident, entry, known, nearest))
        else:
            comparison.unnamed.append(entry.external_id)
    comparison.gone.extend(mapping for mapping in served if mapping.model not in seen and not has_ended(mapping, day))
    return comparison


def _change_of(mapping: Mapping, entry: OfferedModel) -> ChangedModel:
    fields = {
        name: (getattr(mapping, name), value)
        for name in (*LIMITS, *DATES)
        if (value := getattr(entry, name)) and value != getattr(mapping, name)
    }
    return ChangedModel(mapping, fields)


# Proposed catalogue entries for a comparison, as TOML files in the form of the operator's catalogue folder.
#
# Entries that need a decision are comments: models without a price in the list, and models that are gone.

# Members of the nearest model's entry that a new model is proposed to share.
PROPOSED_FIELDS = (
    *FLAGS,
    "reasoning_efforts",
    "reasoning_max_tokens",
    "responses_api",
    "supports_n",
    "realtime",
    "max_temperature",
    "min_cacheable_tokens",
)
MAPPING_DEFAULTS = {row.name: row.default for row in fields(Mapping) if row.default is not MISSING}
CHAT = ("chat",)


class ProposedEntry(Struct, frozen=True):
    """One entry: `kind` is "mappings" or "models", `key` its model and region. `values` are its fields, `note` the
    reason. An entry that is not `ready` is written as a comment."""

    kind: str
    key: tuple[str, str]
    values: dict[str, Any]
    note: str
    ready: bool = True


def propose(comparison: ListComparison, day: str) -> list[ProposedEntry]:
    """Return an entry for each difference that an entry can express."""
    entries: list[ProposedEntry] = []
    for new in comparison.new:
        entries += _new(new)
    entries += map(_changed, comparison.changed)
    entries += (_gone(mapping, day) for mapping in comparison.gone)
    return entries


def write_entries(entries: Iterable[ProposedEntry], kind: str) -> str:
    """Return the TOML of the entries of a kind."""
    return "\n".join("\n".join(_lines(entry)) + "\n" for entry in entries if entry.kind == kind)


def _new(new: NewModel) -> Iterator[ProposedEntry]:
    offered = new.offered
    priced = bool(offered.prices)
    note = f"New: {offered.external_id}."
    prices: dict[str, str] = dict(offered.prices)
    if not priced and new.nearest is not None:
        prices = _base_prices(new.nearest)
        note += f" The list states no price; this one is that of {new.nearest.model}. Correct it and remove the #."
    elif not priced:
        note += " The list states no price. Add it and remove the #."
    if new.nearest is not None:
        note += f" Abilities are those of {new.nearest.model}."
    abilities: dict[str, Any] = {}
    operations = offered.operations
    if new.nearest is not None:
        abilities = {name: getattr(new.nearest, name) for name in PROPOSED_FIELDS}
        operations = operations or new.nearest.operations
    abilities |= offered.abilities
    values: dict[str, Any] = {"model": new.model_id, "external_id": offered.external_id}
    if operations and operations != CHAT:
        values["operations"] = operations
    limits = {"context_length": offered.context_length, "max_output": offered.max_output}
    dates = {"deprecated": offered.deprecated, "deactivated": offered.deactivated}
    values |= {name: value for name, value in (limits | abilities | dates).items() if value != MAPPING_DEFAULTS[name]}
    if prices:
        values["prices"] = prices
    key = (new.model_id, "")
    yield ProposedEntry("mappings", key, values, note, priced)
    if new.known is None:
        yield ProposedEntry("models", key, _model_of(new), f"New: {offered.external_id}.", priced)


def _model_of(new: NewModel) -> dict[str, Any]:
    values = {"id": new.model_id, "name": new.offered.name or new.model_id, "released": new.offered.released}
    return {name: value for name, value in values.items() if value}


def _base_prices(mapping: Mapping) -> dict[str, str]:
    """Return the newest base prices of a mapping that are one amount each."""
    rates: TokenRates = mapping.prices[-1].base
    amounts = {name: getattr(rates, name) for name in RATE_NAMES if name not in DERIVED_PRICES}
    return {name: format_price(amount) for name, amount in amounts.items() if isinstance(amount, int)}


def _changed(change: ChangedModel) -> ProposedEntry:
    mapping = change.mapping
    values = _place(mapping) | {name: new for name, (_, new) in change.fields.items()}
    before = ", ".join(f"{name} {old or 'not known'}" for name, (old, _) in change.fields.items())
    return ProposedEntry("mappings", (mapping.model, mapping.region), values, f"Changed; before: {before}.")


def _gone(mapping: Mapping, day: str) -> ProposedEntry:
    note = "Gone: the list does not contain it. Some lists depend on the account; check it and remove the #."
    values = _place(mapping) | {"deactivated": day}
    return ProposedEntry("mappings", (mapping.model, mapping.region), values, note, ready=False)


def _place(mapping: Mapping) -> dict[str, Any]:
    place: dict[str, Any] = {"model": mapping.model}
    if mapping.region:
        place["region"] = mapping.region
    return place


def _lines(entry: ProposedEntry) -> Iterator[str]:
    mark = "" if entry.ready else "# "
    yield f"# {entry.note}"
    yield f"{mark}[[{entry.kind}]]"
    for name, value in entry.values.items():
        yield f"{mark}{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """Return a value as TOML. JSON's texts, numbers and lists of printable texts are TOML too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(member)}" for name, member in value.items()) + " }"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
