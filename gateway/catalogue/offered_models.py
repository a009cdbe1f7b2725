"""Comparison of a provider's own model list with the catalogue: models that are new, changed or no longer listed."""

from collections.abc import Iterable
from collections.abc import Mapping as ReadOnly
from typing import Any

from msgspec import Struct, field

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.field_checks import MODEL_ID
from gateway.catalogue.joins import normalise
from gateway.catalogue.lifecycle import has_ended
from gateway.catalogue.unlisted_entries import FINE_TUNED, nearest_of

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
