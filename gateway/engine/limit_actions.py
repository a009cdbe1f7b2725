"""Actions of limits before they refuse: a warning in the answer, and another model than the requested one."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.billing.request_limits import limits_of
from gateway.engine.planning import RoutePlan, only_model
from gateway.errors import GatewayError
from gateway.limits.limit_book import LimitBook
from gateway.limits.limit_rules import USE_MODEL, WARN, WHOLE, LimitAction, LimitShare
from gateway.neutral.request import Request

R = TypeVar("R", bound=Request)
SUBSTITUTED = 'the limit "{}" is used to {} %: {} serves the request instead of {}'
MAX_NOTES = 8


def apply_actions(
    book: LimitBook,
    context: RequestContext,
    request: R,
    route_plan: RoutePlan,
    plan: Callable[[RequestContext, Request], RoutePlan],
) -> tuple[RoutePlan, R]:
    """Return the plan and the request, for another model if a limit says so, and note the limits that act.

    Amounts are as old as LimitBook.used_nusd says. A model that may not serve the request replaces none.
    """
    limits = limits_of(book, context)
    if limits is None:
        return route_plan, request
    if limits.calls:
        limits = limits.of_plan(route_plan, route_plan.groups, book)
    context.limits = limits
    if not limits.acts_early:
        return route_plan, request
    acting = _acting(book, limits.acting_at(route_plan.groups[0][0]))
    notes = []
    for share, used, action in acting:
        if action.action == USE_MODEL and action.model != request.requested_model:
            planned = _plan_other(context, request, action, plan)
            if planned is None:
                continue
            text = SUBSTITUTED.format(share.rule.name, used, action.model, request.requested_model)
            route_plan, request = planned
            context.limits = limits_of(book, context)
            request = replace(request, warnings=(*request.warnings, text))
        notes.append(f"{share.rule.name}; used={used}; action={action.action}")
    context.limit_note = ", ".join(notes[:MAX_NOTES])
    context.noted = context.noted or bool(notes)
    return route_plan, request


def _acting(book: LimitBook, shares: list[LimitShare]) -> list[tuple[LimitShare, int, LimitAction]]:
    """Return the highest action of each limit that is reached, with the percentage that is used."""
    if not shares:
        return []
    amounts = book.used_nusd(shares)
    acting = []
    for share in shares:
        rule = share.rule
        used = amounts[share.budget] * WHOLE // rule.amount_nusd if rule.amount_nusd else WHOLE
        reached = [action for action in rule.actions if action.action in (WARN, USE_MODEL) and used >= action.share]
        if reached:
            acting.append((share, used, max(reached, key=_priority)))
    return acting


def _priority(action: LimitAction) -> tuple[bool, int]:
    return action.action == USE_MODEL, action.share


def _plan_other(
    context: RequestContext, request: R, action: LimitAction, plan: Callable[[RequestContext, Request], RoutePlan]
) -> tuple[RoutePlan, R] | None:
    other = only_model(request, action.model)
    try:
        return plan(context, other), other
    except GatewayError:
        return None
