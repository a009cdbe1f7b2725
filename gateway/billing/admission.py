"""Admission of requests: reserve the upper bound of the cost, and track the entries until they are durable."""

import logging
from collections import deque
from functools import partial
from hashlib import blake2b

from msgspec import Struct

from gateway.billing.calls import CallCounts
from gateway.billing.context import RequestContext
from gateway.billing.likely_prompts import LARGE_BYTES, LikelyPrompts
from gateway.billing.provider_objects import ProviderObjects
from gateway.billing.settlement import Settlement
from gateway.billing.terms import Terms, terms_of
from gateway.callers.discount_book import DiscountBook
from gateway.clock import DAY_US, Clock
from gateway.errors import GatewayError, InvalidRequest, Unavailable
from gateway.limits.leases import lock_budgets
from gateway.limits.models import RUN, SESSION, group_of
from gateway.limits.rate_limits import RateLimiter, Slot
from gateway.limits.spending import CostBound, Payer, Spending
from gateway.metering.usage_table import raw_id
from gateway.neutral.request import Request
from gateway.providers.protocol import Target
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.intents import Intents
from gateway.store.journal import Journal, Row, Ticket

# Budgets of sessions and runs: the lowest of key, project and header, counted for each of them in a project.

# The headers that set a budget for one request, in US dollars.
SESSION_BUDGET = "x-llmgateway-session-budget"
RUN_BUDGET = "x-llmgateway-run-budget"
RUN_TAG = "run"  # the metadata that names a run: X-LLMGateway-Run
RETENTION_DAYS = 30
BATCH_SIZE = 200
OLD = "SELECT id FROM budget WHERE begun_at < ? AND leased_nusd = 0 ORDER BY begun_at LIMIT ?"
LEASED = "SELECT 1 FROM lease WHERE budget = ? LIMIT 1"


def with_sessions(payer: Payer, context: RequestContext) -> Payer:
    """Return the payer with the budgets of the request's session and run. InvalidRequest when a header sets a budget
    for a session or run that the request does not name."""
    caller = context.caller
    limits = []
    for scope, name, limit, header in (
        (SESSION, context.session, caller.session_nusd, context.session_nusd),
        (RUN, context.metadata.get(RUN_TAG, ""), caller.run_nusd, context.run_nusd),
    ):
        lowest = min((amount for amount in (limit, header) if amount is not None), default=None)
        if lowest is None:
            continue
        if name:
            limits.append((scope, budget_of(scope, caller.project_id, name), lowest))
        elif header is not None:
            raise InvalidRequest(
                f"The header X-LLMGateway-{scope.title()}-Budget limits a {scope} that the request does not name: "
                f"send the header X-LLMGateway-{scope.title()} too.",
                code="session_required",
            )
    if limits:
        return payer._replace(sessions=tuple(limits))
    return payer


def budget_of(scope: str, project_id: str, name: str) -> str:
    """Return the id of the budget of a project's session or run, which is also its id in usage rows of groups."""
    text = f"{scope}\0{project_id}\0{name}"
    return f"{scope}_{blake2b(text.encode(errors='replace'), digest_size=16).hexdigest()}"


def forget_old(database: Database, should_continue: ShouldContinue = always) -> int:
    """Delete budgets of sessions and runs that began more than RETENTION_DAYS ago and have no request in progress;
    return how many. A session that continues afterwards begins a new budget."""
    count = 0
    if not database.read(partial(_find_old, database)):  # usually there are none, and a write would block others
        return 0
    while should_continue():
        done = database.write(partial(_forget_some, database))
        count += done
        if done < BATCH_SIZE:
            break
    return count


def _find_old(database: Database) -> list[str]:
    before = database.now_us() - RETENTION_DAYS * DAY_US
    return [row[0] for row in database.execute(OLD, (before, BATCH_SIZE)).fetchall()]


def _forget_some(database: Database) -> int:
    rows = lock_budgets(database, _find_old(database))
    free = [budget for budget in rows if database.execute(LEASED, (budget,)).fetchone() is None]
    for budget in free:
        group = raw_id(group_of(budget))
        database.execute("DELETE FROM team_usage WHERE team = ?", (group,))
        database.execute("DELETE FROM removed_spend WHERE kind = 'team' AND owner = ?", (group.hex(),))
        database.execute("DELETE FROM budget WHERE id = ?", (budget,))
    return len(free)


log = logging.getLogger(__name__)


class Admission(Struct, frozen=True, eq=False, gc=False):
    """A request to admit.

    `cost_bound` is the most that it can cost. `credits`: reserve the organization's credits now, because every target
    uses a credential of the platform; otherwise they are reserved when such a target is called. `model` is the id of
    the planned model, `others` are further models that may serve it. `begun`: a provider has started the work already,
    so it is recorded despite rate limits, and despite spending limits if `cost_bound` is zero.
    """

    context: RequestContext
    request: Request
    cost_bound: CostBound
    credits: bool
    model: str
    begun: bool = False
    others: tuple[str, ...] = ()


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
        discounts: DiscountBook,
        wait_s: float,
        objects: ProviderObjects,
    ) -> None:
        self.spending = spending
        self.rates = rates
        self.journal = journal
        self.intents = intents
        self.clock = clock
        self.discounts = discounts
        self.wait_s = wait_s
        self.objects = objects
        self._posting: deque[tuple[Ticket, bytes, int]] = deque()
        self.call_counts = CallCounts()
        self.likely_prompts = LikelyPrompts()

    def admit(self, admission: Admission) -> Settlement:
        """Admit a request of any paid route: rate limits, then spending limits, then credits. Nothing is held on error.

        Limits of key, member and teams count the inference cost of both modes. The organization's credits pay only for
        calls with a credential of the platform, and for the storage fee of a retained payload
        (billing/retained_payload.py). A request that creates a job reserves a hold, which outlives this process
        (billing/job_reservation.py); its payload is retained without a fee, because the fee is per token.

        RateLimited, SpendingLimitReached, OutOfCredits; Unavailable when the store is down.
        """
        context = admission.context
        cost_bound = admission.cost_bound
        terms = terms_of(context, admission.request)
        payer = self._payer(terms, admission.credits)
        spending = self.spending
        version = spending.check()
        slot = None
        if self.rates.limited(version) and not admission.begun:
            slot = self._enter(terms, admission.model, admission.others)
        try:
            if context.job is None:
                reservation = spending.find(payer, cost_bound, version) or spending.reserve(payer, cost_bound)
            else:
                reservation = context.job.reserve(spending, payer, cost_bound)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        settlement = Settlement(self, terms, cost_bound, reservation, slot, admission.credits, reservation.deferred)
        if context.payload is not None and context.job is None:
            settlement.retain(context.payload)
        return settlement

    def check(self, admission: Admission) -> None:
        """Raise what `admit` raises for this request, and neither count nor hold anything: it is called before work
        that costs much for a request that is small itself."""
        terms = terms_of(admission.context, admission.request)
        payer = self._payer(terms, admission.credits)
        if self.rates.limited(self.spending.check()):
            self._enter(terms, admission.model, admission.others, counted=False)
        self.spending.reserve(payer, admission.cost_bound, patient=False).release()

    def admit_second(self, first: Settlement, target: Target, cost_bound: CostBound) -> Settlement | None:
        """Return a settlement for a call of `target` beside the one in progress of `first`'s request, with a separate
        reservation; None where the credits and limits do not cover both whole. It counts in no rate limit."""
        terms = first.terms
        request = terms.context.request
        if first.output_cap is not None or request is None:
            return None
        if cost_bound.input_tokens >= LARGE_BYTES:
            cost_bound = self.likely_prompts.apply(terms.context, request, cost_bound, (target.mapping,))
        try:
            reservation = self.spending.reserve(self._payer(terms, first.credits), cost_bound, patient=False)
        except GatewayError:
            return None
        if reservation.output_cap is not None:
            reservation.release()
            return None
        return Settlement(self, terms, cost_bound, reservation, None, first.credits)

    @staticmethod
    def _payer(terms: Terms, credits: bool) -> Payer:
        identity = terms.billing_identity
        payer = identity.payer if credits else identity.without_credits
        if terms.context.attribution:
            return with_sessions(payer, terms.context)
        return payer

    def _enter(self, terms: Terms, model: str, others: tuple[str, ...], *, counted: bool = True) -> Slot:
        caller = terms.context.caller
        place = (caller.organization_id, caller.project_id, caller.key_id)
        operation = terms.context.operation
        return self.rates.enter(
            *place, terms.requested_model, terms.input_tokens, operation, model, others, counted=counted
        )

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
            self._wait(ticket, terms.context)
        except BaseException:
            self._posting.append((ticket, request, attempt))
            raise
        self.intents.end(request, attempt)

    def await_record(self, context: RequestContext) -> None:
        """Wait until the settlement of an answer that settled early is durable, with the time limits of `confirm`.
        Unavailable."""
        if context.record is not None:
            self._wait(context.record, context)

    def _wait(self, ticket: Ticket, context: RequestContext) -> None:
        if not ticket.written_soon():
            left_s = context.deadline - self.clock.monotonic()
            ticket.wait(max(0.0, min(self.wait_s, left_s)))
