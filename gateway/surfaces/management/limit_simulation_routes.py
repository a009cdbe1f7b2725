"""`/orgs/…/limits/…/simulation`: what a limit would have done in the last days."""

from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from gateway.accounts.spending_limits import SpendingLimits
from gateway.callers.throttle import ThrottleGate
from gateway.limits.limit_rules import LimitRule
from gateway.reports.limit_simulation import simulate_limit
from gateway.reports.simulated_days import MAX_DAYS
from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.management.organization_limit_routes import ONE, PATH, SIMULATOR, TAG, LimitBody, read_draft
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, WholeNumber
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation

DAYS = 30
PER_MINUTE = 20  # simulations of an organization
ABOUT_DAYS = f"Of how many days; default: {DAYS}."


class SimulationQuery(Body):
    days = QueryInteger(1, MAX_DAYS, about=ABOUT_DAYS)


class SimulatedLimitBody(LimitBody):
    """A limit, and the days in which it is tried."""

    days = WholeNumber(1, MAX_DAYS, load_default=DAYS, about=ABOUT_DAYS)


class RefusedPersonAnswer(Answer):
    """A member, and how many requests of the member's keys would have been refused."""

    member_id: str
    email: Annotated[str, Meta(examples=["ann@example.com"])]
    requests: int


class LimitSimulationAnswer(Answer):
    """The effect of a limit on the usage of [`since`, `until`), beginning with nothing used. `requests` and
    `cost` are those that it counts; a request is refused if its cost did not fit. `peopleCount` owners of keys sent
    the refused ones, `people` are those with most of them. `complete` is false if the days have more usage than is
    read; `since` is later then."""

    columns = ("since", "requests", "cost", "refused_requests", "refused_cost", "people_count", "complete")
    since: Time
    until: Time
    complete: bool
    requests: int
    cost: Usd
    refused_requests: int
    refused_cost: Usd
    first_refused_at: Time | None
    warned_requests: int
    substituted_requests: int
    people_count: int
    people: list[RefusedPersonAnswer]


def simulate(call: ManagedCall[str]) -> LimitSimulationAnswer:
    """Show what a limit would have done in the last days if it had been in force, without its raise."""
    limits = SpendingLimits(*call.stores)
    info = limits.find(call.params["organization_id"], call.params["limit_id"])
    rule = replace(info.rule, amount_nusd=info.rule.amount_nusd - info.raise_nusd)
    return _simulate(call, rule, call.fields.get("days", DAYS))


def simulate_draft(call: ManagedCall[str]) -> LimitSimulationAnswer:
    """Show what a limit that you describe would have done in the last days. Nothing is stored."""
    rule = SpendingLimits(*call.stores).draft_rule(call.params["organization_id"], read_draft(call))
    return _simulate(call, rule, call.fields["days"])


def _simulate(call: ManagedCall[Any], rule: LimitRule, days: int) -> LimitSimulationAnswer:
    organization_id = call.params["organization_id"]
    call.management.throttle.take(ThrottleGate("simulations of limits", organization_id, PER_MINUTE, 60))
    done = simulate_limit(call.database, organization_id, rule, days)
    return LimitSimulationAnswer.of(done, people=[RefusedPersonAnswer.of(one) for one in done.people])


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{ONE}/simulation", simulate, "Simulate a limit over the last days", tag=TAG, who=SIMULATOR,
            scope="limits:read", query=SimulationQuery, inside="simulation",
            commands=("limits simulate <limit_id> --days=days",)),
    managed("POST", f"{PATH}/simulation", simulate_draft, "Simulate a limit before it is set", tag=TAG,
            who=in_organization("limits:write"), scope="limits:write", request=SimulatedLimitBody, inside="simulation",
            commands=("limits preview <amount> --subject=subjects! --action=actions ...",)),
)  # fmt: skip
