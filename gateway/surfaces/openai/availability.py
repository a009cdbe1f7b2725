"""The models that a caller could call now: mappings in service for which a credential exists (`available=true`)."""

from gateway.accounts.access import CUSTOM, Predicate
from gateway.accounts.authentication import Caller
from gateway.catalogue.catalogue import day_of
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.lifecycle import ACTIVE, has_ended, state_on
from gateway.surfaces.openai.model_entries import AUTO
from gateway.worker.services import Services

GENERIC = Mapping(CUSTOM, CUSTOM, CUSTOM)


def reach_of(services: Services, caller: Caller | None) -> frozenset[str]:
    """Return the mapping keys and pseudo model names that the caller's project can reach; for the public those that the
    platform can reach. Some of them may be cooling down or exceed the caller's budget, which is not considered."""
    catalogue = services.routing.catalogue.current()
    usable = services.routing.credentials.usable(caller)
    day = day_of(services.clock.now_us())
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
    if caller is not None and any(one.base_url for one in usable(GENERIC)):
        reachable.add(CUSTOM)
    return frozenset(reachable)


def choices_of(services: Services, reach: frozenset[str] | None) -> list[Mapping]:
    """Return the mappings among which `auto` chooses: those of its configured models in service, or all mappings in
    service where none of these is within `reach`."""
    catalogue = services.routing.catalogue.current()
    day = day_of(services.clock.now_us())
    models = [model for name in services.settings.catalogue.auto_models if (model := catalogue.find(name))]
    listed = [one for model in models for one in model.mappings if state_on(one, day) == ACTIVE]
    if reach is None:
        return listed
    everything = (one for model in catalogue.models.values() for one in model.mappings if "chat" in one.operations)
    return [one for one in listed if one.key in reach] or [one for one in everything if one.key in reach]


def within(reach: frozenset[str], refuse: Predicate | None) -> Predicate:
    """Return a rule that excludes everything that `refuse` excludes or that is out of reach."""

    def check(mapping: Mapping, provider: Provider) -> str | None:
        if mapping.key not in reach:
            return "no credential"
        if refuse is not None:
            return refuse(mapping, provider)
        return None

    return check
