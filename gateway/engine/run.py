"""One request in progress: the steps that plain and streamed answers share."""

import dataclasses
from collections.abc import Callable

from msgspec import Struct, structs

from gateway.billing.bounds import compute_bound
from gateway.billing.context import GUARDRAIL_BLOCKED, Attempt, Outcome, RequestContext
from gateway.billing.estimates import CANCELLED, CLIENT_DISCONNECT, learn_speed, may_reason
from gateway.billing.settlement import Settlement
from gateway.catalogue.entries import Mapping
from gateway.clock import Clock
from gateway.configuration.settings import Timeouts
from gateway.engine.attempts import Walk, final_error
from gateway.engine.key_bounds import SkippedKey, leave_out
from gateway.engine.planning import Planner, RoutePlan
from gateway.engine.routing_decisions import Decisions
from gateway.errors import (
    BudgetInUse,
    Cancelled,
    EmptyAnswer,
    GatewayError,
    NotSupported,
    OutOfCredits,
    SpendingLimitReached,
)
from gateway.limits.cost_bound import CostBound
from gateway.money import format_usd
from gateway.neutral.cache_marks import AUTOMATIC, LEAST_BYTES, MIN_TURNS, Ttl, apply_policy, minimum_bytes
from gateway.neutral.chat import ChatRequest, FinishReason
from gateway.neutral.request import Request
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import CallListener
from gateway.routing.cache_lifetimes import CacheTurn
from gateway.runtime.disconnects import CallerGone, ReadingOn
from gateway.runtime.threads import release_held

# Answers without content that are no failure.

EMPTY_ENDS: dict[str, FinishReason] = {"stop": "stop", "stop_sequence": "stop_sequence"}


def meant_end(error: GatewayError, request: Request) -> FinishReason | None:
    """Return the finish reason of an empty answer that the request allows, because the first text may be one of its
    stop sequences; None for any other error."""
    if not isinstance(error, EmptyAnswer) or not isinstance(request, ChatRequest):
        return None
    return EMPTY_ENDS.get(error.finish) if request.conversation().sampling.stop else None


OK = 200
LATE_HEAD = "late_head"  # in a target's memo: its streamed responses may begin late, with their first content
ATTEMPT_TIME_SHARE = 0.5
SUSPECT_SHARE = 0.5  # of the time that a call may be silent; from then on it counts among others that are
CALLER_DISCONNECTED = "The caller disconnected."
NEARLY_DONE_S = 2.0
BILLED = " The part of the answer that was delivered is billed: {} USD."
CAPPED = "max_tokens was set to {}: the remaining credits and spending limits do not cover more."


class RunSettings(Struct, frozen=True):
    """Settings of all requests. `drain_s` is how long to read on for exact usage after the caller disconnected (0: the
    upstream call is cancelled), `default_output` the number of output tokens assumed for a model without a known
    limit."""

    timeouts: Timeouts
    drain_s: float
    default_output: int


class Run(Struct, eq=False):
    """One request in progress.

    `deadline` is in monotonic seconds. `passed` are provider keys that were skipped; `left` is the attempt that was
    abandoned because it was silent. `caller_gone`: the caller disconnected and the answer is read on. `shared`: the
    answer may have several callers, so it is completed even when one of them disconnects. `hedges`: a second attempt
    may begin beside the first (engine/hedging.py); `hedged`: that was tried. `cache_turns` are the turns of
    the session by mapping key, where the lifetime of cache marks is chosen.
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
    settings: RunSettings
    decisions: Decisions
    reading_on: ReadingOn
    passed: tuple[SkippedKey, ...] = ()
    left: Attempt | None = None
    caller_gone: bool = False
    shared: bool = False
    hedges: bool = False
    hedged: bool = False
    cache_turns: dict[str, CacheTurn] = {}

    def request_for(self, target: Target) -> Request:
        """Return the request for `target`, with the cache marks of the project's policy where its format has them."""
        request = self.request
        if self.route_plan.adapts:
            request = self.route_plan.adapt(request, target.mapping)
        if target.protocol not in self.upstreams.marked or not isinstance(request, ChatRequest):
            return request
        policy = self.context.caller.cache_markers
        mapping = target.mapping
        ttl: Ttl = ""
        if policy == AUTOMATIC:
            needs = request.requirements
            if needs.prompt_bytes > LEAST_BYTES:
                ttl = self._cache_ttl(request, mapping)
            elif needs.messages < MIN_TURNS:
                return request
        return apply_policy(request, policy, mapping.min_cacheable_tokens, ttl)

    def _cache_ttl(self, request: ChatRequest, mapping: Mapping) -> Ttl:
        """Return how long the provider is to keep the prompt of a session, "" for its default."""
        session = self.context.session or self.request.options.session
        if not session or request.requirements.prompt_bytes < minimum_bytes(mapping.min_cacheable_tokens):
            return ""
        turn = self.cache_turns.get(mapping.key)
        if turn is None:
            scope = self.context.caller.project_id
            turn = self.planner.cache_lifetimes.begin(scope, session, mapping, request)
            self.cache_turns[mapping.key] = turn
        return turn.ttl

    def choices_a_call(self, target: Target) -> int:
        """Return how many answers one call of `target` gives when the caller wants more of them, else 0."""
        route_plan = self.route_plan
        if route_plan.adapts:
            return route_plan.choices_a_call(self.request, target.mapping)
        return 0

    def listener(self, attempt: Attempt) -> CallListener | None:
        """Return the listener of the upstream call where its payload is stored or the caller requested a trace."""
        context = self.context
        payload = context.payload
        trace = context.trace
        if payload is None and trace is None:
            return None
        listener = None if payload is None else payload.capture_call(attempt.target)
        if trace is None:
            return listener
        traced: CallListener | None = trace.listener(attempt.call_number, listener)
        return traced

    def time_limits(self) -> float:
        """Return until when (monotonic) the new attempt may be silent: the whole deadline for the last target, else
        half of the remaining time, so that a silent provider leaves time for another."""
        walk = self.walk
        if len(walk.groups) == 1 or walk.is_last:
            return self.deadline
        now = self.clock.monotonic()
        return now + (self.deadline - now) * ATTEMPT_TIME_SHARE

    def patience_s(self, target: Target, headless: bool) -> float:
        """Return how long a call of `target` may be silent while another target could serve, in seconds.

        A model that reasons may be silent for long once its streamed response has begun. Before that (`headless`) it
        has the time of other models, unless a response of the target began later than that before.
        """
        timeouts = self.settings.timeouts
        stream = self.request.requirements.stream
        longest_s = timeouts.first_byte_s
        if may_reason(target.mapping, self.request.requirements) and not (
            stream and headless and LATE_HEAD not in target.memo
        ):
            longest_s = timeouts.first_byte_reasoning_s
        if stream:
            return self.planner.first_byte_s(target, self.request, longest_s)
        return self.planner.timeout_s(target, self.request, longest_s)

    def should_abandon(self, attempt: Attempt, headless: bool = True) -> bool:
        """Return whether to abandon a silent call for another target that is not in cooldown, at most once per request;
        `headless` as in `patience_s`.

        The silent target may only be slow, so it is tried again when the others fail.
        """
        walk = self.walk
        target = attempt.target
        if walk.gave_up or self.caller_gone:
            return False
        longest_s = self.patience_s(target, headless)
        silent_s = self.clock.monotonic() - attempt.started
        if silent_s < longest_s * SUSPECT_SHARE:
            if not self._is_silent_like_others(target, silent_s):
                return False
        elif not self.planner.is_hanging(target, self.context.request_id) and silent_s < longest_s:
            return False
        following = walk.following()
        if following is None or self.route_plan.cooldowns(following):
            return False
        walk.move_to_end()
        self.left = attempt
        self.planner.left(target, self.request.operation)
        return True

    def _is_silent_like_others(self, target: Target, silent_s: float) -> bool:
        """Return whether a plain call, which may reason in silence, is silent for as long as streams that show that
        their provider hangs."""
        if self.request.requirements.stream or not may_reason(target.mapping, self.request.requirements):
            return False
        longest_s = self.planner.first_byte_s(target, self.request, self.settings.timeouts.first_byte_s)
        return silent_s >= longest_s * SUSPECT_SHARE and self.planner.are_others_silent(target)

    def forget_prompt(self) -> None:
        """Drop the prompt when an answer has begun, since no other attempt can follow: a long stream would hold it
        several times. Calls beside this one may still have to send it."""
        request = self.request
        attempt = self.outcome.serving
        if not isinstance(request, ChatRequest) or self.hedged or self.choices_a_call(attempt.target):
            return
        if request.options.service_tier:
            attempt.asked_tier = self.request_for(attempt.target).options.service_tier
        request.forget()
        first = self.context.request
        if first is not request and isinstance(first, ChatRequest):
            first.forget()
        if not request.kept and self.context.payload is None:
            release_held()

    def learn_first_byte(self, attempt: Attempt) -> None:
        """Record how long a stream took to begin, where another provider could have given it."""
        if (self.hedged or len(self.walk.groups) > 1) and attempt.first_at:
            self._learn(self.planner.began, attempt, attempt.first_at - attempt.started)
            if attempt.head_at - attempt.started > self.settings.timeouts.first_byte_s:
                attempt.target.memo[LATE_HEAD] = True
                if self.left is not None:
                    self.left.target.memo[LATE_HEAD] = True

    def learn_time(self, attempt: Attempt) -> None:
        """Record how long a plain answer took, where another provider could have given it."""
        if self.hedged or len(self.walk.groups) > 1:
            self._learn(self.planner.answered, attempt, attempt.ended - attempt.started)

    def _learn(self, record: Callable[[Target, Request, float], object], attempt: Attempt, took_s: float) -> None:
        """Record a time. When it is longer than the wait for an abandoned provider, the request itself is slow, so it
        is recorded for that provider too."""
        record(attempt.target, self.request, took_s)
        left = self.left
        if left is not None and left is not attempt and took_s >= left.ended - left.started:
            record(left.target, self.request, took_s)

    def begin(self, target: Target) -> Attempt:
        """Begin an attempt, recorded outside this process before anything is sent.

        A target is skipped if its provider key has reached its limit, or if the credits do not suffice and own keys may
        serve the request. Raises the last error when none is left.
        """
        attempts = self.outcome.attempts
        number = len(attempts)
        settlement = self.settlement
        while settlement.reserves_call(target):
            try:
                settlement.begin(number, target, self.cost_bound_of(target), patient=not self.walk.may_skip)
                break
            except (SpendingLimitReached, OutOfCredits, BudgetInUse) as error:
                target = self._pass_over(target, error)
        else:
            settlement.begin(number, target)
        clock = self.clock
        if settlement.output_cap is not None or self.route_plan.adapts:
            target = self.capped(target)
        attempt = Attempt(number, target, clock.now_us(), clock.monotonic())
        attempts.append(attempt)
        self.planner.begun(target)
        return attempt

    def failed(self, attempt: Attempt, error: GatewayError) -> Target:
        """Record a failed attempt and return the next target.

        Raises the error for the caller when no target or time is left, or when the attempt was billed and the remaining
        money does not cover another.
        """
        self.outcome.warnings = []  # they described this target
        short: GatewayError | None = None
        if isinstance(error, NotSupported) and not error.upstream_status:
            # The target cannot carry the request: nothing was sent, and the attempt does not count.
            self.outcome.attempts.remove(attempt)
            self.settlement.unused(attempt)
        else:
            if isinstance(error.spent, Usage):
                attempt.usage = error.spent
            self.note(attempt, "error", error)
            short = self.settlement.failed(attempt)
            self.planner.failed(attempt, error, self.context.caller.organization_id, self.request.operation)
        if self.caller_gone:  # the caller disconnected, so no other target is tried
            self._leave_reading()
            self.keep_decision()
            raise error
        following = self.walk.after(error)
        while following is not None and self.planner.is_unreachable(following):
            following = self.walk.skip()
        if following is None or self.deadline <= self.clock.monotonic():
            self.keep_decision()
            raise final_error(self.outcome, error, self.walk.refusals) from error
        if short is not None:
            self.keep_decision()
            raise short from error
        return following

    def finished(self, attempt: Attempt) -> None:
        """Settle a successful attempt. The settlement is durable before the caller has the last bytes."""
        attempt.ended = self.clock.monotonic()
        if self.caller_gone:
            self._finished_without_caller(attempt)
        attempt.status = OK
        self.keep_decision()  # before the settlement, so that one commit includes both
        self.settlement.settle(attempt)
        usage = attempt.usage
        if usage is not None and usage.reasoning:
            learn_speed(attempt, usage)
        if self.cache_turns and usage is not None:
            mapping = attempt.target.mapping
            turn = self.cache_turns.get(mapping.key)
            if turn is not None:
                self.planner.cache_lifetimes.served(turn, mapping, usage)
        self.planner.succeeded(attempt, self.request.requirements.stream, self.request.operation)
        if self.route_plan.remembered:
            self.planner.served(self.route_plan, attempt)

    def broken(self, attempt: Attempt, error: GatewayError) -> None:
        """Record an answer that failed after it began. Appends to the journal and never waits."""
        self.note(attempt, "error", error)
        self.keep_decision()
        if self.caller_gone:
            self._leave_reading()
        self.settlement.abandon(attempt)
        if attempt.first_at and attempt.charge.total:
            cost = format_usd(attempt.charge.total)
            error.message += BILLED.format(cost)
            error.details = {**(error.details or {}), "billed_usd": cost}
        self.planner.failed(attempt, error, self.context.caller.organization_id, self.request.operation)

    def hung_up(self, attempt: Attempt) -> None:
        """Record that the caller disconnected, or that a guardrail blocked the answer. Appends to the journal and never
        waits."""
        guard = self.context.guard
        if guard is not None and guard.blocked is not None:
            self.note(attempt, GUARDRAIL_BLOCKED, guard.blocked)
        else:
            self.note(attempt, CLIENT_DISCONNECT, Cancelled(CALLER_DISCONNECTED))
        self.keep_decision()
        if self.caller_gone:
            self._leave_reading()
        self.settlement.abandon(attempt)
        self.planner.abandoned(attempt, self.request.operation)

    def left_unsent(self, attempt: Attempt) -> None:
        """Record that the caller disconnected before anything was sent: nothing is billed."""
        self.note(attempt, CLIENT_DISCONNECT, Cancelled(CALLER_DISCONNECTED))
        self.keep_decision()
        self.settlement.unused(attempt)
        self.planner.abandoned(attempt, self.request.operation)

    def read_on_s(self, attempt: Attempt) -> float:
        """Return how many seconds to read on for the usage after the caller disconnected; 0 cancels the call.

        Where the provider does not bill a cancelled call any further, only an answer that may be nearly complete is
        read on.
        """
        provider = attempt.target.provider
        drain_s = self.settings.drain_s
        if not self.request.requirements.stream:
            if provider.plain_cancellation:
                return 0.0
            return drain_s
        if not provider.cancellation:
            return drain_s
        if attempt.first_at:
            return min(drain_s, NEARLY_DONE_S)
        return 0.0

    def leave(self, attempt: Attempt) -> bool:
        """Return whether to read on after the caller disconnected. If so, its concurrency slot is free again."""
        if attempt.preparing:
            return False
        if not self.caller_gone and self.read_on_s(attempt):
            self.caller_gone = self.reading_on.enter(self.context.caller.organization_id)
        return self.caller_gone

    def after_disconnect(self) -> float:
        """Return for how many seconds the current call continues without its caller (runtime/disconnects.py)."""
        attempt = self.outcome.attempts[-1]
        if not self.leave(attempt):
            return 0.0
        self.settlement.leave(attempt)
        return self.read_on_s(attempt)

    def _finished_without_caller(self, attempt: Attempt) -> None:
        """Settle an answer that completed after its caller disconnected, and end its greenlet (CallerGone). An answer
        that other callers may still receive is settled as usual."""
        if self.shared:
            self._leave_reading()
            return
        attempt.usage = attempt.usage and structs.replace(attempt.usage, basis="drained")
        self.hung_up(attempt)
        raise CallerGone

    def _leave_reading(self) -> None:
        self.caller_gone = False
        self.reading_on.leave(self.context.caller.organization_id)

    def capped(self, target: Target) -> Target:
        """Return the target with the output limit that the budgets, or the model, set."""
        cap = self.settlement.output_cap
        if cap is not None:
            self.outcome.warnings.append(CAPPED.format(cap))
        limit = self.route_plan.limit(self.request, target.mapping)
        if limit is not None and (cap is None or limit < cap):
            cap = limit
        if cap is None:
            return target
        return dataclasses.replace(target, output_cap=cap)

    def cost_bound_of(self, target: Target) -> CostBound:
        """Return the most that a call of this target can cost."""
        return compute_bound(self.request, (target.mapping,), self.settings.default_output, self.context.at_us)

    def _pass_over(self, target: Target, error: GatewayError) -> Target:
        """Skip a target because what would pay for it has reached its limit, and return the next one.

        When none is left, raises the error of the attempts, or the limit when there were no attempts.
        """
        self.passed += (SkippedKey(target.mapping.key, target.credential, error),)
        following = self.walk.skip()
        if following is not None:
            return following
        failed = [attempt.error for attempt in self.outcome.attempts if attempt.error is not None]
        self.keep_decision(refused=not failed)
        if failed:
            raise final_error(self.outcome, failed[-1], self.walk.refusals) from error
        raise error

    def keep_decision(self, refused: bool = False) -> None:
        plan = self.route_plan.plan
        terms = self.settlement.terms
        if self.passed:
            plan = leave_out(plan, self.passed)
        decisions = self.decisions
        if refused:
            decisions.keep_refused(terms.request, terms.billing_identity.project, plan)
        else:
            self.context.decision = decisions.keep(terms.request, terms.billing_identity.project, plan)

    def note(self, attempt: Attempt, finish: str, error: GatewayError) -> None:
        attempt.ended = self.clock.monotonic()
        attempt.error = error
        attempt.finish = finish
        attempt.status = error.upstream_status or (error.status if finish in CANCELLED else 0)
        if self.request.options.service_tier and not attempt.service_tier and (finish != "error" or attempt.usage):
            # The provider reports the tier only at the end: without an end, the requested and reserved tier is billed.
            attempt.service_tier = attempt.asked_tier or self.request_for(attempt.target).options.service_tier
