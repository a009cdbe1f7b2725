"""The order in which to try providers for one request, and why."""

from collections.abc import Callable, Sequence

from gateway.clock import Clock
from gateway.configuration.settings import RoutingSettings
from gateway.neutral.chat import NO_OPTIONS, Options, Requirements
from gateway.routing.auto import DEFAULT_OUTPUT, choose
from gateway.routing.candidate_filter import COOLDOWN, Allowed, CandidateFilter, Usable
from gateway.routing.candidates import GENERAL, Candidate, Traffic
from gateway.routing.capabilities import read_demand
from gateway.routing.decision import Plan, RouteRequest
from gateway.routing.preferences import CHOOSING, check_preferences
from gateway.routing.provider_health import Health
from gateway.routing.resolve import CatalogueView, CustomRoutes
from gateway.routing.score import DEFAULT_UPTIME, LARGE_PROMPT_TOKENS, Scored, ScoreEntry, Weights, rank, weigh
from gateway.routing.sticky import SCORE_MARGIN, UPTIME_FLOOR, Sticky
from gateway.routing.tables import CandidateTable, Tables

# selectionReason (HTTP reference, 5.5).
PINNED = "direct-provider-specified"
SINGLE = "single-provider-available"
FIRST = "fallback-first-available"
PREFERRED = "stable-preferred"
SESSION = "session-sticky"
WEIGHTED = "weighted-score"
EXPLORED = "random-exploration"
LOW_UPTIME = "low-uptime-fallback"

NONE_IGNORED: tuple[str, ...] = ()
# Outcomes without which a named provider is not said to fail.
LEAST_JUDGED = 20
STRATEGIES = {
    (strategy, stream, image): weigh(strategy, stream, image)
    for strategy in ("", "auto", "price", "throughput", "latency")
    for stream in (False, True)
    for image in (False, True)
}


class Router:
    """Plans requests. Holds no account: policy and credentials come with each call."""

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
        """`random` gives numbers in [0, 1). `dialects`, `lost` and `carried` as in Tables."""
        self.health = health
        self.catalogue = catalogue  # gives the one that plans are made from now; another object after a reload
        self._sticky = sticky
        self._settings = settings
        self._auto_models = auto_models
        self._random = random
        self._clock = clock
        self._tables = Tables(catalogue, clock, dialects, lost, carried)

    def plan(
        self,
        requested_model: str,
        needs: Requirements,
        options: Options,
        allowed: Allowed | None,
        usable: Usable,
        no_fallback: bool = False,
        session: str = "",
        *,
        scope: str = "",
        operation: str = "chat",
        routes: CustomRoutes | None = None,
        traffic: Traffic = GENERAL,
        explore: float | None = None,
        organization: str = "",
    ) -> Plan:
        """Decide where a request goes. Changes nothing; after a success call `served`.

        `allowed` gives the reason why a mapping is denied (None: allowed), `usable` a mapping's credentials in the
        order in which to try them (() = none). `scope` (a project's id) keeps sessions and preferences apart.
        `explore` is the chance of a random choice where one is allowed (None: the setting's; 0.0: an explanation's).
        `organization` is the caller's. What cools down after failures comes last in the order, as it returns.

        Raises UnknownModel, InvalidRequest (a wrong value of a preference, no credential), NotSupported (naming
        what is missing), Forbidden (denied by policy), NotFound (dynamic route) or NoProviderLeft (nothing answers at
        any, and another request tried a moment ago; with retry_after).
        """
        if explore is None:
            chance = self._settings.exploration_rate
        else:
            chance = explore
        table = self._tables.find(requested_model, routes)
        kind = table.resolution.kind
        ignored = NONE_IGNORED
        if options is not NO_OPTIONS:
            options, ignored = check_preferences(options, table.resolution)
        ask = RouteRequest(
            *(requested_model, needs, options, allowed, usable, no_fallback, session, scope, operation, routes),
            *(traffic, chance),
            organization,
            ignored,
        )
        if kind in CHOOSING:
            return self._plan_choice(ask, table)
        candidate_filter = self._make_filter(ask, 0)
        entries = candidate_filter.sift(table.candidates)
        if kind == "canonical":
            return self._finish(ask, table, candidate_filter, entries)
        return self._plan_pinned(ask, table, candidate_filter, entries)

    def explores(self, chance: float) -> bool:
        """Whether a request that has this chance (`chance_of`) is sent elsewhere, to learn."""
        return self._random() < chance

    def served(self, plan: Plan, chosen: Scored) -> None:
        """`chosen` of this plan answered: keep the session with it, and remember it for its project.

        A random choice is not remembered: it was to learn, not to stay.
        """
        ask = plan.ask
        if ask.session:
            self._sticky.pin(ask.scope, ask.session, ask.requested_model, chosen.key)
        elif remembers(plan):
            self._sticky.prefer(ask.scope, ask.requested_model, chosen.key)

    def _make_filter(self, ask: RouteRequest, default_output: int) -> CandidateFilter:
        demand = read_demand(ask.requirements, ask.options, default_output)
        blended = bool(ask.session) or demand.tokens >= LARGE_PROMPT_TOKENS
        return CandidateFilter(
            self.health,
            demand,
            ask.operation,
            ask.allowed,
            ask.usable,
            self._clock.now_us(),
            ask.traffic if blended else None,
            ask.requirements.image_output,
            ask.organization,
        )

    def _plan_choice(self, ask: RouteRequest, table: CandidateTable) -> Plan:
        candidate_filter = self._make_filter(ask, DEFAULT_OUTPUT)
        smart = table.resolution.kind == "smart"
        if smart:
            listed = table.resolution.listed
        else:
            listed = self._auto_models
        if ask.session:
            pin = self._sticky.pin_of(ask.scope, ask.session, ask.requested_model)
        else:
            pin = None
        choice = choose(self._tables, candidate_filter, listed, ask.options, pin, strict=smart)
        first, *following = choice.models
        return self._finish(ask, table, candidate_filter, first, FIRST if choice.fallback else "", following)

    def _plan_pinned(
        self, ask: RouteRequest, table: CandidateTable, candidate_filter: CandidateFilter, entries: list[ScoreEntry]
    ) -> Plan:
        """A named provider is taken as it is, unless it does badly and others serve the model (5.3)."""
        weights = _weights(ask)
        failing = self._is_failing(candidate_filter, entries)
        unanswered = _is_unanswered(candidate_filter, entries)
        if not ask.no_fallback and (failing or unanswered):
            own = {candidate.key for candidate in table.candidates}
            ranked = rank([*entries, *candidate_filter.sift(table.others)], weights)
            # One request a second tries where nothing answers; then the others serve it nevertheless.
            order = sorted(
                ranked, key=lambda one: (failing and _is_cooling(one, candidate_filter), (one.key in own) is failing)
            )
            if len(order) > len(entries) and (order[0].key in own) is not failing:
                reason = LOW_UPTIME if failing else PINNED
                return self._make(ask, table, candidate_filter, _spread(order[0], order), reason, ranked, weights)
        if not entries:
            raise _only(candidate_filter, table.candidates).refusal(ask.requested_model)
        ranked = rank(entries, weights)
        if candidate_filter.cooling:
            ready, late = _divide(ranked, candidate_filter)
        else:
            ready, late = (ranked, [])
        places = (*ready, *late)
        if table.resolution.kind == "custom":
            reason = SINGLE
        else:
            reason = PINNED
        return self._make(
            ask, table, candidate_filter, places[:1] if ask.no_fallback else places, reason, ranked, weights
        )

    def _is_failing(self, candidate_filter: CandidateFilter, entries: list[ScoreEntry]) -> bool:
        """Whether a named provider fails too often by faults of its own, or nothing answers there at present."""
        if not entries:
            return any(one.stage == COOLDOWN for one in candidate_filter.excluded)
        if min(entry.uptime for entry in entries) >= DEFAULT_UPTIME:
            return False
        _, tick = self.health.tick()
        found = [self.health.own_uptime(entry.candidate.key, tick) for entry in entries]
        return all(uptime < self._settings.low_uptime_percent and events >= LEAST_JUDGED for uptime, events in found)

    def _finish(
        self,
        ask: RouteRequest,
        table: CandidateTable,
        candidate_filter: CandidateFilter,
        entries: list[ScoreEntry],
        reason: str = "",
        following: Sequence[list[ScoreEntry]] = (),
    ) -> Plan:
        """The plan of `entries`, and of the models that follow when they fail."""
        if not entries:
            raise candidate_filter.refusal(ask.requested_model)
        weights = _weights(ask)
        ranked = rank(entries, weights)
        if candidate_filter.cooling:
            ready, late = _divide(ranked, candidate_filter)
        else:
            ready, late = (ranked, [])
        if ready:
            first, why = self._select(ask, ready)
        else:
            first, why = (late[0], SINGLE if len(late) == 1 else WEIGHTED)
        order = _spread(first, ready) if ready else ()
        for others in following:
            scored = rank(others, weights)
            ranked = [*ranked, *scored]
            awake, asleep = _divide(scored, candidate_filter)
            order += _spread(awake[0], awake) if awake else ()
            late = [*late, *asleep]
        if ask.no_fallback:
            order = (first,)
        else:
            order = (*order, *late) if late else order
        return self._make(
            ask, table, candidate_filter, order, reason if reason and why == WEIGHTED else why, ranked, weights
        )

    def _select(self, ask: RouteRequest, ranked: list[Scored]) -> tuple[Scored, str]:
        best = ranked[0]
        if len(ranked) == 1:
            return best, SINGLE
        # Who lacks a wish that another fulfils is tried after that other, and never chosen for another reason.
        ranked = [one for one in ranked if len(one.entry.lacking) == len(best.entry.lacking)]
        if ask.session:
            pinned = _find(ranked, self._sticky.pin_of(ask.scope, ask.session, ask.requested_model))
            if pinned is not None and (pinned.entry.uptime >= UPTIME_FLOOR or pinned.candidate.keep_session):
                return pinned, SESSION
            return best, WEIGHTED
        if _has_strategy(ask.options):
            return best, WEIGHTED
        if ask.explore and not ask.no_fallback and self._random() < ask.explore:
            return ranked[int(self._random() * len(ranked))], EXPLORED
        preferred = _find(ranked, self._sticky.preference_of(ask.scope, ask.requested_model))
        if preferred is not None and preferred is not best and _is_good_enough(preferred, best):
            return preferred, PREFERRED
        return best, WEIGHTED

    def _make(
        self,
        ask: RouteRequest,
        table: CandidateTable,
        candidate_filter: CandidateFilter,
        order: tuple[Scored, ...],
        reason: str,
        ranked: list[Scored],
        weights: Weights,
    ) -> Plan:
        lacking = order[0].entry.lacking
        return Plan(
            ask,
            table.resolution,
            order,
            reason,
            ranked,
            candidate_filter.excluded,
            weights,
            lacking,
            candidate_filter.cooling,
        )


def remembers(plan: Plan) -> bool:
    """Whether who serves a plan is remembered, see `Router.served`."""
    if plan.ask.session:
        return True
    return plan.reason != EXPLORED and plan.resolution.kind == "canonical" and not _has_strategy(plan.ask.options)


def chance_of(plan: Plan) -> float:
    """The chance of a random choice that the next request like that of `plan` has (`Router._select`)."""
    ask = plan.ask
    own_will = ask.no_fallback or ask.session or _has_strategy(ask.options)
    if plan.reason in (WEIGHTED, PREFERRED) and not own_will:
        return ask.explore
    return 0.0


def _weights(ask: RouteRequest) -> Weights:
    return STRATEGIES[ask.options.routing, ask.requirements.stream, ask.requirements.image_output]


def _has_strategy(options: Options) -> bool:
    return options.routing not in ("", "auto")


def _find(ranked: list[Scored], key: str | None) -> Scored | None:
    if key is None:
        return None
    return next((one for one in ranked if one.key == key), None)


def _is_unanswered(candidate_filter: CandidateFilter, entries: list[ScoreEntry]) -> bool:
    if candidate_filter.cooling:
        cooling = [candidate_filter.cooling.get(entry.candidate.key) for entry in entries]
    else:
        cooling = []
    return bool(cooling) and all(one is not None and one.whole and one.unanswered for one in cooling)


def _is_cooling(scored: Scored, candidate_filter: CandidateFilter) -> bool:
    cooling = candidate_filter.cooling.get(scored.key)
    return cooling is not None and cooling.whole


def _divide(ranked: list[Scored], candidate_filter: CandidateFilter) -> tuple[list[Scored], list[Scored]]:
    """Those that are ready, as ranked, and those that cool down, in the order in which they return."""
    late = [one for one in ranked if _is_cooling(one, candidate_filter)]
    late.sort(key=lambda one: candidate_filter.cooling[one.key].until)
    return [one for one in ranked if not _is_cooling(one, candidate_filter)], late


def _spread(first: Scored, ranked: list[Scored]) -> tuple[Scored, ...]:
    """`first`, then the others as ranked, each provider's second region after every provider had its turn: attempts
    are few, and regions of one provider often fail together."""
    if first is ranked[0]:
        rest = ranked[1:]
    else:
        rest = [one for one in ranked if one is not first]
    if len({one[2][0].provider.id for one in ranked}) == len(ranked):
        return (first, *rest)
    turns = {first.entry.candidate.provider.id: 1}
    rounds = []
    for one in rest:
        provider = one.entry.candidate.provider.id
        rounds.append(turns.get(provider, 0))
        turns[provider] = rounds[-1] + 1
    if any(rounds):
        rest = [one for _, _, one in sorted(zip(rounds, range(len(rest)), rest, strict=True))]
    return (first, *rest)


def _is_good_enough(preferred: Scored, best: Scored) -> bool:
    return preferred.entry.uptime >= UPTIME_FLOOR and preferred.score - best.score <= SCORE_MARGIN


def _only(candidate_filter: CandidateFilter, candidates: tuple[Candidate, ...]) -> CandidateFilter:
    # A pinned request is refused for what its own provider lacks, whatever the others do.
    own = {candidate.key for candidate in candidates}
    candidate_filter.excluded = [one for one in candidate_filter.excluded if one.key in own]
    return candidate_filter
