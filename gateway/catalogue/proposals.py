"""Proposed catalogue entries for a comparison, as TOML files in the form of the operator's catalogue folder.

Entries that need a decision are comments: models whose price the list does not state, and models that are gone.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any

from msgspec import Struct

from gateway.catalogue.entries import RATE_NAMES, Mapping, TokenRates
from gateway.catalogue.offered_models import ChangedModel, ListComparison, NewModel
from gateway.catalogue.unlisted_entries import FLAGS
from gateway.money import format_price
from gateway.neutral.units import DERIVED_PRICES

# Members of the nearest model's entry that a new model is proposed to share.
SHARED_FIELDS = (
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
        abilities = {name: getattr(new.nearest, name) for name in SHARED_FIELDS}
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
