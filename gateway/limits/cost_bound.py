"""The upper bound of a request's cost, its payer, and the errors of budgets that cannot cover it."""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import to_iso
from gateway.errors import BudgetInUse, GatewayError, OutOfCredits, SpendingLimitReached
from gateway.limits.limit_rules import LimitRule, LimitSet
from gateway.limits.models import CREDITS, KEY, LIMIT, MEMBER, PROVIDER_KEY, RUN, SESSION, TEAM, WINDOW
from gateway.limits.periods import read_period
from gateway.money import MILLION, format_usd

# The fewest output tokens worth an upstream call when the caller set no limit.
MIN_OUTPUT_TOKENS = 256
# A budget with likely reservations lowers the output below this only when it cannot pay for as much.
LIKELY_OUTPUT_TOKENS = 8192
RETRY_AFTER_S = 2.0  # after a refusal because of requests in progress
LIMIT_HEADER = "x-llmgateway-limit"  # the limits that act on an answer
MID_STREAM = "budget_exhausted_mid_stream"
OWNERS = {
    KEY: "API key",
    MEMBER: "member who owns the API key",
    PROVIDER_KEY: "organization's own provider key",
    SESSION: "session of this agent",
    RUN: "run that this request belongs to",
}
CODES = {
    MEMBER: "member_limit_reached",
    TEAM: "team_limit_reached",
    PROVIDER_KEY: "provider_key_limit_reached",
    SESSION: "session_budget_reached",
    RUN: "run_budget_reached",
    LIMIT: "spending_limit_reached",
}


class CostBound(Struct, frozen=True, gc=False):
    """The most that a request can cost: `fixed_nusd` plus `max_output` tokens at `output_rate` (nano-dollars per
    million).

    `explicit`: the caller set the output limit, so it is not reduced; `choices` share `max_output`. `input_tokens` is
    the most that the prompt can count as. `unforeseen_nusd` is the part of `fixed_nusd` that is known only when the
    provider answers, such as the size of a file at a URL. It is reserved like the rest, even if the budget has no room
    for it; in that case no further request is admitted until this one has ended. `unforeseen_output` are tokens beyond
    `max_output` that are reserved in the same way, for a model without a known output limit. `unlikely_nusd` is the
    part of `fixed_nusd` that the prompt will hardly cost (billing/likely_prompts.py); budgets with likely reservations
    do not reserve it. `fixed_output`: nothing that is sent to the provider limits the output further.
    """

    fixed_nusd: int
    output_rate: int
    max_output: int
    explicit: bool
    choices: int = 1
    input_tokens: int = 0
    unforeseen_nusd: int = 0
    unforeseen_output: int = 0
    unlikely_nusd: int = 0
    fixed_output: bool = False

    @property
    def bound_nusd(self) -> int:
        return self.priced(self.max_output + self.unforeseen_output)

    @property
    def min_nusd(self) -> int:
        """The least that must be available for the request to be admitted."""
        tokens = self.max_output if self.explicit else min(self.max_output, MIN_OUTPUT_TOKENS * self.choices)
        return self.priced(tokens) - self.unforeseen_nusd

    @property
    def foreseen(self) -> "CostBound":
        """The bound without costs that only the provider can determine."""
        fixed_nusd = self.fixed_nusd - self.unforeseen_nusd
        return replace(self, fixed_nusd=fixed_nusd, unforeseen_nusd=0, unforeseen_output=0)

    @property
    def likely(self) -> "CostBound":
        """The bound that a budget with likely reservations applies."""
        return replace(self, fixed_nusd=self.fixed_nusd - self.unlikely_nusd, unlikely_nusd=0)

    @property
    def lowered(self) -> "CostBound":
        """The bound of the same request with an output that may be lowered below the caller's limit; the same bound
        where it cannot be."""
        return self if self.fixed_output else replace(self, explicit=False)

    def least_nusd(self, likely: bool) -> int:
        """Return what a budget must have for the request to be admitted; likely budgets may lower the output."""
        return self.likely.lowered.min_nusd if likely else self.min_nusd

    def priced(self, output_tokens: int) -> int:
        """The most that it costs with this many output tokens."""
        return self.fixed_nusd - (-output_tokens * self.output_rate // MILLION)

    def tokens_within(self, nusd: int) -> int:
        """Output tokens that `nusd` are certain to pay for; `max_output` when output is free."""
        if not self.output_rate:
            return self.max_output
        return max(0, (nusd - self.fixed_nusd) * MILLION // self.output_rate)


class Payer(NamedTuple):
    """The budgets that a request is charged to: those of key, member and teams for all inference, and the
    organization's credits only when a credential of the platform may be used. `teams`: (id, name) of teams with limits.
    "" for key or member means none. `sessions`: (scope, id, limit) of the request's session and run, if these have
    limits.

    `limits`: the budgets of further limits, None without any. With `provider_key_id` the budget of that key of the
    organization is charged, for one call.
    """

    key_id: str
    member_id: str
    organization_id: str
    credits: bool
    teams: tuple[tuple[str, str], ...] = ()
    provider_key_id: str = ""
    sessions: tuple[tuple[str, str, int], ...] = ()
    limits: LimitSet | None = None


AGENT_ADVICE = {
    SESSION: "start a new session, or raise the budget of sessions of this key, project or request.",
    RUN: "start a new run, or raise the budget of runs of this key, project or request.",
}
SMALLER_REQUEST_ADVICE = "or make a smaller request, for example with a lower max_tokens."


class Shortage(NamedTuple):
    """A budget that cannot cover `need_nusd`. `unspent_nusd` is its limit less what was spent: `left_nusd` and the
    reservations of requests in progress. `resets_us` 0 = never; `others`: other workers hold leases that may be
    returned soon; `name`: that of the team or limit; `rule`: the limit of a row of `limits`.
    `likely`: the budget reserves likely costs. `most_tokens` is the highest
    max_tokens that the budget could cover, 0 when lowering it does not help. `limit_id` is the id of the limit of a
    key, member, team or provider key, `page` the address of the console, on which one asks for more."""

    scope: str
    kind: str
    limit_nusd: int
    left_nusd: int
    need_nusd: int
    period: str = ""
    resets_us: int = 0
    others: bool = False
    name: str = ""
    unspent_nusd: int = 0
    likely: bool = False
    most_tokens: int = 0
    rule: LimitRule | None = None
    limit_id: str = ""
    organization_id: str = ""
    page: str = ""

    def error(self, mid_stream: bool = False) -> GatewayError:
        """The error for the caller: which limit, what is left of it, when it resets and what to do."""
        left = format_usd(max(0, self.left_nusd))
        need = format_usd(self.need_nusd)
        code = MID_STREAM if mid_stream else None
        if self.unspent_nusd >= self.need_nusd and not mid_stream:
            return self._in_use(left, need)
        verb = "The answer needs" if mid_stream else "This request may cost up to"
        if self.kind == CREDITS:
            rest = " more." if mid_stream else f": add credits, {self._smaller()}"
            return OutOfCredits(
                f"The organization's credits do not suffice: {left} USD are left. {verb} {need} USD{rest}", code=code
            )
        span = " in total" if self.rule is not None else ""
        if self.kind == WINDOW:
            span = f" {read_period(self.period).describe()}"
        resets = f" It resets at {to_iso(self.resets_us)}." if self.resets_us else ""
        used = ""
        if not mid_stream:
            used = f"{format_usd(self.limit_nusd - self.unspent_nusd)} USD are used and "
        refusal = SpendingLimitReached(
            f"The {self._owner()} {format_usd(self.limit_nusd)} USD{span}, of which "
            f"{used}{left} USD are left.{resets} {verb} {need} USD{' more.' if mid_stream else f': {self._advice()}'}",
            code=code or self._code(),
        )
        refusal.limit = self._limit_name
        refusal.headers = self._headers()
        if self.resets_us and self.period:
            refusal.resets_us = self.resets_us
            refusal.period_unit = read_period(self.period).unit
        return refusal

    def _in_use(self, left: str, need: str) -> BudgetInUse:
        """The error of a request that the budget could cover if no other request were in progress."""
        budget = "organization's credits have" if self.kind == CREDITS else self._owner(" with")
        error = BudgetInUse(
            f"The {budget} {format_usd(self.unspent_nusd)} USD left; all but {left} USD of it are reserved by requests "
            f"in progress. This request may cost up to {need} USD: try again when others have ended.",
            retry_after=RETRY_AFTER_S,
            headers=self._headers(),
        )
        error.spare_nusd = self.unspent_nusd - self.need_nusd
        return error

    def _headers(self) -> tuple[tuple[str, str], ...]:
        name = self._limit_name
        return ((LIMIT_HEADER, f"{name}; action=refuse"),) if name else ()

    @property
    def _limit_name(self) -> str:
        return self.limit_id if self.rule is None else self.rule.name

    def _advice(self) -> str:
        if self.scope in AGENT_ADVICE:
            return AGENT_ADVICE[self.scope]
        if not self.page or self.scope == PROVIDER_KEY:  # which its organization's owners and admins see
            return f"raise the limit, {self._smaller()}"
        # A limit of any subject is shown to those who manage limits; everyone asks on the first page.
        page = f"{self.page}/budgets/{self.organization_id}/{self.limit_id}" if self.limit_id else self.page
        return f"ask for more at {page}, {self._smaller()}"

    def _smaller(self) -> str:
        if self.most_tokens:
            return f"or make a smaller request: max_tokens of at most {self.most_tokens} would be accepted now."
        return SMALLER_REQUEST_ADVICE

    def _owner(self, of: str = " of") -> str:
        """Return the owner of the amount, as the beginning of a sentence that continues with the amount."""
        if self.scope == LIMIT:
            return f"limit {self.name} {'has' if of == ' with' else 'allows'}"
        owner = OWNERS.get(self.scope) or f'team "{self.name}" (of the member who owns the API key)'
        return f"{owner} has a spending limit{of}"

    def _code(self) -> str:
        scope = self.scope
        if self.rule is not None and len(self.rule.subjects) == 1 and self.rule.subjects[0].kind in (KEY, *CODES):
            scope = self.rule.subjects[0].kind
        if scope in CODES:
            return CODES[scope]
        if self.kind == WINDOW:
            return "key_period_limit_reached"
        return "key_limit_reached"


class ReservationSize(NamedTuple):
    """The amount to reserve for a cost bound, and the output cap to send upstream (None: not needed)."""

    amount_nusd: int
    output_cap: int | None


def fit_modes(
    cost_bound: CostBound, exact_nusd: int | None, likely_nusd: int | None, has_likely: bool
) -> ReservationSize | None:
    """Return the reservation when `exact_nusd` is left of budgets with exact reservations and `likely_nusd` of those
    with likely ones (None: no limit), which lower an explicit output limit too. The amount is that of exact budgets;
    likely ones reserve `unlikely_nusd` less."""
    size = fit(cost_bound, exact_nusd)
    if size is None or not has_likely:
        return size
    likely = cost_bound.likely
    other = fit(likely, likely_nusd) or fit(likely.lowered, likely_nusd)
    large = cost_bound.explicit or cost_bound.unlikely_nusd
    if large and other is not None and other.output_cap is not None and likely_nusd is not None:
        other = _widen(likely, other, likely_nusd)
    if other is None:
        return None
    other = other._replace(amount_nusd=other.amount_nusd + cost_bound.unlikely_nusd)
    return min(size, other, key=_by_amount)


def _widen(likely: CostBound, size: ReservationSize, available_nusd: int) -> ReservationSize:
    """Return a lowered reservation with LIKELY_OUTPUT_TOKENS, or as many of them as `available_nusd` pays for."""
    foreseen = likely.foreseen
    most = min(LIKELY_OUTPUT_TOKENS * likely.choices, foreseen.tokens_within(available_nusd), likely.max_output - 1)
    tokens = most // likely.choices * likely.choices
    amount = foreseen.priced(tokens) + likely.unforeseen_nusd
    if amount <= size.amount_nusd:
        return size
    return ReservationSize(amount, tokens // likely.choices)


def _by_amount(size: ReservationSize) -> int:
    return size.amount_nusd


def fit(cost_bound: CostBound, available_nusd: int | None) -> ReservationSize | None:
    """Return the reservation for `cost_bound` when `available_nusd` is left (None: no limit); None when that is not
    enough.

    The reservation exceeds `available_nusd` by at most the unforeseen costs. Without an explicit limit the output gets
    at most half of the remainder, but at least MIN_OUTPUT_TOKENS if they can be paid. A capped output is foreseen.
    """
    if not (cost_bound.unforeseen_nusd or cost_bound.unforeseen_output):
        return _fit(cost_bound, available_nusd)
    foreseen = cost_bound.foreseen
    need = _fit(foreseen, available_nusd)
    if need is None:
        return None
    if need.output_cap is None:
        unforeseen_nusd = cost_bound.bound_nusd - foreseen.bound_nusd
    else:
        unforeseen_nusd = cost_bound.unforeseen_nusd
    return need._replace(amount_nusd=need.amount_nusd + unforeseen_nusd)


def _fit(cost_bound: CostBound, available_nusd: int | None) -> ReservationSize | None:
    full = cost_bound.bound_nusd
    if available_nusd is None or not full or (cost_bound.explicit and full <= available_nusd):
        return ReservationSize(full, None)
    if cost_bound.explicit:
        return None
    if full * 2 <= available_nusd:
        return ReservationSize(full, None)
    if not cost_bound.output_rate:
        if full <= available_nusd:
            return ReservationSize(full, None)
        return None
    half = cost_bound.tokens_within(available_nusd // 2)
    tokens = min(cost_bound.max_output, max(half, MIN_OUTPUT_TOKENS * cost_bound.choices))
    amount = cost_bound.priced(tokens)
    if amount > available_nusd:
        return None
    return ReservationSize(amount, tokens // cost_bound.choices if tokens < cost_bound.max_output else None)
