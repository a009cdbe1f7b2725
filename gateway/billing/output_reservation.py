"""Reserved output: how much output the reservations of a request pay for, and how a longer answer reserves more."""

import sys
from contextlib import suppress

from msgspec import Struct, structs

from gateway.billing.context import Attempt, Terms
from gateway.billing.estimates import CANCELLED, CLIENT_DISCONNECT, believed, completed, usage_of, usage_so_far, within
from gateway.billing.retained_payload import FEE_NUSD, RetainedPayload
from gateway.billing.settlement_services import BilledCall, SettlementServices
from gateway.billing.usage_rows import intent_of
from gateway.catalogue.entries import uses_at
from gateway.catalogue.prices import FREE, Charge, capped, cost_of, discounted
from gateway.errors import GatewayError, Unavailable, UpstreamFailed
from gateway.limits.rate_limits import RateLimitStatus, Slot
from gateway.limits.spending import CostBound, Reservation
from gateway.money import MAX_CALL_NUSD, MILLION
from gateway.neutral.hosted_uses import as_billed
from gateway.neutral.usage import MAX_UNITS, Usage, within_bounds

# Charges of attempts: their usage, completed and in the units that are billed, times the prices of their mapping.


def bill(terms: Terms, attempt: Attempt, discount_ppm: int) -> Charge:
    """Set the `charge` of an attempt, less `discount_ppm` millionths, and a missing `usage`; return the charge."""
    usage = attempt.usage
    if usage is None or attempt.error is not None or attempt.finish in CANCELLED:
        usage = attempt.usage = usage_of(terms, attempt)
    if usage is None:
        charge = FREE
    else:
        if terms.hosted_uses:
            usage = attempt.usage = in_units(terms, attempt, usage)
        charge = cost_of(usage, attempt.target.mapping, terms.context.at_us, attempt.service_tier)
        read = usage.input + usage.cache_read + usage.cache_write
        output = usage.output
        if not charge.plain or output <= 0 or not 0 < read < MAX_UNITS - output or terms.units is not None:
            charge = _bounded(terms, attempt, usage, charge)
        if charge.total >= MAX_CALL_NUSD:
            charge = capped(charge)
            attempt.capped = True
        if discount_ppm:
            charge = discounted(charge, discount_ppm)
    attempt.charge = charge
    return charge


def bill_within(terms: Terms, attempt: Attempt, discount_ppm: int, bound_nusd: int) -> bool:
    """Reduce an estimate of tokens that costs more than was reserved; return whether it fits. False for usage that the
    provider reported, and for units, because their maximum is always reserved."""
    usage = attempt.usage
    if usage is None or usage.basis != "estimated" or terms.units is not None:
        return False

    def price(counted: Usage) -> Charge:
        charge = cost_of(counted, attempt.target.mapping, terms.context.at_us, attempt.service_tier)
        return discounted(charge, discount_ppm)

    attempt.usage = within(usage, bound_nusd, price)
    attempt.charge = price(attempt.usage)
    return attempt.charge.total <= bound_nusd


def _bounded(terms: Terms, attempt: Attempt, usage: Usage, charge: Charge) -> Charge:
    """Complete a usage that lacks counts, limit implausible counts, store it in the attempt, and return its charge."""
    if usage.input_total >= MAX_UNITS or usage.output_total >= MAX_UNITS:
        attempt.capped = True  # parsers have limited the counts already
    if _is_whole(terms, attempt, usage):
        reported = usage
        mapping = attempt.target.mapping
        usage = completed(terms, attempt, reported)
        if usage is not reported:
            attempt.usage = usage
            charge = cost_of(usage, mapping, terms.context.at_us, attempt.service_tier)
    plausible = believed(within_bounds(usage), terms.units, terms.hosted_uses, attempt.target.mapping)
    if plausible is usage:
        return charge
    attempt.usage = plausible
    attempt.capped = True
    return cost_of(plausible, attempt.target.mapping, terms.context.at_us, attempt.service_tier)


def _is_whole(terms: Terms, attempt: Attempt, usage: Usage) -> bool:
    """Return whether reported usage must account for a whole answer: one that ended normally, unless the provider's
    content filter removed all of its images."""
    if attempt.error is not None and attempt.finish not in CANCELLED:
        return False
    if terms.units is None:
        return usage.basis != "estimated"
    return usage.images > 0 or attempt.finish != "content_filter"


def in_units(terms: Terms, attempt: Attempt, usage: Usage) -> Usage:
    """Return the usage of an attempt in the units that the tools of its request are billed by."""
    target = attempt.target
    uses = uses_at(target.protocol, target.second, terms.hosted_uses)
    return as_billed(usage, uses, attempt.ended - attempt.started)


# The text of a typical answer has about four bytes per token; the average of an answer is never above eight.
TYPICAL_BYTES_PER_TOKEN = 4
MAX_BYTES_PER_TOKEN = 8
# The text of a running answer is written to the crash journal when it exceeds RECORDED bytes, then each time that it
# has grown by a sixth or by MAX_UNRECORDED_BYTES. A record takes as long as two or three events of a stream.
RECORDED = 1024
UNRECORDED_SHARE = 6
MAX_UNRECORDED_BYTES = 16_384
# The longest text of an answer in bytes, more than ten times that of any model. Surfaces repeat all of it at the end.
MAX_TEXT_BYTES = 16 << 20
TOO_LONG = "The provider's answer is longer than the gateway accepts."


class OutputReservation(Struct, eq=False):
    """The reservations of one request and the output that they pay for; the base of Settlement.

    `output_cap` is the output limit to send upstream, None when the budgets need none. `output_length_foreseen` is the
    size in bytes of the text that the reservation pays for, at a typical token length. `checked_length` is at most
    that; call `grow` when an answer exceeds it. `rate_limits` are the caller's remaining rate limits, for the response
    headers. `credits`: the reservation includes the organization's credits.
    """

    _owner: SettlementServices
    terms: Terms
    _cost_bound: CostBound
    _reservation: Reservation
    _slot: Slot | None = None
    credits: bool = True
    holds: bool = False  # the row of the serving attempt waits for its payload or its job
    _retained: RetainedPayload | None = None
    _open: dict[int, BilledCall] = {}
    output_cap: int | None = None
    output_length_foreseen: int = sys.maxsize
    checked_length: int = RECORDED
    _recorded_at: int = RECORDED  # the length at which the answer is next written to the crash journal
    rate_limits: tuple[RateLimitStatus, ...] = ()

    def __post_init__(self) -> None:
        if self._slot is not None:
            self.rate_limits = self._slot.statuses
        self._widen()

    def grow(self, attempt: Attempt) -> None:
        """Record the text delivered so far, and reserve more if it exceeds what the reservation pays for. Errors as of
        `foresee`; UpstreamFailed for a text that no model gives."""
        length = attempt.output_length
        if length > MAX_TEXT_BYTES:
            raise UpstreamFailed(TOO_LONG, code="response_too_large")
        if length > self._recorded_at:
            self.record_progress(attempt)
            self._recorded_at = length + min(length // UNRECORDED_SHARE, MAX_UNRECORDED_BYTES)
        if length > self.output_length_foreseen:
            self.foresee(attempt)
        self.checked_length = min(self.output_length_foreseen, self._recorded_at)

    def foresee(self, attempt: Attempt) -> None:
        """Reserve more because the answer's text exceeds what the reservation pays for, or end the answer.

        SpendingLimitReached or OutOfCredits with code budget_exhausted_mid_stream. An upstream that respects the output
        limit stays within the reservation even if its tokens are long. Without a budget for more, the answer therefore
        continues until its size proves that the limit is exceeded. The attempt then gets the usage that it is billed
        for, because the provider bills everything that it generated.
        """
        short = -(-(attempt.output_length - self.output_length_foreseen) // TYPICAL_BYTES_PER_TOKEN)
        tokens = max(self._tokens_paid() // 2, 64, short)
        error = self.enlarge(tokens * self._cost_bound.output_rate // MILLION + 1)
        if error is None:
            self._foresee_output(self.output_length_foreseen + tokens * TYPICAL_BYTES_PER_TOKEN)
            return
        # Sound is measured by its duration, so its tokens have a fixed size.
        maximum = self._tokens_paid() * (MAX_BYTES_PER_TOKEN if self.terms.units is None else TYPICAL_BYTES_PER_TOKEN)
        if attempt.output_length >= maximum:
            attempt.usage = usage_so_far(self.terms, attempt, self._tokens_paid())
            raise error
        self._foresee_output(maximum)

    def enlarge(self, nusd: int, mid_stream: bool = True) -> GatewayError | None:
        """Reserve `nusd` more from all budgets, those of the calls in progress included, or return the error."""
        call_reservations = [call.call_reservation for call in self._open.values() if call.call_reservation is not None]
        for reservation in (self._reservation, *call_reservations):
            try:
                short = reservation.require(nusd)
            except Unavailable as error:
                return error
            if short is not None:
                return short.error(mid_stream)
        return None

    def record_progress(self, attempt: Attempt) -> None:
        """Write the usage so far to the crash journal: this output was delivered, so a recovery bills it."""
        call = self._open.get(attempt.number)
        if call is not None:
            used = usage_of(self.terms, structs.replace(attempt, finish=CLIENT_DISCONNECT))
            if used is not None and self.terms.hosted_uses:
                used = in_units(self.terms, attempt, used)
            payload = intent_of(self.terms, attempt.number, call, self._reservation, used)
            self._owner.intents.revise(self.terms.request, attempt.number, payload)

    def _foresee_output(self, length: int) -> None:
        """Set the foreseen length of the output; its storage is reserved as well."""
        more = length - self.output_length_foreseen
        self.output_length_foreseen = length
        if self._retained is not None:
            with suppress(Unavailable):  # a fee above its reservation is settled in full nevertheless
                self._retained.storage.extend(more // TYPICAL_BYTES_PER_TOKEN * FEE_NUSD)

    def _lower_cap(self, cap: int | None) -> None:
        if cap is not None and (self.output_cap is None or cap < self.output_cap):
            self.output_cap = cap

    def _narrow(self, call: BilledCall, call_reservation: Reservation) -> None:
        """Lower the output limits when the call's own reservation pays for less than the other budgets."""
        self._lower_cap(call_reservation.output_cap)
        if call.cost_bound.output_rate:
            self.output_length_foreseen = min(self.output_length_foreseen, call.tokens_paid() * TYPICAL_BYTES_PER_TOKEN)
            self.checked_length = min(self.checked_length, self.output_length_foreseen)

    def _widen(self) -> None:
        """Set the output limits to what the budgets of every attempt pay for."""
        self.output_cap = self._reservation.output_cap
        cost_bound = self._cost_bound
        rate = cost_bound.output_rate
        if rate:
            # As `tokens_within`, without the call: every request does this.
            length = (self._reservation.amount_nusd - cost_bound.fixed_nusd) * MILLION // rate * TYPICAL_BYTES_PER_TOKEN
            self.output_length_foreseen = length
            if length < self.checked_length:
                self.checked_length = length

    def _tokens_paid(self) -> int:
        """Return the output tokens that all reservations certainly pay for."""
        tokens = self._cost_bound.tokens_within(self._reservation.amount_nusd)
        return min([tokens, *(call.tokens_paid() for call in self._open.values())])
