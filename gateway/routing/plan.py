"""The router: plans the order in which to try providers for a request."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gateway.clock import Clock
from gateway.configuration.settings import RoutingSettings
from gateway.errors import InvalidRequest
from gateway.neutral.chat import NO_OPTIONS, Options, Requirements
from gateway.neutral.request import ProviderPreferences
from gateway.routing.auto import CHAT, DEFAULT_OUTPUT, choose
from gateway.routing.candidate_filter import CHOICE, COOLDOWN, Allowed, CandidateFilter, Excluded, Usable
from gateway.routing.candidates import (
    AGENT_MIX,
    GENERAL_MIX,
    Candidate,
    CandidateTable,
    Tables,
    TokenMix,
    rank_among,
    reason_against,
)
from gateway.routing.capabilities import Demand, read_demand
from gateway.routing.decision import Plan, RouteRequest
from gateway.routing.hosted_rules import HostedRules
from gateway.routing.provider_health import Health
from gateway.routing.resolve import CatalogueView, CustomRoutes, Resolution
from gateway.routing.score import DEFAULT_UPTIME, LARGE_PROMPT_TOKENS, Scored, ScoreEntry, Weights, grade, rank, weigh
from gateway.routing.sticky import SCORE_MARGIN, UPTIME_FLOOR, Sticky

# Preferences that have no effect for a model: they are ignored with a warning, whatever their value.

CHOOSING_MODES = ("auto",)
FIXED_MODES = ("pinned", "custom")
IMAGE = "image"
NO_MIXES: Mapping[str, TokenMix] = MappingProxyType({})


def check_preferences(options: Options, resolution: Resolution) -> tuple[Options, tuple[str, ...]]:
    """Return the options that have an effect, and a warning for each preference that has none.

    Raise InvalidRequest for an invalid value of a preference that has an effect, and for `free_models_only` with a
    specific model, because that preference is a promise about costs.
    """
    warnings: list[str] = []
    for mistake in options.mistakes:
        effect, reason = PREFERENCE_EFFECTS[mistake.field]
        if effect(resolution):
            raise InvalidRequest(mistake.message, param=mistake.param)
        warnings.append(_warn(mistake.field, reason, resolution))
    if resolution.kind in CHOOSING_MODES:
        return options, ()
    if options.free_models_only:
        raise InvalidRequest(
            "free_models_only is available only with the models auto and smart.", param="free_models_only"
        )
    routing = PREFERENCE_EFFECTS["routing"]
    no_reasoning = PREFERENCE_EFFECTS["no_reasoning"]
    if options.no_reasoning:
        options = options.with_changes(no_reasoning=False)
        warnings.append(_warn("no_reasoning", no_reasoning[1], resolution))
    if options.routing not in ("", "auto") and not routing[0](resolution):
        options = options.with_changes(routing="")
        warnings.append(_warn("routing", routing[1], resolution))
    return options, tuple(warnings)


def _warn(field: str, reason: str, resolution: Resolution) -> str:
    return f"{field} was left out: {reason.format(resolution.requested_model)}."


def _chooses_provider(resolution: Resolution) -> bool:
    return resolution.kind not in FIXED_MODES


def _chooses_model(resolution: Resolution) -> bool:
    return resolution.kind in CHOOSING_MODES


def _makes_images(resolution: Resolution) -> bool:
    return resolution.model is None or IMAGE in resolution.model.output_modalities


# Field → whether it has an effect, and the reason why not.
PREFERENCE_EFFECTS: dict[str, tuple[Callable[[Resolution], bool], str]] = {
    "routing": (_chooses_provider, "{} names its provider"),
    "no_reasoning": (_chooses_model, "{} is a specific model, and only auto chooses a model"),
    "image_config": (_makes_images, "{} does not generate images"),
}


# The caller's choice among providers: leaves providers out of a plan and reorders it.

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


# Values of selectionReason in the API.
PINNED = "direct-provider-specified"
SINGLE = "single-provider-available"
FIRST = "fallback-first-available"
PREFERRED = "stable-preferred"
SESSION = "session-sticky"
WEIGHTED = "weighted-score"
EXPLORED = "random-exploration"
LOW_UPTIME = "low-uptime-fallback"

NONE_IGNORED: tuple[str, ...] = ()
# A pinned provider with low uptime is considered failing after this number of outcomes, and doubtful after this number
# of faults.
MIN_JUDGED = 20
MIN_FAULTS = 5


class Router:
    """Plans requests. Holds no account: policy and credentials are passed with each call."""

    def __init__(
        self,
        catalogue: Callable[[], CatalogueView],
        health: Health,
        sticky: Sticky,
        settings: RoutingSettings,
        auto_models: tuple[str, ...],
        random: Callable[[], float],
        clock: Clock,
        dialects: dict[str, str] | None = None,
        lost: dict[str, frozenset[str]] | None = None,
        carried: dict[str, frozenset[str]] | None = None,
    ) -> None:
        """`random` returns numbers in [0, 1). `dialects`, `lost` and `carried` as in Tables."""
        self.health = health
        self.catalogue = catalogue  # returns the current catalogue; a different object after a reload
        self._sticky = sticky
        self._settings = settings
        self._auto_models = auto_models
        self._random = random
        self._clock = clock
        self._tables = Tables(catalogue, clock, dialects, lost, carried)
        # By project and model; replaced as a whole by a recurring job.
        self.observed_mixes: Mapping[str, Mapping[str, TokenMix]] = {}

    def plan(
        self,
        requested_model: str,
        requirements: Requirements,
        options: Options,
        allowed: Allowed | None,
        usable: Usable,
        no_fallback: bool = False,
        session: str = "",
        *,
        scope: str = "",
        operation: str = "chat",
        routes: CustomRoutes | None = None,
        explore: float | None = None,
        organization: str = "",
    ) -> Plan:
        """Plan the order of candidates for a request. Changes nothing; call `served` after a success.

        `allowed` returns the reason why a mapping is denied (None: allowed), `usable` returns a mapping's credentials
        in the order in which to try them (() = none). `scope` (a project's id) separates sessions and preferences.
        `explore` is the probability of a random choice where one is allowed (None: the configured rate; 0.0 for
        explanations). `organization` is the caller's. Candidates that cool down come last, by the end of their
        cooldown.

        Raise UnknownModel, InvalidRequest (an invalid preference, no credential), NotSupported (naming what is
        missing), Forbidden (denied by policy), NotFound (dynamic route) or NoProviderLeft (no provider can be reached,
        and another request tried a moment ago; with retry_after).
        """
        chance = self._settings.exploration_rate if explore is None else explore
        table = self._tables.find(requested_model, routes)
        ignored = NONE_IGNORED
        if options is not NO_OPTIONS:
            options, ignored = check_preferences(options, table.resolution)
        request = RouteRequest(
            *(requested_model, requirements, options, allowed, usable, no_fallback, session, scope, operation, routes),
            *(chance, organization, ignored),
        )
        if options.provider is not None:
            return plan_with_preferences(request, table, self._plan_table)
        return self._plan_table(request, table)

    def _plan_table(self, request: RouteRequest, table: CandidateTable) -> Plan:
        kind = table.resolution.kind
        if kind in CHOOSING_MODES:
            return self._plan_choice(request, table)
        candidate_filter = self._make_filter(request, 0)
        entries = candidate_filter.keep_usable(table.candidates)
        if kind == "canonical":
            return self._finish(request, table, candidate_filter, entries)
        return self._plan_pinned(request, table, candidate_filter, entries)

    def should_explore(self, chance: float) -> bool:
        """Return whether a request with this probability (`exploration_chance`) is routed elsewhere to explore."""
        return self._random() < chance

    def served(self, plan: Plan, chosen: Scored) -> None:
        """Record that `chosen` answered: keep the session with it, and remember it for its project.

        A random choice is not remembered: its purpose is exploration.
        """
        plan = plan.part_of(chosen.key)
        request = plan.request
        if request.session:
            self._sticky.pin(request.scope, request.session, request.requested_model, chosen.key)
        elif remembers_provider(plan):
            self._sticky.prefer(request.scope, request.requested_model, chosen.key)

    def _make_filter(self, request: RouteRequest, default_output: int) -> CandidateFilter:
        demand = read_demand(request.requirements, request.options, default_output)
        mix_of = None
        if _compares_mixes(request, demand):
            mix_of = self._mixes_of(request)
        uses = request.requirements.hosted_uses
        hosted = None
        if uses:
            hosted = HostedRules(uses, self.catalogue(), request.allowed, self._settings)
        return CandidateFilter(
            self.health,
            demand,
            request.operation,
            request.allowed,
            request.usable,
            self._clock.now_us(),
            mix_of,
            request.requirements.image_output,
            request.organization,
            hosted,
        )

    def _mixes_of(self, request: RouteRequest) -> Callable[[str], TokenMix | None]:
        """Return a function from the id of a model to its mix of tokens: the observed one of the project, otherwise for
        agents theirs, and None for the general one."""
        observed = self.observed_mixes.get(request.scope, NO_MIXES)
        # Only agents name their sessions and offer tools.
        if request.session and request.requirements.tools:
            return lambda model: observed.get(model, AGENT_MIX)
        return observed.get

    def explain_mix(self, request: RouteRequest, model: str) -> TokenMix | None:
        """Return the mix of tokens for which the prices of a model's providers are compared; None for a small prompt
        without a session: its input and output count alike."""
        demand = read_demand(request.requirements, request.options, 0)
        if not _compares_mixes(request, demand):
            return None
        return self._mixes_of(request)(model) or GENERAL_MIX

    def _plan_choice(self, request: RouteRequest, table: CandidateTable) -> Plan:
        candidate_filter = self._make_filter(request, DEFAULT_OUTPUT if request.operation == CHAT else 0)
        pin = self._sticky.pin_of(request.scope, request.session, request.requested_model) if request.session else None
        choice = choose(self._tables, candidate_filter, self._auto_models, request.options, pin)
        first, *following = choice.models
        return self._finish(request, table, candidate_filter, first, FIRST if choice.fallback else "", following)

    def _plan_pinned(
        self, request: RouteRequest, table: CandidateTable, candidate_filter: CandidateFilter, entries: list[ScoreEntry]
    ) -> Plan:
        """Use the pinned provider as it is, unless it performs badly and others serve the model.

        While it is doubtful, others serve when it fails, and first during its cooldown.
        """
        weights = _weights(request)
        failing, doubtful = self._judge(candidate_filter, entries)
        if doubtful:
            failing = all(_is_cooling(entry.candidate.key, candidate_filter) for entry in entries)
        unanswered = _is_unanswered(candidate_filter, entries)
        if not request.no_fallback and (failing or doubtful or unanswered):
            own = {candidate.key for candidate in table.candidates}
            ranked = rank([*entries, *candidate_filter.keep_usable(table.others)], weights)
            # At an unreachable provider one request per second tries first; then the others serve it nevertheless.

            def position(scored: Scored) -> tuple[bool, bool]:
                named = scored.key in own
                return (failing or not named) and _is_cooling(scored.key, candidate_filter), named is failing

            order = sorted(ranked, key=position)
            if len(order) > len(entries) and (order[0].key in own) is not failing:
                reason = LOW_UPTIME if failing else PINNED
                return self._make(request, table, candidate_filter, _spread(order[0], order), reason, ranked, weights)
        if not entries:
            raise _only(candidate_filter, table.candidates).refusal(request.requested_model)
        ranked = rank(entries, weights)
        if candidate_filter.cooling:
            ready, late = _divide(ranked, candidate_filter)
        else:
            ready, late = (ranked, [])
        places = (*ready, *late)
        reason = SINGLE if table.resolution.kind == "custom" else PINNED
        return self._make(
            request, table, candidate_filter, places[:1] if request.no_fallback else places, reason, ranked, weights
        )

    def _judge(self, candidate_filter: CandidateFilter, entries: list[ScoreEntry]) -> tuple[bool, bool]:
        """Return whether the pinned provider fails too often by its own fault or cannot be reached at present, and
        whether it may fail too often, after few requests."""
        if not entries:
            return any(excluded.stage == COOLDOWN for excluded in candidate_filter.excluded), False
        if min(entry.uptime for entry in entries) >= DEFAULT_UPTIME:
            return False, False
        _, tick = self.health.tick()
        uptimes = [self.health.own_uptime(entry.candidate.key, tick) for entry in entries]
        if any(uptime >= self._settings.low_uptime_percent for uptime, _, _ in uptimes):
            return False, False
        failing = all(events >= MIN_JUDGED for _, events, _ in uptimes)
        return failing, not failing and all(faults >= MIN_FAULTS for _, _, faults in uptimes)

    def _finish(
        self,
        request: RouteRequest,
        table: CandidateTable,
        candidate_filter: CandidateFilter,
        entries: list[ScoreEntry],
        reason: str = "",
        following: Sequence[list[ScoreEntry]] = (),
    ) -> Plan:
        """Return the plan of `entries`, and of the models that follow when they fail."""
        if not entries:
            raise candidate_filter.refusal(request.requested_model)
        weights = _weights(request)
        ranked = rank(entries, weights)
        if candidate_filter.cooling:
            ready, late = _divide(ranked, candidate_filter)
        else:
            ready, late = (ranked, [])
        if ready:
            first, why = self._select(request, ready)
        else:
            first, why = (late[0], SINGLE if len(late) == 1 else WEIGHTED)
        order = _spread(first, ready) if ready else ()
        for others in following:
            scored = rank(others, weights)
            ranked = [*ranked, *scored]
            awake, asleep = _divide(scored, candidate_filter)
            order += _spread(awake[0], awake) if awake else ()
            late = [*late, *asleep]
        order = (first,) if request.no_fallback else (*order, *late)
        return self._make(
            request, table, candidate_filter, order, reason if reason and why == WEIGHTED else why, ranked, weights
        )

    def _select(self, request: RouteRequest, ranked: list[Scored]) -> tuple[Scored, str]:
        best = ranked[0]
        if len(ranked) == 1:
            return best, SINGLE
        # A candidate that lacks more preferences than the best one, or that the organization's credits pay for while an
        # own key serves the best one, comes after it and is never chosen for another reason.
        first = grade(best.entry)
        ranked = [scored for scored in ranked if grade(scored.entry) == first]
        if request.session:
            pinned = _find(ranked, self._sticky.pin_of(request.scope, request.session, request.requested_model))
            if pinned is not None and (pinned.entry.uptime >= UPTIME_FLOOR or pinned.candidate.keep_session):
                return pinned, SESSION
            return best, WEIGHTED
        if _has_strategy(request.options):
            return best, WEIGHTED
        if request.explore and not request.no_fallback and self._random() < request.explore:
            return ranked[int(self._random() * len(ranked))], EXPLORED
        preferred = _find(ranked, self._sticky.preference_of(request.scope, request.requested_model))
        if preferred is not None and preferred is not best and _is_good_enough(preferred, best):
            return preferred, PREFERRED
        return best, WEIGHTED

    def _make(
        self,
        request: RouteRequest,
        table: CandidateTable,
        candidate_filter: CandidateFilter,
        order: tuple[Scored, ...],
        reason: str,
        ranked: list[Scored],
        weights: Weights,
    ) -> Plan:
        lacking = order[0].entry.lacking
        return Plan(
            request,
            table.resolution,
            order,
            reason,
            ranked,
            candidate_filter.excluded,
            weights,
            lacking,
            candidate_filter.cooling,
        )


def remembers_provider(plan: Plan) -> bool:
    """Return whether the provider that serves a plan is remembered, see `Router.served`."""
    if plan.request.session:
        return True
    if plan.parts:
        return any(map(remembers_provider, plan.parts))
    return plan.reason != EXPLORED and plan.resolution.kind == "canonical" and not _has_strategy(plan.request.options)


def exploration_chance(plan: Plan) -> float:
    """Return the probability of a random choice for the next request like that of `plan` (`Router._select`)."""
    request = plan.request
    fixed = request.no_fallback or request.session or _has_strategy(request.options)
    if plan.reason in (WEIGHTED, PREFERRED) and not fixed:
        return request.explore
    return 0.0


def _weights(request: RouteRequest) -> Weights:
    return weigh(request.options.routing, request.requirements.stream, request.requirements.image_output)


def _has_strategy(options: Options) -> bool:
    return options.routing not in ("", "auto") or options.provider is not None


def _find(ranked: list[Scored], key: str | None) -> Scored | None:
    if key is None:
        return None
    return next((scored for scored in ranked if scored.key == key), None)


def _is_unanswered(candidate_filter: CandidateFilter, entries: list[ScoreEntry]) -> bool:
    if candidate_filter.cooling:
        cooling = [candidate_filter.cooling.get(entry.candidate.key) for entry in entries]
    else:
        cooling = []
    return bool(cooling) and all(state is not None and state.whole and state.unanswered for state in cooling)


def _is_cooling(key: str, candidate_filter: CandidateFilter) -> bool:
    cooling = candidate_filter.cooling.get(key)
    return cooling is not None and cooling.whole


def _divide(ranked: list[Scored], candidate_filter: CandidateFilter) -> tuple[list[Scored], list[Scored]]:
    """Return the ready candidates in their ranking, and those that cool down by the end of their cooldown."""
    late = [scored for scored in ranked if _is_cooling(scored.key, candidate_filter)]

    def return_time(scored: Scored) -> float:
        return candidate_filter.cooling[scored.key].until

    late.sort(key=return_time)
    return [scored for scored in ranked if not _is_cooling(scored.key, candidate_filter)], late


def _spread(first: Scored, ranked: list[Scored]) -> tuple[Scored, ...]:
    """Return `first`, then the others in their ranking, with second regions of a provider after all other providers.

    The number of attempts is small, and regions of one provider often fail together.
    """
    rest = ranked[1:] if first is ranked[0] else [scored for scored in ranked if scored is not first]
    if len({scored[2][0].provider.id for scored in ranked}) == len(ranked):
        return (first, *rest)
    turns = {first.entry.candidate.provider.id: 1}
    rounds = []
    for scored in rest:
        provider = scored.entry.candidate.provider.id
        rounds.append(turns.get(provider, 0))
        turns[provider] = rounds[-1] + 1
    if any(rounds):
        rest = [scored for _, _, scored in sorted(zip(rounds, range(len(rest)), rest, strict=True))]
    return (first, *rest)


def _is_good_enough(preferred: Scored, best: Scored) -> bool:
    return preferred.entry.uptime >= UPTIME_FLOOR and preferred.score - best.score <= SCORE_MARGIN


def _only(candidate_filter: CandidateFilter, candidates: tuple[Candidate, ...]) -> CandidateFilter:
    # The error of a pinned request describes its own provider, regardless of the others.
    own = {candidate.key for candidate in candidates}
    candidate_filter.excluded = [excluded for excluded in candidate_filter.excluded if excluded.key in own]
    return candidate_filter


def _compares_mixes(request: RouteRequest, demand: Demand) -> bool:
    return bool(request.session) or demand.tokens >= LARGE_PROMPT_TOKENS
