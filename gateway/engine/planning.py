"""Planning: the order of targets for a request, from access rules, credentials and health."""

import math
import zlib
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.bounds import Bounds
from gateway.billing.context import Attempt, RequestContext, error_type
from gateway.callers.access import check_address, predicate
from gateway.callers.authentication import Caller
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.catalogue import day_of
from gateway.catalogue.entries import Mapping
from gateway.catalogue.unlisted_entries import UNLISTED
from gateway.engine.custom_models import CustomModels, UnlistedModels
from gateway.engine.fitting import Fitting
from gateway.engine.key_bounds import KeyBounds
from gateway.engine.plan_cache import PlanCache, key_of
from gateway.errors import GatewayError, InvalidRequest, NotFound, UnknownModel, UpstreamRefused
from gateway.metering.counters import Count, Counters, Durations, provider_label
from gateway.neutral.request import Request
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Credential, Target
from gateway.routes.route_book import RouteBook
from gateway.routing.answer_times import AnswerTimes, HedgeShares
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.routing.candidate_filter import NoCredential
from gateway.routing.candidates import TokenMix
from gateway.routing.decision import Plan, reweigh
from gateway.routing.model_fallbacks import list_models, other_models, plan_list
from gateway.routing.plan import Router, exploration_chance, remembers_provider
from gateway.routing.provider_health import Health
from gateway.routing.record import RoutingDecision, TokenMixAnswer, write_record
from gateway.routing.resolve import SANDBOX, RetiredModel, name_at
from gateway.routing.score import Weights
from gateway.routing.sliding_window import Tally
from gateway.routing.sticky import MAX_SESSION_LENGTH

# The models of a request besides the requested one, and the preferences among providers that its headers set.

R = TypeVar("R", bound=Request)


def with_choice(context: RequestContext, request: R) -> R:
    """Return the request with the models and preferences of the caller's headers; those of its body take precedence."""
    choice = context.options.choice
    if not choice:
        return request
    changes = {name: value for name, value in choice.items() if not getattr(request.options, name)}
    return replace(request, options=request.options.with_changes(**changes))


def only_model(request: R, model: str) -> R:
    """Return the request for one of its models."""
    return replace(request, requested_model=model, options=request.options.with_changes(models=()))


# The order of a provider's keys: they take turns, and keys in cooldown come last.


def cooling_last(groups: tuple[tuple[Target, ...], ...], plan: Plan) -> tuple[tuple[Target, ...], ...]:
    """Move keys in cooldown behind all other targets when their provider has other keys."""
    ready = []
    late = []
    for group, scored in zip(groups, plan.order, strict=True):
        cooling = plan.cooling.get(scored.key)
        size = len(cooling.credentials) if cooling and not cooling.whole else 0
        ready.append(group[: len(group) - size])
        if cooling and size:
            late.append((cooling.until, group[-size:]))
    late.sort(key=itemgetter(0))
    return (*ready, *(group for _, group in late))


def rotate(credentials: tuple[Credential, ...], turn: int) -> tuple[Credential, ...]:
    """Return the keys beginning with the one at `turn`; an organization's own keys stay before the platform's."""
    own_keys = tuple(credential for credential in credentials if credential.source == OWN_SOURCE)
    platform_keys = credentials[len(own_keys) :] if own_keys else credentials
    return _turned(own_keys, turn) + _turned(platform_keys, turn)


def _turned(keys: tuple[Credential, ...], turn: int) -> tuple[Credential, ...]:
    start = turn % len(keys) if keys else 0
    return keys[start:] + keys[:start]


@dataclass(slots=True, unsafe_hash=True)
class RoutePlan:
    """The targets of a request in the order in which they are tried.

    `groups` holds, for each mapping, best first, its targets (one per key). `plan` is the decision of the router.
    `platform_paid`: every target uses the platform's credential, which the organization's credits pay for.
    `remembered`: the provider that answers is remembered for the session or the project. `adapts`: some mapping needs
    an adapted request, which `fittings` (by mapping key) makes. `json_by_prompt`: some mapping has no JSON mode, and
    gets an instruction in the prompt instead. `chance`: the probability of a random choice per request. `model`: the id
    of the first model. `others`: the names and ids of the further models that the caller listed. `chosen`: the name
    that was requested does not say which model serves.
    """

    plan: Plan
    groups: tuple[tuple[Target, ...], ...]
    mappings: tuple[Mapping, ...] = field(init=False)
    bounds: Bounds = field(init=False, compare=False)
    platform_paid: bool = field(init=False)
    remembered: bool = field(init=False)
    fittings: dict[str, Fitting] = field(init=False, compare=False)
    adapts: bool = field(init=False)
    json_by_prompt: bool = field(init=False)
    chance: float = field(init=False)
    model: str = field(init=False)
    others: tuple[str, ...] = field(init=False)
    chosen: bool = field(init=False)

    def __post_init__(self) -> None:
        # Computed here and not on access, because one plan may serve many requests.
        self.platform_paid = all(target.credential.source != OWN_SOURCE for group in self.groups for target in group)
        self.mappings = tuple([scored.entry.candidate.mapping for scored in self.plan.order])
        self.bounds = Bounds(self.mappings)
        self.remembered = remembers_provider(self.plan)
        self.chance = exploration_chance(self.plan)
        self.model = self.plan.first.candidate.model.id
        self.others = other_models(self.plan)
        self.chosen = bool(self.plan.parts) or self.plan.resolution.kind == "auto"
        self.fittings = {}
        for scored in self.plan.order:
            lacking = scored.entry.lacking
            effort = self.plan.effort_for(scored.candidate.mapping)
            if lacking or effort:
                self.fittings[scored.key] = Fitting(scored.candidate, lacking, effort)
        self.adapts = bool(self.fittings)
        self.json_by_prompt = any(scored.candidate.ability.json_by_prompt for scored in self.plan.order)

    @property
    def names(self) -> dict[str, str]:
        """Return the caller's names of the models by mapping key, for a request with several models."""
        parts = reversed(self.plan.parts)
        return {scored.key: part.request.requested_model for part in parts for scored in part.ranked}

    def cooldowns(self, target: Target) -> bool:
        """Return whether a target was cooling down when the plan was made."""
        cooling = self.plan.cooling.get(target.mapping.key)
        return cooling is not None and (cooling.whole or target.credential in cooling.credentials)

    def adapt(self, request: Request, mapping: Mapping) -> Request:
        """Return the request for `mapping`: without unsupported options, with the effort that automatic model selection
        adds. Usually this is the request itself."""
        fitting = self.fittings.get(mapping.key)
        if fitting is None:
            return request
        return fitting.fit(request)

    def limit(self, request: Request, mapping: Mapping) -> int | None:
        """Return the output limit to send to `mapping` when it is below the caller's, else None."""
        fitting = self.fittings.get(mapping.key)
        if fitting is None:
            return None
        return fitting.limit(request)

    def choices_a_call(self, request: Request, mapping: Mapping) -> int:
        """Return how many answers one call of `mapping` gives when the caller wants more of them, else 0."""
        fitting = self.fittings.get(mapping.key)
        if fitting is None:
            return 0
        return fitting.choices_a_call(request)


class _AttemptTotals:
    """Counters for successful attempts of one model at one provider, for one operation."""

    __slots__ = ("cost", "first", "input", "output", "seconds", "succeeded")

    def __init__(self, counters: Counters, place: tuple[str, str, str]) -> None:
        self.succeeded: Count = counters.count("attempts_total", (*place, "succeeded"))
        self.seconds: Durations = counters.durations("attempt_seconds", place)
        self.first: Durations = counters.durations("first_token_seconds", place)
        self.input: Count = counters.count("tokens_total", (*place, "input"))
        self.output: Count = counters.count("tokens_total", (*place, "output"))
        self.cost: Count = counters.count("cost_nano_usd_total", place)


def place_of(target: Target, operation: str) -> tuple[str, str, str]:
    """Return the labels provider, model and operation. All custom providers share one label, and so do their models
    and those that the catalogue does not list."""
    provider = provider_label(target.provider.id)
    if UNLISTED in target.mapping.extra:
        return provider, UNLISTED, operation
    if provider == target.provider.id:
        return provider, target.mapping.model, operation
    return provider, provider, operation


class _Statistics(Struct, eq=False):
    """The counters of one target's successful attempts."""

    totals: _AttemptTotals
    tally: Tally
    times: AnswerTimes
    first_times: AnswerTimes


# A plain answer may take this many times the 99th percentile of similar answers before another provider is tried.
ANSWER_TIME_FACTOR = 3
MIN_TIMEOUT_S = 10.0
MIN_FIRST_BYTE_S = 5.0  # the same for the first bytes of a stream
READ_BYTES_PER_S = 100_000  # of a prompt, by a slow model
# Tokens a second of a slow model: estimates the duration of an answer while no similar one has been measured.
SLOW = 20
STRATEGY = "routing"  # the name of the project setting
USE_SUCCESSORS = "useSuccessors"  # the same for the successors of retired models
HEDGING = "hedging"  # the same for a second attempt beside a silent one (engine/hedging.py)
CHAT = "chat"
ROUTES_SERVE_CHAT = "Routes choose models for chat requests only; name a model for this operation."
MIN_HEDGE_S = 1.0  # a second attempt begins at this silence at the earliest
UNMEASURED_HEDGE_S = 6.0  # and at this one at the latest, while few times of the model are known


def with_defaults(caller: Caller, request: Request) -> Request:
    """Return the request with the project's routing strategy, unless it names a strategy or a provider."""
    strategy = caller.settings.get(STRATEGY)
    if not strategy or request.options.routing or "/" in request.requested_model:
        return request
    return replace(request, options=replace(request.options, routing=strategy))


class Planner:
    """Plans requests from the caller's rules, credentials and custom models, and records how attempts ended."""

    def __init__(
        self,
        router: Router,
        credentials: Credentials,
        health: Health,
        counters: Counters,
        custom_models: CustomModels,
        bounds: KeyBounds,
        unlisted: UnlistedModels,
        cache_lifetimes: CacheLifetimes,
        routes: RouteBook,
    ) -> None:
        self.cache_lifetimes = cache_lifetimes
        self._unlisted = unlisted
        self._routes = routes
        self._router = router
        self._credentials = credentials
        self._health = health
        self._cooldowns = health.cooldowns
        self._counters = counters
        self._custom_models = custom_models
        self._bounds = bounds
        self._turns: dict[str, int] = {}
        self._totals: dict[tuple[str, str, str], _AttemptTotals] = {}
        self._recent: PlanCache[RoutePlan] = PlanCache()
        self.hedges = HedgeShares()

    def plan(self, context: RequestContext, request: Request) -> RoutePlan:
        """Return the plan of a request. Errors of Router.plan; Forbidden for a client address that a rule excludes."""
        if STRATEGY in context.caller.settings:
            request = with_defaults(context.caller, request)
        key = key_of(context, request)
        if key is None:
            return self._plan(context, request)
        catalogue = self._router.catalogue()
        requirements = request.requirements
        size = requirements.longest_input or requirements.prompt_bytes  # what `read_demand` compares with limits
        route_plan = self._recent.find(key, catalogue, size, context.started)
        if route_plan is not None and not (self._cooldowns.providers and self._may_cool_down(route_plan.plan)):
            if route_plan.chance and self._router.should_explore(route_plan.chance):
                return self._plan(context, request, explore=1.0)
            return route_plan
        route_plan = self._plan(context, request)
        if not self._may_cool_down(route_plan.plan):
            self._recent.keep(key, route_plan, route_plan.plan, catalogue, size, context.started)
        return route_plan

    def forget(self, version: int) -> None:
        """Clear the cache of plans: keys, rules and custom models may differ in the new control version."""
        self._recent.clear()

    def refresh_keys(self) -> None:
        """Read the platform's keys again where their files have changed; SettingsError as `Credentials.refresh`."""
        if self._credentials.refresh():
            self._recent.clear()

    def use_mixes(self, mixes: dict[str, dict[str, TokenMix]]) -> None:
        """Compare prices for these observed tokens, by project and model, from the next request on."""
        self._router.observed_mixes = mixes
        self._recent.clear()

    def explain(self, context: RequestContext, request: Request, weights: Weights | None = None) -> RoutingDecision:
        """Return the decision as data, without the random choice and without calling a provider; `weights` replace
        those of the strategy. SpendingLimitReached when the remaining provider keys have used up their limit."""
        request = with_defaults(context.caller, with_choice(context, request))
        plan = self._decide(context, request, explore=0.0)
        plan = self._bounds.keep_usable(plan, request, context.at_us)
        record = write_record(plan if weights is None else reweigh(plan, weights))
        if not request.options.models:
            record["requestedModel"] = request.requested_model  # a successor may replace it
        if weights is not None:
            record["weights"] = weights._asdict()
        if context.caller.settings.get(HEDGING):
            record["hedging"] = True
        mix = self._router.explain_mix(plan.request, plan.first.candidate.model.id)
        if mix is not None:
            record["tokenMix"] = TokenMixAnswer(source=mix.source, cached=mix.cached, output=mix.output)
        return record

    def begun(self, target: Target) -> None:
        """Count an upstream call that is about to start."""
        if self._cooldowns.providers:
            self._health.begin(target.mapping, target.credential)

    def is_unreachable(self, target: Target) -> bool:
        """Return whether the target is unreachable and another request tried it a moment ago."""
        return bool(self._cooldowns.providers) and self._health.is_unreachable(target.mapping, target.credential)

    def succeeded(self, attempt: Attempt, streamed: bool, operation: str) -> None:
        """Report a successful attempt to the provider's health and the operator's counters."""
        target = attempt.target
        usage = attempt.usage
        charge = attempt.charge
        statistics = target.memo.get((self, operation)) or self._open_statistics(target, operation)
        totals = statistics.totals
        took_s = attempt.ended - attempt.started
        output = 0
        totals.succeeded.value += 1
        totals.seconds.observe(took_s)
        if usage is not None:
            output = usage.output_total
            if charge is not None:
                totals.input.value += usage.input_total
                totals.output.value += output
                totals.cost.value += charge.total
        first_ms = None
        if streamed:
            first_ms = attempt.ttft_ms
            totals.first.observe(attempt.first_at - attempt.started)
        self._health.count_success(statistics.tally, attempt.ended, output, took_s * 1000, first_ms)

    def answered(self, target: Target, request: Request, took_s: float) -> None:
        """Record how long a plain answer took."""
        statistics = target.memo.get((self, request.operation)) or self._open_statistics(target, request.operation)
        statistics.times.observe(request.requirements, took_s)

    def timeout_s(self, target: Target, request: Request, first_byte_s: float) -> float:
        """Return how long to wait for a plain answer while another provider could serve, in seconds.

        The measured times of the model decide; without any, `first_byte_s` plus the time for the longest answer;
        without an output limit there is no bound (infinity).
        """
        statistics = target.memo.get((self, request.operation)) or self._open_statistics(target, request.operation)
        typical_s = statistics.times.typical_s(request.requirements)
        if typical_s is not None:
            return max(MIN_TIMEOUT_S, ANSWER_TIME_FACTOR * typical_s)
        maximum = request.requirements.max_tokens or target.mapping.max_output
        if maximum:
            return first_byte_s + maximum / SLOW
        return math.inf

    def began(self, target: Target, request: Request, took_s: float) -> None:
        """Record how long a stream took to begin."""
        statistics = target.memo.get((self, request.operation)) or self._open_statistics(target, request.operation)
        statistics.first_times.observe(request.requirements, took_s)

    def first_byte_s(self, target: Target, request: Request, first_byte_s: float) -> float:
        """Return how long a stream may be silent at its beginning while another provider could serve, in seconds: by
        the measured times of the model; without any, `first_byte_s` plus the time for reading the prompt."""
        statistics = target.memo.get((self, request.operation)) or self._open_statistics(target, request.operation)
        typical_s = statistics.first_times.typical_s(request.requirements)
        if typical_s is not None:
            return max(MIN_FIRST_BYTE_S, ANSWER_TIME_FACTOR * typical_s)
        return first_byte_s + request.requirements.prompt_bytes / READ_BYTES_PER_S

    def hedge_after_s(self, target: Target, request: Request, longest_s: float) -> float:
        """Return for how long a call may be silent until a second attempt begins: the time within which 99 % of similar
        answers began (plain ones: arrived); without measured times half of `longest_s`, within limits."""
        statistics = target.memo.get((self, request.operation)) or self._open_statistics(target, request.operation)
        requirements = request.requirements
        times = statistics.first_times if requirements.stream else statistics.times
        typical_s = times.typical_s(requirements)
        if typical_s is None:
            typical_s = min(longest_s / 2, UNMEASURED_HEDGE_S)
        return max(MIN_HEDGE_S, typical_s)

    def hedged(self, target: Target, operation: str) -> None:
        """Count a second attempt that was begun at `target` while the first one was silent."""
        self._counters.add("calls_hedged_total", place_of(target, operation))

    def hedge_won(self, target: Target, operation: str) -> None:
        """Count a second attempt that answered first."""
        self._counters.add("hedges_won_total", place_of(target, operation))

    def is_hanging(self, target: Target, request_id: str) -> bool:
        """Note that a call is silent for longer than is usual; return whether several of its target are."""
        return self._health.note_silence(target.mapping, target.credential, request_id)

    def are_others_silent(self, target: Target) -> bool:
        """Return whether several calls of a target are silent for longer than is usual, without noting another."""
        return self._health.is_silent(target.mapping, target.credential)

    def left(self, target: Target, operation: str) -> None:
        """Count a call that was abandoned for another provider because it was silent for too long."""
        self._counters.add("calls_left_total", place_of(target, operation))

    def charged(self, target: Target, operation: str, cost_nusd: int) -> None:
        """Count the cost of a job, which is known only when the job ends."""
        self._totals_of(place_of(target, operation)).cost.value += cost_nusd

    def served(self, route_plan: RoutePlan, attempt: Attempt) -> None:
        """Remember the provider that answered, for the session and the project, where the plan is `remembered`."""
        key = attempt.target.mapping.key
        for scored in route_plan.plan.order:
            if scored.key == key:
                self._router.served(route_plan.plan, scored)
                return

    def _open_statistics(self, target: Target, operation: str) -> _Statistics:
        totals = self._totals_of(place_of(target, operation))
        tally = self._health.tally(target.mapping, target.credential)
        statistics = target.memo[self, operation] = _Statistics(totals, tally, AnswerTimes(), AnswerTimes())
        return statistics

    def _totals_of(self, place: tuple[str, str, str]) -> _AttemptTotals:
        totals = self._totals.get(place)
        if totals is None:
            totals = self._totals[place] = _AttemptTotals(self._counters, place)
        return totals

    def abandoned(self, attempt: Attempt, operation: str) -> None:
        """Count an attempt that was cancelled, because the caller disconnected or another attempt answered first, with
        the usage that was billed."""
        place = place_of(attempt.target, operation)
        usage = attempt.usage
        totals = self._totals_of(place)
        self._counters.add("attempts_total", (*place, attempt.finish))
        if usage is not None:
            totals.input.value += usage.input_total
            totals.output.value += usage.output_total
            totals.cost.value += attempt.charge.total

    def failed(self, attempt: Attempt, error: GatewayError, organization: str, operation: str) -> None:
        """Report an attempt that failed for a request of `organization` to health and counters. Health ignores the
        sandbox provider, which fails on request."""
        target = attempt.target
        place = place_of(target, operation)
        self._recent.clear()
        self._counters.add("attempts_total", (*place, error_type(error)))
        if attempt.first_at:
            self._counters.add("streams_cut_total", place)
        if target.protocol != SANDBOX:
            self._health.sample(target.mapping, target.credential, error=error, organization=organization)
        if isinstance(error, UpstreamRefused):
            self._credentials.refused(target)

    def _plan(self, context: RequestContext, request: Request, explore: float | None = None) -> RoutePlan:
        plan = self._decide(context, request, explore)
        groups = tuple([self._targets(plan, place) for place in range(len(plan.order))])
        if plan.cooling:
            groups = cooling_last(groups, plan)
        return RoutePlan(plan, groups)

    def _may_cool_down(self, plan: Plan) -> bool:
        """Return whether a cooldown of any of the plan's providers could change the plan."""
        cooldowns = self._cooldowns
        if not cooldowns.providers:
            return False
        cooldowns.remove_expired()
        groups = (plan.ranked, plan.excluded)
        return any(cooldowns.may_be_cooling(entry.candidate.provider.id) for group in groups for entry in group)

    def _decide(self, context: RequestContext, request: Request, explore: float | None = None) -> Plan:
        caller = context.caller
        if caller.rules:
            check_address(caller.rules, context.ip)
        if request.options.models:

            def decide(model: str) -> Plan:
                return self._decide(context, only_model(request, model), explore)

            return plan_list(list_models(request.requested_model, request.options.models), decide)
        try:
            return self._router.plan(
                request.requested_model,
                request.requirements,
                request.options,
                predicate(caller.rules, context.at_us),
                self._credentials.usable(caller),
                context.options.no_fallback,
                (context.session or request.options.session)[:MAX_SESSION_LENGTH],
                scope=caller.project_id,
                operation=context.operation,
                routes=self._custom_models.routes_of(caller, self._unlisted),
                explore=explore,
                organization=caller.organization_id,
            )
        except (UnknownModel, NotFound) as error:
            if context.operation != CHAT and self._is_route(caller, request.requested_model):
                raise InvalidRequest(ROUTES_SERVE_CHAT, param="model", code="route_serves_chat") from None
            if not isinstance(error, RetiredModel) or not error.successor or not caller.settings.get(USE_SUCCESSORS):
                raise
            return self._replace_retired(context, request, error.successor, explore)
        except NoCredential as error:
            successor = self._successor_of(context, request.requested_model) if error.ended else ""
            if successor and caller.settings.get(USE_SUCCESSORS):
                return self._replace_retired(context, request, successor, explore)
            error.message = f"{error.message} {self._credentials.advise(caller, error.providers)}"
            if successor:
                ended = ", ".join(error.ended)
                error.message = f"{error.message} It was deactivated at {ended}; its successor is {successor}."
            raise

    def _successor_of(self, context: RequestContext, requested: str) -> str:
        catalogue = self._router.catalogue()
        model = catalogue.find_version(requested.strip())
        return "" if model is None else name_at("", catalogue.successor(model, day_of(context.at_us)))

    def _is_route(self, caller: Caller, name: str) -> bool:
        return self._routes.find(caller.organization_id, caller.project_id, name) is not None

    def _replace_retired(
        self, context: RequestContext, request: Request, successor: str, explore: float | None
    ) -> Plan:
        """Return the plan of the model that replaces the requested one, with a warning."""
        plan = self._decide(context, only_model(request, successor), explore)
        warning = f"The model {request.requested_model} has retired; its successor {successor} answered."
        route_request = plan.request._replace(ignored=(*plan.request.ignored, warning))
        return plan._replace(request=route_request)

    def _targets(self, plan: Plan, place: int) -> tuple[Target, ...]:
        scored = plan.order[place]
        candidate = scored.candidate
        credentials = scored.credentials
        if len(credentials) > 1:
            turn = self._turn(plan.request.session, candidate.provider.id)
            cooling = plan.cooling.get(scored.key)
            # Keys in cooldown are last, already ordered by the end of their cooldown.
            late = cooling.credentials if cooling else ()
            credentials = rotate(credentials[: len(credentials) - len(late)], turn) + late
        return tuple(
            self._credentials.target(candidate.mapping, candidate.provider, credential) for credential in credentials
        )

    def _turn(self, session: str, provider: str) -> int:
        """Return the turn in a provider's key rotation: the next one, or within a session always the same, because the
        provider's prompt cache belongs to a key."""
        if session:
            return zlib.crc32(session.encode(errors="replace"))
        turn = self._turns[provider] = self._turns.get(provider, -1) + 1
        return turn
