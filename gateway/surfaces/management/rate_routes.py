"""`/projects/…/rate-limits`, `/keys/api/…/rate-limits`: the rate limits that an account sets for its own projects and
keys."""

from typing import Any

from gateway.accounts.keys import KeyInfo
from gateway.accounts.projects import ProjectInfo
from gateway.admin import operator_rates
from gateway.limits.rate_limits import WINDOW_S
from gateway.limits.rate_rules import CONCURRENCY, REQUESTS, TOKENS
from gateway.metering import usage_table
from gateway.surfaces.management.access_groups import in_project, of_key
from gateway.surfaces.management.answers import RateAnswer, RateLimitsAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import StrictBody, WholeNumber
from gateway.surfaces.web.http import Operation

TAG = "Rate limits"
MAX_LIMIT = 1_000_000_000
NAMES = {REQUESTS: "requestsPerMinute", TOKENS: "tokensPerMinute", CONCURRENCY: "concurrentRequests"}


class RateChange(StrictBody):
    """Absent members stay unchanged, null removes the limit, 0 blocks."""

    requestsPerMinute = WholeNumber(0, MAX_LIMIT, allow_none=True)
    tokensPerMinute = WholeNumber(0, MAX_LIMIT, allow_none=True)
    concurrentRequests = WholeNumber(0, MAX_LIMIT, allow_none=True)


def find_of_project(call: ManagedCall[ProjectInfo]) -> RateLimitsAnswer:
    """The project's own limits, the operator's, and what was used in the last minute."""
    return _show(call, "project")


def find_of_key(call: ManagedCall[KeyInfo]) -> RateLimitsAnswer:
    """The key's own limits, the operator's, and what was used in the last minute."""
    return _show(call, "key")


def change_of_project(call: ManagedCall[ProjectInfo]) -> RateLimitsAnswer:
    """Set or remove the project's own limits, never above the operator's; in force everywhere when this returns."""
    return _change(call, "project", call.visitor.manages("projects:write", call.subject.organization_id))


def change_of_key(call: ManagedCall[KeyInfo]) -> RateLimitsAnswer:
    """Set or remove the key's own limits, never above the operator's; in force everywhere when this returns."""
    return _change(call, "key", call.visitor.manages("keys:restrict", call.subject.organization_id))


def _change(call: ManagedCall[Any], scope: str, is_manager: bool) -> RateLimitsAnswer:
    amounts = {kind: call.fields[name] for kind, name in NAMES.items() if name in call.fields}
    subject = call.subject
    operator_rates.change_account_rates(
        *call.stores,
        call.services.billing.rate_limits,
        (scope, subject.id),
        subject.organization_id,
        amounts,
        actor=call.actor,
        is_manager=is_manager,
    )
    return _show(call, scope)


def _show(call: ManagedCall[Any], scope: str) -> RateLimitsAnswer:
    subject_id = call.subject.id
    billing = call.services.billing
    requests, tokens = usage_table.count(call.database, scope, subject_id, WINDOW_S)
    running = billing.settlements.rates.running_of(scope, subject_id)
    used = {REQUESTS: requests, TOKENS: tokens, CONCURRENCY: running}
    rates = {
        kind: RateAnswer(rate.own, rate.operators, rate.in_force, used[kind])
        for kind, rate in billing.rate_limits.of(scope, subject_id).items()
    }
    return RateLimitsAnswer(*(rates[kind] for kind in NAMES))


OF_PROJECT = "/projects/<project_id>/rate-limits"
OF_KEY = "/keys/api/<key_id>/rate-limits"
UPDATED = operator_rates.ACTION

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", OF_PROJECT, find_of_project, "Show a project's rate limits", tag=TAG,
            who=in_project("project_rates:read"), scope="projects:read",
            inside="rateLimits"),
    managed("PATCH", OF_PROJECT, change_of_project, "Set a project's rate limits", tag=TAG,
            who=in_project("projects:write"), scope="projects:write",
            request=RateChange, inside="rateLimits", audit=UPDATED),
    managed("GET", OF_KEY, find_of_key, "Show an API key's rate limits", tag=TAG,
            who=of_key("keys:read"), scope="keys:read",
            inside="rateLimits"),
    managed("PATCH", OF_KEY, change_of_key, "Set an API key's rate limits", tag=TAG,
            who=of_key("keys:restrict"), scope="keys:write",
            request=RateChange, inside="rateLimits", audit=UPDATED),
)  # fmt: skip
