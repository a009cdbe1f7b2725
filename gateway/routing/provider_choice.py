"""The caller's choice among providers: leaves providers out of a plan and reorders it."""

from collections.abc import Callable

from msgspec.structs import replace

from gateway.errors import InvalidRequest
from gateway.neutral.request import ProviderPreferences
from gateway.routing.candidate_filter import CHOICE, Excluded
from gateway.routing.candidates import Candidate, rank_among, reason_against
from gateway.routing.decision import Plan, RouteRequest
from gateway.routing.preferences import CHOOSING_MODES
from gateway.routing.score import Scored
from gateway.routing.tables import CandidateTable

UNSUPPORTED_MEMBER = "provider.{} was left out: the gateway does not support it."


def plan_with_preferences(
    request: RouteRequest, table: CandidateTable, plan: Callable[[RouteRequest, CandidateTable], Plan]
) -> Plan:
    """Return the plan of a request with provider preferences; `plan` makes the plan of a table.

    Raise InvalidRequest, naming the preference, when it leaves no provider, and the errors of `plan`.
    """
    preferences = request.options.provider
    if preferences is None:
        return plan(request, table)
    warnings = tuple(UNSUPPORTED_MEMBER.format(name) for name in preferences.unread)
    request = request._replace(ignored=(*request.ignored, *warnings))
    narrowed, excluded = _narrow(table, preferences, request.requested_model)
    if table.resolution.kind in (*CHOOSING_MODES, "canonical"):
        # Which provider is the first one depends on the order below.
        made = plan(request._replace(no_fallback=False), narrowed)
    else:
        made = plan(request, narrowed)
    order = _arrange(made, preferences, request.requested_model)
    if request.no_fallback:
        order = order[:1]
    return made._replace(
        request=request, order=order, excluded=[*made.excluded, *excluded], waived=order[0].entry.lacking
    )


def _narrow(
    table: CandidateTable, preferences: ProviderPreferences, requested: str
) -> tuple[CandidateTable, list[Excluded]]:
    """Return the table without the candidates that the preferences leave out, and those."""
    excluded: list[Excluded] = []

    def keep(candidate: Candidate) -> bool:
        reason = reason_against(preferences, candidate)
        if reason:
            excluded.append(Excluded(candidate.key, CHOICE, reason, candidate))
        return not reason

    candidates = tuple(filter(keep, table.candidates))
    if table.candidates and not candidates:
        raise _refusal("only" if preferences.only else "ignore", requested, table.candidates)
    return replace(table, candidates=candidates, others=tuple(filter(keep, table.others))), excluded


def _arrange(plan: Plan, preferences: ProviderPreferences, requested: str) -> tuple[Scored, ...]:
    """Return the order of a plan with the preferred providers first, within each model; candidates in cooldown stay
    last."""
    names = preferences.order
    models: dict[str, int] = {}
    for scored in plan.order:
        models.setdefault(scored.candidate.model.id, len(models))

    def position(scored: Scored) -> tuple[bool, int, int]:
        cooling = plan.cooling.get(scored.key)
        late = cooling is not None and cooling.whole
        return late, models[scored.candidate.model.id], rank_among(names, scored.candidate)

    order = sorted(plan.order, key=position)
    if preferences.allow_fallbacks:
        return tuple(order)
    if names:
        chosen = tuple(scored for scored in order if rank_among(names, scored.candidate) < len(names))
        if not chosen:
            raise _refusal("order", requested, tuple(scored.candidate for scored in plan.order))
        return chosen
    firsts = {scored.candidate.model.id: scored for scored in reversed(order)}
    return tuple(scored for scored in order if firsts[scored.candidate.model.id] is scored)


def _refusal(member: str, requested: str, candidates: tuple[Candidate, ...]) -> InvalidRequest:
    providers = ", ".join(sorted({candidate.provider.id for candidate in candidates}))
    return InvalidRequest(
        f"provider.{member} leaves no provider for {requested}; it is served by: {providers}.",
        param=f"provider.{member}",
    )
