"""Lifecycle of models and mappings: the dates of their states, which of them a list shows, and the successor of a
model.

Dates are "YYYY-MM-DD" ("" = none) and are the first day of the new state. A mapping has its own dates (the loader fills
in its model's dates if it has none); those of a model follow from its mappings.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol

from gateway.catalogue.entries import Mapping, Model

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


# The successor of a model: the newest one of the same series that can do as much.
#
# A series is a family of models. Their ids differ in versions and dates alone, such as `claude-3-5-haiku` and
# `claude-haiku-4-5`. Sizes (`8b`) and further words (`mini`, `pro`) are parts of its name.

WORDS = re.compile(r"[^-._:/@ ]+")
SIZE = re.compile(r"\A\d+[bmk]\Z")
VERSION = re.compile(r"\Av?\d+[a-z]?\Z")
WORD_WITH_VERSION = re.compile(r"\A([a-z]+?)v?\d+\Z")
STAGES = frozenset(("beta", "default", "exp", "experimental", "latest", "preview"))
STABLE = "stable"
# The share of the context length of a model that its successor has at least.
LEAST_CONTEXT = 0.9
# Vectors of two models cannot be compared, so none replaces another.
EMBEDDINGS = "embeddings"

Series = tuple[str, tuple[str, ...]]


def name_series(model: Model) -> Series:
    """Return the family of a model and the words of its id, without versions, dates and stages."""
    words = []
    for word in WORDS.findall(model.id.lower()):
        if word in STAGES or (VERSION.match(word) and not SIZE.match(word)):
            continue
        versioned = WORD_WITH_VERSION.match(word)
        words.append(versioned[1] if versioned else word)
    return model.family, tuple(sorted(words))


def find_successor(model: Model, series: Iterable[Model], day: str) -> Model | None:
    """Return the newest model of the series that is active on `day`, was released later and can do as much; None
    without one. A stable one comes first."""
    operations = {name for mapping in model.mappings for name in mapping.operations}
    if EMBEDDINGS in operations:
        return None
    able = [other for other in series if other is not model and _replaces(other, model, operations, day)]
    return max(able, key=_rank, default=None)


def _replaces(other: Model, model: Model, operations: set[str], day: str) -> bool:
    served = {name for mapping in other.mappings for name in mapping.operations}
    return (
        state_on(other, day) == ACTIVE
        and other.released > model.released
        and operations <= served
        and set(model.input_modalities) <= set(other.input_modalities)
        and set(model.output_modalities) <= set(other.output_modalities)
        and other.context_length >= model.context_length * LEAST_CONTEXT
    )


def _rank(model: Model) -> tuple[bool, str, str]:
    return model.stability == STABLE, model.released, model.id
