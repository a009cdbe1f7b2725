"""The reservation of a background response that a provider may make in its own background mode.

It is a hold, which another worker continues with. The intent of each attempt is in the response's row instead of the
crash journal of a worker: the response is billed once, by the worker that ends it, wherever that is.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from gateway.billing.batch_reservation import HeldFund, HeldReservation, hold_id
from gateway.billing.context import RequestContext
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.limits.spending import Spending
from gateway.limits.worker_leases import Reservation
from gateway.neutral.usage import Usage
from gateway.providers.background_calls import BackgroundTerms
from gateway.providers.protocol import Target

# Keeps the intent of an attempt: its number, its target, and the intent.
KeepIntent = Callable[[int, Target, bytes], None]


class ResponseReservation(HeldReservation, kw_only=True, eq=False):
    """The reservation of a background response. `keep` is called before each attempt is sent."""

    keep: KeepIntent


class ResponseHold:
    """The job that a background response is. `is_claimed`: this worker makes it."""

    paced: ClassVar[bool] = True
    retains: ClassVar[bool] = True
    asks_checkers: ClassVar[bool] = True
    asks_judges: ClassVar[bool] = True

    def __init__(self, holds: Holds, ident: str, is_claimed: Callable[[], bool], keep: KeepIntent) -> None:
        self._holds = holds
        self._ident = ident
        self._is_claimed = is_claimed
        self._keep = keep

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Place the hold, or continue with the one that another worker placed. SpendingLimitReached, OutOfCredits,
        Unavailable."""
        ident = hold_id(self._ident, payer)
        placed = self._holds.place(ident, payer, cost_bound)
        fund = HeldFund(self._holds, ident, payer, spending, self._is_claimed)
        fund.load()
        fund.left_nusd -= placed.amount_nusd
        return ResponseReservation(
            fund, fund.budget_set, placed.amount_nusd, placed.output_cap, fund=fund, keep=self._keep
        )


class Continued(NamedTuple):
    """A response that a provider makes: the target, and the number of the attempt."""

    target: Target
    attempt: int


class BackgroundMaking(NamedTuple):
    """How a response is made. `continued` is what another worker has begun; `native` is called once it is known that a
    provider may make it in its background mode. `cancel` ends it at its provider, and returns what it used if that is
    known."""

    hold: ResponseHold
    terms: BackgroundTerms
    continued: Continued | None
    native: Callable[[RequestContext], None]
    cancel: Callable[[], Usage | None]
