"""Which candidates may serve one request now, and why the others may not."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import ATTEMPTS, Forbidden, GatewayError, InvalidRequest, NoProviderLeft, NotSupported
from gateway.routing.candidates import GENERAL, Candidate, Traffic, blend
from gateway.routing.capabilities import CODES, CONTEXT, SOFT, TIER, Demand, lacks, refuse
from gateway.routing.provider_health import Health, KnownCredential, Pause
from gateway.routing.score import ScoreEntry
from gateway.routing.sliding_window import DEFAULTS

Allowed = Callable[[Mapping, Provider], str | None]
Usable = Callable[[Mapping], tuple[KnownCredential, ...]]
NAMED = 5  # providers or reasons that a refusal lists

# How far a candidate came; the refusal of a request speaks of the ones that came furthest.
CATALOGUE = "catalogue"
OPERATION = "operation"
CHOICE = "choice"
ACCESS = "access"
ABILITY = "ability"
CREDENTIAL = "credential"
COOLDOWN = "rest"
BUDGET = "budget"
# The last one is found when the request is sent, not by the filter. Kept decisions name stages by their place here.
STAGES = (CATALOGUE, OPERATION, CHOICE, ACCESS, ABILITY, CREDENTIAL, COOLDOWN, BUDGET)


class NoCredential(InvalidRequest):
    """Nobody may be asked for want of a credential; `providers` are those that would do."""

    code = "no_provider_credential"
    providers: tuple[Provider, ...] = ()


class Excluded(NamedTuple):
    """A candidate that does not serve this request, how far it came and why. `until` is monotonic seconds."""

    key: str
    stage: str
    reason: str
    candidate: Candidate
    lacking: tuple[str, ...] = ()
    until: float = 0.0


class CoolingDown(NamedTuple):
    """What of a candidate is tried last: `whole`, or only some of its `credentials`, until `until` (monotonic).
    `unanswered`: nothing answers there."""

    until: float
    credentials: tuple[KnownCredential, ...]
    whole: bool
    reason: str
    unanswered: bool


class CandidateFilter:
    """The tests of one request. `excluded` fills as candidates fail them, `cooling` (by key) with those of the others
    that are tried last."""

    __slots__ = (
        "_allowed", "_blend", "_health", "_image", "_now", "_now_us", "_operation", "_organization", "_tick", "_usable",
        "demand", "excluded", "cooling",
    )  # fmt: skip

    def __init__(
        self,
        health: Health,
        demand: Demand,
        operation: str,
        allowed: Allowed | None,
        usable: Usable,
        now_us: int,
        traffic: Traffic | None = None,
        image: bool = False,
        organization: str = "",
    ) -> None:
        """`traffic` blends the price of cached input in (large prompts, sessions); `image` compares image prices;
        `organization` is the caller's."""
        self._health = health
        self.demand = demand
        self._operation = operation
        self._allowed = allowed
        self._usable = usable
        self._now_us = now_us
        self._blend = traffic
        self._image = image
        self._now, self._tick = health.tick()
        self._organization = organization
        self.excluded: list[Excluded] = []
        self.cooling: dict[str, CoolingDown] = {}

    def sift(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        """Those that pass; `lacking` of an entry names the wishes that it does not fulfil."""
        if self._is_plain():
            return self._pass_plain(candidates)
        return self._pass_all(candidates)

    def _is_plain(self) -> bool:
        """Whether nothing but abilities, sizes, credentials and health decides: so it is for most requests."""
        demand = self.demand
        blend_known = self._blend is None or self._blend is GENERAL
        return self._allowed is None and demand.plain and not self._image and blend_known

    def _pass_all(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        return [entry for candidate in candidates if (entry := self.examine(candidate)) is not None]

    def _pass_plain(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        """As `_pass_all`, with the tests of a usual request in one loop; what fails any of them is examined fully."""
        bits = self.demand.bits
        most = self.demand.max_tokens
        prompt = self.demand.tokens
        operation = self._operation
        usable = self._usable
        tick = self._tick
        make = tuple.__new__
        size = prompt + most
        windows = self._health.windows
        concern = self._health.cooldowns.providers
        blended = self._blend is not None
        entries = []
        for candidate in candidates:
            ability = candidate.ability
            if (
                bits & ~ability.bits
                or most > ability.max_output
                or size > ability.context
                or not candidate.flat
                or operation not in candidate.operations
                or candidate.provider.id in concern
                or not (credentials := usable(candidate.mapping))
            ):
                entry = self.examine(candidate)
                if entry is not None:
                    entries.append(entry)
                continue
            window = windows.get(candidate.key)
            if window is None:
                figures = DEFAULTS
            else:
                figures = window.figures(tick)
            if blended:
                price = candidate.blended
            else:
                price = candidate.figures.mean
            entries.append(make(ScoreEntry, (candidate, credentials, price, *figures, ())))
        return entries

    def examine(self, candidate: Candidate) -> ScoreEntry | None:
        """The entry of a candidate that passes every test; else None, with the reason in `excluded`."""
        mapping = candidate.mapping
        if candidate.barred:
            self._exclude(candidate, CATALOGUE, candidate.barred)
            return None
        if self._operation not in candidate.operations:
            self._exclude(candidate, OPERATION, f"serves {', '.join(candidate.operations) or 'nothing'}")
            return None
        if self._allowed is not None:
            denial = self._allowed(mapping, candidate.provider)
            if denial is not None:
                self._exclude(candidate, ACCESS, denial or "not allowed")
                return None
        lacking = lacks(candidate.ability, self.demand)
        if lacking and not SOFT.issuperset(lacking):
            self._exclude(candidate, ABILITY, _words(lacking), lacking=lacking)
            return None
        credentials = self._usable(mapping)
        if self.demand.tier and TIER not in lacking:
            # Only the provider itself is known to have its tiers.
            direct = tuple(one for one in credentials if not one.base_url)
            credentials, lacking = (direct, lacking) if direct else (credentials, (*lacking, TIER))
        if not credentials:
            self._exclude(candidate, CREDENTIAL, "no credential")
            return None
        if self._health.cooldowns.concern(candidate.provider.id):
            credentials = self._in_turn(candidate, credentials)
            if not credentials:
                return None
        figures = self._health.figures(candidate.key, self._tick)
        return ScoreEntry(candidate, credentials, self._price(candidate), *figures, lacking)

    def has_credential(self, candidate: Candidate) -> bool:
        return not candidate.barred and bool(self._usable(candidate.mapping))

    def exclude_for(self, candidate: Candidate, reason: str) -> None:
        """Leave a candidate out by the caller's own wish."""
        self._exclude(candidate, CHOICE, reason)

    def _in_turn(self, candidate: Candidate, credentials: tuple[KnownCredential, ...]) -> tuple[KnownCredential, ...]:
        """The credentials in the order in which to try them: those that cool down come last, as they
        return; none where nothing answers and another request tried it a moment ago."""
        ready, late, shut = self._split(candidate, credentials)
        if late:
            late.sort(key=lambda one: one[0].until)
            first = late[0][0]
            cooling = tuple(one for _, one in late)
            if ready:
                which = f"{len(late)} of {len(credentials)} keys cooling down"
            else:
                which = "cooling down"
            reason = f"{which} for {first.until - self._now:.0f} s: {first.text}"
            self.cooling[candidate.key] = CoolingDown(first.until, cooling, not ready, reason, first.unanswered)
            return (*ready, *cooling)
        if not ready:
            cause = min(shut, key=lambda pause: pause.shut_until)
            reason = f"cooling down for {cause.until - self._now:.0f} s: {cause.text}"
            self._exclude(candidate, COOLDOWN, reason, until=cause.shut_until)
        return tuple(ready)

    def _split(
        self, candidate: Candidate, credentials: tuple[KnownCredential, ...]
    ) -> tuple[list[KnownCredential], list[tuple[Pause, KnownCredential]], list[Pause]]:
        """Those ready now, those that cool down, and why others may not be tried at all."""
        health = self._health
        now = self._now
        whole = health.cooldown_of(candidate.key, candidate.place, now)
        ready = []
        late = []
        shut = []
        for one in credentials:
            own = health.credential_cooldown(candidate.key, candidate.provider.id, one, now, self._organization)
            # Keys that are used elsewhere do not depend on how the platform's address does.
            pauses = [pause for pause in (own, None if one.elsewhere else whole) if pause is not None]
            closed = [pause for pause in pauses if pause.shut_until]
            shut += closed
            if not pauses:
                ready.append(one)
            elif not closed:
                late.append((max(pauses, key=lambda pause: pause.until), one))
        return ready, late, shut

    def _price(self, candidate: Candidate) -> float:
        figures = candidate.figures
        if candidate.steps or candidate.peaks:
            figures = candidate.figures_at(self.demand.tokens, self._now_us)
        if self._image:
            return figures.image
        if self._blend is None:
            return figures.mean
        return blend(figures, self._blend)

    def _exclude(
        self,
        candidate: Candidate,
        stage: str,
        reason: str,
        lacking: tuple[str, ...] = (),
        until: float = 0.0,
    ) -> None:
        self.excluded.append(Excluded(candidate.key, stage, reason, candidate, lacking, until))

    def refusal(self, requested: str) -> GatewayError:
        """The error of a request for which nothing passed: that of the candidates that came furthest."""
        if not self.excluded:
            return NoProviderLeft(f"No provider serves {requested} at present.", code="no_available_provider")
        furthest = max(self.excluded, key=lambda one: STAGES.index(one.stage)).stage
        rows = [one for one in self.excluded if one.stage == furthest]
        return REFUSALS[furthest](self, requested, rows)

    def _refuse_cooling(self, requested: str, rows: list[Excluded]) -> GatewayError:
        wait = max(1.0, min(one.until for one in rows) - self._now)
        reasons = "; ".join(f"{one.candidate.provider.id} {one.reason}" for one in rows[:3])
        message = f"No provider of {requested} answers at present, and another request tries again: {reasons}."
        return NoProviderLeft(message, retry_after=wait, headers=((ATTEMPTS, "0"),))

    def _refuse_operation(self, requested: str, rows: list[Excluded]) -> GatewayError:
        offered = sorted({name for one in rows for name in one.candidate.operations})
        return NotSupported(
            f"{requested} does not serve {self._operation}; it serves {', '.join(offered) or 'nothing'}.",
            param="model",
            details={"operations": ",".join(offered)},
        )

    def _refuse_credential(self, requested: str, rows: list[Excluded]) -> GatewayError:
        providers = {one.candidate.provider.id: one.candidate.provider for one in rows}
        listed = _join_some(", ", providers)
        unable = [one.lacking for one in self.excluded if one.stage == ABILITY and self.has_credential(one.candidate)]
        if unable:
            error = refuse(requested, unable, "with a credential ")
            text = f"{error.message} Others might, but no credential is configured for them ({listed})."
            missing = NoCredential(text, param=error.param, code=error.code)
        else:
            missing = NoCredential(
                f"No credential is configured for a provider of {requested} ({listed}).", param="model"
            )
        missing.providers = tuple(providers[name] for name in sorted(providers))
        return missing

    def _refuse_access(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some("; ", {one.reason for one in rows})
        return Forbidden(f"Access denied: {reasons} (asked for {requested}).", param="model", code="model_not_allowed")

    def _refuse_ability(self, requested: str, rows: list[Excluded]) -> GatewayError:
        error = refuse(requested, [one.lacking for one in rows])
        if error.code != CODES[CONTEXT]:
            return error
        most = max(one.candidate.ability.context for one in rows)
        # By "prompt is too long" and "maximum context length is" coding agents know that they have to shorten.
        text = (
            f"The prompt is too long: about {self.demand.tokens} tokens > {most} maximum. "
            f"The maximum context length is {most} tokens "
            f"for {requested}; shorten `{error.param}`, or take a model with more."
        )
        return NotSupported(text, param=error.param, code=error.code)

    def _refuse_catalogue(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some("; ", {f"{one.candidate.provider.id}: {one.reason}" for one in rows})
        return NotSupported(f"{requested} is known but not served ({reasons}).", param="model", code="model_not_served")

    def _refuse_choice(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some(" / ", {one.reason for one in rows})
        return NotSupported(f"No model remains for {requested}; all are excluded: {reasons}.", param="model")


REFUSALS: dict[str, Callable[[CandidateFilter, str, list[Excluded]], GatewayError]] = {
    CATALOGUE: CandidateFilter._refuse_catalogue,
    OPERATION: CandidateFilter._refuse_operation,
    CHOICE: CandidateFilter._refuse_choice,
    ACCESS: CandidateFilter._refuse_access,
    ABILITY: CandidateFilter._refuse_ability,
    CREDENTIAL: CandidateFilter._refuse_credential,
    COOLDOWN: CandidateFilter._refuse_cooling,
}


def _join_some(between: str, words: Iterable[str]) -> str:
    """The first few of different words, and how many more there are: `auto` may be refused hundreds of models."""
    names = sorted(words)
    return between.join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _words(lacking: tuple[str, ...]) -> str:
    return f"lacks {', '.join(lacking)}"
