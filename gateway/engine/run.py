"""One request in progress: the steps that plain and streamed answers share."""

import dataclasses

from msgspec import Struct, structs

from gateway.billing.bounds import compute_bound
from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt, Outcome
from gateway.billing.request_settlement import Settlement
from gateway.clock import Clock
from gateway.configuration.settings import Timeouts
from gateway.engine.attempts import Walk, final_error
from gateway.engine.key_bounds import Passed, leave_out
from gateway.engine.planning import Planner, RoutePlan
from gateway.engine.reading_on import ReadingOn
from gateway.engine.routing_decisions import Decisions
from gateway.errors import Cancelled, GatewayError, NotSupported, SpendingLimitReached
from gateway.limits.cost_bound import CostBound
from gateway.money import format_usd
from gateway.neutral.cache_marks import apply_policy
from gateway.neutral.chat import ChatRequest
from gateway.neutral.request import Request
from gateway.neutral.usage import Usage
from gateway.providers.openers import CallListener
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.runtime.disconnects import CallerGone

OK = 200
SHARE = 0.5
GONE = "The caller hung up."
NEARLY_DONE_S = 2.0
BILLED = " The part of the answer that was delivered is billed: {} USD."
CAPPED = "max_tokens was set to {}: what is left of credits and spending limits covers no more."


class Run(Struct, eq=False):
    """One request in progress.

    `deadline` is monotonic seconds, `drain_s` how long to read on for exact usage after the caller disconnected (0: the
    upstream call is cancelled); `default_output` the output tokens of a model whose limit is unknown. `passed` are
    provider keys that were skipped, `left` is the attempt that was left because nothing came. `unheard`: the caller
    disconnected, and the answer is read on; `shared`: it may have several callers, and is completed without them.
    """

    context: RequestContext
    request: Request
    outcome: Outcome
    route_plan: RoutePlan
    walk: Walk
    settlement: Settlement
    planner: Planner
    upstreams: Upstreams
    clock: Clock
    deadline: float
    drain_s: float
    timeouts: Timeouts
    decisions: Decisions
    default_output: int
    reading_on: ReadingOn
    passed: tuple[Passed, ...] = ()
    left: Attempt | None = None
    unheard: bool = False
    shared: bool = False

    def request_for(self, target: Target) -> Request:
        """The request as `target` gets it, with cache marks by the project's policy where its format has them."""
        request = self.request
        if self.route_plan.adapts:
            request = self.route_plan.adapt(request, target.mapping)
        if target.protocol not in self.upstreams.marked or not isinstance(request, ChatRequest):
            return request
        return apply_policy(request, self.context.caller.cache_markers)

    def choices_a_call(self, target: Target) -> int:
        """How many answers one call of `target` gives, where the caller wants more of them; else 0."""
        route_plan = self.route_plan
        if route_plan.adapts:
            return route_plan.choices_a_call(self.request, target.mapping)
        return 0

    def listener(self, target: Target) -> CallListener | None:
        """The listener of the upstream call, for a caller who asked to see it."""
        context = self.context
        payload = context.payload
        trace = context.trace
        if payload is None and trace is None:
            return None
        if payload is None:
            listener = None
        else:
            listener = payload.capture_call(target)
        if trace is None:
            return listener
        return trace.listener(len(self.outcome.attempts) - 1, listener)

    def patience(self) -> float:
        """Until when (monotonic) the attempt that begins now may be silent: the whole deadline when it is the last one,
        otherwise half of what is left, so that a silent provider leaves time for another."""
        if self.walk.is_last:
            return self.deadline
        now = self.clock.monotonic()
        return now + (self.deadline - now) * SHARE

    def gives_up(self, attempt: Attempt) -> bool:
        """Whether a call of which nothing came yet is left for another target that is not in cooldown; once per
        request. It is tried again when the others fail: it may only be slow."""
        walk = self.walk
        target = attempt.target
        timeouts = self.timeouts
        if walk.gave_up or self.unheard:
            return False
        if target.mapping.reasoning:
            longest_s = timeouts.first_byte_reasoning_s
        else:
            longest_s = timeouts.first_byte_s
        if not self.request.requirements.stream:
            longest_s = self.planner.patience_s(target, self.request, longest_s)
        if self.clock.monotonic() - attempt.started < longest_s:
            return False
        following = walk.following()
        if following is None or self.route_plan.cooldowns(following):
            return False
        walk.give_up()
        self.left = attempt
        self.planner.left(target, self.request.operation)
        return True

    def learn_time(self, attempt: Attempt) -> None:
        """Learn how long a plain answer took, where another provider could have given it. One that took longer than
        another provider was waited for tells that this request is long, and is counted there too."""
        if len(self.walk.groups) == 1:
            return
        took_s = attempt.ended - attempt.started
        self.planner.answered(attempt.target, self.request, took_s)
        left = self.left
        if left is not None and left is not attempt and took_s >= left.ended - left.started:
            self.planner.answered(left.target, self.request, took_s)

    def begin(self, target: Target) -> Attempt:
        """Begin an attempt, recorded outside this process before anything is sent: at `target`, or at the next of the
        plan where its provider key's limit is used up. Raises the error for the caller when none is left."""
        number = len(self.outcome.attempts)
        while target.credential.bounded:
            try:
                self.settlement.begin(number, target, self._ask_of(target), patient=not self.walk.may_skip)
                break
            except SpendingLimitReached as error:
                target = self._pass_over(target, error)
        else:
            self.settlement.begin(number, target)
        cap = self.settlement.output_cap
        clock = self.clock
        if cap is not None:
            self.outcome.warnings.append(CAPPED.format(cap))
        if self.route_plan.adapts:
            limit = self.route_plan.limit(self.request, target.mapping)
            if limit is not None and (cap is None or limit < cap):
                cap = limit
        if cap is not None:  # set by the caller's budget, or the model's own limit
            target = dataclasses.replace(target, output_cap=cap)
        attempt = Attempt(number, target, clock.now_us(), clock.monotonic())
        self.outcome.attempts.append(attempt)
        self.planner.begun(target)
        return attempt

    def failed(self, attempt: Attempt, error: GatewayError) -> Target:
        """Record a failed attempt; returns the next target, or raises the error for the caller: also where the attempt
        was billed and nothing is left to pay for another one."""
        self.outcome.warnings = []  # they were about this target
        short: GatewayError | None = None
        if isinstance(error, NotSupported) and not error.upstream_status:
            # The target cannot carry the request: nothing was sent, so it is not an attempt.
            self.outcome.attempts.remove(attempt)
            self.settlement.unused(attempt)
        else:
            if isinstance(error.spent, Usage):
                attempt.usage = error.spent
            self._note(attempt, "error", error)
            short = self.settlement.failed(attempt)
            self.planner.failed(attempt, error, self.context.caller.organization_id, self.request.operation)
        if self.unheard:  # no caller waits for another target's answer
            self._leave_reading()
            self._keep_decision()
            raise error
        following = self.walk.after(error)
        while following is not None and self.planner.is_shut(following):
            following = self.walk.skip()
        if following is None or self.deadline <= self.clock.monotonic():
            self._keep_decision()
            raise final_error(self.outcome, error, self.walk.refusals) from error
        if short is not None:
            self._keep_decision()
            raise short from error
        return following

    def finished(self, attempt: Attempt) -> None:
        """Settle a successful attempt: durable before the caller has the last bytes."""
        attempt.ended = self.clock.monotonic()
        if self.unheard:
            self._finished_unheard(attempt)
        attempt.status = OK
        self._keep_decision()  # in the settlement's commit, so before it
        self.settlement.settle(attempt)
        self.planner.succeeded(attempt, self.request.requirements.stream, self.request.operation)
        self.planner.served(self.route_plan, attempt)

    def broken(self, attempt: Attempt, error: GatewayError) -> None:
        """The answer failed after it began: append and return, never wait."""
        self._note(attempt, "error", error)
        self._keep_decision()
        if self.unheard:
            self._leave_reading()
        self.settlement.abandon(attempt)
        if attempt.first_at and attempt.charge.total:
            cost = format_usd(attempt.charge.total)
            error.message += BILLED.format(cost)
            error.details = {**(error.details or {}), "billed_usd": cost}
        self.planner.failed(attempt, error, self.context.caller.organization_id, self.request.operation)

    def hung_up(self, attempt: Attempt) -> None:
        """The caller disconnected: append and return, never wait."""
        self._note(attempt, "client_disconnect", Cancelled(GONE))
        self._keep_decision()
        if self.unheard:
            self._leave_reading()
        self.settlement.abandon(attempt)
        self.planner.abandoned(attempt, self.request.operation)

    def read_on_s(self, attempt: Attempt) -> float:
        """How long the answer of an attempt is read on for its usage once its caller left; 0: its call is cancelled.

        Where a cancelled call is billed no further, only an answer that may be nearly complete is read on.
        """
        provider = attempt.target.provider
        if not self.request.requirements.stream:
            if provider.plain_cancellation:
                return 0.0
            return self.drain_s
        if not provider.cancellation:
            return self.drain_s
        if attempt.first_at:
            return min(self.drain_s, NEARLY_DONE_S)
        return 0.0

    def leave(self, attempt: Attempt) -> bool:
        """The caller left: whether the attempt's answer is read on. Its concurrency slot is free again then."""
        if not self.unheard and self.read_on_s(attempt):
            self.unheard = self.reading_on.enter(self.context.caller.organization_id)
        return self.unheard

    def after_disconnect(self) -> float:
        """The seconds for which the call in progress goes on without its caller (disconnects.py)."""
        attempt = self.outcome.attempts[-1]
        if not self.leave(attempt):
            return 0.0
        self.settlement.leave(attempt)
        return self.read_on_s(attempt)

    def _finished_unheard(self, attempt: Attempt) -> None:
        """Settle an answer whose caller left while it was awaited, and end its greenlet (CallerGone). An answer that
        others may still be given is settled as usual."""
        if self.shared:
            self._leave_reading()
            return
        attempt.usage = attempt.usage and structs.replace(attempt.usage, basis="drained")
        self.hung_up(attempt)
        raise CallerGone

    def _leave_reading(self) -> None:
        self.unheard = False
        self.reading_on.leave(self.context.caller.organization_id)

    def _ask_of(self, target: Target) -> CostBound:
        """The most that this call can cost, whatever the plan's other targets may cost."""
        return compute_bound(self.request, (target.mapping,), self.default_output, self.context.at_us)

    def _pass_over(self, target: Target, error: SpendingLimitReached) -> Target:
        """The target after one whose provider key's limit is used up. When that was the last, raises the error of the
        attempts, or the limit when there were none."""
        self.passed += (Passed(target.mapping.key, target.credential.ident, error),)
        following = self.walk.skip()
        if following is not None:
            return following
        self._keep_decision()
        failed = [attempt.error for attempt in self.outcome.attempts if attempt.error is not None]
        if failed:
            raise final_error(self.outcome, failed[-1], self.walk.refusals) from error
        raise error

    def _keep_decision(self) -> None:
        plan = self.route_plan.plan
        terms = self.settlement.terms
        if self.passed:
            plan = leave_out(plan, self.passed)
        else:
            plan = plan
        self.decisions.keep(terms.request, terms.billing_identity.project, plan)

    def _note(self, attempt: Attempt, finish: str, error: GatewayError) -> None:
        attempt.ended = self.clock.monotonic()
        attempt.error = error
        attempt.finish = finish
        attempt.status = error.upstream_status or (error.status if finish == "client_disconnect" else 0)
        if self.request.options.service_tier and not attempt.service_tier and (finish != "error" or attempt.usage):
            # Who serves tells of it at the end alone: what ends before costs what was asked for, and reserved.
            attempt.service_tier = self.request_for(attempt.target).options.service_tier
