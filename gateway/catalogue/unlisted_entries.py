"""Entries for models that the catalogue does not list: new models of a provider, and fine-tuned models.

Nothing is known of a new model, so all abilities are assumed: its provider refuses what it does not support. Its price
is provisional: that of the nearest known model of the provider (see `find_nearest`), until the catalogue lists it.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.neutral.parameters import CAPABILITIES
from gateway.neutral.request import FEATURES

PROVISIONAL = "provisional"  # the price version of usage that was billed at an estimated price
UNLISTED = "unlisted"  # member of a mapping's `extra`: who may pay for its calls
OWN_KEYS = "own-keys"  # only provider keys of the organization
ANY_KEYS = "any-keys"
PRICED_AS = "priced_as"  # member of a mapping's `extra`: the model whose price is charged
FINE_TUNED = "ft:"
# Names of models that belong to one account at the provider: tuned models, endpoints, deployments by their full name.
ACCOUNT_PREFIXES = (FINE_TUNED, "tunedmodels/", "endpoints/", "projects/", "arn:")
OPERATIONS = ("chat", "embeddings")
# Members of a mapping that state an ability.
NAMED_FLAGS = (*(feature.flag for feature in FEATURES.values()), *(row.flag for row in CAPABILITIES))
FLAGS = tuple(flag for flag in NAMED_FLAGS if flag)
ALL_CAPABILITIES: dict[str, Any] = {**dict.fromkeys(FLAGS, True), "supports_n": True}
WORD_PATTERN = re.compile(r"[a-z]+|[0-9]+(?:[.][0-9]+)?")
# Words and dates that do not distinguish one model from another.
COMMON_WORDS = frozenset(("preview", "latest", "beta", "exp", "experimental"))
DATE_DIGITS = 4
# Parts of a path that lead elsewhere. Some protocols have the model's name in the path of a call, which is made with
# the platform's credential: the caller would choose what it calls.
RELATIVE_SEGMENTS = frozenset(("", ".", ".."))


class Nearness(NamedTuple):
    """The rank of a known model as the nearest of a new one; the greatest is nearest."""

    leading: int
    shared: int
    fewer_extra_words: int
    released: str
    completion_nusd: int
    prompt_nusd: int


def belongs_to_account(name: str) -> bool:
    """Return whether a name is that of a model which belongs to one account at the provider."""
    return name.lower().startswith(ACCOUNT_PREFIXES)


def make_unlisted(catalogue: Catalogue, provider_id: str, name: str, payers: str) -> Model | None:
    """Return a model `name` of a provider that the catalogue does not list, None if the provider has no prices of text
    or for a name that no model can have. `payers` is OWN_KEYS or ANY_KEYS."""
    if not RELATIVE_SEGMENTS.isdisjoint(name.split("/")) or not name.isprintable():
        return None
    tuned = fine_tuned(catalogue, provider_id, name)
    if tuned is not None:
        mapping = replace(tuned, extra={**tuned.extra, UNLISTED: payers})
    else:
        near = find_nearest(catalogue, provider_id, name)
        if near is None:
            return None
        mapping = Mapping(
            provider=provider_id,
            model=name,
            external_id=name,
            protocol=near.protocol,
            address=near.address,
            operations=OPERATIONS,
            prices=near.prices,
            service_tiers=near.service_tiers,
            quirks=near.quirks,
            max_inputs=near.max_inputs or 1,
            price_version=PROVISIONAL,
            extra={UNLISTED: payers, PRICED_AS: near.key},
            **ALL_CAPABILITIES | {"responses_api": near.responses_api},
        )
    return Model(name, name=name, output_modalities=("text", "image"), mappings=(mapping,))


def fine_tuned(catalogue: Catalogue, provider_id: str, name: str) -> Mapping | None:
    """Return the entry of a fine-tuned model ("ft:<base>:<organization>::<id>").

    It is that of its base model with the provider's price of fine-tuned models, or with a provisional one if that is
    not known. None for other names and for an unknown base.
    """
    if not name.startswith(FINE_TUNED):
        return None
    base_name = name.split(":")[1]
    served = catalogue.mappings_of(base_name)
    base = next((mapping for mapping in served if mapping.provider == provider_id), None)
    if base is None:
        base = catalogue.served_as(provider_id, base_name)
    if base is None:
        return None
    own: dict[str, Any] = {"model": name, "external_id": name, "deprecated": "", "deactivated": ""}
    if base.fine_tune_prices:
        return replace(base, **own, prices=base.fine_tune_prices)
    return replace(base, **own, price_version=PROVISIONAL, extra={**base.extra, PRICED_AS: base.key})


def find_nearest(catalogue: Catalogue, provider_id: str, name: str) -> Mapping | None:
    """Return the known model of a provider whose price a new model has, None if it has no priced model of text.

    Without a known model whose name begins alike it is the provider's dearest.
    """
    return nearest_of(catalogue, list(_text_mappings(catalogue, provider_id)), name)


def nearest_of(catalogue: Catalogue, known: Sequence[Mapping], name: str) -> Mapping | None:
    """Return the mapping among `known`, which have prices, that is nearest to a new model; None if there are none.

    Among models whose names begin alike: most leading parts of the name in common, then most parts at all, then fewest
    words that the new name lacks ("pro"), then the newest, then the dearest. Without any: the dearest.
    """
    pieces = _pieces(name)

    def nearness(mapping: Mapping) -> Nearness:
        other = _known_pieces(mapping.external_id)
        leading = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(pieces, other, strict=False)))
        rates = mapping.prices[-1].base
        prices = (rates.completion or 0, rates.prompt or 0)
        if not leading:
            return Nearness(0, 0, 0, "", *prices)
        extra = [piece for piece in other if piece not in pieces and piece.isalpha()]
        released = catalogue.models[mapping.model].released
        return Nearness(leading, len(set(pieces) & set(other)), -len(extra), released, *prices)

    return max(known, key=nearness, default=None)


def _text_mappings(catalogue: Catalogue, provider_id: str) -> Iterable[Mapping]:
    for model in catalogue.models.values():
        for mapping in model.mappings:
            if mapping.provider == provider_id and _has_text_price(mapping):
                yield mapping


def _has_text_price(mapping: Mapping) -> bool:
    return (
        mapping.priced and bool(mapping.prices[-1].base.prompt) and not set(OPERATIONS).isdisjoint(mapping.operations)
    )


# Only names of the catalogue are remembered: callers choose the others.
@functools.cache
def _known_pieces(name: str) -> list[str]:
    return _pieces(name)


def _pieces(name: str) -> list[str]:
    found = WORD_PATTERN.findall(name.lower().rpartition("/")[2])
    return [piece for piece in found if piece not in COMMON_WORDS and not _is_date(piece)]


def _is_date(piece: str) -> bool:
    return piece.isdecimal() and len(piece) >= DATE_DIGITS
