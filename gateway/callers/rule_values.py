"""The JSON form of access rules, and their compiling into the levels that access.py judges.

Types and members are those of the HTTP API. Prices in rules are USD per token, as in the price strings of the model
list.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from typing import Any

from msgspec import Struct

from gateway.callers.access import SCOPE_NAMES, Level, Network, PriceRule
from gateway.callers.compliance import CompliancePolicy
from gateway.callers.models import Scope
from gateway.errors import InvalidRequest
from gateway.money import price_per_million

SCOPES: tuple[Scope, ...] = tuple(SCOPE_NAMES)


class RuleInfo(Struct, frozen=True):
    """One rule as kept. `value` is its JSON object; an inactive rule has no effect."""

    id: str
    organization_id: str
    scope: Scope
    scope_id: str
    type: str
    value: Mapping[str, Any]
    active: bool = True
    created_at_us: int = 0


def read_value(type: str, value: Mapping[str, Any]) -> Any:
    """The value of a rule of `type` in the form that `Level` holds. InvalidRequest says what is wrong with it."""
    if type not in READERS:
        raise InvalidRequest(f"Unknown rule type {type!r}; known: {', '.join(READERS)}.", param="ruleType")
    member, read = READERS[type]
    unknown = [name for name in value if name not in member]
    if unknown:
        raise InvalidRequest(f"{type} does not take {unknown[0]}; it takes {', '.join(member)}.", param="ruleValue")
    return read(value)


def compile_levels(
    organization_id: str, policy: CompliancePolicy | None, rules: Iterable[RuleInfo]
) -> tuple[Level, ...]:
    """The levels of one caller, one for each place that has active rules (or a policy), in order of scope and id."""
    places: dict[tuple[Scope, str], dict[str, list[Any]]] = {}
    if policy is not None and policy != CompliancePolicy():
        places["organization", organization_id] = {}
    for rule in rules:
        if rule.active:
            merged = places.setdefault((rule.scope, rule.scope_id), {})
            merged.setdefault(rule.type, []).append(read_value(rule.type, rule.value))
    ordered = sorted(places, key=lambda place: (SCOPES.index(place[0]), place[1]))
    return tuple(_level(place, places[place], policy) for place in ordered)


def _level(place: tuple[Scope, str], values: Mapping[str, list[Any]], policy: CompliancePolicy | None) -> Level:
    scope, scope_id = place
    return Level(
        scope,
        scope_id,
        allow_models=_union(values.get("allow_models")),
        deny_models=_union(values.get("deny_models")) or frozenset(),
        allow_providers=_union(values.get("allow_providers")),
        deny_providers=_union(values.get("deny_providers")) or frozenset(),
        allow_pricing=tuple(values.get("allow_pricing", ())),
        deny_pricing=tuple(values.get("deny_pricing", ())),
        allow_networks=_join(values.get("allow_ip_cidrs")),
        deny_networks=_join(values.get("deny_ip_cidrs")) or (),
        policy=policy if scope == "organization" else None,
    )


def _union(sets: list[frozenset[str]] | None) -> frozenset[str] | None:
    if sets is None:
        return None
    return frozenset().union(*sets)


def _join(lists: list[tuple[Network, ...]] | None) -> tuple[Network, ...] | None:
    if lists is None:
        return None
    return tuple(network for networks in lists for network in networks)


def _read_names(member: str) -> Callable[[Mapping[str, Any]], frozenset[str]]:
    def read(value: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(_read_list(value, member))

    return read


def _read_list(value: Mapping[str, Any], member: str) -> list[str]:
    names = value.get(member)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidRequest(f"{member} must be a list of at least one name.", param=f"ruleValue.{member}")
    return [name.strip() for name in names]


def _read_networks(value: Mapping[str, Any]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text, strict=False) for text in _read_list(value, "ipCidrs"))
    except ValueError as error:
        raise InvalidRequest(f"Not an address range: {error}.", param="ruleValue.ipCidrs") from None


def _read_pricing(value: Mapping[str, Any]) -> PriceRule:
    kind = value.get("pricingType") or ""
    if kind and kind not in PRICE_TYPES:
        raise InvalidRequest('pricingType must be "free" or "paid".', param="ruleValue.pricingType")
    rule = PriceRule(kind, _read_price(value, "maxInputPrice"), _read_price(value, "maxOutputPrice"))
    if rule == PriceRule():
        raise InvalidRequest("A pricing rule needs pricingType, maxInputPrice or maxOutputPrice.", param="ruleValue")
    return rule


def _read_price(value: Mapping[str, Any], member: str) -> int | None:
    price = value.get(member)
    if price is None:
        return None
    try:
        if not isinstance(price, bool):
            return price_per_million(str(price))
        return int("")
    except ValueError:
        raise InvalidRequest(f"{member} must be a price in USD per token.", param=f"ruleValue.{member}") from None


PRICING = ("pricingType", "maxInputPrice", "maxOutputPrice")
PRICE_TYPES = ("free", "paid")

READERS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]] = {
    "allow_models": (("models",), _read_names("models")),
    "deny_models": (("models",), _read_names("models")),
    "allow_providers": (("providers",), _read_names("providers")),
    "deny_providers": (("providers",), _read_names("providers")),
    "allow_pricing": (PRICING, _read_pricing),
    "deny_pricing": (PRICING, _read_pricing),
    "allow_ip_cidrs": (("ipCidrs",), _read_networks),
    "deny_ip_cidrs": (("ipCidrs",), _read_networks),
}
# A service account calls no models: only the addresses of its requests can be restricted.
ADDRESS_RULES = tuple(name for name, (members, _) in READERS.items() if "ipCidrs" in members)
