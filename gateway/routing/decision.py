"""A routing decision: what was asked, the order in which to try, and all of it as data."""

from typing import Any, NamedTuple

from gateway.catalogue.entries import Mapping
from gateway.money import usd_number
from gateway.neutral.chat import Needs, Options
from gateway.routing.auto import effort_of
from gateway.routing.resolve import CustomRoutes, Resolution
from gateway.routing.score import GENERAL, Scored, Traffic, Weights
from gateway.routing.sieve import Allowed, Excluded, Usable


class Ask(NamedTuple):
    """One request for a plan; see `Router.plan`."""

    asked: str
    needs: Needs
    options: Options
    allowed: Allowed | None
    usable: Usable
    no_fallback: bool = False
    session: str = ""
    scope: str = ""
    operation: str = "chat"
    routes: CustomRoutes | None = None
    traffic: Traffic = GENERAL
    explore: bool = True


class Plan(NamedTuple):
    """`order`: what to try, best first, never empty; the engine bounds the attempts. `reason` is the selectionReason
    of the first. `ranked` has every scored candidate, also those that this request may not fail over to.

    `waived` are wishes that no candidate fulfils and that do not refuse the request (see capabilities.SOFT).
    """

    ask: Ask
    resolution: Resolution
    order: tuple[Scored, ...]
    reason: str
    ranked: list[Scored]
    excluded: list[Excluded]
    weights: Weights
    waived: tuple[str, ...] = ()

    @property
    def first(self) -> Scored:
        return self.order[0]

    @property
    def downgrades_tool_choice(self) -> bool:
        """No provider of the model honours the forced tool choice: send "auto" (HTTP reference, 2.1)."""
        return "tool choice" in self.waived

    def effort_for(self, mapping: Mapping) -> str:
        """The reasoning effort to send where the gateway chose the model and the caller named none; else ""."""
        return effort_of(mapping, self.ask.needs) if self.resolution.kind == "auto" else ""

    def record(self) -> dict[str, Any]:
        """The whole decision as JSON-able data: see `write_record`."""
        return write_record(self)


def write_record(plan: Plan) -> dict[str, Any]:
    """The decision as JSON-able data, names as in the HTTP reference, 5.5.

    Beside them: `requestedModel`, `kind`, `weights`, `order` (mapping keys as tried), `excluded` (mapping, stage,
    reason) and `waived`. `price` is USD per million units, `uptime` percent, `latency` ms, `throughput` tokens/s.
    """
    ask, first = plan.ask, plan.first
    record = {
        "requestedModel": ask.asked,
        "kind": plan.resolution.kind,
        "selectedModel": first.candidate.model.id,
        "selectedProvider": first.candidate.provider.id,
        "selectionReason": plan.reason,
        "availableProviders": sorted({one.candidate.provider.id for one in plan.ranked}),
        "providerScores": [_write_score(one) for one in plan.ranked],
        "order": [one.key for one in plan.order],
        "excluded": [_write_excluded(one) for one in plan.excluded],
        "weights": plan.weights._asdict(),
        "routing": ask.options.routing or "auto",
    }
    if first.candidate.mapping.region:
        record["selectedRegion"] = first.candidate.mapping.region
    if ask.no_fallback:
        record["noFallback"] = True
    if plan.waived:
        record["waived"] = list(plan.waived)
    return record


def _write_score(scored: Scored) -> dict[str, Any]:
    entry, candidate = scored.entry, scored.candidate
    row = {
        "providerId": candidate.provider.id,
        "modelId": candidate.model.id,
        "score": round(scored.score, 6),
        "price": round(usd_number(entry.price), 6),
        "uptime": round(entry.uptime, 3),
        "latency": round(entry.latency_ms, 1),
        "throughput": round(entry.throughput, 2),
        "priority": candidate.provider.priority,
        "cacheSupported": candidate.figures.cache_read != candidate.figures.input,
    }
    if candidate.mapping.region:
        row["region"] = candidate.mapping.region
    return row


def _write_excluded(one: Excluded) -> dict[str, Any]:
    row = {
        "providerId": one.candidate.provider.id,
        "modelId": one.candidate.model.id,
        "stage": one.stage,
        "reason": one.reason,
    }
    if one.candidate.mapping.region:
        row["region"] = one.candidate.mapping.region
    return row
