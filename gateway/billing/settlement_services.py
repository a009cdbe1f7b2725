"""Shared services of a worker's settlements: budgets, journal and intents; and the entries until they are durable."""

import logging
from collections import deque

from gateway.billing.calls import CallCounts
from gateway.billing.context import RequestContext, Terms
from gateway.billing.likely_prompts import LikelyPrompts
from gateway.billing.provider_objects import ProviderObjects
from gateway.callers.discount_book import DiscountBook
from gateway.clock import Clock
from gateway.errors import Unavailable
from gateway.limits.limit_book import LimitBook
from gateway.limits.rate_limits import RateLimiter
from gateway.limits.spending import Spending
from gateway.store.intents import Intents
from gateway.store.journal import Journal, Row, Ticket

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
