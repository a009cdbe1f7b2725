"""Models that serve in place of one of this vendor that is unknown or cannot be called: the vendor's nearest one, then
the operator's list."""

import re

from gateway.accounts.access import Predicate, predicate
from gateway.billing.context import RequestContext
from gateway.catalogue.entries import Mapping, Model
from gateway.neutral.chat import ChatRequest
from gateway.surfaces.availability import reach_of
from gateway.worker.services import Services

OWN_MODELS = "claude-"
WORD = re.compile(r"[a-z]{3,}")
CHAT = "chat"


def substitute(services: Services, context: RequestContext, request: ChatRequest) -> tuple[str, ...]:
    """Return the models to try after the requested one; () for a model of another vendor, and where the caller chose
    the models. Agents of this vendor request its models even if they are not configured."""
    configured = services.settings.catalogue.messages_models
    chosen = context.no_fallback or request.options.models or (context.choice or {}).get("models")
    name = request.requested_model.lower()
    if chosen or not configured or not name.startswith(OWN_MODELS):
        return ()
    return (*_nearest(services, context, name), *configured)


def _nearest(services: Services, context: RequestContext, name: str) -> tuple[str, ...]:
    """Return the newest model of the same line that the caller can call, else the cheapest line's; () if there is
    none."""
    catalogue = services.routing.catalogue.current()
    reach = reach_of(services, context.caller)
    refuse = predicate(context.caller.rules, context.at_us)
    callable_ones: list[tuple[Model, Mapping]] = []
    for model in catalogue.models.values():
        if model.id.startswith(OWN_MODELS):
            mapping = next((one for one in model.mappings if one.key in reach and _serves(one, refuse, services)), None)
            callable_ones += [(model, mapping)] if mapping is not None else []
    lines = set(WORD.findall(name.removeprefix(OWN_MODELS)))
    callable_ones.sort(key=lambda pair: pair[0].released, reverse=True)
    alike = [model.id for model, _ in callable_ones if lines.intersection(WORD.findall(model.id))]
    if alike:
        return (alike[0],)
    return tuple(model.id for model, _ in sorted(callable_ones, key=_price)[:1])


def _serves(mapping: Mapping, refuse: Predicate | None, services: Services) -> bool:
    provider = services.routing.catalogue.current().providers[mapping.provider]
    return CHAT in mapping.operations and (refuse is None or refuse(mapping, provider) is None)


def _price(pair: tuple[Model, Mapping]) -> int:
    rates = pair[1].prices[0].base
    return (rates.prompt or 0) + (rates.completion or 0)
