"""The accounts of a session's turns: each is admitted, extended, settled, abandoned or released."""

from collections.abc import Callable

from msgspec import Struct, structs

from gateway.billing.admission import Admission, Settlements
from gateway.billing.bounds import Bounds
from gateway.billing.context import Attempt, HeaderOptions, Outcome, RequestContext
from gateway.billing.output_reservation import RECORDED, TYPICAL_BYTES_PER_TOKEN
from gateway.billing.settlement import Settlement
from gateway.callers.authentication import Caller
from gateway.callers.credential_sources import PLATFORM_SOURCE
from gateway.clock import Clock
from gateway.engine.planning import Planner
from gateway.engine.routing_decisions import Decisions
from gateway.errors import (
    Cancelled,
    GatewayError,
    OutOfCredits,
    RateLimited,
    SpendingLimitReached,
    Unavailable,
    UpstreamFailed,
)
from gateway.ids import new_hex
from gateway.limits.cost_bound import CostBound
from gateway.money import format_usd
from gateway.neutral.realtime import RealtimeRequest
from gateway.neutral.transcriptions import TranscriptionRequest
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.routing.decision import Plan

# The place where a session, or the transcription of its speech, is served.


class SessionPlace(Struct, frozen=True):
    """A target, the decision that chose it, and the model's name as the caller wrote it."""

    target: Target
    plan: Plan
    requested_model: str


def no_content() -> None:
    """Stand in for the content of a request that is only planned or admitted, never sent."""


OK = 200
CALLER_LEFT = "The caller left the session."

# Called at the end of a turn with its context, status, start (monotonic seconds) and error.
Report = Callable[[RequestContext, int, float, GatewayError | None], None]
TurnRequest = RealtimeRequest | TranscriptionRequest


class TurnParts(Struct, frozen=True):
    """The dependencies of turns.

    `cap_nusd` is the most that a session may cost (0: no cap), `default_output` the tokens of a response without a
    limit, `request_s` how long a turn may take.
    """

    settlements: Settlements
    planner: Planner
    decisions: Decisions
    clock: Clock
    cap_nusd: int
    default_output: int
    request_s: float


class Turn(Struct, eq=False):
    """An admitted response or transcript.

    `event` is the id of the caller's event that requested it. `sound`: it was caused by sound alone so far.
    `text_bytes` and `sound_bytes` are the bytes of the answer so far; `sound_bytes` of a transcript is its input.
    `output` is the number of reserved output tokens, `recorded` the number at which they are next written to the crash
    journal, `requested_position` the position in the conversation at which it was requested (None: it was not
    requested).
    """

    context: RequestContext
    settlement: Settlement
    attempt: Attempt
    place: SessionPlace
    bound_nusd: int
    output: int
    recorded: int = RECORDED // TYPICAL_BYTES_PER_TOKEN
    event: str = ""
    requested_position: int | None = None
    sound: bool = False
    text_bytes: int = 0
    sound_bytes: int = 0
    ended: bool = False


class SessionAccounting:
    """The accounts of one session. `context` is the session's; `caller_now` returns its current caller or raises the
    reason why the caller lost access. `spent_nusd` is the cost of the session so far."""

    def __init__(self, parts: TurnParts, context: RequestContext, report: Report) -> None:
        self._parts = parts
        self.context = context
        self._report = report
        self._bounds: dict[str, Bounds] = {}
        self._held_nusd = 0
        self.caller_now: Callable[[], Caller] = self._initial_caller
        self.spent_nusd = 0
        self.closed = False

    def open(self, request: TurnRequest, place: SessionPlace) -> Turn:
        """Admit a turn before the provider may begin it. RateLimited, SpendingLimitReached, OutOfCredits, Unavailable;
        errors of `caller_now`."""
        self.context.caller = self.caller_now()
        cost_bound = self._bound(request, place)
        self._check_cap(cost_bound.bound_nusd)
        return self._open(request, place, cost_bound, begun=False)

    def open_late(self, request: TurnRequest, place: SessionPlace) -> tuple[Turn, GatewayError | None]:
        """Admit a turn that the provider began unrequested: it counts even beyond the limits, and
        their error is returned."""
        cost_bound = self._bound(request, place)
        try:
            self._check_cap(cost_bound.bound_nusd)
            return self._open(request, place, cost_bound, begun=False), None
        except (SpendingLimitReached, OutOfCredits, RateLimited) as error:
            return self._open(request, place, CostBound(0, 0, 0, True), begun=True), error

    def grow(self, turn: Turn, request: TurnRequest) -> None:
        """Reserve the cost of `request` for a turn that is longer than expected. Errors as of `open`."""
        cost_bound = self._bound(request, turn.place)
        needed_nusd = cost_bound.bound_nusd
        turn.output = max(turn.output, cost_bound.max_output)
        if needed_nusd <= turn.bound_nusd:
            return
        more = needed_nusd + needed_nusd // 2 - turn.bound_nusd  # half as much again, to reserve less often
        self._check_cap(more)
        error = turn.settlement.enlarge(more)
        if error is not None:
            raise error
        if turn.ended:
            return  # it ended while the reservation was extended
        turn.bound_nusd += more
        self._held_nusd += more

    def begin(self, turn: Turn) -> None:
        """Record that the provider began the turn, from when its time counts."""
        turn.context.started = turn.attempt.started = self._parts.clock.monotonic()
        self._parts.planner.begun(turn.place.target)

    def note(self, turn: Turn, text: int, sound: int) -> None:
        """Add bytes of the answer that arrived."""
        turn.text_bytes += text
        turn.sound_bytes += sound
        turn.attempt.first_at = turn.attempt.first_at or self._parts.clock.monotonic()

    def record_progress(self, turn: Turn, usage: Usage) -> None:
        """Write what a turn has consumed so far to the crash journal, so that a recovery bills it."""
        turn.settlement.record_progress(structs.replace(turn.attempt, usage=usage))

    def settle(self, turn: Turn, usage: Usage | None, finish: str, error: GatewayError | None) -> None:
        """Record the end of a turn; it is durable when this returns. Unavailable when that takes too long."""
        attempt = turn.attempt
        parts = self._parts
        attempt.usage = usage
        attempt.finish = finish
        attempt.error = error
        attempt.status = OK
        attempt.ended = parts.clock.monotonic()
        terms = turn.settlement.terms
        project = terms.billing_identity.project
        turn.context.decision = parts.decisions.keep(terms.request, project, turn.place.plan)
        try:
            turn.settlement.settle(attempt)
        finally:
            self._end(turn)
            self._report_turn(turn, error)
        if error is None:
            parts.planner.succeeded(attempt, bool(attempt.first_at), turn.context.operation)
        elif isinstance(error, UpstreamFailed):
            self._count_failure(turn, error)

    def abandon(self, turn: Turn, usage: Usage, error: GatewayError | None) -> None:
        """Record a turn that began and then lost its caller or failed with an `error`.

        It is billed by the estimated `usage`; a failure before any content is free. Never waits and never raises.
        """
        attempt = turn.attempt
        parts = self._parts
        attempt.ended = parts.clock.monotonic()
        attempt.finish = "client_disconnect" if error is None else "error"
        attempt.error = error or Cancelled(CALLER_LEFT)
        attempt.status = 0
        if attempt.first_at or error is None:
            attempt.usage = usage
        turn.settlement.abandon(attempt)
        self._end(turn)
        if error is None:
            parts.planner.abandoned(attempt, turn.context.operation)
        else:
            self._count_failure(turn, error)
        self._report_turn(turn, attempt.error)

    def void(self, turn: Turn) -> None:
        """Release a turn that the provider never began; nothing is recorded."""
        turn.settlement.unused(turn.attempt)
        self._end(turn)

    def _initial_caller(self) -> Caller:
        return self.context.caller

    def _bound(self, request: TurnRequest, place: SessionPlace) -> CostBound:
        mapping = place.target.mapping
        bounds = self._bounds.get(mapping.key)
        if bounds is None:
            bounds = self._bounds[mapping.key] = Bounds((mapping,))
        return bounds.compute(request, self._parts.default_output, self._parts.clock.now_us())

    def _check_cap(self, more_nusd: int) -> None:
        cap = self._parts.cap_nusd
        if cap and self.spent_nusd + self._held_nusd + more_nusd > cap:
            raise SpendingLimitReached(
                f"A session may cost at most {format_usd(cap)} USD, and this one has spent "
                f"{format_usd(self.spent_nusd)} USD: open another one.",
                code="session_spending_limit_reached",
            )

    def _open(self, request: TurnRequest, place: SessionPlace, cost_bound: CostBound, begun: bool) -> Turn:
        parts = self._parts
        session = self.context
        target = place.target
        context = RequestContext(
            request_id=new_hex(),
            caller=session.caller,
            at_us=parts.clock.now_us(),
            started=parts.clock.monotonic(),
            deadline=parts.clock.monotonic() + parts.request_s,
            label=session.shown_id,
            source=session.source,
            session=session.session,
            ip=session.ip,
            operation=request.operation,
            surface=session.surface,
            metadata=session.metadata,
            request=request,
            attribution=session.attribution,
            options=HeaderOptions(session_nusd=session.options.session_nusd, run_nusd=session.options.run_nusd),
            end_user=session.end_user,
        )
        credits = target.credential.source == PLATFORM_SOURCE
        settlement = parts.settlements.admit(
            Admission(context, request, cost_bound, credits, target.mapping.model, begun)
        )
        try:
            settlement.begin(0, target, cost_bound)
            if self.closed:
                raise Unavailable("The session has ended.")
        except BaseException:
            settlement.close()
            raise
        attempt = Attempt(0, target, context.at_us, context.started)
        context.outcome = Outcome(request, attempts=[attempt], rate_limits=settlement.rate_limits)
        self._held_nusd += cost_bound.bound_nusd
        return Turn(context, settlement, attempt, place, cost_bound.bound_nusd, cost_bound.max_output)

    def _end(self, turn: Turn) -> None:
        turn.ended = True
        self._held_nusd -= turn.bound_nusd
        self.spent_nusd += turn.attempt.charge.total
        turn.settlement.close()

    def _count_failure(self, turn: Turn, error: GatewayError) -> None:
        context = turn.context
        self._parts.planner.failed(turn.attempt, error, context.caller.organization_id, context.operation)

    def _report_turn(self, turn: Turn, error: GatewayError | None) -> None:
        turn.context.own_s = 0.0
        self._report(turn.context, OK if error is None else error.status, turn.context.started, error)
