"""Replayed answers, which cost nothing: cached answers, their usage rows and the outcomes of their requests."""

from collections.abc import Generator

from msgspec import Struct

from gateway.billing.admission import Settlements
from gateway.billing.context import GUARDRAIL_BLOCKED, Attempt, Outcome, RequestContext, terms_of
from gateway.billing.usage_rows import mode_of, record_of
from gateway.catalogue.prices import FREE
from gateway.clock import Clock
from gateway.engine.answer_serialization import read_batch, read_result
from gateway.engine.cache import AnswerOrigin, CachedAnswer
from gateway.engine.planning import RoutePlan
from gateway.engine.routing_decisions import Decisions
from gateway.engine.run import OK
from gateway.errors import GatewayError, Internal
from gateway.limits.rate_limits import Slot
from gateway.metering.models import CACHED
from gateway.metering.usage_table import write_row
from gateway.neutral.events import Batch, Finished
from gateway.neutral.request import Request, Result
from gateway.providers.protocol import Credential, Target
from gateway.routing.candidate_filter import ACCESS, STAGES
from gateway.runtime.threads import pause

CLIENT_DISCONNECT = "client_disconnect"
# Candidates excluded at these stages were not denied by a rule.
ALLOWED = STAGES[STAGES.index(ACCESS) + 1 :]
# The longest pause between two chunks of a replayed stream.
MAX_GAP_S = 1.0
# How long a replayed answer waits for its usage row. It is returned regardless.
ROW_TIMEOUT_S = 0.25
Batches = Generator[Batch, None, None]


class SharedRequest(Struct, frozen=True):
    """A request that may receive an answer made for another request. `key` is the cache key, `deadline` is in monotonic
    seconds."""

    context: RequestContext
    request: Request
    route_plan: RoutePlan
    key: str
    deadline: float


class FreeAnswers:
    """Returns cached answers of other requests; coalescing.py returns answers that are still in progress."""

    def __init__(self, settlements: Settlements, decisions: Decisions, clock: Clock) -> None:
        self._settlements = settlements
        self._decisions = decisions
        self._clock = clock

    def permitted(self, shared: SharedRequest) -> set[str]:
        """Return the mappings that the caller's own rules allow, since keys of one project may differ in their rules.
        A model that was skipped, or a candidate that was excluded before its rules were checked, is not among them."""
        plan = shared.route_plan.plan
        allowed = {entry.key for entry in plan.excluded if entry.stage in ALLOWED}
        return allowed.union(scored.candidate.key for scored in plan.ranked)

    def target_of(self, shared: SharedRequest, mapping_key: str) -> Target | None:
        """Return the target that served the answer, as in this caller's plan; None when it is no longer available."""
        plan = shared.route_plan.plan
        for candidate in (entry.candidate for group in (plan.ranked, plan.excluded) for entry in group):
            if candidate.key == mapping_key:
                return Target(candidate.provider, candidate.mapping, Credential(""), "")
        return None

    def replay(self, shared: SharedRequest, entry: CachedAnswer) -> tuple[Result, Outcome]:
        """Return a cached answer in one piece. RateLimited."""
        origin = entry.origin
        outcome = self.begin(shared, self._server_of(shared, origin), origin.request)
        slot = self.enter(shared)
        outcome.rate_limits = slot.statuses
        slot.release()
        self.finish(shared, outcome, origin)
        result = read_result(entry.frames[0][1])
        outcome.warnings.extend(result.warnings)
        return result, outcome

    def replay_stream(self, shared: SharedRequest, entry: CachedAnswer) -> tuple[Batches, Outcome]:
        """Return a cached stream at its original pace; RateLimited is raised with its first batch."""
        outcome = self.begin(shared, self._server_of(shared, entry.origin), entry.origin.request)
        return self._play(shared, entry, outcome), outcome

    def begin(self, shared: SharedRequest, target: Target, origin: str) -> Outcome:
        """Return the initial outcome of a replayed answer: its target, and the id of the request that it was made
        for."""
        attempt = Attempt(0, target, self._clock.now_us(), self._clock.monotonic(), charge=FREE)
        attempt.first_at = attempt.started
        if shared.context.payload is not None:
            shared.context.payload.forget()
        if shared.route_plan.chosen:
            shared.context.noted = True
        requested = shared.route_plan.plan.resolution.provider or None
        outcome = shared.context.outcome = Outcome(
            shared.request, requested, attempts=[attempt], cached=True, origin=origin, names=shared.route_plan.names
        )
        return outcome

    def enter(self, shared: SharedRequest) -> Slot:
        """Count the request in the rate limits, which include replayed answers. RateLimited."""
        caller = shared.context.caller
        request = shared.request
        terms = terms_of(shared.context, request)
        return self._settlements.rates.enter(
            caller.organization_id,
            caller.project_id,
            caller.key_id,
            request.requested_model,
            terms.input_tokens,
            request.operation,
            shared.route_plan.model,
            shared.route_plan.others,
        )

    def end_of(self, shared: SharedRequest) -> str:
        """Return the finish of an answer that ended before all of it was read."""
        guard = shared.context.guard
        return CLIENT_DISCONNECT if guard is None or guard.blocked is None else GUARDRAIL_BLOCKED

    def finish(self, shared: SharedRequest, outcome: Outcome, origin: AnswerOrigin | None, finish: str = "") -> None:
        """Complete the outcome of a replayed answer and write a usage row without cost. Never raises."""
        attempt = outcome.serving
        attempt.ended = self._clock.monotonic()
        attempt.status = OK
        attempt.finish = finish or (origin.finish if origin else "")
        if origin is not None:
            attempt.usage = origin.usage
            attempt.service_tier = origin.service_tier
            attempt.model = origin.model
            attempt.upstream_id = origin.upstream_id
        context = shared.context
        terms = terms_of(context, shared.request)
        plan = shared.route_plan.plan
        context.decision = self._decisions.keep(terms.request, terms.billing_identity.project, plan)
        record = record_of(terms, attempt, mode_of(attempt.target), self._clock.now_us())
        try:
            row = write_row(record._replace(flags=record.flags | CACHED))
            ticket = self._settlements.journal.append(row)
            if finish not in (CLIENT_DISCONNECT, GUARDRAIL_BLOCKED):
                ticket.wait(ROW_TIMEOUT_S)
        except GatewayError:
            return  # the answer is free, so it does not depend on its row

    def _server_of(self, shared: SharedRequest, origin: AnswerOrigin) -> Target:
        """Return the target of an answer, which must exist."""
        target = self.target_of(shared, origin.mapping)
        if target is None:
            raise Internal("The provider of this answer is no longer known.")
        return target

    def _play(self, shared: SharedRequest, entry: CachedAnswer, outcome: Outcome) -> Batches:
        slot = self.enter(shared)
        done = False
        try:
            for gap_ms, frame in entry.frames:
                pause(min(gap_ms / 1000, MAX_GAP_S))
                batch = read_batch(frame)
                if type(batch[-1]) is Finished:
                    done = True
                    self.finish(shared, outcome, entry.origin)
                yield batch
        finally:
            slot.release()
            if not done:
                self.finish(shared, outcome, entry.origin, self.end_of(shared))
