"""The settlement of one request: an intent before each upstream call, and each attempt settled exactly once."""

import logging
import sys
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from gateway.billing.calls import BilledCall, discount_of, hold_bound
from gateway.billing.estimates import HUNG_UP, usage_of, usage_so_far
from gateway.billing.outcome import Attempt
from gateway.billing.settlement_states import ADMITTED, CLOSED, READ_ON, SETTLED, TRANSITIONS
from gateway.billing.terms import Terms
from gateway.billing.usage_rows import bill, bill_within, intent_of, interrupted, mode_of, read_intent, row_of
from gateway.errors import GatewayError, Unavailable
from gateway.limits.rate_limits import RateLimitStatus, Slot
from gateway.limits.spending import CostBound, Reservation
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import write_row, write_teams
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.store.journal import Row

if TYPE_CHECKING:
    from gateway.billing.settlement import Settlements

# The text of a typical answer has about four bytes per token; the average of an answer is never above eight.
USUAL_BYTES = 4
MOST_BYTES = 8

log = logging.getLogger(__name__)


class Settlement(Struct, eq=False):
    """Reservation and settlement of one request, from admission to its end.

    `output_cap` is the output limit to send upstream, None when the budgets need none. `output_length_foreseen` is the
    size in bytes of the text that the reservation pays for, at a typical token length; call `foresee` when an answer
    exceeds it. `rate_limits` are the caller's remaining rate limits, for the response headers.
    """

    _owner: "Settlements"
    terms: Terms
    _cost_bound: CostBound
    _reservation: Reservation
    _slot: Slot | None = None
    _open: dict[int, BilledCall] = {}
    state: str = ADMITTED  # the transitions are in settlement_states.py
    output_cap: int | None = None
    output_length_foreseen: int = sys.maxsize
    rate_limits: tuple[RateLimitStatus, ...] = ()

    def __post_init__(self) -> None:
        if self._slot is not None:
            self.rate_limits = self._slot.statuses
        self._widen()

    def begin(self, attempt: int, target: Target, cost_bound: CostBound | None = None, patient: bool = True) -> None:
        """Write the intent to the crash journal, just before the first upstream byte.

        If the provider key has a spending limit, `cost_bound` is reserved from it (None: the bound of the request).
        SpendingLimitReached (provider_key_limit_reached) when it does not fit; the attempt has not begun then, and
        another target may be tried. `patient` False: there is another target, so do not wait for amounts that other
        workers may return. Unavailable when the leases expired or the intent cannot be written.
        """
        self.state = TRANSITIONS[self.state, "begin"]
        owner = self._owner
        terms = self.terms
        mode = mode_of(target)
        cost_bound = cost_bound or self._cost_bound
        key_reservation = self._hold_bound(target, cost_bound, patient) if target.credential.bounded else None
        try:
            self._reservation.check()
            discountable = owner.discounts.any and mode == CREDITS
            ppm = discount_of(owner.discounts, terms.context, target) if discountable else 0
            call = BilledCall(target, mode, ppm, cost_bound, key_reservation)
            owner.intents.begin(terms.request, attempt, intent_of(terms, attempt, call, self._reservation))
        except BaseException:
            if key_reservation is not None:
                key_reservation.release()
            raise
        if owner.watch.counts:
            owner.watch.count(terms.request, 1)
        self._open[attempt] = call
        if key_reservation is not None:
            self._narrow(call, key_reservation)

    def price(self, attempt: Attempt) -> BilledCall | None:
        """Fill an open attempt's `charge`, `overrun` and a missing `usage`, without recording them. Return its call,
        None when it was recorded before."""
        call = self._open.get(attempt.number)
        if call is not None:
            bound = self._reservation.amount_nusd
            if call.key_reservation is not None:
                bound = call.bound_nusd(self._reservation)
            if bill(self.terms, attempt, call.discount_ppm).total > bound:
                reduced = bound > 0 and bill_within(self.terms, attempt, call.discount_ppm, bound)
                attempt.overrun = not reduced
        return call

    def unused(self, attempt: Attempt) -> None:
        """Drop an attempt that was never sent; nothing is recorded."""
        call = self._open.pop(attempt.number, None)
        if call is not None:
            self.state = TRANSITIONS[self.state, "unused"]
            self._owner.intents.void(self.terms.request, attempt.number)
            self._owner.watch.count(self.terms.request, -1)
            self._end(call, 0)

    def failed(self, attempt: Attempt) -> GatewayError | None:
        """Record a failed attempt, at no cost unless its usage is known, without waiting for its row.

        Its cost is taken from the reservation and reserved again for the next attempt. If a budget cannot cover that,
        its error is returned and no further attempt may follow.
        """
        call = self.price(attempt)
        if call is None:
            return None
        self.state = TRANSITIONS[self.state, "failed"]
        del self._open[attempt.number]
        cost_nusd = attempt.charge.total
        self._post_soon(call, self._row(call, attempt), attempt.number, cost_nusd)
        self._reservation.spend(cost_nusd, call.mode == CREDITS)
        self._end(call, cost_nusd)
        if not cost_nusd:
            return None
        self._owner.watch.pay(self.terms.request)
        return self._require(cost_nusd, mid_stream=False)

    def settle(self, attempt: Attempt) -> Attempt:
        """Record a successful end and wait until it is durable; fills `charge`, `overrun` and a missing `usage`.

        Unavailable after a timeout: the record is still written as soon as the store is back.
        """
        call = self.price(attempt)
        number = attempt.number
        if call is None:
            return attempt
        self.state = TRANSITIONS[self.state, "settle"]
        del self._open[number]
        owner = self._owner
        cost_nusd = attempt.charge.total
        rows = self._entry(call, self._row(call, attempt), number, cost_nusd)
        try:
            ticket = owner.journal.append(*rows)
        finally:
            self._reservation.settle(cost_nusd, call.mode == CREDITS)
            if call.key_reservation is not None:
                self._end(call, cost_nusd)
            if self._slot is not None:
                self._release_slot(attempt.usage)
        owner.confirm(ticket, self.terms.request, number)
        return attempt

    def abandon(self, attempt: Attempt) -> None:
        """Record an answer that broke off, or that its caller left. Never waits, never raises."""
        call = self.price(attempt)
        if call is None:
            return
        self.state = TRANSITIONS[self.state, "abandon"]
        del self._open[attempt.number]
        cost_nusd = attempt.charge.total
        self._post_soon(call, self._row(call, attempt), attempt.number, cost_nusd)
        self._reservation.settle(cost_nusd, call.mode == CREDITS)
        self._end(call, cost_nusd)
        self._release_slot(attempt.usage)

    def foresee(self, attempt: Attempt) -> None:
        """Reserve more because the answer's text exceeds what the reservation pays for, or end the answer.

        SpendingLimitReached or OutOfCredits with code budget_exhausted_mid_stream. An upstream that respects the output
        limit stays within the reservation even if its tokens are long. Without a budget for more, the answer therefore
        continues until its size proves that the limit is exceeded. The attempt then gets the usage that it is billed
        for, because the provider bills everything that it generated.
        """
        short = -(-(attempt.output_length - self.output_length_foreseen) // USUAL_BYTES)
        tokens = max(self._tokens_paid() // 2, 64, short)
        error = self._require(tokens * self._cost_bound.output_rate // MILLION + 1)
        if error is None:
            self.output_length_foreseen += tokens * USUAL_BYTES
            return
        # Sound is measured by its duration, so its tokens have a fixed size.
        most = self._tokens_paid() * (MOST_BYTES if self.terms.units is None else USUAL_BYTES)
        if attempt.output_length >= most:
            attempt.usage = usage_so_far(self.terms, attempt, self._tokens_paid())
            raise error
        self.output_length_foreseen = most

    def enlarge(self, nusd: int) -> GatewayError | None:
        """Reserve `nusd` more for a request that is longer than expected; return the error of the budget that cannot
        cover it."""
        return self._require(nusd)

    def keep(self, attempt: Attempt) -> None:
        """Hand the answer over to background reading after the caller left. The next `close` does nothing, because the
        background reader closes the settlement later."""
        self.state = TRANSITIONS[self.state, "keep"]
        self.leave(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Free the concurrency slot of a caller who left, and write the usage so far to the crash journal."""
        if self._slot is not None:
            self._slot.leave()
        self._note_use(attempt)

    def close(self) -> None:
        """Release everything that is left. Safe to repeat; never raises when the store is down."""
        before = self.state
        self.state = TRANSITIONS[self.state, "close"]
        if self.state is READ_ON or (before is SETTLED or before is CLOSED) and not self._open:
            return
        for number in list(self._open):
            self._interrupt(number)
        self._give_back(before)
        self._release_slot(None)

    def _give_back(self, before: str) -> None:
        """Release the reservations; `before` is the state before `close`."""
        self._reservation.release()

    def _note_use(self, attempt: Attempt) -> None:
        """Write the usage so far to the crash journal: this output was delivered, so a recovery bills it."""
        call = self._open.get(attempt.number)
        if call is not None:
            used = usage_of(self.terms, structs.replace(attempt, finish=HUNG_UP))
            payload = intent_of(self.terms, attempt.number, call, self._reservation, used)
            self._owner.intents.revise(self.terms.request, attempt.number, payload)

    def _require(self, nusd: int, mid_stream: bool = True) -> GatewayError | None:
        """Reserve `nusd` more from all budgets and from the spending limits of provider keys in use, or return the
        error."""
        key_reservations = [call.key_reservation for call in self._open.values() if call.key_reservation is not None]
        for reservation in (self._reservation, *key_reservations):
            try:
                short = reservation.require(nusd)
            except Unavailable as error:
                return error
            if short is not None:
                return short.error(mid_stream)
        return None

    def _hold_bound(self, target: Target, cost_bound: CostBound, patient: bool) -> Reservation:
        return hold_bound(self._owner.spending, self.terms.context, target, cost_bound, self.output_cap, patient)

    def _narrow(self, call: BilledCall, key_reservation: Reservation) -> None:
        """Lower the output limits when the provider key's spending limit pays for less than the other budgets."""
        cap = key_reservation.output_cap
        if cap is not None and (self.output_cap is None or cap < self.output_cap):
            self.output_cap = cap
        if call.cost_bound.output_rate:
            self.output_length_foreseen = min(self.output_length_foreseen, call.tokens_paid() * USUAL_BYTES)

    def _widen(self) -> None:
        """Set the output limits to what the budgets of every attempt pay for."""
        self.output_cap = self._reservation.output_cap
        if self._cost_bound.output_rate:
            self.output_length_foreseen = self._cost_bound.tokens_within(self._reservation.amount_nusd) * USUAL_BYTES

    def _tokens_paid(self) -> int:
        """Return the output tokens that all reservations certainly pay for."""
        tokens = self._cost_bound.tokens_within(self._reservation.amount_nusd)
        return min([tokens, *(call.tokens_paid() for call in self._open.values())])

    def _end(self, call: BilledCall, cost_nusd: int) -> None:
        """Settle the call's reservation on its provider key, once its rows were appended."""
        if call.key_reservation is not None:
            call.key_reservation.settle(cost_nusd)
            self._widen()

    def _interrupt(self, number: int) -> None:
        """Record an attempt that began but never ended (an error of the gateway) like one of a crashed worker."""
        call = self._open.pop(number)
        intent = read_intent(intent_of(self.terms, number, call, self._reservation))
        record = interrupted(intent, self.terms.request, number, self._owner.clock.now_us())
        self._post_soon(call, write_row(record), number, record.cost_nusd)
        self._reservation.spend(record.cost_nusd, record.mode == CREDITS)
        self._end(call, record.cost_nusd)

    def _row(self, call: BilledCall, attempt: Attempt) -> Row:
        return row_of(self.terms, attempt, call.mode, self._owner.clock.now_us())

    def _entry(self, call: BilledCall, row: Row, number: int, cost_nusd: int) -> list[Row]:
        """Return an attempt's usage row and all rows that must be written with it."""
        rows = [row]
        if cost_nusd:
            if teams := self._reservation.budget_set.teams:
                rows += write_teams(self.terms.request, number, teams)
            rows += self._reservation.rows(cost_nusd, call.mode == CREDITS)
            if call.key_reservation is not None:
                rows += call.key_reservation.rows(cost_nusd)
        return rows

    def _post_soon(self, call: BilledCall, row: Row, number: int, cost_nusd: int) -> None:
        try:
            self._owner.post(self._entry(call, row, number, cost_nusd), self.terms.request, number)
        except GatewayError as error:
            # The intent stays open, so it is recovered once this process has ended.
            log.error("a usage record could not be written and will be recovered: %s", error.message)

    def _release_slot(self, usage: Usage | None) -> None:
        slot = self._slot
        self._slot = None
        if slot is not None:
            slot.release(usage.input_total + usage.output_total if usage else 0)
