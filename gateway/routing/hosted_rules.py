"""Decides which provider keys may pay for a request's hosted tools, further models and stored objects.

With a key of the platform, everything must have a price here, and no object may be one of the platform's account: that
account is everybody's. With a provider key of the organization everything passes, and the usage row names the parts
without a price. Access rules hold for every model that a request names, whoever pays.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.entries import Mapping, Provider
from gateway.configuration.settings import RoutingSettings
from gateway.neutral.hosted_uses import HostedUse, undated
from gateway.neutral.speech import OWN_VOICE, VOICE_IDS
from gateway.neutral.units import PRICE_OF_COUNT
from gateway.routing.candidates import Candidate
from gateway.routing.provider_health import KnownCredential
from gateway.routing.resolve import CatalogueView

Allowed = Callable[[Mapping, Provider], str | None]
ANY = "*"
TOOLS = "tools"
NO_PRICE = (
    "{name} has no price at {provider}, so only a provider key of the organization may pay for it; the operator can "
    "allow it for the platform's keys with routing.unpriced_tools"
)
NOT_OURS = (
    "{name} names an object of the account at {provider}, which is the platform's; only a provider key of the "
    "organization may be used with its own objects; the operator can allow it for the platform's keys with "
    "routing.provider_objects"
)


class PaymentVerdict(NamedTuple):
    """The credentials that may pay, the reason against the others, and the member of the request that it is about.
    `denied`: the reason is an access rule."""

    credentials: tuple[KnownCredential, ...]
    reason: str = ""
    denied: bool = False
    param: str = TOOLS


class HostedRules:
    """The decision for the uses of one request."""

    __slots__ = ("_allowed", "_catalogue", "_settings", "_uses")

    def __init__(
        self,
        uses: tuple[HostedUse, ...],
        catalogue: CatalogueView,
        allowed: Allowed | None,
        settings: RoutingSettings,
    ) -> None:
        self._uses = uses
        self._catalogue = catalogue
        self._allowed = allowed
        self._settings = settings

    def decide(self, candidate: Candidate, credentials: tuple[KnownCredential, ...]) -> PaymentVerdict:
        """Return which of the credentials may pay for a call of the candidate."""
        provider = candidate.provider
        reason = ""
        param = TOOLS
        for use in self._uses:
            if not applies(use, candidate):
                continue
            denial = self._deny(use, provider)
            if denial:
                return PaymentVerdict((), denial, True)
            if not reason and (reason := self._object_to(use, candidate.mapping, provider)):
                param = use.name if use.payment == "object" else TOOLS
        if not reason:
            return PaymentVerdict(credentials)
        own = tuple(credential for credential in credentials if credential.source == OWN_SOURCE)
        return PaymentVerdict(own, reason, param=param)

    def _deny(self, use: HostedUse, provider: Provider) -> str:
        """Return the access rule that denies a model which the use names; "" if none does. A model that the catalogue
        does not have is denied wherever there are rules, since they may be about it."""
        if self._allowed is None:
            return ""
        for name in use.models:
            mapping = find_named(self._catalogue, provider.id, name)
            if mapping is None:
                return f"{use.name} names {name}, which is not in the catalogue of {provider.id}"
            denial = self._allowed(mapping, provider)
            if denial:
                return f"{use.name} names {name}: {denial}"
        return ""

    def _object_to(self, use: HostedUse, mapping: Mapping, provider: Provider) -> str:
        """Return why the platform's keys may not pay for a use; "" if they may."""
        if use.payment == "object":
            if self._settings.provider_objects or (use.voice and is_offered(use, mapping)):
                return ""
            return NOT_OURS.format(name=use.name, provider=provider.id)
        allowed = self._settings.unpriced_tools
        if use.name in allowed or ANY in allowed or not lacks_price(use, mapping):
            return ""
        return NO_PRICE.format(name=use.name, provider=provider.id)


def applies(use: HostedUse, candidate: Candidate) -> bool:
    """Return whether a call of the candidate has the use; other vendors' calls are made without it."""
    if use.vendor:
        return use.vendor in (candidate.ability.dialect, candidate.ability.second)
    return use.payment == "object" or candidate.mapping.web_search


def is_offered(use: HostedUse, mapping: Mapping) -> bool:
    """Return whether a voice is one that the provider offers to everyone, or a name where voices have no ids."""
    ids = mapping.extra.get(VOICE_IDS)
    return use.voice in ids.values() if ids else use.name != OWN_VOICE


def lacks_price(use: HostedUse, mapping: Mapping) -> bool:
    """Return whether a part of the use has no price at the mapping. A price by call includes its searches."""
    if use.payment == "unknown":
        return True
    if not mapping.priced or use.payment != "units":
        return False
    return any(not _has_price(mapping, PRICE_OF_COUNT[count], use) for count in use.billed)


def unpriced_parts(uses: Iterable[HostedUse], mapping: Mapping) -> list[str]:
    """Return the names of the uses that have no price at the mapping."""
    return [use.name for use in uses if use.payment != "object" and lacks_price(use, mapping)]


def find_named(catalogue: CatalogueView, provider: str, name: str) -> Mapping | None:
    """Return the mapping of a provider by the provider's own name of the model, with or without a date, or by ours."""
    for text in (name, undated(name)):
        mapping = catalogue.served_as(provider, text)
        if mapping is not None:
            return mapping
        model = catalogue.find(text)
        if model is not None:
            return next((one for one in model.mappings if one.provider == provider), None)
    return None


def _has_price(mapping: Mapping, price: str, use: HostedUse) -> bool:
    for prices in mapping.prices:
        for rates in (prices.base, *(tier.rates for tier in prices.tiers)):
            value = getattr(rates, price)
            if rates.request and use.reported == "searches":
                return True
            if isinstance(value, dict):
                if value and all(model in value or "default" in value for model in map(undated, use.models)):
                    return True
            elif value is not None:
                return True
    return False
