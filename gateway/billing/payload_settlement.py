"""The settlement of a request with a retained payload: it waits for the answer and includes the storage fee."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gateway.billing.calls import BilledCall
from gateway.billing.outcome import Attempt
from gateway.billing.request_settlement import USUAL_BYTES, Settlement, log
from gateway.billing.settlement import Settlements
from gateway.billing.settlement_states import HELD, TRANSITIONS
from gateway.billing.terms import Terms
from gateway.billing.usage_rows import record_of
from gateway.errors import GatewayError, OutOfCredits, Unavailable
from gateway.limits.cost_bound import CostBound
from gateway.limits.rate_limits import Slot
from gateway.limits.spending import Payer
from gateway.limits.worker_leases import Reservation
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import UsageRecord, write_row
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.store.journal import Row, Ticket

# Nano-dollars for each input or output token: 0.01 USD per million. The fee is a whole number, so nothing is rounded.
FEE_NUSD = 10
OUT_OF_CREDITS = (
    "The organization's credits do not cover the storage fee of this request's payload (0.01 USD per million tokens). "
    "Add credits, or set the project's retention to none."
)


class CapturedPayload(Protocol):
    """Interface of a captured payload that the settlement uses."""

    fee_nusd: int

    def open(self) -> None: ...
    def hold(
        self, post: Callable[[Row | None], Ticket], served: str, fee_nusd: int, awaited: bool
    ) -> Ticket | None: ...
    def close(self) -> None: ...


def fee_of(usage: Usage | None) -> int:
    """Return the storage fee for a request with this usage; cached and reasoning tokens count once, like all others."""
    if usage is None:
        return 0
    return FEE_NUSD * (usage.input_total + usage.output_total)


def fee_bound(cost_bound: CostBound) -> CostBound:
    """Return the upper bound of a request's storage fee."""
    fixed_nusd = cost_bound.input_tokens * FEE_NUSD
    return CostBound(fixed_nusd, FEE_NUSD * MILLION, cost_bound.max_output, cost_bound.explicit, cost_bound.choices)


def admit(
    payload: CapturedPayload,
    owner: Settlements,
    terms: Terms,
    cost_bound: CostBound,
    reservation: Reservation,
    slot: Slot | None,
) -> "PayloadSettlement":
    """Reserve the storage fee from the organization's credits and return the settlement; the second half of an
    admission.

    The fee is charged in every mode of the project and counts for no limit of a key or member. OutOfCredits,
    Unavailable; on error all reservations are released.
    """
    payer = Payer("", "", terms.context.caller.organization_id, True)
    try:
        storage = owner.spending.reserve(payer, fee_bound(cost_bound))
    except BaseException as error:
        reservation.release()
        if slot is not None:
            slot.release()
        if isinstance(error, OutOfCredits):
            raise OutOfCredits(OUT_OF_CREDITS) from error
        raise
    settlement = PayloadSettlement(owner, terms, cost_bound, reservation, slot, _payload=payload, _storage=storage)
    payload.open()
    return settlement


class PayloadSettlement(Settlement, kw_only=True, eq=False):
    """A settlement that keeps the row of the serving attempt until the answer is written: usage, spending, fee and
    payload are one entry of the journal, so that none exists without the others.

    An attempt that fails before it answers is recorded at once and has no fee.
    """

    _payload: CapturedPayload
    _storage: Reservation

    def settle(self, attempt: Attempt) -> Attempt:
        """Fill `charge`, `overrun` and a missing `usage`. The surface writes the answer with them and waits for the
        row; if the surface has ended already, this method waits."""
        call = self.price(attempt)
        if call is None:
            return attempt
        self._release_slot(attempt.usage)
        ticket = self._hold(call, attempt, awaited=True)
        if ticket is not None:
            ticket.wait(self._owner.wait_s)
        return attempt

    def abandon(self, attempt: Attempt) -> None:
        """Record a broken answer; never waits for the store, never raises."""
        call = self.price(attempt)
        if call is None:
            return
        self._release_slot(attempt.usage)
        try:
            self._hold(call, attempt, awaited=False)
        except GatewayError as error:
            log.error("a usage record could not be written and will be recovered: %s", error.message)

    def foresee(self, attempt: Attempt) -> None:
        before = self.output_length_foreseen
        super().foresee(attempt)
        with suppress(Unavailable):  # a fee above its reservation is settled in full nevertheless
            self._storage.extend((self.output_length_foreseen - before) // USUAL_BYTES * FEE_NUSD)

    def _give_back(self, before: str) -> None:
        if before is not HELD:
            self._reservation.release()
            self._storage.release()
        self._payload.close()

    def _widen(self) -> None:
        super()._widen()
        caps = [cap for cap in (self.output_cap, self._storage.output_cap) if cap is not None]
        self.output_cap = min(caps, default=None)

    def _hold(self, call: BilledCall, attempt: Attempt, *, awaited: bool) -> Ticket | None:
        self.state = TRANSITIONS[self.state, "hold"]
        del self._open[attempt.number]
        record = record_of(self.terms, attempt, call.mode, self._owner.clock.now_us())
        served = f"{record.provider}/{record.served}"
        return self._payload.hold(lambda row: self._post(call, record, row), served, fee_of(attempt.usage), awaited)

    def _post(self, call: BilledCall, record: UsageRecord, row: Row | None) -> Ticket:
        """Append one entry. `row` None: the payload could not be stored, so no fee is charged."""
        if row is None:
            fee = 0
            kept: list[Row] = []
        else:
            fee = self._payload.fee_nusd
            kept = [*self._storage.rows(fee), row]
        usage = write_row(record._replace(storage_nusd=fee or None))
        rows = self._entry(call, usage, record.attempt, record.cost_nusd)
        try:
            return self._owner.post(rows + kept, record.request, record.attempt)
        finally:
            self._reservation.settle(record.cost_nusd, record.mode == CREDITS)
            self._end(call, record.cost_nusd)
            self._storage.settle(fee)
