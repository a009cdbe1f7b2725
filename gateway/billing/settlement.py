"""Admission and settlement: reserve the upper bound, write an intent before each call, settle each exactly once."""

import logging
import sys
from collections import deque

from msgspec import Struct, structs

from gateway.accounts.discounts import Discounts
from gateway.billing.calls import BilledCall, Watch, discount_of, hold_bound
from gateway.billing.context import PayloadCapture, RequestContext
from gateway.billing.estimates import HUNG_UP, usage_of, usage_so_far
from gateway.billing.outcome import Attempt
from gateway.billing.settlement_states import ADMITTED, CLOSED, READ_ON, SETTLED, TRANSITIONS
from gateway.billing.terms import Terms, terms_of
from gateway.billing.usage_rows import bill, bill_within, intent_of, interrupted, mode_of, read_intent, row_of
from gateway.clock import Clock
from gateway.errors import GatewayError, Unavailable
from gateway.limits.rate_limits import RateLimiter, RateLimitStatus, Slot
from gateway.limits.spending import CostBound, Reservation, Spending
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import write_row, write_teams
from gateway.money import MILLION
from gateway.neutral.usage import Units, Usage
from gateway.providers.protocol import Target
from gateway.store.intents import Intents
from gateway.store.journal import Journal, Row, Ticket

# Text of a usual answer has about four bytes a token; none has more than eight on average.
USUAL_BYTES, MOST_BYTES = 4, 8

log = logging.getLogger(__name__)


class Settlements:
    """The settlements of a worker. `wait_s` bounds how long an answer waits for its own."""

    def __init__(
        self,
        spending: Spending,
        rates: RateLimiter,
        journal: Journal,
        intents: Intents,
        clock: Clock,
        discounts: Discounts,
        wait_s: float,
    ) -> None:
        self.spending, self.rates, self.journal, self.intents = spending, rates, journal, intents
        self.clock, self.discounts, self.wait_s = clock, discounts, wait_s
        self._posting: deque[tuple[Ticket, bytes, int]] = deque()
        self.watch = Watch()

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
    ) -> "Settlement":
        """The one admission of every paid route: rates, then spending limits, then credits; nothing is held on error.

        The limits of key, member and teams count the inference cost of both modes; the organization's credits count
        only what a credential of the platform served (`credits`: some target may), and the fee of a `payload` that
        is kept (billing/payload_settlement.py). `requested_model` is the model as the caller wrote it, `model` its id;
        `units` are those of an operation that is not priced by its text alone. What a provider has `begun` by itself no
        rate limit keeps from being recorded; nor does a spending limit, with an `ask` of nothing.
        RateLimited, SpendingLimitReached, OutOfCredits; Unavailable when the store cannot be asked.
        """
        terms = terms_of(context, prompt_bytes, requested_model, streamed, units)
        payer = terms.billing_identity.payer if credits else terms.billing_identity.without_credits
        version, slot = self.spending.check(), None
        if self.rates.limited(version) and not begun:
            slot = self._enter(terms, model)
        try:
            reservation = self.spending.find(payer, ask, version) or self.spending.reserve(payer, ask)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        if payload is not None:
            return payload.admit(self, terms, ask, reservation, slot)
        return Settlement(self, terms, ask, reservation, slot)

    def _enter(self, terms: Terms, model: str) -> Slot:
        caller = terms.context.caller
        place = (caller.organization_id, caller.project_id, caller.key_id)
        return self.rates.enter(*place, terms.requested_model, terms.prompt_bytes, terms.context.operation, model)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what is pending and give everything back; what fails now is recovered by the next worker."""
        try:
            self.journal.flush(timeout_s)
            self.reap()
            self.spending.close()
        except Unavailable:
            log.warning("budgets could not be given back: the database is away; the next worker does it")
            self.intents.leave()
            return
        self.intents.close()

    def tend(self) -> None:
        """One round: intents whose rows are durable end, spends are folded, idle slices go back."""
        self.reap()
        self.spending.tend()

    def reap(self) -> None:
        """End the intents whose rows are durable."""
        posting, end = self._posting, self.intents.end
        while posting:
            ticket, request, attempt = posting[0]
            if not ticket.settled():
                return
            posting.popleft()
            end(request, attempt)

    def post(self, rows: list[Row], request: bytes, attempt: int) -> Ticket:
        """Queue an attempt's rows as one entry; its intent ends once they are durable. Unavailable when the journal
        takes no more."""
        ticket = self.journal.append(*rows)
        self._posting.append((ticket, request, attempt))
        return ticket

    def confirm(self, ticket: Ticket, request: bytes, attempt: int) -> None:
        """Wait until an entry that was appended without `post` is durable; its intent ends then, however long that
        takes. Unavailable."""
        try:
            ticket.wait(self.wait_s)
        except BaseException:
            self._posting.append((ticket, request, attempt))
            raise
        self.intents.end(request, attempt)


class Settlement(Struct, eq=False):
    """One request's money, from admission to its end.

    `output_cap` is what to send upstream as output limit, None when the budgets need none. `output_length_foreseen` is
    how much text of an answer the reservation pays for, at a usual token's length; beyond it ask `foresee`.
    `rate_limits` tell where the caller stands, for the headers of the answer.
    """

    _owner: Settlements
    terms: Terms
    _ask: CostBound
    _reservation: Reservation
    _slot: Slot | None = None
    _open: dict[int, BilledCall] = {}
    state: str = ADMITTED  # of TRANSITIONS
    output_cap: int | None = None
    output_length_foreseen: int = sys.maxsize
    rate_limits: tuple[RateLimitStatus, ...] = ()

    def __post_init__(self) -> None:
        if self._slot is not None:
            self.rate_limits = self._slot.statuses
        self._widen()

    def begin(self, attempt: int, target: Target, ask: CostBound | None = None, patient: bool = True) -> None:
        """Write the intent to the crash journal, just before the first upstream byte.

        A provider key with a bound has the most that the call can cost reserved from it: `ask`, where less than what
        the request as a whole may cost. SpendingLimitReached (provider_key_limit_reached) when that does not fit;
        nothing was begun then, and another target may do (`patient` False: there is one, so nobody waits for what other
        workers hold). Unavailable when the leases ran out meanwhile or the word cannot be left.
        """
        self.state = TRANSITIONS[self.state, "begin"]
        owner, terms, mode = self._owner, self.terms, mode_of(target)
        ask = ask or self._ask
        own = self._hold_bound(target, ask, patient) if target.credential.bounded else None
        try:
            self._reservation.check()
            taken_off = owner.discounts.any and mode == CREDITS
            ppm = discount_of(owner.discounts, terms.context, target) if taken_off else 0
            call = BilledCall(target, mode, ppm, ask, own)
            owner.intents.begin(terms.request, attempt, intent_of(terms, attempt, call, self._reservation))
        except BaseException:
            if own is not None:
                own.release()
            raise
        if owner.watch.counts:
            owner.watch.count(terms.request, 1)
        self._open[attempt] = call
        if own is not None:
            self._narrow(call, own)

    def price(self, attempt: Attempt) -> BilledCall | None:
        """Fill an open attempt's `charge`, `overrun` and a missing `usage`; its call, None when it was recorded before.
        Nothing is recorded by it."""
        call = self._open.get(attempt.number)
        if call is not None:
            bound = self._reservation.amount_nusd if call.own is None else call.bound_nusd(self._reservation)
            if bill(self.terms, attempt, call.discount_ppm).total > bound:
                reduced = bound > 0 and bill_within(self.terms, attempt, call.discount_ppm, bound)
                attempt.overrun = not reduced
        return call

    def unused(self, attempt: Attempt) -> None:
        """The attempt was never sent: nothing is recorded of it."""
        call = self._open.pop(attempt.number, None)
        if call is not None:
            self.state = TRANSITIONS[self.state, "unused"]
            self._owner.intents.void(self.terms.request, attempt.number)
            self._owner.watch.count(self.terms.request, -1)
            self._end(call, 0)

    def failed(self, attempt: Attempt) -> GatewayError | None:
        """Record a failed attempt, at no cost unless its usage is known, without waiting for its row. What it cost is
        taken off the reservation and reserved anew; the error of the budget that cannot give it, with which no other
        attempt may follow."""
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
        """Record a good end and wait until it is durable; fills `charge`, `overrun` and a missing `usage`.

        Unavailable when that takes too long: the record still posts as soon as the store is back.
        """
        call, number = self.price(attempt), attempt.number
        if call is None:
            return attempt
        self.state = TRANSITIONS[self.state, "settle"]
        del self._open[number]
        owner, cost_nusd = self._owner, attempt.charge.total
        rows = self._entry(call, self._row(call, attempt), number, cost_nusd)
        try:
            ticket = owner.journal.append(*rows)
        finally:
            self._reservation.settle(cost_nusd, call.mode == CREDITS)
            if call.own is not None:
                self._end(call, cost_nusd)
            if self._slot is not None:
                self._release_slot(attempt.usage)
        owner.confirm(ticket, self.terms.request, number)
        return attempt

    def abandon(self, attempt: Attempt) -> None:
        """Record what became of an answer that broke or that nobody waits for any more. Never waits, never raises."""
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
        """The answer's text passed what the reservation pays for: reserve more, or end it.

        SpendingLimitReached or OutOfCredits with code budget_exhausted_mid_stream. An upstream that keeps the output
        limit stays within the reservation however long its tokens are, so without a budget for more the answer goes on
        until that can no longer be so. The attempt has the usage then that it is billed for: the provider bills what it
        wrote, and it is we who want no more of it.
        """
        short = -(-(attempt.output_length - self.output_length_foreseen) // USUAL_BYTES)
        tokens = max(self._tokens_paid() // 2, 64, short)
        error = self._require(tokens * self._ask.output_rate // MILLION + 1)
        if error is None:
            self.output_length_foreseen += tokens * USUAL_BYTES
            return
        # Sound is counted by its length: it has no longer tokens.
        most = self._tokens_paid() * (MOST_BYTES if self.terms.units is None else USUAL_BYTES)
        if attempt.output_length >= most:
            attempt.usage = usage_so_far(self.terms, attempt, self._tokens_paid())
            raise error
        self.output_length_foreseen = most

    def enlarge(self, nusd: int) -> GatewayError | None:
        """Reserve so much more for what turned out to be longer than was foreseen; the error of the budget that has not
        got it."""
        return self._require(nusd)

    def keep(self, attempt: Attempt) -> None:
        """The caller left and the attempt's answer is read on in the background, which closes later: the next `close`
        does nothing."""
        self.state = TRANSITIONS[self.state, "keep"]
        self.leave(attempt)

    def leave(self, attempt: Attempt) -> None:
        """The caller left, and the attempt's answer is read on: free its concurrency slot, and write what it used until
        now to the crash journal."""
        if self._slot is not None:
            self._slot.leave()
        self._note_use(attempt)

    def close(self) -> None:
        """Give up whatever is left. Safe to repeat, never raises for the store's sake."""
        before, self.state = self.state, TRANSITIONS[self.state, "close"]
        if self.state is READ_ON or (before is SETTLED or before is CLOSED) and not self._open:
            return
        for number in list(self._open):
            self._interrupt(number)
        self._give_back(before)
        self._release_slot(None)

    def _give_back(self, before: str) -> None:
        """`before`: the state that it was closed in."""
        self._reservation.release()

    def _note_use(self, attempt: Attempt) -> None:
        """Write what an answer used until now to the crash journal: it was delivered, so a recovery bills it."""
        call = self._open.get(attempt.number)
        if call is not None:
            used = usage_of(self.terms, structs.replace(attempt, finish=HUNG_UP))
            payload = intent_of(self.terms, attempt.number, call, self._reservation, used)
            self._owner.intents.revise(self.terms.request, attempt.number, payload)

    def _require(self, nusd: int, mid_stream: bool = True) -> GatewayError | None:
        """Reserve so much more, or why not: of all budgets, and of the bound of the key of the call in progress."""
        for reservation in (self._reservation, *(call.own for call in self._open.values() if call.own is not None)):
            try:
                short = reservation.require(nusd)
            except Unavailable as error:
                return error
            if short is not None:
                return short.error(mid_stream)
        return None

    def _hold_bound(self, target: Target, ask: CostBound, patient: bool) -> Reservation:
        return hold_bound(self._owner.spending, self.terms.context, target, ask, self.output_cap, patient)

    def _narrow(self, call: BilledCall, own: Reservation) -> None:
        """The provider key's bound may pay for less than the other budgets do."""
        if own.output_cap is not None and (self.output_cap is None or own.output_cap < self.output_cap):
            self.output_cap = own.output_cap
        if call.ask.output_rate:
            self.output_length_foreseen = min(self.output_length_foreseen, call.tokens_paid() * USUAL_BYTES)

    def _widen(self) -> None:
        """What the budgets of every attempt pay for."""
        self.output_cap = self._reservation.output_cap
        if self._ask.output_rate:
            self.output_length_foreseen = self._ask.tokens_within(self._reservation.amount_nusd) * USUAL_BYTES

    def _tokens_paid(self) -> int:
        """Tokens of output that all that is held surely pays for."""
        tokens = self._ask.tokens_within(self._reservation.amount_nusd)
        return min([tokens, *(call.tokens_paid() for call in self._open.values())])

    def _end(self, call: BilledCall, cost_nusd: int) -> None:
        """Release what the call held of its provider key's bound, once its rows were appended."""
        if call.own is not None:
            call.own.settle(cost_nusd)
            self._widen()

    def _interrupt(self, number: int) -> None:
        """Record an attempt that began and was never ended (a fault of ours) as after a crash."""
        call = self._open.pop(number)
        intent = read_intent(intent_of(self.terms, number, call, self._reservation))
        record = interrupted(intent, self.terms.request, number, self._owner.clock.now_us())
        self._post_soon(call, write_row(record), number, record.cost_nusd)
        self._reservation.spend(record.cost_nusd, record.mode == CREDITS)
        self._end(call, record.cost_nusd)

    def _row(self, call: BilledCall, attempt: Attempt) -> Row:
        return row_of(self.terms, attempt, call.mode, self._owner.clock.now_us())

    def _entry(self, call: BilledCall, row: Row, number: int, cost_nusd: int) -> list[Row]:
        """An attempt's usage row with all that must be written with it."""
        rows = [row]
        if cost_nusd:
            if teams := self._reservation.budget_set.teams:
                rows += write_teams(self.terms.request, number, teams)
            rows += self._reservation.rows(cost_nusd, call.mode == CREDITS)
            if call.own is not None:
                rows += call.own.rows(cost_nusd)
        return rows

    def _post_soon(self, call: BilledCall, row: Row, number: int, cost_nusd: int) -> None:
        try:
            self._owner.post(self._entry(call, row, number, cost_nusd), self.terms.request, number)
        except GatewayError as error:
            # Its intent stays open, so it is recovered once this process has ended.
            log.error("a usage record waits for the recovery: %s", error.message)

    def _release_slot(self, usage: Usage | None) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release(usage.input_total + usage.output_total if usage else 0)
