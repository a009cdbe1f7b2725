"""Admission of requests: their rate limits, and a reservation of the most that they can cost."""

from msgspec import Struct

from gateway.billing.context import RequestContext, Terms, terms_of
from gateway.billing.request_limits import limits_of
from gateway.billing.settlement import Settlement, payer_of
from gateway.billing.settlement_services import SettlementServices
from gateway.limits.rate_limits import Slot
from gateway.limits.spending import CostBound
from gateway.neutral.request import Request


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


class Settlements(SettlementServices):
    """Admission and settlement of a worker's requests."""

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
        if self.limits.any and context.limits is None:
            context.limits = limits_of(self.limits, context)
        terms = terms_of(context, admission.request)
        payer = payer_of(terms, admission.credits)
        spending = self.spending
        version = spending.check()
        slot = None
        if self.rates.limited(version) and not admission.begun and (context.job is None or context.job.paced):
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
        if context.payload is not None and (context.job is None or context.job.retains):
            settlement.retain(context.payload)
        return settlement

    def check(self, admission: Admission) -> None:
        """Raise what `admit` raises for this request, and neither count nor hold anything: it is called before work
        that costs much for a request that is small itself."""
        context = admission.context
        if self.limits.any:
            context.limits = limits_of(self.limits, context)
        terms = terms_of(context, admission.request)
        payer = payer_of(terms, admission.credits)
        context.limits = None  # its body may name an end user, or metadata
        if self.rates.limited(self.spending.check()):
            self._enter(terms, admission.model, admission.others, counted=False)
        self.spending.reserve(payer, admission.cost_bound, patient=False).release()

    def _enter(self, terms: Terms, model: str, others: tuple[str, ...], *, counted: bool = True) -> Slot:
        caller = terms.context.caller
        place = (caller.organization_id, caller.project_id, caller.key_id)
        operation = terms.context.operation
        return self.rates.enter(
            *place, terms.requested_model, terms.input_tokens, operation, model, others, counted=counted
        )
