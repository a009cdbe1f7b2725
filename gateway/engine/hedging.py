"""Hedging: a second attempt at the next provider while the first one is silent. The first that delivers serves.

Each attempt has its own settlement, and so its own reservation, intent and row. The other attempt is cancelled and
billed as one that its caller left: where its provider bills cancelled calls in full, it is read on for its exact usage.
Where the reservations cannot cover both, there is no second attempt.
"""

import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field, structs

from gateway.billing.context import SUPERSEDED, Attempt
from gateway.billing.estimates import CLIENT_DISCONNECT
from gateway.billing.settlement import Settlement
from gateway.engine.planning import HEDGING
from gateway.engine.run import CALLER_DISCONNECTED, SUSPECT_SHARE, Run
from gateway.errors import Cancelled, GatewayError, NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.neutral.usage import Usage
from gateway.runtime.merged_iterators import Arrivals
from gateway.runtime.threads import Job

OTHER_ANSWERED = "Another provider answered first."
TICK_S = 0.25  # how often a silent plain call is looked at


class RacingAttempt(Struct, eq=False):
    """One of the attempts of a request. `result` is a complete answer, or the stream in progress with its `batches`.

    `verdict` is set when one of the attempts delivered; `won` and `dropped` then say which. `whole`: the answer is
    complete.
    """

    attempt: Attempt
    settlement: Settlement
    warnings: list[str]
    answering: Any = None
    batches: Any = None
    result: Any = None
    job: Job[None] | None = None
    verdict: threading.Event = field(default_factory=threading.Event)
    won: bool = False
    dropped: bool = False
    whole: bool = False


Work = Callable[["Race", RacingAttempt], None]


def may_hedge(run: Run) -> bool:
    """Return whether the request may get a second attempt, and count it for the share of those that do."""
    context = run.context
    run.hedges = False
    if not context.caller.settings.get(HEDGING) or context.job is not None or len(run.walk.groups) < 2:
        return False
    if not isinstance(run.request, ChatRequest) or run.outcome.attempts[1:]:
        return False
    run.planner.hedges.count(context.caller.project_id)
    run.hedges = True
    return True


def should_hedge(run: Run, attempt: Attempt, headless: bool = True) -> bool:
    """Return whether an attempt was silent for longer than is usual, and no second one was tried yet."""
    if run.hedged or run.walk.gave_up or run.caller_gone:
        return False
    silent_s = run.clock.monotonic() - attempt.started
    return silent_s >= run.planner.hedge_after_s(attempt.target, run.request, run.patience_s(attempt.target, headless))


def begin_hedge(run: Run) -> RacingAttempt | None:
    """Begin the second attempt; None where there is no other target, or no room for it in the share or the money."""
    run.hedged = True
    target = run.walk.beside()
    if target is None or run.route_plan.cooldowns(target) or run.planner.is_unreachable(target):
        return None
    if not run.planner.hedges.take(run.context.caller.project_id):
        return None
    attempts = run.outcome.attempts
    number = len(attempts)
    settlement = run.settlement.second(number, target, run.cost_bound_of(target))
    if settlement is not None and run.caller_gone:  # it left meanwhile: the first attempt alone is read on
        settlement.unused_call(number)
        settlement.close()
        settlement = None
    if settlement is None:
        run.planner.hedges.give_back(run.context.caller.project_id)
        return None
    run.walk.take_beside()
    if run.route_plan.adapts:
        target = run.capped(target)  # this adds no warning: where the money limits the output nothing is hedged
    attempt = Attempt(number, target, run.clock.now_us(), run.clock.monotonic())
    attempts.append(attempt)
    run.planner.begun(target)
    run.planner.hedged(target, run.request.operation)
    return RacingAttempt(attempt, settlement, [])


class Race:
    """The attempts of a request that are in progress, one or two of them."""

    def __init__(self, run: Run, first: RacingAttempt) -> None:
        self.run = run
        self.live = [first]
        self._first = first
        self._raced = False
        self._arrivals: Arrivals[tuple[RacingAttempt, Any]] = Arrivals()

    def start(self, lane: RacingAttempt, work: Work) -> None:
        """Run `work` for an attempt in a separate greenlet; its error arrives like an item."""
        lane.job = Job(self._work, lane, work)

    def add(self, lane: RacingAttempt) -> None:
        self.live.append(lane)
        self._raced = True

    def put(self, lane: RacingAttempt, item: Any) -> None:
        self._arrivals.put((lane, item))

    def next(self, timeout_s: float | None = None) -> tuple[RacingAttempt, Any] | None:
        """Return what arrives next, None after `timeout_s`. Raises exceptions other than GatewayError."""
        arrival = self._arrivals.take(timeout_s)
        if arrival is not None and isinstance(arrival[1], Exception) and not isinstance(arrival[1], GatewayError):
            raise arrival[1]
        return arrival

    def after_disconnect(self) -> float:
        """End the request at once when its caller disconnects: the attempts are read on without it."""
        return 0.0

    def won(self, lane: RacingAttempt) -> None:
        """Let the request be served by an attempt, and cancel the other one."""
        run = self.run
        losers = [other for other in self.live if other is not lane]
        lane.won = True
        for other in losers:
            if other.attempt.number > lane.attempt.number:
                lane.settlement.exchange_numbers(lane.attempt, other.settlement, other.attempt)
        self._serve_by(lane)
        lane.verdict.set()
        for other in losers:
            if other is self._first:
                self._learn_silence(other.attempt)
            self._drop(other, SUPERSEDED)
        self.live = [lane]
        if lane is not self._first:
            run.planner.hedge_won(lane.attempt.target, run.request.operation)

    def failed(self, lane: RacingAttempt, error: GatewayError) -> None:
        """Record the failure of an attempt while another is in progress. Raises the error of the last one, whose
        failure the caller records."""
        self.live.remove(lane)
        if lane.answering is not None:
            lane.answering.close()
        run = self.run
        walk = run.walk
        if not self.live:
            if walk.aside and lane is not self._first:
                walk.go_aside()
            raise error
        (walk.lose_current if lane is self._first else walk.lose_aside)(error)
        (other,) = self.live
        attempt = lane.attempt
        unsent = isinstance(error, NotSupported) and not error.upstream_status
        if (attempt.number > other.attempt.number) != unsent:
            lane.settlement.exchange_numbers(attempt, other.settlement, other.attempt)
        self._serve_by(other)
        if unsent:
            run.outcome.attempts.remove(attempt)
            lane.settlement.unused(attempt)
        else:
            if isinstance(error.spent, Usage):
                attempt.usage = error.spent
            run.note(attempt, "error", error)
            run.keep_decision()
            lane.settlement.failed(attempt)
            run.planner.failed(attempt, error, run.context.caller.organization_id, run.request.operation)
        lane.settlement.close()

    def left(self) -> None:
        """End all attempts because the caller disconnected; they are settled with what is known, or read on."""
        if not self._raced:  # the time to read on has passed already
            (lane,) = self.live
            if lane.job is not None:
                lane.job.stop()
            self.run.hung_up(lane.attempt)
            return
        for lane in self.live:
            self._drop(lane, CLIENT_DISCONNECT)

    def stop(self) -> None:
        """End the greenlets, and all settlements but that of the request, after an error of the gateway."""
        for lane in self.live:
            if lane.job is not None:
                lane.job.stop()
            if lane.settlement is not self.run.settlement:
                lane.settlement.close()

    def _work(self, lane: RacingAttempt, work: Work) -> None:
        try:
            work(self, lane)
        except Exception as error:
            self._arrivals.put((lane, error))

    def _serve_by(self, lane: RacingAttempt) -> None:
        run = self.run
        if lane.settlement is not run.settlement:
            run.settlement.pass_on(lane.settlement)
            run.settlement = lane.settlement
        attempts = run.outcome.attempts
        attempts.remove(lane.attempt)
        attempts.append(lane.attempt)
        run.outcome.warnings = lane.warnings

    def _learn_silence(self, attempt: Attempt) -> None:
        """Record how long the first attempt was silent, which is less than it would have taken: otherwise only answers
        that are faster than the second attempt would be measured. A long silence also counts among others."""
        run = self.run
        if attempt.first_at:
            return
        silent_s = run.clock.monotonic() - attempt.started
        record = run.planner.began if run.request.requirements.stream else run.planner.answered
        record(attempt.target, run.request, silent_s)
        if silent_s >= SUSPECT_SHARE * run.patience_s(attempt.target, not attempt.head_at):
            run.planner.is_hanging(attempt.target, run.context.request_id)

    def _drop(self, lane: RacingAttempt, finish: str) -> None:
        """Cancel an attempt, or read it on for its usage where its provider bills all of it."""
        run = self.run
        lane.dropped = True
        lane.verdict.set()
        self._note(lane, finish)
        seconds = 0.0 if lane.whole else run.read_on_s(lane.attempt)
        if seconds and run.reading_on.enter(run.context.caller.organization_id):
            if lane.settlement is run.settlement:
                lane.settlement.keep(lane.attempt)  # it is closed by the reader, not by the request
            run.reading_on.start(seconds, self._read_on, lane, finish)
        else:
            self._end(lane, finish)

    def _note(self, lane: RacingAttempt, finish: str) -> None:
        error = Cancelled(OTHER_ANSWERED, code=SUPERSEDED) if finish == SUPERSEDED else Cancelled(CALLER_DISCONNECTED)
        self.run.note(lane.attempt, finish, error)

    def _read_on(self, lane: RacingAttempt, finish: str) -> None:
        try:
            if lane.job is not None:
                lane.job.result()
        finally:
            self.run.reading_on.leave(self.run.context.caller.organization_id)
            self._end(lane, finish)

    def _end(self, lane: RacingAttempt, finish: str) -> None:
        """Settle an attempt that does not serve."""
        run = self.run
        attempt = lane.attempt
        if lane.job is not None:
            lane.job.stop()
        if lane.answering is not None:
            lane.answering.close()
        if lane.whole:
            attempt.usage = attempt.usage and structs.replace(attempt.usage, basis="drained")
        self._note(lane, finish)
        run.keep_decision()
        lane.settlement.abandon(attempt)
        lane.settlement.close()
        run.planner.abandoned(attempt, run.request.operation)
