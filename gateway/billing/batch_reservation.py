"""The reservations of the requests that the lines of a batch are.

The bound of a whole batch is held before any line is sent, in one hold for each payer of its lines. A line reserves
from that hold, and what it does not spend is returned to the budgets. Its call is not written to the crash journal:
the line is sent again after a crash, and only the answer that is recorded is charged.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, ClassVar

from gateway.errors import Unavailable
from gateway.limits.cost_bound import CostBound, Payer, Shortage
from gateway.limits.holds import Holds
from gateway.limits.leases import FOREVER, LeaseGrant, LeaseRequest, holds_of
from gateway.limits.spending import Spending
from gateway.limits.worker_leases import BudgetLease, BudgetSet, Reservation
from gateway.store.journal import Row

# How lines are sent: by the batch API of the provider where there is one, or by batch APIs alone; "" as requests.
AUTO = "auto"
NATIVE = "native"
NOT_ITS_WORKER = "Another worker continues this batch."


NOTHING = CostBound(0, 0, 0, True)


class LineMeasured(Exception):
    """Ends a request that is only measured: its payer, and the most that it can cost."""

    def __init__(self, payer: Payer, bound_nusd: int) -> None:
        super().__init__(bound_nusd)
        self.payer = payer
        self.bound_nusd = bound_nusd


class MeasuredLine:
    """A line that is checked like any request, up to its reservation. Outside checkers and the judges of routes read it
    when it is sent."""

    paced: ClassVar[bool] = False
    retains: ClassVar[bool] = False
    asks_checkers: ClassVar[bool] = False
    asks_judges: ClassVar[bool] = False

    def __init__(self, mode: str = "") -> None:
        self.mode = mode  # AUTO, NATIVE, or "" for a line that is sent as a request
        self.refused: frozenset[tuple[str, str]] = frozenset()
        self.credentials: dict[str, str] = {}

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Raise LineMeasured."""
        raise LineMeasured(payer, cost_bound.bound_nusd)


class SentLine:
    """A line that is sent. `funds` are the holds of its batch, None for a batch that reserves each line alone."""

    paced: ClassVar[bool] = True
    retains: ClassVar[bool] = True
    asks_checkers: ClassVar[bool] = True
    asks_judges: ClassVar[bool] = True

    def __init__(self, funds: "BatchFunds | None") -> None:
        self._funds = funds
        self._fund: HeldFund | None = None
        self._bound_nusd = 0

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Reserve from the hold of the batch for this payer, or from its budgets where the batch has none."""
        fund = self._funds.of(payer, spending) if self._funds is not None else None
        if fund is not None:
            self._fund = fund
            self._bound_nusd = cost_bound.bound_nusd
            return fund.reserve(payer, cost_bound)
        made = spending.reserve(payer, cost_bound)
        return LineReservation(
            spending, made.budget_set, made.amount_nusd, made.output_cap, unlikely_nusd=made.unlikely_nusd
        )

    def end(self, cost_nusd: int) -> None:
        """Note that the line has its result: its unspent amount is free for other requests."""
        if self._fund is not None:
            self._fund.spare(self._bound_nusd - cost_nusd)


class CollectedLine(SentLine):
    """A line that is written for the batch API of a provider, and reserved as if it was sent. `refused` are the
    addresses and credentials that take no lines of this batch, `credentials` the one that its lines use of each
    provider. `hold` is the hold that it reserved from."""

    retains: ClassVar[bool] = False

    def __init__(
        self,
        funds: "BatchFunds",
        mode: str,
        refused: frozenset[tuple[str, str]],
        credentials: dict[str, str],
        grows: bool = False,
    ) -> None:
        super().__init__(funds)
        self.mode = mode
        self.refused = refused
        self.credentials = credentials
        self.hold = ""
        self._grows = grows

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Reserve from the hold of the batch. Where the hold grows with its lines, errors of `Holds.extend`."""
        if self._funds is not None:
            self.hold = hold_id(self._funds.batch, payer)
        if self._grows and self._funds is not None:
            self._funds.open(payer, cost_bound)
        return super().reserve(spending, payer, cost_bound)

    def keep(self) -> None:
        """Note that the provider gets the line: what it reserved is not free for others until it has its result."""
        if self._grows and self._fund is not None:
            self._fund.left_nusd -= self._bound_nusd


class DeliveredLine(SentLine):
    """A line with an answer from a provider's batch: `reply` is its result, `target` served it. No limit refuses it,
    because the provider has billed it."""

    paced: ClassVar[bool] = False
    asks_judges: ClassVar[bool] = False  # its model is known

    def __init__(self, funds: "BatchFunds", target: Any, reply: Any) -> None:
        super().__init__(funds)
        self.target = target
        self.reply = reply

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation:
        """Reserve what the hold of the batch has left for the line, which settles all that it cost."""
        fund = self._funds.of(payer, spending) if self._funds is not None else None
        if fund is None:
            made = spending.reserve(payer, NOTHING)
            return DeliveredReservation(spending, made.budget_set, made.amount_nusd)
        self._fund = fund
        self._bound_nusd = max(0, min(cost_bound.bound_nusd, fund.left_nusd))
        fund.left_nusd -= self._bound_nusd
        return HeldReservation(fund, fund.budget_set, self._bound_nusd, fund=fund)


class LineReservation(Reservation, kw_only=True, eq=False):
    """The reservation of a line. Its call is not in the crash journal."""

    journaled: ClassVar[bool] = False


class DeliveredReservation(LineReservation, kw_only=True, eq=False):
    """The reservation of a delivered line from the budgets of its payer, which has no hold any more."""


class HeldReservation(LineReservation, kw_only=True, eq=False):
    """The reservation of a line from the hold of its batch."""

    fund: "HeldFund"

    def check(self) -> None:
        """Check that this worker still has the batch. Unavailable."""
        if not self.fund.is_claimed():
            raise Unavailable(NOT_ITS_WORKER)
        self.fund.spending.check()

    def reserve_call(self, payer: Payer, cost_bound: CostBound, patient: bool) -> Reservation:
        return self.fund.spending.reserve(payer, cost_bound, patient)

    def require(self, nusd: int) -> Shortage | None:
        if nusd > 0 and self._open:
            self.fund.take(nusd)
            self.amount_nusd += nusd
        return None


class HeldFund:
    """One hold of a batch in the worker that sends its lines. `left_nusd` is not reserved by any line."""

    def __init__(
        self, holds: Holds, ident: str, payer: Payer, spending: Spending, is_claimed: Callable[[], bool]
    ) -> None:
        self.spending = spending
        self._holds = holds
        self.ident = ident
        self._payer = payer
        self.is_claimed = is_claimed
        self._spare_nusd = 0
        self.left_nusd = 0
        self.budget_set = BudgetSet((), 0, 0)

    def charge(self, nusd: int, credits: bool) -> list[Row]:
        """Return the journal rows that count a cost, and take it from what is left."""
        self.left_nusd -= nusd
        return HeldReservation(self, self.budget_set, 0, fund=self).rows(nusd, credits)

    def load(self) -> bool:
        """Read the hold; False when there is none. Unavailable."""
        held = self._holds.read(self.ident)
        if held is None:
            return False
        self.left_nusd = held.left_nusd
        self.budget_set = BudgetSet(tuple(_lease(*lease) for lease in held.leases), 0, 0)
        return True

    def reserve(self, payer: Payer, cost_bound: CostBound, patient: bool = True) -> HeldReservation:
        """Reserve the bound of a line. Errors of `Holds.extend` where prices rose since the batch was measured."""
        self.take(cost_bound.bound_nusd)
        return HeldReservation(self, self.budget_set, cost_bound.bound_nusd, fund=self)

    def take(self, nusd: int) -> None:
        """Take an amount, which the budgets add where the hold has too little left."""
        self.left_nusd -= nusd
        missing = min(nusd, -self.left_nusd)
        if missing > 0:
            self.left_nusd += missing
            try:
                self._holds.extend(self.ident, self._payer, missing)
            except BaseException:
                self.left_nusd += nusd - missing
                raise

    def spare(self, nusd: int) -> None:
        """Note an amount that no line of the batch needs any more."""
        spare = max(0, min(nusd, self.left_nusd))
        self.left_nusd -= spare
        self._spare_nusd += spare

    def give_back(self) -> None:
        """Return the unspent amounts of ended lines to the budgets. Unavailable."""
        spare = self._spare_nusd
        if spare:
            self._spare_nusd -= spare
            self._holds.give_back(self.ident, spare)

    # The interface of a worker's accounts, as reservations use it.

    def check(self) -> int:
        return 0

    def owns(self, epoch: int) -> bool:
        return self.is_claimed()

    def renew_suspended(self, epoch: int) -> bool:
        return False

    def enlarge(self, slices: tuple[BudgetLease, ...], nusd: int) -> Shortage | None:
        return None

    def note(self, budget_set: BudgetSet, reserved: int, cost: int, credits: bool) -> None:
        """Count the end of a line, or of a part of its reservation."""
        self.left_nusd += reserved - cost

    def count_excess(self, nusd: int) -> None:
        """Count nothing: lines reserve their whole bound."""


class BatchFunds:
    """The holds of a batch, by the payers of its lines."""

    def __init__(self, holds: Holds, batch: str, is_claimed: Callable[[], bool]) -> None:
        self._holds = holds
        self.batch = batch
        self._is_claimed = is_claimed
        self._funds: dict[Payer, HeldFund | None] = {}
        self._others: dict[str, HeldFund] = {}  # by the ids that lines have

    def of(self, payer: Payer, spending: Spending) -> HeldFund | None:
        """Return the hold for a payer; None where limits changed since it was placed. Unavailable."""
        if payer not in self._funds:
            fund = HeldFund(self._holds, hold_id(self.batch, payer), payer, spending, self._is_claimed)
            self._funds[payer] = fund if fund.load() else None
        return self._funds[payer]

    def open(self, payer: Payer, cost_bound: CostBound) -> None:
        """Let the hold for a payer, which grows with the lines, cover one more. Errors of `Holds.place` and
        `Holds.extend`."""
        if self._funds.get(payer) is None:
            self._holds.place(hold_id(self.batch, payer), payer, NOTHING)
            self._funds.pop(payer, None)

    def for_unread(self, ident: str, organization: str, spending: Spending) -> HeldFund:
        """Return what pays for a line without a known payer, for example of a deleted key: the hold with an id, or
        another one of the batch where limits changed since it was placed. Unavailable."""
        fund = self._others.get(ident)
        if fund is None:
            fund = self._others[ident] = self._find_other(ident, organization, spending)
        return fund

    def _find_other(self, ident: str, organization: str, spending: Spending) -> HeldFund:
        for known in self._funds.values():
            if known is not None and known.ident == ident:
                return known
        payer = Payer("", "", organization, True)
        last = hold_id(self.batch, payer)
        for candidate in (*filter(None, (ident,)), *self._holds.with_prefix(f"{self.batch}:"), last):
            if candidate == last:
                self._holds.place(last, payer, NOTHING)
            fund = HeldFund(self._holds, candidate, payer, spending, self._is_claimed)
            if fund.load():
                return fund
        raise Unavailable("The hold of a batch cannot be read.")

    def trim(self) -> None:
        """Return to the budgets what holds that grow with their lines have left. Unavailable."""
        for fund in self._funds.values():
            if fund is not None:
                fund.spare(fund.left_nusd)
        self.give_back()

    def give_back(self) -> None:
        """Return to the budgets what ended lines did not spend. Unavailable."""
        for fund in self._funds.values():
            if fund is not None:
                fund.give_back()


def hold_id(batch: str, payer: Payer) -> str:
    """Return the id of the hold of a batch for a payer: the same in every worker."""
    budgets = "\n".join(sorted(request.budget for request in holds_of(payer)))
    return f"{batch}:{blake2b(budgets.encode(), digest_size=8).hexdigest()}"


def hold_batch(holds: Holds, batch: str, bounds: dict[Payer, int]) -> None:
    """Place the holds of a batch, all or none. SpendingLimitReached, OutOfCredits, Unavailable."""
    try:
        for payer, bound_nusd in bounds.items():
            holds.place(hold_id(batch, payer), payer, CostBound(bound_nusd, 0, 0, True))
    except BaseException:
        release_batch(holds, batch)
        raise


def release_batch(holds: Holds, batch: str) -> None:
    """End all holds of a batch and count what its lines spent. Safe to repeat. Unavailable."""
    for ident in holds.with_prefix(f"{batch}:"):
        holds.release(ident)


def _lease(lease: int, budget: str, generation: int) -> BudgetLease:
    request = LeaseRequest(budget, "", "", budget.rpartition(":")[2])
    # Without a limit: the hold has reserved the amount already.
    return BudgetLease(LeaseGrant(request, lease, generation, None, 0, 0, "", None, 0), 0, FOREVER, 0.0)
