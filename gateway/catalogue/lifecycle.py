"""The life of models and mappings: the dates of their states, and which of them a list shows.

Dates are "YYYY-MM-DD" ("" = none) and are the first day of the new state. A mapping has its own dates (the loader fills
them with its model's where it has none); those of a model follow from the mappings in question.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol

from gateway.catalogue.entries import Mapping

Lifecycle = Literal["active", "deprecated", "deactivated"]
ACTIVE: Lifecycle = "active"
DEPRECATED: Lifecycle = "deprecated"
DEACTIVATED: Lifecycle = "deactivated"


class HasDates(Protocol):
    """A model, a mapping or the dates of several."""

    @property
    def deprecated(self) -> str: ...
    @property
    def deactivated(self) -> str: ...


class Dates(NamedTuple):
    """The dates of a model that some mappings serve."""

    deprecated: str = ""
    deactivated: str = ""


def dates_of(mappings: Iterable[HasDates]) -> Dates:
    """The dates of a model from the mappings that serve it: a state begins when the last of them enters it. A mapping
    that ends without a deprecation before counts as deprecated from its end on."""
    rows = list(mappings)
    deprecated = any(one.deprecated for one in rows)
    return Dates(
        _last(one.deprecated or one.deactivated for one in rows) if deprecated else "",
        _last(one.deactivated for one in rows),
    )


def state_on(entry: HasDates, day: str) -> Lifecycle:
    """The state on `day`."""
    if entry.deactivated and entry.deactivated <= day:
        return DEACTIVATED
    if entry.deprecated and entry.deprecated <= day:
        return DEPRECATED
    return ACTIVE


def has_ended(entry: HasDates, day: str) -> bool:
    """Whether nothing serves it any more."""
    return state_on(entry, day) == DEACTIVATED


def shown_on(
    mappings: Iterable[Mapping], day: str, *, include_deactivated: bool, exclude_deprecated: bool
) -> list[Mapping]:
    """The mappings with which a model is listed on `day`; [] where the filters leave the model out."""
    rows = [one for one in mappings if include_deactivated or not has_ended(one, day)]
    if exclude_deprecated and state_on(dates_of(rows), day) != ACTIVE:
        return []
    return rows


def _last(dates: Iterable[str]) -> str:
    known = list(dates)
    if known and all(known):
        return max(known)
    return ""
