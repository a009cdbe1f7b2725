"""The settlement of a request that creates a job: its upper bound is a hold, which ends with the job and not with the
request.

No intent is written: the job's row is inserted in the transaction that places the hold, and outlives this process.
Failed attempts are recorded at once and cost nothing; the accepted attempt is recorded when the job ends.
"""

from collections.abc import Callable

from gateway.billing.calls import BilledCall, discount_of
from gateway.billing.context import PayloadCapture, RequestContext
from gateway.billing.outcome import Attempt
from gateway.billing.request_settlement import Settlement
from gateway.billing.settlement import Settlements
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
KEY_HOLD = ":key"  # suffix of a job's id: the job's hold on the spending limit of an organization's provider key


class HeldSettlements(Settlements):
    """Admits the job `ident`. `most_nusd` returns the most that it costs at a mapping; `cost_bound` covers all
    mappings. `record` writes the job's row in the transaction that places the hold; `drop` deletes it in the one that
    releases it."""

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
        self.cost_bound = NO_BOUND

    def admit(
        self,
        context: RequestContext,
        cost_bound: CostBound,
        credits: bool,
        prompt_bytes: int,
        requested_model: str = "",
        streamed: bool = False,
        payload: PayloadCapture | None = None,
        units: Units | None = None,
        model: str = "",
        begun: bool = False,
    ) -> "HeldSettlement":
        """Admit the job with `self.cost_bound`; the argument `cost_bound` is not used. Retaining the payload is free,
        because its fee is per token and a job has none."""
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
            self.holds.place(self.ident, payer, self.cost_bound, self.record)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        # The hold has reserved from the budgets already, so this reservation covers no lease.
        reservation = Reservation(self.spending, BudgetSet((), version, 0), self.cost_bound.bound_nusd)
        self.settlement = HeldSettlement(self, terms, self.cost_bound, reservation, slot, _held=self)
        return self.settlement


class HeldSettlement(Settlement, kw_only=True, eq=False):
    """The settlement of a job's request, until a provider accepts the job. If none does, hold and job row are
    removed."""

    _held: HeldSettlements
    accepted: BilledCall | None = None

    def begin(self, attempt: int, target: Target, cost_bound: CostBound | None = None, patient: bool = True) -> None:
        self.state = TRANSITIONS[self.state, "begin"]
        owner = self._owner
        mode = mode_of(target)
        owner.spending.check()  # fails here if the store is unreachable: the job could not be recorded after the call
        if target.credential.bounded:
            self._hold_key(target, patient)
        taken_off = owner.discounts.any and mode == CREDITS
        if taken_off:
            ppm = discount_of(owner.discounts, self.terms.context, target)
        else:
            ppm = 0
        self._open[attempt] = BilledCall(target, mode, ppm, self._cost_bound)
        if owner.watch.counts:
            owner.watch.count(self.terms.request, 1)

    def unused(self, attempt: Attempt) -> None:
        call = self._open.pop(attempt.number, None)
        if call is not None:
            self.state = TRANSITIONS[self.state, "unused"]
            self._owner.watch.count(self.terms.request, -1)
            self._release_key_hold(call.target)

    def price(self, attempt: Attempt) -> BilledCall | None:
        """Set no charge: the cost is unknown until the job ends."""
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
        """Keep the call that a provider accepted. Its cost is recorded when the job ends."""
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
        """Release hold and job row if no provider accepted the job. Safe to repeat; never raises when the store is
        down."""
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
            return  # The sweep of unaccepted jobs releases it later.

    def _drop(self) -> None:
        self._held.holds.release(self._held.ident + KEY_HOLD)
        self._held.drop()

    def _record_failed(self, call: BilledCall, attempt: Attempt) -> None:
        del self._open[attempt.number]
        self._release_key_hold(call.target)
        try:
            self._owner.journal.append(row_of(self.terms, attempt, call.mode, self._owner.clock.now_us()))
        except GatewayError:
            return  # A failed attempt costs nothing, so a missing row does no harm.

    def _hold_key(self, target: Target, patient: bool) -> None:
        held = self._held
        payer = Payer("", "", self.terms.context.caller.organization_id, False, provider_key_id=target.credential.ident)
        cost_bound = CostBound(held.most_nusd(target.mapping), 0, 0, True)
        held.holds.place(held.ident + KEY_HOLD, payer, cost_bound, patient=patient)

    def _release_key_hold(self, target: Target) -> None:
        if target.credential.bounded:
            self._held.holds.release(self._held.ident + KEY_HOLD)
