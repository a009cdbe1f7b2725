"""`/projects/…/rate-limits`, `/keys/api/…/rate-limits`: the rate limits that an account sets for its own projects and
keys."""

from typing import Any

from gateway.admin import account_rates
from gateway.limits.rate_limits import WINDOW_S
from gateway.limits.rate_rules import CONCURRENCY, REQUESTS, TOKENS
from gateway.metering import recent_usage
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.validation_schemas import StrictBody, WholeNumber, read_body
from gateway.surfaces.visitor import MANAGERS, Visitor

TAG = "Rate limits"
MOST = 1_000_000_000
NAMES = {REQUESTS: "requestsPerMinute", TOKENS: "tokensPerMinute", CONCURRENCY: "concurrentRequests"}


class RateChange(StrictBody):
    """Absent members stay unchanged, null removes the limit, 0 blocks."""

    requestsPerMinute = WholeNumber(0, MOST, allow_none=True)
    tokensPerMinute = WholeNumber(0, MOST, allow_none=True)
    concurrentRequests = WholeNumber(0, MOST, allow_none=True)


def find_of_project(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The project's own limits, the operator's, and what was used in the last minute."""
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    return _show(visitor, "project", project.id)


def find_of_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The key's own limits, the operator's, and what was used in the last minute."""
    return _show(visitor, "key", visitor.key(inbound.params["key_id"]).id)


def change_of_project(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Set or remove the project's own limits, never above the operator's; in force everywhere when this returns."""
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    given = require_some(read_body(RateChange, inbound))
    return _change(visitor, "project", project.id, project.organization_id, given)


def change_of_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Set or remove the key's own limits, never above the operator's; in force everywhere when this returns."""
    key = visitor.key(inbound.params["key_id"])
    visitor.manager(key.organization_id)
    given = require_some(read_body(RateChange, inbound))
    return _change(visitor, "key", key.id, key.organization_id, given)


def _change(
    visitor: Visitor, scope: str, subject: str, organization_id: str, given: dict[str, int | None]
) -> dict[str, Any]:
    services = visitor.services
    wanted = {kind: given[name] for kind, name in NAMES.items() if name in given}
    account_rates.change(
        services.store.database,
        services.store.control,
        services.billing.rate_limits,
        (scope, subject),
        organization_id,
        wanted,
        actor=visitor.user_id,
    )
    return _show(visitor, scope, subject)


def _show(visitor: Visitor, scope: str, subject: str) -> dict[str, Any]:
    services = visitor.services
    requests, tokens = recent_usage.count(services.store.database, scope, subject, WINDOW_S)
    running = services.billing.settlements.rates.running_of(scope, subject)
    used = {REQUESTS: requests, TOKENS: tokens, CONCURRENCY: running}
    return {
        "rateLimits": {
            NAMES[kind]: {
                "limit": one.own,
                "operatorLimit": one.operators,
                "inForce": one.in_force,
                "used": used[kind],
            }
            for kind, one in services.billing.rate_limits.of(scope, subject).items()
        }
    }


ANSWER = shapes.shape(rateLimits=shapes.RATES)
OF_PROJECT = "/projects/<project_id>/rate-limits"
OF_KEY = "/keys/api/<key_id>/rate-limits"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", OF_PROJECT, find_of_project, "Show a project's rate limits", tag=TAG, answer=ANSWER),
    managed("PATCH", OF_PROJECT, change_of_project, "Set a project's rate limits", tag=TAG, request=RateChange,
            answer=ANSWER),
    managed("GET", OF_KEY, find_of_key, "Show an API key's rate limits", tag=TAG, answer=ANSWER),
    managed("PATCH", OF_KEY, change_of_key, "Set an API key's rate limits", tag=TAG, request=RateChange, answer=ANSWER),
)  # fmt: skip
