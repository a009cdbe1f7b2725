"""The models that a caller could call now: mappings in service for which a credential exists (`available=true`)."""

from collections.abc import Callable, Sequence

from gateway.callers.access import CUSTOM, Predicate
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.lifecycle import ACTIVE, has_ended, state_on
from gateway.runtime.threads import compute
from gateway.surfaces.web.http import Inbound
from gateway.worker.services import Services

AUTO = "auto"
GENERIC = Mapping(CUSTOM, CUSTOM, CUSTOM)

# Lists the caller's credentials for a mapping.
Usable = Callable[[Mapping], Sequence[object]]


def reach_of(services: Services, caller: Caller | None) -> frozenset[str]:
    """Return the mapping keys and pseudo model names that the caller's project can reach; for the public those that the
    platform can reach. Some of them may be cooling down or exceed the caller's budget, which is not considered.

    It is computed in a thread, once for all callers with the same credentials on one day.
    """
    holder = services.routing.catalogue
    catalogue = holder.current()
    credentials = services.routing.credentials
    day = day_of(services.clock.now_us())
    usable = credentials.usable(caller)
    has_generic = caller is not None and any(credential.base_url for credential in usable(GENERIC))

    def find() -> frozenset[str]:
        return _reachable(catalogue, usable, day, has_generic)

    key = ("reach", catalogue.version, day, credentials.scope_of(caller))
    return holder.remember(key, lambda: compute(find))


def _reachable(catalogue: Catalogue, usable: Usable, day: str, has_generic: bool) -> frozenset[str]:
    reachable = {
        mapping.key
        for model in catalogue.models.values()
        for mapping in model.mappings
        if mapping.priced
        and catalogue.providers[mapping.provider].priority > 0
        and not has_ended(mapping, day)
        and usable(mapping)
    }
    if reachable:
        reachable.add(AUTO)
    if has_generic:
        reachable.add(CUSTOM)
    return frozenset(reachable)


def prefer_reachable(mappings: Sequence[Mapping], reach: frozenset[str]) -> Sequence[Mapping]:
    """Return the mappings within reach, all where none is: an entry shows the sizes and prices of what its reader can
    call."""
    return [mapping for mapping in mappings if mapping.key in reach] or mappings


def lists_available(services: Services, inbound: Inbound) -> bool:
    """Return whether a list contains only models that can be called now: as the caller's `available` says, else as the
    setting says."""
    text = inbound.arguments().get("available", "").lower()
    if text:
        return text in ("true", "1")
    return services.settings.catalogue.list_available


def choices_of(services: Services, reach: frozenset[str] | None) -> list[Mapping]:
    """Return the mappings among which `auto` chooses: those of its configured models in service, or all mappings in
    service where none of these is within `reach`."""
    catalogue = services.routing.catalogue.current()
    day = day_of(services.clock.now_us())
    models = [model for name in services.settings.catalogue.auto_models if (model := catalogue.find(name))]
    listed = [mapping for model in models for mapping in model.mappings if state_on(mapping, day) == ACTIVE]
    if reach is None:
        return listed
    everything = (
        mapping for model in catalogue.models.values() for mapping in model.mappings if "chat" in mapping.operations
    )
    return [mapping for mapping in listed if mapping.key in reach] or [
        mapping for mapping in everything if mapping.key in reach
    ]


def within(reach: frozenset[str], refuse: Predicate | None) -> Predicate:
    """Return a rule that excludes everything that `refuse` excludes or that is out of reach."""

    def check(mapping: Mapping, provider: Provider) -> str | None:
        if mapping.key not in reach:
            return "no credential"
        if refuse is not None:
            return refuse(mapping, provider)
        return None

    return check


def beyond(reach: frozenset[str], refuse: Predicate | None) -> Predicate:
    """Return a rule that excludes everything that `refuse` excludes or that is within reach."""

    def check(mapping: Mapping, provider: Provider) -> str | None:
        if mapping.key in reach:
            return "within reach"
        if refuse is not None:
            return refuse(mapping, provider)
        return None

    return check
