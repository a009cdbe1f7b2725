"""An upstream call in progress: the discount on its price, and a reservation for this call alone."""

import sys
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.callers.discount_book import DiscountBook
from gateway.limits.spending import CostBound, Payer, Reservation
from gateway.providers.protocol import Target


class BilledCall(Struct, frozen=True, eq=False):
    """An upstream call in progress.

    `mode` is the payer (constants in metering/models). `discount_ppm` is the discount in millionths of the price.
    `cost_bound` is the most that the call can cost; `call_reservation` holds it when the provider key has a spending
    limit, when a limit of the organization depends on the target, or when the credits were not reserved for the whole
    request.
    """

    target: Target
    mode: int
    discount_ppm: int
    cost_bound: CostBound
    call_reservation: Reservation | None = None

    def tokens_paid(self) -> int:
        """Return the output tokens that the reservation of the call certainly pays for."""
        if self.call_reservation is None:
            return sys.maxsize
        return self.cost_bound.tokens_within(self.call_reservation.amount_nusd)

    def bound_nusd(self, reservation: Reservation) -> int:
        """Return the nano-dollars reserved for the call; `reservation` is that of the request."""
        if self.call_reservation is None:
            return reservation.amount_nusd
        return min(reservation.amount_nusd, self.call_reservation.amount_nusd)


class CallCount(NamedTuple):
    """Number of upstream calls that a request made, and whether any of them was billed."""

    calls: int = 0
    billed: bool = False


class CallCounts:
    """Counts upstream calls of selected requests. `by_request` is empty most of the time."""

    def __init__(self) -> None:
        self.by_request: dict[bytes, CallCount] = {}

    def begin(self, request_id: str) -> None:
        """Count the calls of a request from now on, until `end`."""
        self.by_request[bytes.fromhex(request_id)] = CallCount()

    def end(self, request_id: str) -> CallCount:
        """Stop counting and return the totals."""
        return self.by_request.pop(bytes.fromhex(request_id), CallCount())

    def add(self, request: bytes, number: int) -> None:
        """Add `number` (which may be negative) to the calls of a request, given by its raw id."""
        count = self.by_request.get(request)
        if count is not None:
            self.by_request[request] = count._replace(calls=count.calls + number)

    def mark_billed(self, request: bytes) -> None:
        """Record that a call of the request was billed, whatever its result."""
        count = self.by_request.get(request)
        if count is not None:
            self.by_request[request] = count._replace(billed=True)


def discount_of(discounts: DiscountBook, context: RequestContext, target: Target) -> int:
    """Return the discount in millionths on calls paid from credits, as in force when the request arrived.
    Unavailable."""
    subject = (context.caller.organization_id, target.provider.id, target.mapping.model)
    return discounts.fraction(*subject, context.at_us)


def reserve_call(
    reservation: Reservation,
    context: RequestContext,
    target: Target,
    cost_bound: CostBound,
    cap: int | None,
    patient: bool,
    credits: bool,
) -> Reservation:
    """Reserve the cost bound of a call from its provider key's spending limit, from limits that depend on the target,
    and with `credits` from the organization's credits; `reservation` is that of the request.

    `cap` is the output limit that other budgets set, which lowers the bound. SpendingLimitReached or OutOfCredits, at
    once unless `patient`; Unavailable.
    """
    if cap is not None:
        maximum = min(cost_bound.max_output, cap * cost_bound.choices)
        cost_bound = replace(cost_bound, max_output=maximum, unforeseen_output=0)
    credential = target.credential
    bounded = credential.ident if credential.bounded else ""
    limits = context.limits.of_call(target) if context.limits is not None else None
    payer = Payer("", "", context.caller.organization_id, credits, provider_key_id=bounded, limits=limits or None)
    return reservation.reserve_call(payer, cost_bound, patient)
