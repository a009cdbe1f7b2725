"""The money of one session: each response, and each transcript of what was said, admitted and settled by itself."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from gateway.billing.bounds import Bounds
from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt, Outcome
from gateway.billing.settlement import Settlement, Settlements
from gateway.clock import Clock
from gateway.engine.decisions import Decisions
from gateway.engine.planning import Planner
from gateway.engine.realtime.conversation import ConversationLength
from gateway.engine.realtime.output_limit import OutputLimit
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
from gateway.neutral.realtime import RealtimeInput, RealtimeRequest, ServerEvent, heard_units, request_of
from gateway.neutral.request import Requirements
from gateway.neutral.transcriptions import TranscriptionRequest
from gateway.neutral.usage import Usage
from gateway.providers.credentials import PLATFORM
from gateway.providers.protocol import Target
from gateway.routing.decision import Plan

OK = 200
AT_ONCE = 16  # responses that a session may have open, and transcripts that it may wait for
LEFT = "The caller left the session."

# What hears of a turn that ended: its context, the status, when it began (monotonic), what went wrong.
Report = Callable[[RequestContext, int, float, GatewayError | None], None]


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session is served: the target, the decision that led there, and what a caller calls the model."""

    target: Target
    plan: Plan
    requested_model: str


@dataclass(frozen=True, slots=True)
class TurnBooks:
    """What turns are admitted and recorded with. `cap_nusd` is the most that a session may cost, 0 without a cap;
    `default_output` the tokens of a response without a limit of its own; `request_s` how long a turn may take."""

    settlements: Settlements
    planner: Planner
    decisions: Decisions
    clock: Clock
    cap_nusd: int
    default_output: int
    request_s: float


class Turn(Struct, eq=False):
    """A response, or a transcript, that was admitted. `event` is the id of the caller's event that asked for it; `made`
    the size of the answer so far, in bytes of text and of sound."""

    context: RequestContext
    settlement: Settlement
    attempt: Attempt
    place: SessionPlace
    bound_nusd: int
    event: str = ""
    sound: bool = False
    text_made: int = 0
    sound_made: int = 0
    ended: bool = False


class SessionTurns:
    """All turns of a session, from admission to record; nothing of them outlives it. `context` is the session's own,
    whose caller is replaced when it is read anew."""

    def __init__(self, books: TurnBooks, context: RequestContext, place: SessionPlace, report: Report) -> None:
        self._books, self.context, self._place, self._report = books, context, place, report
        self._bounds: dict[str, Bounds] = {}
        self.conversation = ConversationLength()
        self.output_limit = OutputLimit()
        self.spent_nusd = 0
        self._waiting: deque[Turn] = deque()  # admitted, and not begun by the provider yet
        self._active: dict[str, Turn] = {}
        self._listening: Turn | None = None  # for what is said now
        self._unheard: dict[str, Turn] = {}  # by item: said, and not transcribed yet
        self._heard: SessionPlace | None = None  # what transcribes
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a response is being made."""
        return bool(self._active)

    @property
    def owed(self) -> bool:
        """Whether the provider has still to tell what a response costs that the caller asked for."""
        return self.busy or any(not turn.sound for turn in self._waiting)

    def ask(self, event: str, most_output: int | None) -> Turn:
        """Admit the response that the caller's `event` asks for. RateLimited, SpendingLimitReached, OutOfCredits,
        Unavailable."""
        turn = next((one for one in self._waiting if one.sound), None)
        if turn is not None and most_output is None:
            self._grow(turn)
            turn.sound, turn.event = False, event  # what was held for sound serves, more is held with the next of it
            return turn
        if len(self._waiting) + len(self._active) >= AT_ONCE:
            raise SpendingLimitReached(
                f"At most {AT_ONCE} responses of a session may be in progress.", code="too_many_responses", status=429
            )
        turn = self._admit(most_output)
        turn.event = event
        self._waiting.append(turn)
        return turn

    def listen(self, heard: SessionPlace | None, answers: bool) -> None:
        """Admit what sound may bring about: a response that the provider begins by itself, where it `answers`, and the
        transcript where there is a model that was `heard`. Errors as of `ask`."""
        if answers:
            waiting = next((one for one in self._waiting if one.sound), None)
            if waiting is None:
                waiting = self._admit(None)
                waiting.sound = True
                self._waiting.append(waiting)
            else:
                self._grow(waiting)
        self._heard = heard
        if heard is not None and self._listening is None:
            self._listening = self._open(_heard_request(heard), heard)

    def grow(self) -> None:
        """The conversation is longer, or its responses may be: what the provider may begin by itself costs more.
        Errors as of `ask`."""
        for turn in self._waiting:
            if turn.sound:
                self._grow(turn)

    def forget(self, event: str) -> bool:
        """The caller's `event` had no effect: what was admitted for it is given back. Whether there was any."""
        for turn in self._waiting:
            if turn.event == event and event:
                self._waiting.remove(turn)
                self._void(turn)
                return True
        return False

    def take(self, event: ServerEvent) -> None:
        """Count what an event of the provider brings. A response or a transcript that it ends is durable when this
        returns: pass it on then. Unavailable when that takes too long; errors of `ask` for a response that the provider
        began without one that was waiting, which is counted all the same."""
        if event.kind == "started":
            self._begin(event.id)
        elif event.kind == "done":
            self._finish(event)
        elif event.kind == "committed":
            if self._listening is not None and len(self._unheard) < AT_ONCE:
                self._unheard[event.id], self._listening = self._listening, None
        elif event.kind in ("heard", "unheard"):
            self._transcribed(event)
        else:
            self._note(event)

    def responses(self) -> list[str]:
        """The ids of those in progress."""
        return list(self._active)

    def close(self, error: GatewayError | None) -> None:
        """The end of the session: what was not begun is given back; responses in progress are recorded by what came of
        them, as left by the caller or, with an `error`, as broken. Never waits, never raises."""
        self._closed = True
        left = [*self._waiting, *self._unheard.values(), *([self._listening] if self._listening else [])]
        self._waiting.clear()
        self._unheard.clear()
        self._listening = None
        for turn in left:
            self._void(turn)
        active, self._active = list(self._active.values()), {}
        for turn in active:
            self._abandon(turn, error)

    # A response.

    def _admit(self, most_output: int | None) -> Turn:
        return self._open(self._request(most_output), self._place)

    def _request(self, most_output: int | None) -> RealtimeRequest:
        """What a response may read and write; its own output limit counts instead of the session's (0: none)."""
        mapping = self._place.target.mapping
        limit = self.output_limit.most if most_output is None else most_output
        output = limit or mapping.max_output or self._books.default_output
        tokens = self.conversation.most_tokens(mapping.context_length)
        return request_of(self._place.requested_model, RealtimeInput(), tokens, output)

    def _admit_late(
        self, request: RealtimeRequest | TranscriptionRequest, place: SessionPlace
    ) -> tuple[Turn, GatewayError | None]:
        """For what the provider began by itself: it is counted whatever the limits say, and with their error."""
        try:
            return self._open(request, place), None
        except (SpendingLimitReached, OutOfCredits, RateLimited) as error:
            return self._open(request, place, begun=True), error

    def _open(self, request: RealtimeRequest | TranscriptionRequest, place: SessionPlace, begun: bool = False) -> Turn:
        books, session, target = self._books, self.context, place.target
        context = RequestContext(
            request_id=new_hex(),
            caller=session.caller,
            at_us=books.clock.now_us(),
            started=books.clock.monotonic(),
            deadline=books.clock.monotonic() + books.request_s,
            label=session.shown_id,
            source=session.source,
            session=session.session,
            ip=session.ip,
            operation=request.operation,
            surface=session.surface,
            metadata=session.metadata,
            request=request,
        )
        bounds = self._bounds.setdefault(target.mapping.key, Bounds((target.mapping,)))
        ask = CostBound(0, 0, 0, True) if begun else bounds.ask(request, books.default_output, context.at_us)
        if not begun:
            self._check_cap(ask.bound_nusd)
        needs = request.requirements
        settlement = books.settlements.admit(
            context,
            ask,
            target.credential.source == PLATFORM,
            needs.prompt_bytes,
            place.requested_model,
            True,
            None,
            needs.units,
            target.mapping.model,
            begun,
        )
        try:
            settlement.begin(0, target, ask)
            if self._closed:
                raise Unavailable("The session has ended.")
        except BaseException:
            settlement.close()
            raise
        attempt = Attempt(0, target, context.at_us, context.started)
        context.outcome = Outcome(request, attempts=[attempt], rate_limits=settlement.rate_limits)
        books.planner.begun(target)
        return Turn(context, settlement, attempt, place, ask.bound_nusd)

    def _check_cap(self, bound_nusd: int) -> None:
        cap = self._books.cap_nusd
        held = sum(turn.bound_nusd for turn in self._open_turns())
        if cap and self.spent_nusd + held + bound_nusd > cap:
            raise SpendingLimitReached(
                f"A session may cost at most {format_usd(cap)} USD, and this one has spent "
                f"{format_usd(self.spent_nusd)} USD: open another one.",
                code="session_spending_limit_reached",
            )

    def _open_turns(self) -> list[Turn]:
        listening = [self._listening] if self._listening else []
        return [*self._waiting, *self._active.values(), *self._unheard.values(), *listening]

    def _grow(self, turn: Turn) -> None:
        """More sound came than was foreseen: reserve what it may cost."""
        target, books = turn.place.target, self._books
        request = self._request(None)
        need = self._bounds[target.mapping.key].ask(request, books.default_output, turn.context.at_us).bound_nusd
        if need <= turn.bound_nusd:
            return
        more = need + need // 2  # so that it is not asked for with each piece
        self._check_cap(more - turn.bound_nusd)
        error = turn.settlement.enlarge(more - turn.bound_nusd)
        if error is not None:
            raise error
        turn.bound_nusd = more

    def _begin(self, response: str) -> None:
        if self._waiting:
            self._active[response] = self._waiting.popleft()
            return
        self._active[response], error = self._admit_late(self._request(None), self._place)
        if error is not None:
            raise error

    def _note(self, event: ServerEvent) -> None:
        if not (event.text_length or event.sound_bytes):
            return
        now = self._books.clock.monotonic()
        for turn in self._active.values():  # nearly always there is one
            turn.text_made += event.text_length
            turn.sound_made += event.sound_bytes
            turn.attempt.first_at = turn.attempt.first_at or now
            return

    def _finish(self, event: ServerEvent) -> None:
        turn = self._active.pop(event.id, None)
        if turn is None:
            if not self._waiting and event.usage is None:
                return
            turn = self._waiting.popleft() if self._waiting else self._admit_late(self._request(None), self._place)[0]
        usage, error = event.usage, _error_of(event)
        if usage is None and error is None:
            usage = self.conversation.estimate(turn.text_made, turn.sound_made)
        if usage is not None:
            self.conversation.answered(usage)
        self._settle(turn, usage, event.finish, error)

    def _settle(self, turn: Turn, usage: Usage | None, finish: str, error: GatewayError | None) -> None:
        attempt, books = turn.attempt, self._books
        attempt.usage, attempt.finish, attempt.error, attempt.status = usage, finish, error, OK
        attempt.ended = books.clock.monotonic()
        turn.ended = True
        terms = turn.settlement.terms
        books.decisions.keep(terms.request, terms.billing_identity.project, turn.place.plan)
        try:
            turn.settlement.settle(attempt)
        finally:
            self.spent_nusd += attempt.charge.total
            turn.settlement.close()
            self._tell(turn, error)
        if error is None:
            books.planner.succeeded(attempt, bool(attempt.first_at), turn.context.operation)
        elif isinstance(error, UpstreamFailed):
            organization = turn.context.caller.organization_id
            books.planner.failed(attempt, error, organization, turn.context.operation)

    def _abandon(self, turn: Turn, error: GatewayError | None) -> None:
        attempt, books = turn.attempt, self._books
        turn.ended, attempt.ended = True, books.clock.monotonic()
        attempt.finish = "error" if error is not None else "client_disconnect"
        attempt.error, attempt.status = error or Cancelled(LEFT), 0
        if attempt.first_at:
            # Billed as drained: by what came, which is more than is known of any other answer that was left.
            attempt.usage = self.conversation.estimate(turn.text_made, turn.sound_made)
        turn.settlement.abandon(attempt)
        self.spent_nusd += attempt.charge.total
        turn.settlement.close()
        if error is None:
            books.planner.abandoned(attempt, turn.context.operation)
        else:
            organization = turn.context.caller.organization_id
            books.planner.failed(attempt, error, organization, turn.context.operation)
        self._tell(turn, attempt.error)

    def _void(self, turn: Turn) -> None:
        """The provider never began it: nothing is recorded."""
        turn.ended = True
        turn.settlement.unused(turn.attempt)
        turn.settlement.close()

    def _tell(self, turn: Turn, error: GatewayError | None) -> None:
        turn.context.own_s = 0.0
        self._report(turn.context, OK if error is None else error.status, turn.context.started, error)

    # What is said, as text.

    def _transcribed(self, event: ServerEvent) -> None:
        turn = self._unheard.pop(event.id, None)
        if turn is None:
            turn, self._listening = self._listening, None
        if event.usage is None:
            if turn is not None:
                self._void(turn)
            return
        error = None
        if turn is None and self._heard is not None:
            turn, error = self._admit_late(_heard_request(self._heard), self._heard)
        if turn is not None:
            self._settle(turn, event.usage, "stop", None)
        if error is not None:
            raise error


def _heard_request(place: SessionPlace) -> TranscriptionRequest:
    needs = Requirements(stream=True, max_tokens=0, messages=1, units=heard_units())
    return TranscriptionRequest(place.requested_model, needs, lambda: None)


def _error_of(event: ServerEvent) -> GatewayError | None:
    """Why a response is none; one that was cancelled and counted is an answer, as far as it came."""
    if event.finish == "error":
        return UpstreamFailed(f"The provider failed to respond{f': {event.fault}' if event.fault else ''}.")
    return Cancelled(LEFT) if event.finish == "cancelled" and event.usage is None else None
