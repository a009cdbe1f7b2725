"""Admission of requests: reserve the upper bound of the cost, and track the entries until they are durable."""

import logging
from collections import deque

from gateway.accounts.discounts import Discounts
from gateway.billing.calls import Watch
from gateway.billing.context import PayloadCapture, RequestContext
from gateway.billing.request_settlement import Settlement
from gateway.billing.terms import Terms, terms_of
from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.limits.rate_limits import RateLimiter, Slot
from gateway.limits.spending import CostBound, Spending
from gateway.neutral.usage import Units
from gateway.store.intents import Intents
from gateway.store.journal import Journal, Row, Ticket

log = logging.getLogger(__name__)


class Settlements:
    """Admission and settlement of a worker's requests. `wait_s` limits how long an answer waits for its durable
    record."""

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
        self.spending = spending
        self.rates = rates
        self.journal = journal
        self.intents = intents
        self.clock = clock
        self.discounts = discounts
        self.wait_s = wait_s
        self._posting: deque[tuple[Ticket, bytes, int]] = deque()
        self.watch = Watch()

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
    ) -> "Settlement":
        """Admit a request of any paid route: rate limits, then spending limits, then credits. Nothing is held on error.

        Limits of key, member and teams count the inference cost of both modes. The organization's credits pay only for
        calls with a credential of the platform (`credits`: a target may use one), and for the storage fee of a retained
        `payload` (billing/payload_settlement.py). `requested_model` is the model as the caller wrote it, `model` its
        id; `units` are set for operations that are not priced by text alone. With `begun` a provider has started the
        work already: it is recorded despite rate limits, and despite spending limits if `cost_bound` is zero.

        RateLimited, SpendingLimitReached, OutOfCredits; Unavailable when the store is down.
        """
        terms = terms_of(context, prompt_bytes, requested_model, streamed, units)
        payer = terms.billing_identity.payer if credits else terms.billing_identity.without_credits
        version = self.spending.check()
        slot = None
        if self.rates.limited(version) and not begun:
            slot = self._enter(terms, model)
        try:
            reservation = self.spending.find(payer, cost_bound, version) or self.spending.reserve(payer, cost_bound)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        if payload is not None:
            return payload.admit(self, terms, cost_bound, reservation, slot)
        return Settlement(self, terms, cost_bound, reservation, slot)

    def _enter(self, terms: Terms, model: str) -> Slot:
        caller = terms.context.caller
        place = (caller.organization_id, caller.project_id, caller.key_id)
        return self.rates.enter(*place, terms.requested_model, terms.prompt_bytes, terms.context.operation, model)

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

    def tend(self) -> None:
        """Run one round: end intents with durable rows, fold spending into budgets, return idle leases."""
        self.reap()
        self.spending.tend()

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

    def confirm(self, ticket: Ticket, request: bytes, attempt: int) -> None:
        """Wait until an entry that was appended without `post` is durable, then end its intent. After a timeout the
        intent ends in a later `reap`. Unavailable."""
        try:
            ticket.wait(self.wait_s)
        except BaseException:
            self._posting.append((ticket, request, attempt))
            raise
        self.intents.end(request, attempt)
