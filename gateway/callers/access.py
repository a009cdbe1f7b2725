"""Access decisions: access rules and the compliance policy, evaluated without I/O.

Within one level the allow rules of one type are a union, different types must all agree and deny always wins; every
level (organization, each team, member, key) only narrows. No rules: everything is allowed.
"""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from msgspec import Struct

from gateway.callers.compliance import CompliancePolicy, violation
from gateway.callers.models import Scope
from gateway.catalogue.entries import READ_RATES, Mapping, Provider, TokenRates
from gateway.catalogue.prices import prices_at
from gateway.errors import Forbidden

Network = IPv4Network | IPv6Network
Predicate = Callable[[Mapping, Provider], str | None]

SCOPE_NAMES: dict[Scope, str] = {
    "organization": "organization",
    "team": "team",
    "member": "organization member",
    "key": "API key",
    "service_account": "service account",
}

CUSTOM = "custom"  # rules name an organization's own providers "custom" (all) or "custom:<name>"


class PriceRule(Struct, frozen=True):
    """`kind` free, paid or "" (either); bounds in nano-dollars per million tokens, None = unbounded."""

    kind: str = ""
    max_input: int | None = None
    max_output: int | None = None


class Level(Struct, frozen=True):
    """All active rules of one organization, team, member or key. None in an allow set: no such rule."""

    scope: Scope
    scope_id: str
    allow_models: frozenset[str] | None = None
    deny_models: frozenset[str] = frozenset()
    allow_providers: frozenset[str] | None = None
    deny_providers: frozenset[str] = frozenset()
    allow_pricing: tuple[PriceRule, ...] = ()
    deny_pricing: tuple[PriceRule, ...] = ()
    allow_networks: tuple[Network, ...] | None = None
    deny_networks: tuple[Network, ...] = ()
    policy: CompliancePolicy | None = None


def predicate(levels: tuple[Level, ...], at_us: int) -> Predicate | None:
    """A function (mapping, provider) → reason of refusal or None; itself None when nothing is restricted.

    `at_us` chooses among dated prices. The reasons name the scope and lack the "Access denied:" of `forbid`.
    """
    if not levels:
        return None

    def refuse(mapping: Mapping, provider: Provider) -> str | None:
        for level in levels:
            reason = refusal(level, mapping, provider, at_us)
            if reason:
                return reason
        return None

    return refuse


def allowed(levels: tuple[Level, ...], mapping: Mapping, provider: Provider, ip: str, at_us: int) -> bool:
    """Return whether a caller at `ip` ("" = unknown) may use the mapping: addresses, rules and policy together."""
    if address_refusal(levels, ip):
        return False
    refuse = predicate(levels, at_us)
    return refuse is None or refuse(mapping, provider) is None


def keeps_nothing(levels: tuple[Level, ...]) -> bool:
    """Return whether the organization is under zero data retention: nothing of what it sends or gets is stored."""
    return any(level.policy is not None and level.policy.zero_data_retention for level in levels)


def logs_text(levels: tuple[Level, ...]) -> bool:
    """Return whether logs may quote what was sent and answered: no policy forbids to retain or to log it."""
    policies = [level.policy for level in levels if level.policy is not None]
    return not any(policy.zero_data_retention or policy.block_prompt_logging for policy in policies)


def check_address(levels: tuple[Level, ...], ip: str) -> None:
    """Forbidden when a rule keeps out the client address `ip`; once a request, before anything else is planned."""
    reason = address_refusal(levels, ip)
    if reason:
        raise forbid(reason)


def forbid(reason: str) -> Forbidden:
    """The 403 for a reason given by this module."""
    return Forbidden(f"Access denied: {reason}")


def refusal(level: Level, mapping: Mapping, provider: Provider, at_us: int) -> str | None:
    """Why this level refuses the mapping at this time, or None."""
    reason = _refuse_model(level, mapping) or _refuse_provider(level, provider) or _refuse_price(level, mapping, at_us)
    if reason:
        return f"{SCOPE_NAMES[level.scope]} rule: {reason}"
    if level.policy:
        reason = violation(level.policy, mapping, provider)
        if reason:
            return f"organization compliance policy: {reason}"
    return None


def address_refusal(levels: tuple[Level, ...], ip: str) -> str | None:
    """Why some level refuses the client address, or None. An address that cannot be read fails every rule."""
    for level in levels:
        if level.allow_networks is None and not level.deny_networks:
            continue
        address = _read_address(ip)
        if address is None:
            return f"{SCOPE_NAMES[level.scope]} rule: the client address is unknown and a rule depends on it"
        if any(address in network for network in level.deny_networks):
            return f"{SCOPE_NAMES[level.scope]} rule: client address {address} is denied"
        if level.allow_networks is not None and not any(address in network for network in level.allow_networks):
            return f"{SCOPE_NAMES[level.scope]} rule: client address {address} is not among the allowed ones"
    return None


def model_names(mapping: Mapping) -> frozenset[str]:
    """Every way in which a rule may name this mapping's model: alone, with provider, with provider and region."""
    names = {mapping.model, f"{mapping.provider}/{mapping.model}", mapping.key}
    if mapping.provider.startswith(f"{CUSTOM}:"):
        names.add(f"{mapping.provider.partition(':')[2]}/{mapping.model}")
    return frozenset(names)


def provider_names(provider_id: str) -> frozenset[str]:
    """Every way in which a rule may name the provider."""
    if provider_id.startswith(f"{CUSTOM}:"):
        return frozenset((provider_id, CUSTOM))
    return frozenset((provider_id,))


def _refuse_model(level: Level, mapping: Mapping) -> str | None:
    if level.allow_models is None and not level.deny_models:
        return None
    names = model_names(mapping)
    if not level.deny_models.isdisjoint(names):
        return f"model {mapping.model} is denied"
    if level.allow_models is not None and level.allow_models.isdisjoint(names):
        return f"model {mapping.model} is not among the allowed models"
    return None


def _refuse_provider(level: Level, provider: Provider) -> str | None:
    if level.allow_providers is None and not level.deny_providers:
        return None
    names = provider_names(provider.id)
    if not level.deny_providers.isdisjoint(names):
        return f"provider {provider.id} is denied"
    if level.allow_providers is not None and level.allow_providers.isdisjoint(names):
        return f"provider {provider.id} is not among the allowed providers"
    return None


def _refuse_price(level: Level, mapping: Mapping, at_us: int) -> str | None:
    if not level.allow_pricing and not level.deny_pricing:
        return None
    rates = _rates(mapping, at_us)
    if any(_denies(rule, rates) for rule in level.deny_pricing):
        return f"the price of {mapping.key} is denied"
    if level.allow_pricing and not any(_fits(rule, rates) for rule in level.allow_pricing):
        return f"the price of {mapping.key} is not among the allowed prices"
    return None


def _fits(rule: PriceRule, rates: TokenRates) -> bool:
    return _of_kind(rule, rates) and not _above(rule, rates)


def _denies(rule: PriceRule, rates: TokenRates) -> bool:
    """A denied price is one of the named kind and, where the rule has bounds, above one of them."""
    bounded = rule.max_input is not None or rule.max_output is not None
    return _of_kind(rule, rates) and (not bounded or _above(rule, rates))


def _of_kind(rule: PriceRule, rates: TokenRates) -> bool:
    return not rule.kind or (rule.kind == "free") == _free(rates)


def _above(rule: PriceRule, rates: TokenRates) -> bool:
    """Return whether a bound is passed. An unpriced mapping passes every bound: what it costs is not known."""
    bounds = ((rule.max_input, rates.prompt), (rule.max_output, rates.completion))
    limited = [(bound, price) for bound, price in bounds if bound is not None]
    if limited and not rates.priced:
        return True
    return any(price is not None and price > bound for bound, price in limited)


def _free(rates: TokenRates) -> bool:
    """Return whether every price is 0. An unpriced mapping is not free."""
    prices: list[int | None] = []
    for rate in READ_RATES(rates):
        if isinstance(rate, dict):
            prices += rate.values()
        else:
            prices.append(rate)
    return rates.priced and not any(prices)


def _rates(mapping: Mapping, at_us: int) -> TokenRates:
    """The base rates in force at the time; Rates() when there are none."""
    prices = prices_at(mapping.prices, at_us)
    if prices:
        return prices.base
    return TokenRates()


def _read_address(ip: str) -> object:
    try:
        address = ip_address(ip.strip().strip("[]"))
    except ValueError:
        return None
    # A dual-stack listener shows IPv4 callers as ::ffff:a.b.c.d; the rules name them a.b.c.d.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
