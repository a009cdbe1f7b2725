"""The shared parts of all settlements of a worker: its budgets, journal and intents, entries until they are durable,
and the reservation of a single upstream call with the discount on its price."""

import logging
import sys
from collections import deque
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.context import RequestContext, Terms
from gateway.billing.likely_prompts import LikelyPrompts
from gateway.billing.provider_objects import ProviderObjects
from gateway.callers.discount_book import DiscountBook
from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.limits.limit_book import LimitBook
from gateway.limits.rate_limits import RateLimiter
from gateway.limits.spending import CostBound, Payer, Reservation, Spending
from gateway.providers.protocol import Target
from gateway.store.intents import Intents
from gateway.store.journal import Journal, Row, Ticket


class BilledCall(Struct, frozen=True, eq=False):
    """An upstream call in progress.

    `mode` is the payer (constants in metering/models). `discount_ppm` is the discount in millionths of the price.
    `cost_bound` is the most that the call can cost; `call_reservation` holds it when the provider key has a spending
    limit, when a limit of the organization depends on the target, or when the credits were not reserved for the whole
    request.
    """

    target: Target
    mode: int
    discount_ppm: int
    cost_bound: CostBound
    call_reservation: Reservation | None = None

    def tokens_paid(self) -> int:
        """Return the output tokens that the reservation of the call certainly pays for."""
        if self.call_reservation is None:
            return sys.maxsize
        return self.cost_bound.tokens_within(self.call_reservation.amount_nusd)

    def bound_nusd(self, reservation: Reservation) -> int:
        """Return the nano-dollars reserved for the call; `reservation` is that of the request."""
        if self.call_reservation is None:
            return reservation.amount_nusd
        return min(reservation.amount_nusd, self.call_reservation.amount_nusd)


class CallCount(NamedTuple):
    """Number of upstream calls that a request made, and whether any of them was billed."""

    calls: int = 0
    billed: bool = False


class CallCounts:
    """Counts upstream calls of selected requests. `by_request` is empty most of the time."""

    def __init__(self) -> None:
        self.by_request: dict[bytes, CallCount] = {}

    def begin(self, request_id: str) -> None:
        """Count the calls of a request from now on, until `end`."""
        self.by_request[bytes.fromhex(request_id)] = CallCount()

    def end(self, request_id: str) -> CallCount:
        """Stop counting and return the totals."""
        return self.by_request.pop(bytes.fromhex(request_id), CallCount())

    def add(self, request: bytes, number: int) -> None:
        """Add `number` (which may be negative) to the calls of a request, given by its raw id."""
        count = self.by_request.get(request)
        if count is not None:
            self.by_request[request] = count._replace(calls=count.calls + number)

    def mark_billed(self, request: bytes) -> None:
        """Record that a call of the request was billed, whatever its result."""
        count = self.by_request.get(request)
        if count is not None:
            self.by_request[request] = count._replace(billed=True)


def discount_of(discounts: DiscountBook, context: RequestContext, target: Target) -> int:
    """Return the discount in millionths on calls paid from credits, as in force when the request arrived.
    Unavailable."""
    subject = (context.caller.organization_id, target.provider.id, target.mapping.model)
    return discounts.fraction(*subject, context.at_us)


def reserve_call(
    reservation: Reservation,
    context: RequestContext,
    target: Target,
    cost_bound: CostBound,
    cap: int | None,
    patient: bool,
    credits: bool,
) -> Reservation:
    """Reserve the cost bound of a call from its provider key's spending limit, from limits that depend on the target,
    and with `credits` from the organization's credits; `reservation` is that of the request.

    `cap` is the output limit that other budgets set, which lowers the bound. SpendingLimitReached or OutOfCredits, at
    once unless `patient`; Unavailable.
    """
    if cap is not None:
        maximum = min(cost_bound.max_output, cap * cost_bound.choices)
        cost_bound = replace(cost_bound, max_output=maximum, unforeseen_output=0)
    credential = target.credential
    bounded = credential.ident if credential.bounded else ""
    limits = context.limits.of_call(target) if context.limits is not None else None
    payer = Payer("", "", context.caller.organization_id, credits, provider_key_id=bounded, limits=limits or None)
    return reservation.reserve_call(payer, cost_bound, patient)


# Shared services of a worker's settlements: budgets, journal and intents; and the entries until they are durable.

log = logging.getLogger(__name__)


class SettlementServices:
    """The parts of a worker that every settlement uses. `wait_s` limits how long an answer waits for its durable
    record."""

    def __init__(
        self,
        spending: Spending,
        rates: RateLimiter,
        journal: Journal,
        intents: Intents,
        clock: Clock,
        discounts: DiscountBook,
        wait_s: float,
        objects: ProviderObjects,
        limits: LimitBook,
    ) -> None:
        self.spending = spending
        self.rates = rates
        self.journal = journal
        self.intents = intents
        self.clock = clock
        self.discounts = discounts
        self.wait_s = wait_s
        self.objects = objects
        self.limits = limits
        self._posting: deque[tuple[Ticket, bytes, int]] = deque()
        self.call_counts = CallCounts()
        self.likely_prompts = LikelyPrompts()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write pending entries and return all leases. The next worker recovers what fails here."""
        try:
            self.journal.flush(timeout_s)
            self.reap()
            self.spending.close()
        except Unavailable:
            log.warning("budget leases could not be returned: the database is down; the next worker returns them")
            self.intents.leave()
            return
        self.intents.close()

    def maintain(self) -> None:
        """Run one round: end intents with durable rows, fold spending into budgets, return idle leases."""
        self.reap()
        self.spending.maintain()

    def reap(self) -> None:
        """End the intents with durable rows."""
        posting = self._posting
        end = self.intents.end
        while posting:
            ticket, request, attempt = posting[0]
            if not ticket.settled():
                return
            posting.popleft()
            end(request, attempt)

    def post(self, rows: list[Row], request: bytes, attempt: int) -> Ticket:
        """Queue an attempt's rows as one entry; its intent ends once they are durable. Unavailable when the journal is
        full or closed."""
        ticket = self.journal.append(*rows)
        self._posting.append((ticket, request, attempt))
        return ticket

    def confirm(self, ticket: Ticket, terms: Terms, attempt: int) -> None:
        """Wait until an entry that was appended without `post` is durable, then end its intent. After `wait_s`, or at
        the deadline of the request, the intent is left to a later `reap`. Unavailable."""
        request = terms.request
        try:
            if not ticket.written_soon():
                self._wait(ticket, terms.context)
        except BaseException:
            self._posting.append((ticket, request, attempt))
            raise
        self.intents.end(request, attempt)

    def await_record(self, context: RequestContext) -> None:
        """Wait until the settlement of an answer that settled early is durable, with the time limits of `confirm`.
        Unavailable."""
        ticket = context.record
        if ticket is not None and not ticket.written_soon():
            self._wait(ticket, context)

    def _wait(self, ticket: Ticket, context: RequestContext) -> None:
        left_s = context.deadline - self.clock.monotonic()
        ticket.wait(max(0.0, min(self.wait_s, left_s)))
