"""Spending limits in the gateway protocol of Claude Code: headers of `/v1/messages`, and `GET /api/oauth/usage`.

The protocol is a text in the package `@anthropic-ai/claude-code` ("Usage-limit headers"). It describes one limit, the
one that is used up most, and needs the time at which it is reset, so only limits of a period are described.
"""

from typing import Literal, NotRequired, TypedDict

from msgspec import Struct

from gateway.callers.authentication import Caller
from gateway.callers.scopes import AGENT
from gateway.clock import SECOND_US, Clock, to_datetime
from gateway.errors import GatewayError, SpendingLimitReached
from gateway.limits.budgets import Budgets

Headers = list[tuple[str, str]]
PREFIX = "anthropic-ratelimit-unified-"
THRESHOLDS = (0.95, 0.75)
MAX_WHILE_ALLOWED = 0.99
CACHE_S = 10.0  # budgets of a caller are read from the store at most once in this time
LIMIT_KEY = "agent limit"
GROUPS = {"hour": "daily", "day": "daily", "week": "weekly", "month": "monthly"}
NANO_PER_CENT = 10_000_000


class LimitState(Struct, frozen=True):
    """A spending limit of a period. `group` is the protocol's name of the period."""

    limit_nusd: int
    used_nusd: int
    resets_us: int
    group: str

    @property
    def used_part(self) -> float:
        if not self.limit_nusd:
            return 1.0
        return self.used_nusd / self.limit_nusd


class AgentLimit(TypedDict):
    kind: str
    group: str
    percent: int
    resets_at: str
    severity: Literal["critical", "warning", "normal"]
    is_active: bool


class AgentExtraUsage(TypedDict):
    """The limit that is used up most; amounts in cents."""

    is_enabled: bool
    monthly_limit: float
    used_credits: float
    utilization: int
    currency: str


class AgentUsage(TypedDict):
    extra_usage: NotRequired[AgentExtraUsage]
    limits: list[AgentLimit]


def is_agent(caller: Caller) -> bool:
    """Return whether a coding agent that signed in as a device sent the request."""
    return AGENT in caller.scopes


def read_states(budgets: Budgets, caller: Caller) -> list[LimitState]:
    """Return the limits that apply to a caller in their current periods, the most used limit first."""
    statuses = budgets.statuses([caller.key_id, caller.member_id, *(team for team, _ in caller.teams)])
    states = [
        LimitState(
            status.period_nusd,
            status.period_usage_nusd,
            status.period_resets_us,
            GROUPS[status.limits.period.unit],
        )
        for status in statuses.values()
        if status.limits.period is not None and status.period_nusd is not None and status.period_resets_us
    ]
    return sorted(states, key=lambda state: state.used_part, reverse=True)


def describe_limit(budgets: Budgets, caller: Caller, clock: Clock) -> Headers:
    """Return the headers of a successful response: none for other callers than agents, and without a limit."""
    if not is_agent(caller):
        return []
    now = clock.monotonic()
    read_at, headers = caller.memo.get(LIMIT_KEY, (None, []))
    if read_at is None or now - read_at >= CACHE_S:
        headers = _read_headers(budgets, caller)
        caller.memo[LIMIT_KEY] = (now, headers)
    known: Headers = headers
    return known


def refuse(error: SpendingLimitReached, caller: Caller, clock: Clock) -> GatewayError:
    """Return the error of a request that a limit refuses. An agent shows its message and does not try again."""
    if not is_agent(caller):
        return error
    headers = [
        ("x-should-retry", "false"),
        (f"{PREFIX}status", "rejected"),
        (f"{PREFIX}overage-utilization", "1"),
        (f"{PREFIX}overage-surpassed-threshold", "1"),
        (f"{PREFIX}overage-disabled-reason", "org_spend_cap_reached"),
    ]
    if error.resets_us:
        headers += _resets(error.resets_us)
        headers.append((f"{PREFIX}overage-period", GROUPS[error.period_unit]))
        error.retry_after = max(1.0, (error.resets_us - clock.now_us()) / SECOND_US)
    error.status = 429
    error.headers = (*error.headers, *headers)
    return error


def _read_headers(budgets: Budgets, caller: Caller) -> Headers:
    try:
        states = read_states(budgets, caller)
    except GatewayError:
        return []
    if not states:
        return []
    used = min(states[0].used_part, MAX_WHILE_ALLOWED)
    surpassed = next((threshold for threshold in THRESHOLDS if used > threshold), None)
    status = "allowed"
    if surpassed is not None:
        status = "allowed_warning"
    headers = [
        (f"{PREFIX}status", status),
        (f"{PREFIX}representative-claim", "overage"),
        (f"{PREFIX}overage-status", status),
        (f"{PREFIX}overage-utilization", f"{used:.2f}"),
        *_resets(states[0].resets_us),
    ]
    if surpassed is not None:
        headers.append((f"{PREFIX}overage-surpassed-threshold", str(surpassed)))
    return headers


def _resets(resets_us: int) -> Headers:
    text = str(resets_us // SECOND_US)
    return [(f"{PREFIX}reset", text), (f"{PREFIX}overage-reset", text)]


def show_usage(states: list[LimitState]) -> AgentUsage:
    """Return the answer of `GET /api/oauth/usage`: amounts in cents, parts in whole percent."""
    if not states:
        return {"limits": []}
    first = states[0]
    rows: list[AgentLimit] = []
    for state in states:
        percent = round(state.used_part * 100)
        resets = to_datetime(state.resets_us // SECOND_US * SECOND_US)
        rows.append(
            {
                "kind": "spend",
                "group": state.group,
                "percent": percent,
                "resets_at": resets.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "severity": _severity(state.used_part),
                "is_active": state is first,
            }
        )
    usage: AgentExtraUsage = {
        "is_enabled": True,
        "monthly_limit": first.limit_nusd / NANO_PER_CENT,
        "used_credits": first.used_nusd / NANO_PER_CENT,
        "utilization": rows[0]["percent"],
        "currency": "USD",
    }
    return {"extra_usage": usage, "limits": rows}


def _severity(used_part: float) -> Literal["critical", "warning", "normal"]:
    high, low = THRESHOLDS
    if used_part > high:
        return "critical"
    if used_part > low:
        return "warning"
    return "normal"
