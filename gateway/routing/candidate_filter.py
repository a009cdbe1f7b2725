"""The filter that decides which candidates can serve a request now, and why the others cannot."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import ATTEMPTS, Forbidden, GatewayError, InvalidRequest, NoProviderLeft, NotSupported
from gateway.neutral.operations import OPERATIONS
from gateway.routing.candidates import ENDED, Candidate, TokenMix, blend
from gateway.routing.capabilities import CODES, CONTEXT, SOFT, TIER, Demand, lacks, refuse
from gateway.routing.hosted_rules import HostedRules
from gateway.routing.provider_health import Health, KnownCredential, Pause
from gateway.routing.score import ScoreEntry
from gateway.routing.sliding_window import DEFAULTS

Allowed = Callable[[Mapping, Provider], str | None]
Usable = Callable[[Mapping], tuple[KnownCredential, ...]]
MAX_LISTED = 5  # providers or reasons that a refusal lists

# Stages of the filter. The error of a request describes the candidates that reached the last stage.
CATALOGUE = "catalogue"
OPERATION = "operation"
CHOICE = "choice"
ACCESS = "access"
ABILITY = "ability"
CREDENTIAL = "credential"
COOLDOWN = "rest"
BUDGET = "budget"
PAYMENT = "payment"


class NoCredential(InvalidRequest):
    """No credential is configured for any suitable provider; `providers` are those that would be suitable. `ended`
    are those with a credential that served the model until it ended there."""

    code = "no_provider_credential"
    providers: tuple[Provider, ...] = ()
    ended: tuple[str, ...] = ()


class Excluded(NamedTuple):
    """A candidate that cannot serve the request, the stage that it failed and the reason. `until` is monotonic
    seconds. `lacking` are the capabilities that it lacks; at the stage PAYMENT the member of the request that no
    credential may pay for.
    """

    key: str
    stage: str
    reason: str
    candidate: Candidate
    lacking: tuple[str, ...] = ()
    until: float = 0.0


class CoolingDown(NamedTuple):
    """The part of a candidate that is tried last, until `until` (monotonic seconds).

    `whole`: the whole candidate, otherwise only some of its `credentials`. `unanswered`: the provider accepts no
    connections.
    """

    until: float
    credentials: tuple[KnownCredential, ...]
    whole: bool
    reason: str
    unanswered: bool


class CandidateFilter:
    """The checks for one request.

    `excluded` collects the candidates that fail them; `cooling` holds, by key, the others that are tried last.
    """

    __slots__ = (
        "_allowed", "_health", "_hosted", "_image", "_mix_of", "_now", "_now_us", "_organization", "_tick", "_usable",
        "cooling", "demand", "excluded", "operation",
    )  # fmt: skip

    def __init__(
        self,
        health: Health,
        demand: Demand,
        operation: str,
        allowed: Allowed | None,
        usable: Usable,
        now_us: int,
        mix_of: Callable[[str], TokenMix | None] | None = None,
        image: bool = False,
        organization: str = "",
        hosted: HostedRules | None = None,
    ) -> None:
        """Set up the checks.

        `mix_of` is set for large prompts and sessions, which compare prices that include cached input: it returns the
        mix of tokens at a model by its id, None for the general one. `image` compares image prices;
        `organization` is the caller's; `hosted` decides who may pay for what the request uses beside its model.
        """
        self._health = health
        self._hosted = hosted
        self.demand = demand
        self.operation = operation
        self._allowed = allowed
        self._usable = usable
        self._now_us = now_us
        self._mix_of = mix_of
        self._image = image
        self._now, self._tick = health.tick()
        self._organization = organization
        self.excluded: list[Excluded] = []
        self.cooling: dict[str, CoolingDown] = {}

    def keep_usable(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        """Return the candidates that pass; `lacking` of an entry names the preferences that it does not fulfil."""
        if self._is_plain():
            return self._pass_plain(candidates)
        return self._pass_all(candidates)

    def _is_plain(self) -> bool:
        """Return whether only capabilities, sizes, credentials and health decide, as for most requests."""
        demand = self.demand
        return self._allowed is None and demand.plain and not self._image and self._hosted is None

    def _pass_all(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        return [entry for candidate in candidates if (entry := self.examine(candidate)) is not None]

    def _pass_plain(self, candidates: Iterable[Candidate]) -> list[ScoreEntry]:
        """Do the same as `_pass_all` with the usual checks in one loop; a candidate that fails any is examined in
        full.
        """
        bits = self.demand.bits
        maximum = self.demand.max_tokens
        prompt = self.demand.tokens
        operation = self.operation
        usable = self._usable
        tick = self._tick
        make = tuple.__new__
        size = prompt + maximum
        windows = self._health.windows
        may_be_cooling = self._health.cooldowns.providers
        mix_of = self._mix_of
        entries = []
        for candidate in candidates:
            ability = candidate.ability
            if (
                bits & ~ability.bits
                or maximum > ability.max_output
                or size > ability.context
                or not candidate.flat
                or operation not in candidate.operations
                or candidate.provider.id in may_be_cooling
                or not (credentials := usable(candidate.mapping))
            ):
                entry = self.examine(candidate)
                if entry is not None:
                    entries.append(entry)
                continue
            window = windows.get(candidate.key)
            figures = DEFAULTS if window is None else window.figures(tick)
            if mix_of is None:
                price = candidate.figures.mean
            elif (mix := mix_of(candidate.model.id)) is None:
                price = candidate.blended
            else:
                price = blend(candidate.figures, mix)
            entries.append(make(ScoreEntry, (candidate, credentials, price, *figures, ())))
        return entries

    def examine(self, candidate: Candidate) -> ScoreEntry | None:
        """Return the entry of a candidate that passes every check; otherwise None, with the reason in `excluded`."""
        mapping = candidate.mapping
        if candidate.barred:
            self._exclude(candidate, CATALOGUE, candidate.barred)
            return None
        if self.operation not in candidate.operations:
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
            credentials, lacking = _for_tier(credentials, lacking)
        credentials = self._payable(candidate, credentials)
        if credentials and self._health.cooldowns.may_be_cooling(candidate.provider.id):
            credentials = self._in_turn(candidate, credentials)
        if not credentials:
            return None
        figures = self._health.figures(candidate.key, self._tick)
        return ScoreEntry(candidate, credentials, self._price(candidate), *figures, lacking)

    def _payable(self, candidate: Candidate, credentials: tuple[KnownCredential, ...]) -> tuple[KnownCredential, ...]:
        """Return the credentials that may pay for the model, and for what the request uses beside it."""
        if not credentials:
            self._exclude(candidate, CREDENTIAL, "no credential")
        if not credentials or self._hosted is None:
            return credentials
        verdict = self._hosted.decide(candidate, credentials)
        if not verdict.credentials:
            stage = ACCESS if verdict.denied else PAYMENT
            self._exclude(candidate, stage, verdict.reason, lacking=(verdict.param,))
        return verdict.credentials

    def has_credential(self, candidate: Candidate) -> bool:
        return not candidate.barred and bool(self._usable(candidate.mapping))

    def exclude_for(self, candidate: Candidate, reason: str) -> None:
        """Exclude a candidate because of the caller's own preference."""
        self._exclude(candidate, CHOICE, reason)

    def _in_turn(self, candidate: Candidate, credentials: tuple[KnownCredential, ...]) -> tuple[KnownCredential, ...]:
        """Return the credentials in the order in which to try them.

        Credentials that cool down come last, by the end of their cooldown. There are none if the provider accepts no
        connections and another request tried it a moment ago.
        """
        ready, late, shut = self._split(candidate, credentials)
        if late:
            late.sort(key=_return_time)
            first = late[0][0]
            cooling = tuple(credential for _, credential in late)
            which = f"{len(late)} of {len(credentials)} keys cooling down" if ready else "cooling down"
            reason = f"{which} for {first.until - self._now:.0f} s: {first.text}"
            self.cooling[candidate.key] = CoolingDown(first.until, cooling, not ready, reason, first.unanswered)
            return (*ready, *cooling)
        if not ready:
            cause = min(shut, key=attrgetter("blocked_until"))
            reason = f"cooling down for {cause.until - self._now:.0f} s: {cause.text}"
            self._exclude(candidate, COOLDOWN, reason, until=cause.blocked_until)
        return tuple(ready)

    def _split(
        self, candidate: Candidate, credentials: tuple[KnownCredential, ...]
    ) -> tuple[list[KnownCredential], list[tuple[Pause, KnownCredential]], list[Pause]]:
        """Return the credentials that are ready, those that cool down, and the pauses of those that may not be
        tried.
        """
        health = self._health
        now = self._now
        whole = health.cooldown_of(candidate.key, candidate.place, now)
        ready = []
        late = []
        shut = []
        for credential in credentials:
            own = health.credential_cooldown(candidate.key, candidate.provider.id, credential, now, self._organization)
            # Keys with another base URL are independent of the state of the platform's address.
            pauses = [pause for pause in (own, None if credential.elsewhere else whole) if pause is not None]
            closed = [pause for pause in pauses if pause.blocked_until]
            shut += closed
            if not pauses:
                ready.append(credential)
            elif not closed:
                late.append((max(pauses, key=attrgetter("until")), credential))
        return ready, late, shut

    def _price(self, candidate: Candidate) -> float:
        figures = candidate.figures
        if candidate.steps or candidate.peaks:
            figures = candidate.figures_at(self.demand.tokens, self._now_us)
        if self._image:
            return figures.image
        if self._mix_of is None:
            return figures.mean
        mix = self._mix_of(candidate.model.id)
        if mix is None:
            return blend(figures)
        return blend(figures, mix)

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
        """Return the error for a request without any suitable candidate, based on the candidates that came furthest."""
        if not self.excluded:
            return NoProviderLeft(f"No provider serves {requested} at the moment.", code="no_available_provider")
        furthest = max((row.stage for row in self.excluded), key=STAGES.index)
        rows = [row for row in self.excluded if row.stage == furthest]
        return STAGE_ERRORS[furthest](self, requested, rows)

    def _refuse_cooling(self, requested: str, rows: list[Excluded]) -> GatewayError:
        wait = max(1.0, min(row.until for row in rows) - self._now)
        reasons = "; ".join(f"{row.candidate.provider.id} {row.reason}" for row in rows[:3])
        message = (
            f"No provider of {requested} can be reached at the moment; another request is already retrying: {reasons}."
        )
        return NoProviderLeft(message, retry_after=wait, headers=((ATTEMPTS, "0"),))

    def _refuse_operation(self, requested: str, rows: list[Excluded]) -> GatewayError:
        offered = sorted({name for row in rows for name in row.candidate.operations})
        shown = ", ".join(OPERATIONS[name].shown for name in offered)
        return NotSupported(
            f"{requested} does not serve {self.operation}; it serves {shown or 'nothing'}.",
            param="model",
            details={"operations": ",".join(offered)},
        )

    def _refuse_credential(self, requested: str, rows: list[Excluded]) -> GatewayError:
        providers = {row.candidate.provider.id: row.candidate.provider for row in rows}
        listed = _join_some(", ", providers)
        unable = [row.lacking for row in self.excluded if row.stage == ABILITY and self.has_credential(row.candidate)]
        if unable:
            error = refuse(requested, unable, "with a credential ")
            text = f"{error.message} Other providers may support it, but have no credential ({listed})."
            missing = NoCredential(text, param=error.param, code=error.code)
        else:
            missing = NoCredential(
                f"No credential is configured for a provider of {requested} ({listed}).", param="model"
            )
        missing.providers = tuple(providers[name] for name in sorted(providers))
        ended = [row for row in self.excluded if row.stage == CATALOGUE and row.reason.startswith(ENDED)]
        with_credential = [row.candidate for row in ended if self._usable(row.candidate.mapping)]
        missing.ended = tuple(sorted({candidate.provider.id for candidate in with_credential}))
        return missing

    def _refuse_payment(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some("; ", {row.reason for row in rows})
        return NotSupported(f"{reasons} (model {requested}).", param=rows[0].lacking[0], code="unpriced_use")

    def _refuse_access(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some("; ", {row.reason for row in rows})
        return Forbidden(f"Access denied: {reasons} (model {requested}).", param="model", code="model_not_allowed")

    def _refuse_ability(self, requested: str, rows: list[Excluded]) -> GatewayError:
        error = refuse(requested, [row.lacking for row in rows])
        if error.code != CODES[CONTEXT]:
            return error
        maximum = max(row.candidate.ability.context for row in rows)
        # Coding agents recognize "prompt is too long" and "maximum context length is" and compact their conversation.
        text = (
            f"The prompt is too long: about {self.demand.tokens} tokens > {maximum} maximum. "
            f"The maximum context length is {maximum} tokens "
            f"for {requested}; shorten `{error.param}`, or use a model with a longer context."
        )
        return NotSupported(text, param=error.param, code=error.code)

    def _refuse_catalogue(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some("; ", {f"{row.candidate.provider.id}: {row.reason}" for row in rows})
        return NotSupported(f"{requested} is known but not served ({reasons}).", param="model", code="model_not_served")

    def _refuse_choice(self, requested: str, rows: list[Excluded]) -> GatewayError:
        reasons = _join_some(" / ", {row.reason for row in rows})
        return NotSupported(f"No model remains for {requested}; all are excluded: {reasons}.", param="model")


# Stage → the error of a request that lost its last candidates there, in the order of the stages.
STAGE_ERRORS: dict[str, Callable[[CandidateFilter, str, list[Excluded]], GatewayError]] = {
    CATALOGUE: CandidateFilter._refuse_catalogue,
    OPERATION: CandidateFilter._refuse_operation,
    CHOICE: CandidateFilter._refuse_choice,
    ACCESS: CandidateFilter._refuse_access,
    ABILITY: CandidateFilter._refuse_ability,
    CREDENTIAL: CandidateFilter._refuse_credential,
    COOLDOWN: CandidateFilter._refuse_cooling,
    PAYMENT: CandidateFilter._refuse_payment,
}
# BUDGET is checked when the request is sent, not by the filter. Stored decisions refer to stages by position.
STAGES = (*(stage for stage in STAGE_ERRORS if stage != PAYMENT), BUDGET, PAYMENT)


def _for_tier(
    credentials: tuple[KnownCredential, ...], lacking: tuple[str, ...]
) -> tuple[tuple[KnownCredential, ...], tuple[str, ...]]:
    """Return the credentials for a request with a service tier: custom base URLs may not support the tiers."""
    direct = tuple(credential for credential in credentials if not credential.base_url)
    if direct:
        return direct, lacking
    return credentials, (*lacking, TIER)


def _return_time(late: tuple[Pause, KnownCredential]) -> float:
    return late[0].until


def _join_some(between: str, words: Iterable[str]) -> str:
    """Join the first few distinct words and the number of the others: `auto` may be rejected for hundreds of models."""
    names = sorted(words)
    return between.join(names[:MAX_LISTED]) + (
        f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    )


def _words(lacking: tuple[str, ...]) -> str:
    return f"lacks {', '.join(lacking)}"
