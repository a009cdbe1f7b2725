"""The plan cache: reuses a recent plan for requests with the same access, keys and requirements.

Plans that depend on a random choice, a session or key rotation are not cached, nor are plans with providers that may be
in cooldown. Where a random choice is possible, each request makes its own choice before it uses a cached plan. Cached
plans lag at most LIFETIME_S behind successes and behind reports of other workers; a failure in this worker and every
change of the control plane clear the cache.
"""

import math
from collections.abc import Hashable
from operator import attrgetter
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.callers.credential_sources import CREDITS
from gateway.neutral.request import NO_OPTIONS, Options, Request, Requirements, planned_fields
from gateway.routing.candidates import Candidate
from gateway.routing.capabilities import CHARACTERS_PER_TOKEN, MAX_BYTES_PER_TOKEN
from gateway.routing.decision import Plan
from gateway.routing.plan import PINNED, PREFERRED, SINGLE, WEIGHTED
from gateway.routing.score import LARGE_PROMPT_TOKENS

T = TypeVar("T")

# Reasons that depend only on the catalogue, health and the project's preference.
CACHEABLE_REASONS = frozenset((PINNED, SINGLE, WEIGHTED, PREFERRED))

LIFETIME_S = (
    1.0  # long enough for sequential requests: making a plan costs over half as much as all the rest of a request
)
CAPACITY = 512
LARGE_BYTES = LARGE_PROMPT_TOKENS * CHARACTERS_PER_TOKEN
READ_REQUIREMENTS = attrgetter(*planned_fields(Requirements))
READ_OPTIONS = attrgetter(*planned_fields(Options))
DEFAULT_OPTIONS = READ_OPTIONS(NO_OPTIONS)


class RecentPlan(Struct, Generic[T], frozen=True, eq=False):
    """A plan, valid until `until` (monotonic seconds) under the same catalogue, for prompts of at least `floor` bytes
    and below `ceiling` bytes."""

    route_plan: T
    catalogue: object
    until: float
    floor: int
    ceiling: float


class PlanCache(Generic[T]):
    """A bounded cache. Callers influence the keys, so a full cache is cleared."""

    def __init__(self) -> None:
        self._small: dict[Hashable, RecentPlan[T]] = {}
        self._large: dict[Hashable, RecentPlan[T]] = {}

    def find(self, key: Hashable, catalogue: object, prompt_bytes: int, now: float) -> T | None:
        """Return the valid plan under `key`, or None."""
        recent = (self._small if prompt_bytes < LARGE_BYTES else self._large).get(key)
        if recent is None or recent.until <= now or recent.catalogue is not catalogue:
            return None
        if recent.floor <= prompt_bytes < recent.ceiling:
            return recent.route_plan
        return None

    def keep(self, key: Hashable, route_plan: T, plan: Plan, catalogue: object, prompt_bytes: int, now: float) -> None:
        """Cache a plan if the next request with this key is certain to get the same plan."""
        if not _is_steady(plan):
            return
        plans = self._small if prompt_bytes < LARGE_BYTES else self._large
        if len(plans) >= CAPACITY:
            plans.clear()
        floor, ceiling = range_of(plan, prompt_bytes)
        plans[key] = RecentPlan(route_plan, catalogue, now + LIFETIME_S, floor, ceiling)

    def clear(self) -> None:
        self._small.clear()
        self._large.clear()


def key_of(context: RequestContext, request: Request) -> Hashable | None:
    """Return everything that a plan depends on besides catalogue, health and size; None where it depends on more."""
    caller = context.caller
    options = request.options
    if caller.rules or caller.mode != CREDITS or context.session or options.session:
        return None
    return (
        request.requested_model,
        caller.project_id,
        context.operation,
        context.options.no_fallback,
        READ_REQUIREMENTS(request.requirements),
        DEFAULT_OPTIONS if options is NO_OPTIONS else READ_OPTIONS(options),
    )


def range_of(plan: Plan, prompt_bytes: int) -> tuple[int, float]:
    """Return the sizes of a prompt, the first one and the first one beyond, within which `plan` stays the same for a
    request of `prompt_bytes`.

    The bounds between ranges are those of context windows, of price tiers and of the rule for large prompts.
    """
    output = plan.request.requirements.max_tokens or 0
    tokens = {LARGE_PROMPT_TOKENS}
    bounds = set()
    for group in (plan.ranked, plan.excluded):
        for entry in group:
            candidate: Candidate = entry.candidate
            ability = candidate.ability
            context = ability.context
            tokens |= {context, context - output, context - min(output, ability.max_output)}
            tokens.update([up_to for up_to, _ in candidate.steps])
            bounds.add(context * MAX_BYTES_PER_TOKEN)
    for count in tokens:  # a limit may include its number or not
        bounds |= {count * CHARACTERS_PER_TOKEN, (count + 1) * CHARACTERS_PER_TOKEN}
    floor = max([bound for bound in bounds if bound <= prompt_bytes], default=0)
    return max(floor, 0), min([bound for bound in bounds if bound > prompt_bytes], default=math.inf)


def _is_steady(plan: Plan) -> bool:
    """Return whether neither chance, key rotation nor a custom provider influenced the plan."""
    if plan.parts:
        return not plan.skipped and all(map(_is_steady, plan.parts))
    resolution = plan.resolution
    fixed = (
        plan.reason in CACHEABLE_REASONS
        and resolution.kind in ("pinned", "canonical")
        and resolution.custom_model is None
    )
    return fixed and all(len(scored.credentials) == 1 for scored in plan.order)
