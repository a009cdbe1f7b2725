"""The settlement of one request: an intent before each upstream call, and each attempt settled exactly once."""

import logging
from collections.abc import Sequence
from functools import partial

from gateway.billing.context import Attempt, Terms
from gateway.billing.job_reservation import AcceptedCall, JobReservation
from gateway.billing.likely_prompts import LARGE_BYTES
from gateway.billing.output_reservation import OutputReservation, bill, bill_within
from gateway.billing.response_reservation import ResponseReservation
from gateway.billing.retained_payload import HeldEntry, PayloadCapture, fee_of, refusal, retain
from gateway.billing.session_budgets import with_sessions
from gateway.billing.settlement_services import BilledCall, discount_of, reserve_call
from gateway.billing.usage_rows import intent_of, interrupted, mode_of, read_intent, record_of, row_of
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.prices import FREE
from gateway.errors import BudgetInUse, GatewayError, Internal
from gateway.limits.cost_bound import Payer
from gateway.limits.spending import CostBound, Reservation
from gateway.metering.models import CREDITS
from gateway.metering.route_usage import row_of_route
from gateway.metering.usage_table import UsageRecord, write_groups, write_row
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.runtime.threads import give_way
from gateway.store.journal import Row, Ticket

# The states of a request's settlement, and the transitions between them.

ADMITTED = "admitted"  # the upper bound is reserved, calls may begin
READING_ON = "kept"  # the caller left; a background reader will continue and close, so the next close is not the last
READ_ON = "read_on"  # the upstream's answer is read in the background
SETTLED = "settled"  # the answer's entry was appended
AWAITING_PAYLOAD = "held"  # the answer's row waits for its payload
ABANDONED = "abandoned"  # the entry of a broken answer was appended
CLOSED = "closed"  # nothing is reserved any more


def payer_of(terms: Terms, credits: bool) -> Payer:
    """Return the payer of a request, with the budgets of its limits, session and run. InvalidRequest as of
    `with_sessions`."""
    payers = terms.context.limits or terms.billing_identity
    payer = payers.payer if credits else payers.without_credits
    if terms.context.attribution:
        return with_sessions(payer, terms.context)
    return payer


class Transitions(dict[tuple[str, str], str]):
    """(state, action) → state. An unlisted transition is a programming error."""

    def __missing__(self, transition: tuple[str, str]) -> str:
        raise Internal(f"A settlement in the state {transition[0]} does not support {transition[1]}.")


TRANSITIONS = Transitions(
    {
        (ADMITTED, "begin"): ADMITTED,
        (ADMITTED, "unused"): ADMITTED,
        (ADMITTED, "failed"): ADMITTED,
        (ADMITTED, "settle"): SETTLED,
        (ADMITTED, "hold"): AWAITING_PAYLOAD,
        (ADMITTED, "abandon"): ABANDONED,
        (ADMITTED, "keep"): READING_ON,
        (ADMITTED, "close"): CLOSED,
        (READING_ON, "hold"): AWAITING_PAYLOAD,
        (READING_ON, "abandon"): ABANDONED,
        (READING_ON, "close"): READ_ON,
        (READ_ON, "hold"): AWAITING_PAYLOAD,
        (READ_ON, "abandon"): ABANDONED,
        (READ_ON, "close"): CLOSED,
        (SETTLED, "keep"): SETTLED,
        (SETTLED, "close"): CLOSED,
        (AWAITING_PAYLOAD, "keep"): AWAITING_PAYLOAD,
        (AWAITING_PAYLOAD, "close"): CLOSED,
        (ABANDONED, "keep"): ABANDONED,
        (ABANDONED, "close"): CLOSED,
        (CLOSED, "close"): CLOSED,
    }
)


UNWRITTEN_RECORD = "a usage record could not be written and will be recovered: %s"

log = logging.getLogger(__name__)


class Settlement(OutputReservation, eq=False):
    """Reservation and settlement of one request, from admission to its end.

    The reservation is of budget leases, or the hold of a job that the request creates: then no attempt is charged here,
    and the accepted one is recorded when the job ends. With a retained payload, the row of the serving attempt waits
    until the payload is complete. TRANSITIONS has those of `state`. `serves`: its attempt represents the request.
    """

    state: str = ADMITTED
    serves: bool = True

    def retain(self, capture: PayloadCapture) -> None:
        """Reserve the storage fee of a payload as well. OutOfCredits, BudgetInUse, Unavailable; on error everything is
        released."""
        try:
            organization_id = self.terms.context.caller.organization_id
            reserved_nusd = self._reservation.amount_nusd if self.credits else 0
            self._retained = retain(capture, self._owner.spending, organization_id, self._cost_bound, reserved_nusd)
        except BaseException:
            self.close()
            raise
        self.holds = True
        self._lower_cap(self._retained.storage.output_cap)

    def reserves_call(self, target: Target) -> bool:
        """Return whether `begin` reserves for a call of `target`: from the spending limit of its provider key, from
        limits that depend on the target, or from the credits if the request has not reserved them."""
        limits = self.terms.context.limits
        return (
            target.credential.bounded
            or (not self.credits and mode_of(target) == CREDITS)
            or (limits is not None and bool(limits.calls) and bool(limits.of_call(target)))
        )

    def begin(self, attempt: int, target: Target, cost_bound: CostBound | None = None, patient: bool = True) -> None:
        """Write the intent to the crash journal, just before the first upstream byte. A job needs none, because its row
        outlives this process.

        Where `reserves_call`, `cost_bound` is reserved (None: the bound of the request). SpendingLimitReached or
        OutOfCredits when it does not fit; the attempt has not begun then, and another
        target may be tried. `patient` False: there is another target, so do not wait for amounts that other workers may
        return. Unavailable when the leases expired or the intent cannot be written.
        """
        self.state = TRANSITIONS[self.state, "begin"]
        owner = self._owner
        terms = self.terms
        mode = mode_of(target)
        cost_bound = cost_bound or self._cost_bound
        reservation = self._reservation
        call_reservation = None
        limits = terms.context.limits
        if (
            target.credential.bounded
            or (mode == CREDITS and not self.credits)  # as `reserves_call`, without the call
            or (limits is not None and limits.calls and limits.of_call(target))
        ):
            call_reservation = self._reserve_call(target, cost_bound, patient)
        try:
            reservation.check()
            discountable = owner.discounts.any and mode == CREDITS
            ppm = discount_of(owner.discounts, terms.context, target) if discountable else 0
            call = BilledCall(target, mode, ppm, cost_bound, call_reservation)
            if reservation.journaled:
                owner.intents.begin(terms.request, attempt, intent_of(terms, attempt, call, reservation))
        except BaseException:
            if call_reservation is not None:
                call_reservation.release()
            raise
        if owner.call_counts.by_request:
            owner.call_counts.add(terms.request, 1)
        self._open[attempt] = call
        if call_reservation is not None:
            self._narrow(call, call_reservation)

    def keep_intent(self, number: int) -> None:
        """Keep the intent of an attempt that has begun in the row of its background response, before anything is sent.
        Unavailable."""
        reservation = self._reservation
        if isinstance(reservation, ResponseReservation):
            call = self._open[number]
            reservation.keep(number, call.target, intent_of(self.terms, number, call, reservation))

    def second(self, number: int, target: Target, cost_bound: CostBound) -> "Settlement | None":
        """Return the settlement of a call beside the one in progress, begun as attempt `number`; None where the
        reservations cannot cover both, or where nothing can be recorded."""
        second = self._reserve_second()
        if second is None:
            return None
        try:
            if second.reserves_call(target):
                second.begin(number, target, cost_bound, patient=False)
            else:
                second.begin(number, target)
        except GatewayError:
            second.close()
            return None
        except BaseException:  # the caller left while this waited for the store
            second.close()
            raise
        if second.output_cap is not None:
            second.unused_call(number)
            second.close()
            return None
        return second

    def _reserve_second(self) -> "Settlement | None":
        """Return a settlement for a call beside the one in progress, with a separate reservation; None where the
        credits and limits do not cover both whole. It counts in no rate limit. It reserves the bound of the request,
        because it pays for all further attempts if both calls fail."""
        if self.output_cap is not None:
            return None
        terms = self.terms
        owner = self._owner
        try:
            reservation = owner.spending.reserve(payer_of(terms, self.credits), self._cost_bound, patient=False)
        except GatewayError:
            return None
        if reservation.output_cap is not None:
            reservation.release()
            return None
        second = Settlement(owner, terms, self._cost_bound, reservation, None, self.credits)
        second.serves = False
        return second

    def pass_on(self, other: "Settlement") -> None:
        """Give what belongs to the request, and not to an attempt, to the settlement of the attempt that serves it: the
        place in its rate limits, its payload, and the cached prompt of its session."""
        other.serves, self.serves = True, False
        other._slot, self._slot = self._slot, None
        other._retained, self._retained = self._retained, None
        other.holds, self.holds = self.holds, other.holds
        other.rate_limits = self.rate_limits

    def exchange_numbers(self, attempt: Attempt, other: "Settlement", others: Attempt) -> None:
        """Exchange the numbers of two open attempts, of this settlement and of another one of the same request, because
        the row with the highest number represents the request."""
        call = self._open.pop(attempt.number)
        others_call = other._open.pop(others.number)
        attempt.begun_as, others.begun_as = attempt.call_number, others.call_number
        attempt.number, others.number = others.number, attempt.number
        self._open[attempt.number] = call
        other._open[others.number] = others_call
        intents = self._owner.intents
        for settlement, number, open_call in (
            (self, attempt.number, call),
            (other, others.number, others_call),
        ):
            payload = intent_of(self.terms, number, open_call, settlement._reservation)
            intents.revise(self.terms.request, number, payload)

    def price(self, attempt: Attempt) -> BilledCall | None:
        """Fill an open attempt's `charge`, `overrun` and a missing `usage`, without recording them. Return its call,
        None when it was recorded before. The attempts of a job are free, since its cost is unknown until it ends."""
        call = self._open.get(attempt.number)
        if self.holds and self._reservation.deferred:
            attempt.charge = FREE
        elif call is not None:
            bound = self._reservation.amount_nusd
            if call.call_reservation is not None:
                bound = call.bound_nusd(self._reservation)
            if bill(self.terms, attempt, call.discount_ppm).total > bound:
                reduced = bound > 0 and bill_within(self.terms, attempt, call.discount_ppm, bound)
                attempt.overrun = not reduced
        return call

    def unused(self, attempt: Attempt) -> None:
        """Drop an attempt that was never sent; nothing is recorded."""
        self.unused_call(attempt.number)

    def unused_call(self, number: int) -> None:
        """Do the same as `unused` for the number of an attempt."""
        call = self._open.pop(number, None)
        if call is not None:
            self.state = TRANSITIONS[self.state, "unused"]
            self._owner.intents.void(self.terms.request, number)
            self._owner.call_counts.add(self.terms.request, -1)
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
        self._post_attempt(call, attempt)
        self._reservation.spend(cost_nusd, call.mode == CREDITS)
        self._end(call, cost_nusd)
        if not cost_nusd:
            return None
        self._owner.call_counts.mark_billed(self.terms.request)
        return self.enlarge(cost_nusd, mid_stream=False)

    def settle(self, attempt: Attempt) -> Attempt:
        """Record a successful end and wait until it is durable; fills `charge`, `overrun` and a missing `usage`.

        Unavailable after a timeout: the record is still written as soon as the store is back. With a retained payload,
        the surface writes the answer first and waits for the row; if it has ended already, this method waits. An answer
        that settles early waits in `Settlements.await_record`.
        """
        call = self.price(attempt)
        number = attempt.number
        if call is None:
            return attempt
        terms = self.terms
        context = terms.context
        if terms.prompt_bytes >= LARGE_BYTES and context.request is not None:
            self._owner.likely_prompts.learn(context, context.request, attempt)
        if self.holds:
            ticket = self._hold(call, attempt, awaited=True)
            if ticket is not None:
                ticket.wait(self._owner.wait_s)
            return attempt
        self.state = TRANSITIONS[self.state, "settle"]
        del self._open[number]
        owner = self._owner
        cost_nusd = attempt.charge.total
        teams = self._reservation.budget_set.teams if cost_nusd else None
        row = row_of(terms, attempt, call.mode, owner.clock.now_us(), teams)
        rows = self._entry(call, row, number, cost_nusd)
        if attempt.given:
            rows += self._objects_of(attempt)
        ticket = None
        try:
            if context.settles_early and owner.journal.commits_at_once:
                context.record = owner.post(rows, terms.request, number)
                give_way()  # the commit begins before anything else is done
            else:
                ticket = owner.journal.append(*rows)
        finally:
            self._reservation.settle(cost_nusd, call.mode == CREDITS)
            if call.call_reservation is not None:
                self._end(call, cost_nusd)
            if self._slot is not None:
                self._release_slot(attempt.usage)
        if ticket is not None:
            owner.confirm(ticket, terms, number)
        return attempt

    def abandon(self, attempt: Attempt) -> None:
        """Record an answer that broke off, or that its caller left. Never waits, never raises."""
        call = self.price(attempt)
        if call is None:
            return
        if self._retained is not None:
            try:
                self._hold(call, attempt, awaited=False)
            except GatewayError as error:
                log.error(UNWRITTEN_RECORD, error.message)
            return
        self.state = TRANSITIONS[self.state, "abandon"]
        del self._open[attempt.number]
        cost_nusd = attempt.charge.total
        self._post_attempt(call, attempt)
        self._reservation.settle(cost_nusd, call.mode == CREDITS)
        self._end(call, cost_nusd)
        self._release_slot(attempt.usage)

    def keep(self, attempt: Attempt) -> None:
        """Hand the answer over to background reading after the caller left. The next `close` does nothing, because the
        background reader closes the settlement later."""
        self.state = TRANSITIONS[self.state, "keep"]
        self.leave(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Free the concurrency slot of a caller who left, and write the usage so far to the crash journal."""
        if self._slot is not None:
            self._slot.leave()
        self.record_progress(attempt)

    def close(self) -> None:
        """Release everything that is left. Safe to repeat; never raises when the store is down."""
        before = self.state
        self.state = TRANSITIONS[self.state, "close"]
        if self.state is READ_ON or ((before is SETTLED or before is CLOSED) and not self._open):
            return
        if self.serves:
            self._owner.likely_prompts.release(self.terms.context)
        for number in list(self._open):
            self._interrupt(number)
        retained = self._retained
        if before is not AWAITING_PAYLOAD:  # a held entry needs its reservations until it is written
            self._reservation.release()
            if retained is not None:
                retained.storage.release()
        if retained is not None:
            retained.capture.close()
        self._release_slot(None)

    def _post_held(
        self,
        call: BilledCall,
        record: UsageRecord,
        fee_nusd: int,
        more: Sequence[Row],
        payload_row: Row | None,
        results: Sequence[Row] = (),
    ) -> Ticket:
        """Append a held entry with `more` rows, the row of its payload, and those of what it is the result of; see
        HeldEntry.post."""
        retained = self._retained
        if retained is None:
            raise Internal("An entry is held without a payload.")
        if payload_row is None:
            fee_nusd = 0
        record = record._replace(storage_nusd=fee_nusd or None)
        row = write_row(record, self._teams_paying(record.cost_nusd))
        rows = self._entry(call, row, record.attempt, record.cost_nusd)
        rows += [*more, *results]
        if payload_row is not None:
            rows += [*retained.storage.rows(fee_nusd), payload_row]
        try:
            return self._owner.post(rows, record.request, record.attempt)
        finally:
            self._reservation.settle(record.cost_nusd, record.mode == CREDITS)
            self._end(call, record.cost_nusd)
            retained.storage.settle(fee_nusd)

    def _hold(self, call: BilledCall, attempt: Attempt, *, awaited: bool) -> Ticket | None:
        """Leave the row of the serving attempt to the payload or the job that it belongs to."""
        self._release_slot(attempt.usage)
        self.state = TRANSITIONS[self.state, "hold"]
        del self._open[attempt.number]
        reservation = self._reservation
        if isinstance(reservation, JobReservation):
            record = record_of(self.terms, attempt, call.mode, attempt.at_us)
            reservation.job.accepted = AcceptedCall(record, call.discount_ppm)
        if self._retained is None:
            return None
        record = record_of(self.terms, attempt, call.mode, self._owner.clock.now_us())
        fee_nusd = fee_of(attempt.usage) if self._retained.capture.stored else 0
        post = partial(self._post_held, call, record, fee_nusd, self._objects_of(attempt))
        return self._retained.capture.hold(HeldEntry(record, fee_nusd, awaited, post))

    def _reserve_call(self, target: Target, cost_bound: CostBound, patient: bool) -> Reservation:
        """Reserve the cost bound of a call, as `begin` describes."""
        context = self.terms.context
        try:
            credits = not self.credits and mode_of(target) == CREDITS
            return reserve_call(self._reservation, context, target, cost_bound, self.output_cap, patient, credits)
        except BudgetInUse as error:
            if self._retained is None or not credits:
                raise
            raise refusal(error, self._retained.storage.amount_nusd) from error

    def _end(self, call: BilledCall, cost_nusd: int) -> None:
        """Settle the call's own reservation, once its rows were appended."""
        if call.call_reservation is not None:
            call.call_reservation.settle(cost_nusd)
            self._widen()
            if self._retained is not None:
                self._lower_cap(self._retained.storage.output_cap)

    def _interrupt(self, number: int) -> None:
        """Record an attempt that began but never ended (an error of the gateway) like one of a crashed worker. That of
        the line of a batch costs nothing, because the line is sent again; that of a job ends with the release of its
        holds."""
        call = self._open.pop(number)
        if not self._reservation.journaled:
            if not self._reservation.deferred:
                self._end(call, 0)
            return
        intent = read_intent(intent_of(self.terms, number, call, self._reservation))
        record = interrupted(intent, self.terms.request, number, self._owner.clock.now_us())
        row = write_row(record, self._teams_paying(record.cost_nusd))
        self._post_soon(call, row, number, record.cost_nusd)
        self._reservation.spend(record.cost_nusd, record.mode == CREDITS)
        self._end(call, record.cost_nusd)

    def _teams_paying(self, cost_nusd: int) -> bytes | None:
        """Return the teams that pay a cost; None without any."""
        return self._reservation.budget_set.teams if cost_nusd else None

    def _entry(self, call: BilledCall, row: Row, number: int, cost_nusd: int) -> list[Row]:
        """Return an attempt's usage row and all rows that must be written with it."""
        rows = [row]
        if self.terms.context.route is not None:
            rows.append(row_of_route(row))
        if cost_nusd:
            groups = self._reservation.budget_set.groups
            spent = self._reservation.rows(cost_nusd, call.mode == CREDITS)
            if call.call_reservation is not None:
                groups += call.call_reservation.budget_set.groups
                spent = [*spent, *call.call_reservation.rows(cost_nusd)]
            if groups:
                rows += write_groups(self.terms.request, number, groups)
            rows += spent
        return rows

    def _post_attempt(self, call: BilledCall, attempt: Attempt) -> None:
        cost_nusd = attempt.charge.total
        row = row_of(self.terms, attempt, call.mode, self._owner.clock.now_us(), self._teams_paying(cost_nusd))
        self._post_soon(call, row, attempt.number, cost_nusd, self._objects_of(attempt))

    def _objects_of(self, attempt: Attempt) -> list[Row]:
        """Return the rows that give the containers of an answer to the caller's organization, if the platform paid. An
        organization's own provider could name those of others."""
        if not attempt.given or attempt.target.credential.source == OWN_SOURCE:
            return []
        organization_id = self.terms.context.caller.organization_id
        return self._owner.objects.record(organization_id, attempt.given, self.terms.hosted_uses)

    def _post_soon(self, call: BilledCall, row: Row, number: int, cost_nusd: int, more: Sequence[Row] = ()) -> None:
        try:
            self._owner.post([*self._entry(call, row, number, cost_nusd), *more], self.terms.request, number)
        except GatewayError as error:
            # The intent stays open, so it is recovered once this process has ended. The failed attempt of a job has no
            # intent and no cost, so its missing row does no harm.
            if self._reservation.journaled:
                log.error(UNWRITTEN_RECORD, error.message)

    def _release_slot(self, usage: Usage | None) -> None:
        slot = self._slot
        self._slot = None
        if slot is not None:
            slot.release(usage.input_total + usage.output_total if usage else 0)
