"""The plan cache: reuses a recent plan for requests with the same access, keys and requirements.

Plans that depend on a random choice, a session or key rotation are not cached, nor are plans with providers that may be
in cooldown. Where a random choice is possible, each request makes its own choice before it uses a cached plan. Cached
plans lag at most KEEP_S behind successes and behind reports of other workers; a failure in this worker and every change
of the control plane clear the cache.
"""

from collections.abc import Hashable
from operator import attrgetter
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.neutral.request import NO_OPTIONS, Request
from gateway.providers.credentials import CREDITS
from gateway.routing.candidates import Candidate
from gateway.routing.capabilities import CHARACTERS_PER_TOKEN
from gateway.routing.decision import Plan
from gateway.routing.plan import PINNED, PREFERRED, SINGLE, WEIGHTED
from gateway.routing.score import LARGE_PROMPT_TOKENS

T = TypeVar("T")

# Reasons that depend only on the catalogue, health and the project's preference.
STEADY = frozenset((PINNED, SINGLE, WEIGHTED, PREFERRED))

KEEP_S = 1.0  # long enough for sequential requests: making a plan costs over half as much as all the rest of a request
CAPACITY = 512
# All fields of Requirements except the sizes, and the options that affect routing; sizes count through `ceiling_of`.
READ_NEEDS = attrgetter(
    *("stream", "tools", "parallel_tools", "vision", "audio", "documents", "json_object", "json_schema", "reasoning"),
    *("effort", "web_search", "image_output", "n", "max_tokens", "forced_tool", "verbosity", "vendor_only"),
    *("penalties", "cache_marks", "search_offered", "hosted"),
)
READ_OPTIONS = attrgetter("routing", "free_models_only", "no_reasoning", "service_tier", "mistakes")
DEFAULT_OPTIONS = READ_OPTIONS(NO_OPTIONS)


class RecentPlan(Struct, Generic[T], frozen=True, eq=False):
    """A plan, valid until `until` (monotonic seconds) for prompts below `ceiling` bytes under the same catalogue."""

    route_plan: T
    catalogue: object
    until: float
    ceiling: int


class PlanCache(Generic[T]):
    """A bounded cache. Callers influence the keys, so a full cache is cleared."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, RecentPlan[T]] = {}

    def find(self, key: Hashable, catalogue: object, prompt_bytes: int, now: float) -> T | None:
        """Return the valid plan under `key`, or None."""
        recent = self._plans.get(key)
        if recent is None or recent.until <= now or recent.catalogue is not catalogue or prompt_bytes >= recent.ceiling:
            return None
        return recent.route_plan

    def keep(self, key: Hashable, route_plan: T, plan: Plan, catalogue: object, prompt_bytes: int, now: float) -> None:
        """Cache a plan if the next request with this key is certain to get the same plan."""
        ceiling = ceiling_of(plan)
        if prompt_bytes >= ceiling or not _is_steady(plan):
            return
        if len(self._plans) >= CAPACITY:
            self._plans.clear()
        self._plans[key] = RecentPlan(route_plan, catalogue, now + KEEP_S, ceiling)

    def clear(self) -> None:
        self._plans.clear()


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
        context.no_fallback,
        READ_NEEDS(request.requirements),
        DEFAULT_OPTIONS if options is NO_OPTIONS else READ_OPTIONS(options),
    )


def ceiling_of(plan: Plan) -> int:
    """Return the prompt size in bytes from which another plan may result: a limit, a price tier, or the rule for large
    prompts."""
    output = plan.request.requirements.max_tokens or 0
    tokens = LARGE_PROMPT_TOKENS
    for group in (plan.ranked, plan.excluded):
        for entry in group:
            candidate: Candidate = entry.candidate
            tokens = min(tokens, candidate.ability.context - output, *(up_to for up_to, _ in candidate.steps))
    return tokens * CHARACTERS_PER_TOKEN


def _is_steady(plan: Plan) -> bool:
    """Return whether neither chance, key rotation nor a custom provider influenced the plan."""
    resolution = plan.resolution
    fixed = plan.reason in STEADY and resolution.kind in ("pinned", "canonical") and resolution.custom_model is None
    return fixed and all(len(scored.credentials) == 1 for scored in plan.order)
