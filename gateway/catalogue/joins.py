"""Rules that decide which ids of different providers mean the same model, for the snapshot builder. Pure functions.

[join] decides first. Otherwise an id is the part after its last slash, in lower case, with "@" as "-", without the
parts that match the provider's `strip` pattern (region and vendor prefixes, version suffixes). Ids with equal letters
and digits are one model, spelled as its vendor's own provider spells it. Dates, sizes and speeds stay part of an id.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

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


def join_offers(offers: list[ListedModel], rules: Mapping[str, str]) -> list[str]:
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


def conflicts(ident: str, group: Iterable[ListedModel], rules: Mapping[str, str]) -> list[str]:
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
