"""The settlement of a request whose answer is a job: its upper bound is a hold, which ends with the job and not with
the request.

No intent is written: the job's own row, in the transaction that places the hold, outlives this process. Attempts that
fail are recorded at once and cost nothing; the one that a provider accepted is recorded when the job ends.
"""

from collections.abc import Callable

from gateway.billing.calls import BilledCall, discount_of
from gateway.billing.context import PayloadCapture, RequestContext
from gateway.billing.outcome import Attempt
from gateway.billing.settlement import Settlement, Settlements
from gateway.billing.settlement_states import TRANSITIONS
from gateway.billing.terms import terms_of
from gateway.billing.usage_rows import mode_of, row_of
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import FREE
from gateway.errors import GatewayError
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.limits.worker_leases import BudgetSet, Reservation
from gateway.metering.models import CREDITS
from gateway.neutral.usage import Units
from gateway.providers.protocol import Target

NO_BOUND = CostBound(0, 0, 0, True)
OWN_KEY = ":key"  # behind a job's id: its hold on the bound of an organization's provider key


class HeldSettlements(Settlements):
    """The admission of one job `ident`. `most_nusd` is the most that it costs at a mapping, `ask` at any; `record`
    writes its row in the transaction that places the hold, `drop` removes it in the one that releases it."""

    settlement: "HeldSettlement"

    def __init__(
        self,
        owner: Settlements,
        holds: Holds,
        ident: str,
        most_nusd: Callable[[Mapping], int],
        record: Callable[[], object],
        drop: Callable[[], object],
    ) -> None:
        super().__init__(
            owner.spending, owner.rates, owner.journal, owner.intents, owner.clock, owner.discounts, owner.wait_s
        )
        self.watch = owner.watch
        self.holds = holds
        self.ident = ident
        self.most_nusd = most_nusd
        self.record = record
        self.drop = drop
        self.ask = NO_BOUND

    def admit(
        self,
        context: RequestContext,
        ask: CostBound,
        credits: bool,
        prompt_bytes: int,
        requested_model: str = "",
        streamed: bool = False,
        payload: PayloadCapture | None = None,
        units: Units | None = None,
        model: str = "",
        begun: bool = False,
    ) -> "HeldSettlement":
        """As of every settlement, for the bound `ask` of this object. A payload that is kept costs nothing here: what
        is made counts no tokens then."""
        terms = terms_of(context, prompt_bytes, requested_model, streamed, units)
        if credits:
            payer = terms.billing_identity.payer
        else:
            payer = terms.billing_identity.without_credits
        version = self.spending.check()
        slot = None
        if self.rates.limited(version) and not begun:
            slot = self._enter(terms, model)
        try:
            self.holds.place(self.ident, payer, self.ask, self.record)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        # What a reservation does for the budgets of a request, the hold does here.
        reservation = Reservation(self.spending, BudgetSet((), version, 0), self.ask.bound_nusd)
        self.settlement = HeldSettlement(self, terms, self.ask, reservation, slot, _held=self)
        return self.settlement


class HeldSettlement(Settlement, kw_only=True, eq=False):
    """From the admission until a provider has the job, or none takes it: then the hold and the job's row are gone."""

    _held: HeldSettlements
    accepted: BilledCall | None = None

    def begin(self, attempt: int, target: Target, ask: CostBound | None = None, patient: bool = True) -> None:
        self.state = TRANSITIONS[self.state, "begin"]
        owner = self._owner
        mode = mode_of(target)
        owner.spending.check()  # without the store nobody could write down that a provider has the job
        if target.credential.bounded:
            self._hold_key(target, patient)
        taken_off = owner.discounts.any and mode == CREDITS
        if taken_off:
            ppm = discount_of(owner.discounts, self.terms.context, target)
        else:
            ppm = 0
        self._open[attempt] = BilledCall(target, mode, ppm, self._ask)
        if owner.watch.counts:
            owner.watch.count(self.terms.request, 1)

    def unused(self, attempt: Attempt) -> None:
        call = self._open.pop(attempt.number, None)
        if call is not None:
            self.state = TRANSITIONS[self.state, "unused"]
            self._owner.watch.count(self.terms.request, -1)
            self._let_key_go(call.target)

    def price(self, attempt: Attempt) -> BilledCall | None:
        """Nothing is known of the cost until the job ends."""
        attempt.charge = FREE
        return self._open.get(attempt.number)

    def failed(self, attempt: Attempt) -> GatewayError | None:
        call = self.price(attempt)
        if call is None:
            return None
        self.state = TRANSITIONS[self.state, "failed"]
        self._record_failed(call, attempt)
        return None

    def settle(self, attempt: Attempt) -> Attempt:
        """A provider has the job: what it costs is recorded at its end."""
        self.accepted = self._open.pop(attempt.number, None)
        self.state = TRANSITIONS[self.state, "hold"]
        self._release_slot(None)
        return attempt

    def abandon(self, attempt: Attempt) -> None:
        call = self.price(attempt)
        if call is not None:
            self.state = TRANSITIONS[self.state, "abandon"]
            self._record_failed(call, attempt)

    def close(self) -> None:
        """Give up what no provider took. Safe to repeat, never raises for the store's sake."""
        self.state = TRANSITIONS[self.state, "close"]
        self._open.clear()
        self._release_slot(None)
        if self.accepted is None:
            self._give_up()

    def _give_up(self) -> None:
        held = self._held
        try:
            held.holds.settle(held.ident, 0, True, self._drop)
        except GatewayError:
            return  # The sweep of jobs that nobody has finds it.

    def _drop(self) -> None:
        self._held.holds.release(self._held.ident + OWN_KEY)
        self._held.drop()

    def _record_failed(self, call: BilledCall, attempt: Attempt) -> None:
        del self._open[attempt.number]
        self._let_key_go(call.target)
        try:
            self._owner.journal.append(row_of(self.terms, attempt, call.mode, self._owner.clock.now_us()))
        except GatewayError:
            return  # It cost nothing.

    def _hold_key(self, target: Target, patient: bool) -> None:
        held = self._held
        payer = Payer("", "", self.terms.context.caller.organization_id, False, provider_key_id=target.credential.ident)
        ask = CostBound(held.most_nusd(target.mapping), 0, 0, True)
        held.holds.place(held.ident + OWN_KEY, payer, ask, patient=patient)

    def _let_key_go(self, target: Target) -> None:
        if target.credential.bounded:
            self._held.holds.release(self._held.ident + OWN_KEY)
