"""A routing decision: the request as routing sees it, and the order of candidates to try."""

from collections.abc import Mapping as Lookup
from types import MappingProxyType
from typing import NamedTuple

from gateway.catalogue.entries import Mapping
from gateway.neutral.chat import Options, Requirements
from gateway.routing.auto import effort_of
from gateway.routing.candidate_filter import Allowed, CoolingDown, Excluded, Usable
from gateway.routing.resolve import CustomRoutes, Resolution
from gateway.routing.score import Scored, Weights, rank

NO_DETAILS: Lookup[str, CoolingDown] = MappingProxyType({})


class RouteRequest(NamedTuple):
    """The arguments of `Router.plan`. `ignored` has a warning for each preference without effect."""

    requested_model: str
    requirements: Requirements
    options: Options
    allowed: Allowed | None
    usable: Usable
    no_fallback: bool = False
    session: str = ""
    scope: str = ""
    operation: str = "chat"
    routes: CustomRoutes | None = None
    explore: float = 0.0
    organization: str = ""
    ignored: tuple[str, ...] = ()


class Plan(NamedTuple):
    """A routing plan. `order` lists the candidates to try, best first, never empty; the engine bounds the attempts.

    `reason` is the selectionReason of the first. `ranked` has every scored candidate, including those that this
    request may not fail over to. `cooling` holds, by mapping key, what is tried last. `waived` are preferences that
    the first candidate does not fulfil because none does (see capabilities.SOFT). For a request with several models,
    `parts` are the plans of its models and `skipped` the models without a plan, each with the reason.
    """

    request: RouteRequest
    resolution: Resolution
    order: tuple[Scored, ...]
    reason: str
    ranked: list[Scored]
    excluded: list[Excluded]
    weights: Weights
    waived: tuple[str, ...] = ()
    cooling: Lookup[str, CoolingDown] = NO_DETAILS
    parts: tuple["Plan", ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def first(self) -> Scored:
        return self.order[0]

    def effort_for(self, mapping: Mapping) -> str:
        """Return the reasoning effort to send if the gateway chose the model and the caller set none; else ""."""
        if self.parts:
            return self.part_of(mapping.key).effort_for(mapping)
        if self.resolution.kind == "auto":
            return effort_of(mapping, self.request.requirements)
        return ""

    def part_of(self, key: str) -> "Plan":
        """Return the plan of the model for which a mapping is tried: this plan, unless the request has several
        models."""
        return next((part for part in self.parts if any(scored.key == key for scored in part.order)), self)


# A plan ranked again with other weights, to see what they would change.


def reweigh(plan: Plan, weights: Weights) -> Plan:
    """Return the plan with its candidates in the order that `weights` give. Those that cool down stay last. The plan
    of a list of models is returned as it is, because the order of the list decides."""
    if plan.parts:
        return plan
    tried = {scored.key for scored in plan.order}
    ranked = rank((scored.entry for scored in plan.ranked), weights)
    order = sorted((scored for scored in ranked if scored.key in tried), key=lambda scored: scored.key in plan.cooling)
    return plan._replace(ranked=ranked, order=tuple(order), weights=weights)
