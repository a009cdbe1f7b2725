"""Lifecycle of models and mappings: the dates of their states, and which of them a list shows.

Dates are "YYYY-MM-DD" ("" = none) and are the first day of the new state. A mapping has its own dates (the loader
fills in its model's dates if it has none); those of a model follow from its mappings.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol

from gateway.catalogue.entries import Mapping

Lifecycle = Literal["active", "deprecated", "deactivated"]
ACTIVE: Lifecycle = "active"
DEPRECATED: Lifecycle = "deprecated"
DEACTIVATED: Lifecycle = "deactivated"


class HasDates(Protocol):
    """A model, a mapping or the combined dates of several mappings."""

    @property
    def deprecated(self) -> str: ...
    @property
    def deactivated(self) -> str: ...


class Dates(NamedTuple):
    """The dates of a model that several mappings serve."""

    deprecated: str = ""
    deactivated: str = ""


def dates_of(mappings: Iterable[HasDates]) -> Dates:
    """Return the dates of a model from its mappings: a state begins when the last mapping enters it.

    A mapping that ends without a deprecation counts as deprecated from its end on.
    """
    rows = list(mappings)
    deprecated = any(entry.deprecated for entry in rows)
    return Dates(
        _last(entry.deprecated or entry.deactivated for entry in rows) if deprecated else "",
        _last(entry.deactivated for entry in rows),
    )


def state_on(entry: HasDates, day: str) -> Lifecycle:
    """Return the state on `day`."""
    if entry.deactivated and entry.deactivated <= day:
        return DEACTIVATED
    if entry.deprecated and entry.deprecated <= day:
        return DEPRECATED
    return ACTIVE


def has_ended(entry: HasDates, day: str) -> bool:
    """Return whether the entry is deactivated on `day`."""
    return state_on(entry, day) == DEACTIVATED


def shown_on(
    mappings: Iterable[Mapping], day: str, *, include_deactivated: bool, exclude_deprecated: bool
) -> list[Mapping]:
    """Return the mappings with which a model is listed on `day`; [] if the filters exclude the model."""
    rows = [entry for entry in mappings if include_deactivated or not has_ended(entry, day)]
    if exclude_deprecated and state_on(dates_of(rows), day) != ACTIVE:
        return []
    return rows


def _last(dates: Iterable[str]) -> str:
    known = list(dates)
    if known and all(known):
        return max(known)
    return ""
