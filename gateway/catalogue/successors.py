"""The successor of a model: the newest one of the same series that can do as much.

A series is a family of models whose ids differ in versions and dates alone, such as `claude-3-5-haiku` and
`claude-haiku-4-5`. Sizes (`8b`) and further words (`mini`, `pro`) are parts of its name.
"""

import re
from collections.abc import Iterable

from gateway.catalogue.entries import Model
from gateway.catalogue.lifecycle import ACTIVE, state_on

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
