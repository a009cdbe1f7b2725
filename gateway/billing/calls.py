"""One upstream call in progress: the discount on its price, and its reservation on its provider key's bound."""

import sys
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.accounts.discounts import Discounts
from gateway.billing.context import RequestContext
from gateway.limits.spending import CostBound, Payer, Reservation, Spending
from gateway.providers.protocol import Target


class BilledCall(Struct, frozen=True, eq=False):
    """`mode` names who pays for it (metering/models). `discount_ppm` millionths of its price are taken off; `ask` is
    the most that it can cost, of which `own` is held where its provider key has a bound."""

    target: Target
    mode: int
    discount_ppm: int
    ask: CostBound
    own: Reservation | None = None

    def tokens_paid(self) -> int:
        """Tokens of output that the provider key's bound surely pays for."""
        if self.own is None:
            return sys.maxsize
        return self.ask.tokens_within(self.own.amount_nusd)

    def bound_nusd(self, reservation: Reservation) -> int:
        """What is held for the call, `reservation` being the request's."""
        if self.own is None:
            return reservation.amount_nusd
        return min(reservation.amount_nusd, self.own.amount_nusd)


class Watched(NamedTuple):
    """How many upstream calls a request made, and whether anything was paid for it."""

    calls: int = 0
    paid: bool = False


class Watch:
    """What some requests do upstream. `counts` is empty most of the time."""

    def __init__(self) -> None:
        self.counts: dict[bytes, Watched] = {}

    def begin(self, request_id: str) -> None:
        """Count the calls of a request from now on, until `end`."""
        self.counts[bytes.fromhex(request_id)] = Watched()

    def end(self, request_id: str) -> Watched:
        """What it did."""
        return self.counts.pop(bytes.fromhex(request_id), Watched())

    def count(self, request: bytes, number: int) -> None:
        """Some more calls of a request, by its raw id, or fewer."""
        found = self.counts.get(request)
        if found is not None:
            self.counts[request] = found._replace(calls=found.calls + number)

    def pay(self, request: bytes) -> None:
        """Something was paid for a request, whatever becomes of it."""
        found = self.counts.get(request)
        if found is not None:
            self.counts[request] = found._replace(paid=True)


def discount_of(discounts: Discounts, context: RequestContext, target: Target) -> int:
    """Parts per million taken off what credits pay, by the discounts in force when the request came in. Unavailable."""
    place = (context.caller.organization_id, target.provider.id, target.mapping.model)
    return discounts.fraction(*place, context.at_us)


def hold_bound(
    spending: Spending, context: RequestContext, target: Target, ask: CostBound, cap: int | None, patient: bool
) -> Reservation:
    """Reserve a call from its provider key's bound. `cap` is the output limit that other budgets set, with which it
    needs less. SpendingLimitReached (provider_key_limit_reached), at once unless `patient`; Unavailable."""
    if cap is not None:
        ask = replace(ask, max_output=min(ask.max_output, cap * ask.choices))
    organization = context.caller.organization_id
    payer = Payer("", "", organization, credits=False, provider_key_id=target.credential.ident)
    return spending.reserve(payer, ask, patient)
