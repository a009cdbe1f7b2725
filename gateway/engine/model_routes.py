"""Routes of requests: the model that the rules of a route choose, and the model that a session keeps."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.billing.request_limits import limits_of
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import SECOND_US, Clock
from gateway.engine.difficulty_judge import DifficultyJudge
from gateway.errors import GatewayError
from gateway.ids import keyed_digest
from gateway.limits.budgets import Budgets, Status
from gateway.limits.limit_book import LimitBook
from gateway.limits.limit_rules import WHOLE
from gateway.neutral.chat import ChatRequest
from gateway.routes.choices import JudgedDifficulty, RouteChoice
from gateway.routes.compiled import BYTES_PER_TOKEN, CompiledRoute, RoutedRequest
from gateway.routes.route_book import RouteBook
from gateway.routes.route_document import DIFFICULTIES, Difficulty, Judge
from gateway.routes.route_prices import NO_MAPPINGS, RoutePrices
from gateway.routes.turns import conversation_of
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.routing.sticky import MAX_SESSION_LENGTH, Sticky

# The lifetime of an unused prompt in the cache of a provider.
CACHE_S, LONG_CACHE_S = 300, 3600
# A session's last turn is written for other workers at this precision.
STEP_S = 120
SESSION_MODEL_S = 2.0 * LONG_CACHE_S  # how long the model of a conversation is remembered
SEEN_S = 1.0  # how old the used share of a limit may be
MAX_SEEN = 10_000
NEVER: tuple[float, int | None] = (float("-inf"), None)
COMPACTED = 0  # the time of the last turn of a conversation that was compacted since
SIDE_CALLS = ("title", "probe")


class CallerShares:
    """The percentages that are used of the limits of keys, members and teams, as of the last SEEN_S."""

    def __init__(self, budgets: Budgets, clock: Clock) -> None:
        self._budgets = budgets
        self._clock = clock
        self._seen: dict[str, tuple[float, int | None]] = {}

    def used(self, idents: Sequence[str]) -> int | None:
        """Return the percentage of the fullest limit, None without a limit; while the store is down that of what was
        seen last."""
        now_s = self._clock.monotonic()
        missing = [ident for ident in idents if self._seen.get(ident, NEVER)[0] + SEEN_S <= now_s]
        if missing:
            try:
                found = self._budgets.statuses(missing)
            except GatewayError:
                found, missing = {}, []
            if missing and len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            for ident in missing:
                self._seen[ident] = (now_s, _share_of(found[ident]))
        return max((used for ident in idents if (used := self._seen.get(ident, NEVER)[1]) is not None), default=None)


def _share_of(status: Status) -> int | None:
    pairs = ((status.usage_nusd, status.total_nusd), (status.period_usage_nusd, status.period_nusd))
    return max((used * WHOLE // limit for used, limit in pairs if limit), default=None)


class ModelRoutes:
    """Applies the routes of `book`. `shares` has the used percentages of callers' limits, `sessions` the model of
    each conversation, and `lifetimes` the time for which its provider keeps its prompt. `judge` asks models about the
    difficulty of turns. Conversations are named by digests with the secret `key`."""

    def __init__(
        self,
        book: RouteBook,
        limits: LimitBook,
        shares: CallerShares,
        sessions: Sticky,
        lifetimes: CacheLifetimes,
        catalogue: Callable[[], Catalogue],
        key: bytes,
        judge: DifficultyJudge | None = None,
    ) -> None:
        self.book = book
        self._limits = limits
        self._shares = shares
        self._sessions = sessions
        self._lifetimes = lifetimes
        self.prices = RoutePrices(catalogue)
        self._key = key
        self.judge = judge

    def apply(self, context: RequestContext, request: ChatRequest, remember: bool = True) -> ChatRequest | None:
        """Return the request for the models that its route chooses, and note the choice in the context; None where
        its model is no route of the caller. Without `remember` the session does not keep the model. Unavailable."""
        caller = context.caller
        route = self.book.find(caller.organization_id, caller.project_id, request.requested_model)
        if route is None:
            return None
        seen = RoutedRequest(
            request,
            key_id=caller.key_id,
            project_id=caller.project_id,
            source=context.source,
            at_us=context.at_us,
            headers=context.headers,
            metadata=context.metadata,
            teams_of=partial(self.book.teams_of, caller.organization_id, caller.member_id),
            used_of=partial(self._used_of, context),
        )
        judged: list[JudgedDifficulty] = []
        if route.judge is not None and self.judge is not None:
            may_ask = remember and (context.job is None or context.job.asks_judges)
            seen.judge = partial(self._ask, self.judge, context, route.judge, judged, may_ask)
        rule = route.choose(seen)
        session = (context.session or request.options.session)[:MAX_SESSION_LENGTH]
        models = rule.pick(f"{route.name}\0{session or context.request_id}")
        choice = RouteChoice(route.name, route.version, rule.name, models)
        # A route with one model has nothing to keep, so that the conversation need not be read.
        if route.keep_session and len(route.models) > 1 and (session or request.requirements.tools):
            choice = self._keep(context, route, choice, seen, session, remember)
        name = self.prices.reference_of(route)
        context.noted = True
        context.route = replace(
            choice,
            difficulty=seen.known_difficulty,
            judged=judged[0] if judged else None,
            reference=name,
            references=self.prices.mappings_of(name),
            last_resort=route.last_resort,
        )
        return use_models(request, choice.models)

    def _ask(
        self,
        asked: DifficultyJudge,
        context: RequestContext,
        judge: Judge,
        judged: list[JudgedDifficulty],
        may_ask: bool,
        seen: RoutedRequest,
    ) -> Difficulty | None:
        """Return the judgement about a turn, and add it to `judged`; None without a verdict."""
        texts = seen.texts
        place = f"{context.caller.project_id}\0{judge.model}\0{context.session}\0{texts.first}\0{texts.last}"
        found = asked.decide(context, judge, texts, seen.request.options, keyed_digest(place, self._key), may_ask)
        if found is None:
            return None
        judged.append(found)
        return next((level for level in DIFFICULTIES if level == found.difficulty), None)

    def _keep(
        self,
        context: RequestContext,
        route: CompiledRoute,
        choice: RouteChoice,
        seen: RoutedRequest,
        session: str,
        remember: bool,
    ) -> RouteChoice:
        """Return the choice with the model of the conversation, unless a larger one is chosen now or its cache has
        expired. After a compaction, the cache is worthless; titles and probes belong to no conversation."""
        turn = seen.turn
        first = choice.models[0]
        choice = replace(choice, turn=turn, agent=seen.agent)
        if turn in SIDE_CALLS:
            return choice
        texts = seen.texts
        named = conversation_of(context.headers)[:MAX_SESSION_LENGTH]
        conversation = keyed_digest(f"{session}\0{named}\0{texts.system}\0{texts.first}", self._key)
        place = (context.caller.project_id, conversation, f"route {route.name}")
        known = self._sessions.pin_of(*place)
        now_s = context.at_us // SECOND_US
        if known is not None:
            at, _, model = known.partition(" ")
            if model != first and model in route.models:
                larger = self.prices.price_of(first) > self.prices.price_of(model)
                cached = self._has_cache(context, seen, model, now_s - int(at) * STEP_S)
                if turn == "summary" or (cached and not larger):
                    others = tuple(one for one in choice.models if one != model)
                    choice = replace(choice, models=(model, *others), kept=True, wanted=first)
                    first = model
                elif cached:
                    tokens = seen.request.requirements.prompt_bytes // BYTES_PER_TOKEN
                    choice = replace(choice, lost_cache_nusd=self.prices.lost_cache_nusd(first, tokens))
        if remember and turn != "summary":
            self._sessions.pin(*place, f"{now_s // STEP_S} {first}")
        elif remember and known is not None:
            self._sessions.pin(*place, f"{COMPACTED} {first}")
        return choice

    def _has_cache(self, context: RequestContext, seen: RoutedRequest, model: str, pause_s: int) -> bool:
        """Return whether a provider of a model may still have the prompt of the turn before in its cache."""
        if pause_s <= CACHE_S + STEP_S:
            return True
        if pause_s > LONG_CACHE_S + STEP_S:
            return False
        if seen.texts.long_cache:
            return True
        place = (context.caller.project_id, context.session)
        mappings = self.prices.mappings_of(model) if context.session else NO_MAPPINGS
        return any(self._lifetimes.is_long(*place, mapping, seen.request) for mapping in mappings)

    def _used_of(self, context: RequestContext, limit: str) -> int | None:
        """Return the percentage that is used of a limit of the request: of its key, its member or a team of it, of
        the organization's limit of this id, or of the fullest one for ""; None without one."""
        caller = context.caller
        own = {"key": [caller.key_id], "member": [caller.member_id], "team": [ident for ident, _ in caller.teams]}
        if limit in own:
            return self._shares.used(own[limit])
        used = [] if limit else [self._shares.used([ident for idents in own.values() for ident in idents])]
        limits = limits_of(self._limits, context) if self._limits.any else None
        if limits is not None:
            shares = [share for share in limits.shares.shares if limit in ("", share.rule.name)]
            amounts = self._limits.used_nusd(shares)
            used += [amounts[share.budget] * WHOLE // (share.rule.amount_nusd or 1) for share in shares]
        return max((one for one in used if one is not None), default=None)


def use_models(request: ChatRequest, models: tuple[str, ...]) -> ChatRequest:
    """Return the request for models that are tried in this order, before the further ones that the caller named."""
    first, *others = models
    further = tuple(dict.fromkeys((*others, *request.options.models)))
    options = request.options.with_changes(models=further) if further != request.options.models else request.options
    return replace(request, requested_model=first, options=options)
