"""Which ids of different providers mean one model: the written rules of the builder. Pure.

[join] decides first. Else an id is the part after its last slash, in small letters, "@" as "-", without what the
provider's `strip` pattern names (region and vendor prefixes, version tails); ids that are equal in their letters and
digits are one model, spelled as its vendor's own provider spells it. Dates, sizes and speeds stay part of an id.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ANY = "*"


@dataclass(slots=True)
class ListedModel:
    """One model at one provider, as an open data set lists it. `ident` is its id after the rules above, `model` the
    canonical id once it is known, `vendor` who made it ("" = unknown), `first_party` whether the provider did."""

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
    """The id after the rules, e.g. "us.anthropic.claude-x-v1:0" with its strip pattern → "claude-x"."""
    ident = external_id.lower().rsplit("/", 1)[-1]
    if strip:
        ident = re.sub(strip, "", ident)
    return ident.replace("@", "-").replace(" ", "-")


def fingerprint(ident: str) -> str:
    """What ids of one model have in common: their letters and digits."""
    return re.sub(r"[^a-z0-9]", "", ident)


def join_offers(offers: list[ListedModel], rules: Mapping[str, str]) -> list[str]:
    """Give every offer its model. Returns the conflicts that a [join] rule has to decide, one line each."""
    loose: dict[str, list[ListedModel]] = {}
    for offer in offers:
        ruled = rules.get(f"{offer.provider}/{offer.external_id}") or rules.get(f"{ANY}/{offer.ident}")
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
    """The spelling of the vendor's own provider, else the commonest, the shortest of those, the first by letters."""
    own = [offer.ident for offer in group if offer.first_party]
    counts = Counter(own or [offer.ident for offer in group])
    return min(counts, key=lambda ident: (-counts[ident], len(ident), ident))


def conflicts(ident: str, group: Iterable[ListedModel], rules: Mapping[str, str]) -> list[str]:
    """Two vendors, or two kinds of output, under one id; an id that a rule names is taken as decided."""
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
    """Without the offers of join-only providers whose model no other provider has."""
    known = {offer.model for offer in offers if not offer.join_only}
    return [offer for offer in offers if offer.model in known]


def keep_one(offers: list[ListedModel]) -> list[ListedModel]:
    """One offer a provider, model and region: the one spelled like the model, else the shortest external id."""
    best: dict[tuple[str, str, str], ListedModel] = {}
    for offer in sorted(offers, key=lambda o: (o.ident != o.model, len(o.external_id), o.external_id)):
        best.setdefault((offer.provider, offer.model, offer.region), offer)
    return sorted(best.values(), key=lambda o: (o.model, o.provider, o.region))


def other_names(offers: Iterable[ListedModel]) -> dict[str, list[str]]:
    """Model → the further ids under which providers list it and that are no model of their own."""
    offers = list(offers)
    models = {offer.model for offer in offers}
    names: dict[str, set[str]] = {}
    for offer in offers:
        if offer.ident not in models and re.fullmatch(r"[a-z0-9][a-z0-9._:@+-]*", offer.ident):
            names.setdefault(offer.ident, set()).add(offer.model)
    found: dict[str, list[str]] = {}
    for name, meant in sorted(names.items()):
        if len(meant) == 1:
            found.setdefault(meant.pop(), []).append(name)
    return found


def _names(group: Iterable[ListedModel]) -> str:
    return ", ".join(sorted(f"{offer.provider}/{offer.external_id}" for offer in group))
