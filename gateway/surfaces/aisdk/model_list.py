"""`GET …/config`: the language models that a key can call, with an entry for each provider and prices.

The format is the response schema of `@ai-sdk/gateway`; there a single entry of another version invalidates the whole
list.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.accounts.access import CUSTOM, Predicate, predicate
from gateway.accounts.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.lifecycle import has_ended
from gateway.catalogue.price_rates import prices_at
from gateway.clock import DAY_US
from gateway.money import format_price
from gateway.runtime.threads import compute
from gateway.surfaces import auth, listing
from gateway.surfaces.answer_structs import Answer, ModelApiAnswer
from gateway.surfaces.availability import beyond, lists_available, reach_of, within
from gateway.surfaces.http import Inbound, Outbound
from gateway.worker.services import Services

HEAD = b'{"models":['
END = b"]}"
OPERATION = "chat"
MODALITY = "text"
NEWEST = 4
VERSION_MEMBER = b'"specificationVersion":"v%d"'  # within a text its quotation marks are escaped


class LanguagePricingAnswer(ModelApiAnswer):
    """Prices as clients know them; the last two are absent where a provider has none."""

    input: str
    output: str
    input_cache_read: str | UnsetType = UNSET
    input_cache_write: str | UnsetType = UNSET


class SpecificationAnswer(Answer, kw_only=True):
    specification_version: str = f"v{NEWEST}"
    provider: str
    model_id: str


class LanguageModelAnswer(Answer, kw_only=True):
    id: str
    name: str
    description: str
    model_type: Literal["language"] = "language"
    pricing: LanguagePricingAnswer | None
    specification: SpecificationAnswer


class LanguageModelListAnswer(Answer):
    models: list[LanguageModelAnswer]


def show_config(version: int, services: Services, inbound: Inbound) -> Outbound:
    """List the language models that the key may call, first those with a credential. `available=true` keeps only models
    with a credential."""
    caller = auth.caller_of(services, inbound)
    reach = reach_of(services, caller)
    only_reach = lists_available(services, inbound)
    at_us = services.clock.now_us()
    holder = services.routing.catalogue
    catalogue = holder.current()
    refuse = predicate(caller.rules, at_us)
    key = ("ai models", catalogue.version, at_us // DAY_US, caller.rules, reach, only_reach)
    # The entries are serialized once for all versions and rules.
    known: dict[str, bytes] = holder.remember(("ai model entries", catalogue.version, at_us // DAY_US), dict)

    def make() -> tuple[str, bytes]:
        shows = within(reach, refuse)
        entries = [*_serialise(catalogue, catalogue.models.values(), at_us, shows, known)]
        if not only_reach:
            shows = beyond(reach, refuse)
            entries += _serialise(catalogue, catalogue.models.values(), at_us, shows, known)
        return _tagged(_as_version(HEAD + b",".join(entries) + END, version))

    tag, shared = holder.remember((*key, version), lambda: compute(make))
    if _reads_own(caller):
        own = services.routing.custom_catalogue.of(caller)
    else:
        own = None
    if own is None or not own.current().models:
        return listing.reply(inbound, holder, tag, (shared,))
    source = own

    def make_own() -> tuple[str, bytes]:
        models = listing.own_models(catalogue, source.current())
        entries = _serialise(source.current(), models, at_us, refuse, {})
        body = _as_version(HEAD + b",".join(entries) + END, version)
        return _tagged(_join(body, shared))

    tag, body = services.routing.custom_catalogue.listed(own, (*key, version), make_own)
    return listing.reply(inbound, own, tag, (body,))


def _reads_own(caller: Caller) -> bool:
    """Return whether the caller may see the organization's own models; customer keys may not."""
    return caller.key_kind == "user"


def _as_version(newest: bytes, version: int) -> bytes:
    """Return the list in the format of clients of `version`."""
    return newest.replace(VERSION_MEMBER % NEWEST, VERSION_MEMBER % version)


def _tagged(body: bytes) -> tuple[str, bytes]:
    return listing.tag_of(body), body


def _join(first: bytes, second: bytes) -> bytes:
    former = first[len(HEAD) : -len(END)]
    latter = second[len(HEAD) : -len(END)]
    return HEAD + former + (b"," if former and latter else b"") + latter + END


def _serialise(
    catalogue: Catalogue, models: Iterable[Model], at_us: int, refuse: Predicate | None, known: dict[str, bytes]
) -> Iterator[bytes]:
    """Return the entries as JSON; `known` caches those of this catalogue and day by the mapping's key."""
    for model in models:
        if model.output_modalities and MODALITY not in model.output_modalities:
            continue
        for mapping in model.mappings:
            provider = catalogue.providers[mapping.provider]
            if not _serves(mapping, provider, at_us) or (refuse is not None and refuse(mapping, provider) is not None):
                continue
            if mapping.key not in known:
                known[mapping.key] = _entry(model, mapping, provider, at_us).encode()
            yield known[mapping.key]


def _serves(mapping: Mapping, provider: Provider, at_us: int) -> bool:
    """Return whether the mapping can be called for text at all."""
    if OPERATION not in mapping.operations or provider.priority <= 0:
        return False
    return mapping.priced and not has_ended(mapping, day_of(at_us))


def _entry(model: Model, mapping: Mapping, provider: Provider, at_us: int) -> LanguageModelAnswer:
    ident = mapping.key.removeprefix(f"{CUSTOM}:")
    return LanguageModelAnswer(
        id=ident,
        name=model.name,
        description=model.description or f"{model.name} by {provider.name}.",
        pricing=_pricing(mapping, at_us),
        specification=SpecificationAnswer(provider=mapping.provider.removeprefix(f"{CUSTOM}:"), model_id=ident),
    )


def _pricing(mapping: Mapping, at_us: int) -> LanguagePricingAnswer | None:
    """Return today's base prices, exact decimal strings of USD per token."""
    prices = prices_at(mapping.prices, at_us)
    if prices is None:
        return None
    rates = prices.base
    return LanguagePricingAnswer(
        format_price(rates.prompt or 0),
        format_price(rates.completion or 0),
        _write_price(rates.input_cache_read),
        _write_price(rates.input_cache_write),
    )


def _write_price(price: int | None) -> str | UnsetType:
    if price is None:
        return UNSET
    return format_price(price)
