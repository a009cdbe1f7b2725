"""The turns of one session: matches the provider's events with the caller's requests, and records their usage."""

from collections import deque
from collections.abc import Callable

from gateway.billing.context import RequestContext
from gateway.billing.usage_completion import fill_unreported
from gateway.engine.realtime.books import CALLER_LEFT, Report, SessionAccounting, Turn, TurnParts
from gateway.engine.realtime.places import SessionPlace, no_content
from gateway.engine.realtime.session_conversation import ConversationLength, output_tokens, transcription_usage
from gateway.engine.realtime.session_settings import SessionSettings
from gateway.errors import Cancelled, GatewayError, RateLimited, UpstreamFailed
from gateway.neutral.realtime import (
    SECOND_BYTES,
    UNLIMITED,
    RealtimeInput,
    RealtimeRequest,
    ServerEvent,
    request_of,
    transcription_units,
)
from gateway.neutral.request import Requirements
from gateway.neutral.transcriptions import TranscriptionRequest
from gateway.neutral.usage import counts_anything

MAX_RESPONSES = 16  # simultaneous responses of a session, and pending transcripts
ENDED_TURNS = 64  # ids of ended turns, which count once even when their end is repeated
TRANSCRIPTS = ("transcribing", "transcribed", "transcription_failed")


class SessionTurns:
    """All turns of a session, from admission to record; none outlives the session. `hears` returns the place of a
    transcription model."""

    def __init__(
        self,
        parts: TurnParts,
        context: RequestContext,
        place: SessionPlace,
        report: Report,
        hears: Callable[[RequestContext, str, SessionPlace], SessionPlace],
    ) -> None:
        self.books = SessionAccounting(parts, context, report)

        def place_of(model: str) -> SessionPlace:
            return hears(context, model, place)

        self.settings = SessionSettings(place_of)
        self.conversation = ConversationLength(place.target.mapping.context_length)
        self._place = place
        self._default_output = parts.default_output
        self._waiting: deque[Turn] = deque()  # admitted and not yet begun by the provider
        self._active: dict[str, Turn] = {}
        self._transcript: Turn | None = None  # for the speech that is being sent
        self._uncommitted_bytes = 0  # bytes of sound since the last commit
        self._committing = False  # the caller committed sound, and the provider has not confirmed it yet
        self._transcribing: dict[str, Turn] = {}  # by item: committed sound without a transcript yet
        self._ended: deque[str] = deque(maxlen=ENDED_TURNS)

    @property
    def busy(self) -> bool:
        """Whether the provider is producing something that was requested, or is about to."""
        if self._active or self._transcribing or (self._committing and self._transcript is not None):
            return True
        return any(not turn.sound for turn in self._waiting)

    def request_response(self, event: str, most_output: int | None) -> None:
        """Admit the response that the caller's `event` requests. RateLimited, SpendingLimitReached, OutOfCredits,
        Unavailable."""
        turn = self._sound_turn()
        if turn is not None and most_output is None:
            self.books.grow(turn, self._request(None))
            # The reservation made for sound serves this response; the next sound makes another one.
            turn.sound = False
            turn.event = event
            return
        if len(self._waiting) + len(self._active) >= MAX_RESPONSES:
            text = f"At most {MAX_RESPONSES} responses of a session may be in progress."
            raise RateLimited(text, code="too_many_responses", retry_after=None)
        turn = self._open(most_output)
        turn.event = event
        self._waiting.append(turn)

    def add_sound(self, sound_bytes: int) -> None:
        """Admit the possible results of sound: a response that the provider begins unrequested, and a transcript where
        a transcription model is selected. Errors as of `request_response`."""
        self._uncommitted_bytes += sound_bytes
        self._committing = not sound_bytes
        if self.settings.auto_responds and not self.grow():
            waiting = self._open(None)
            waiting.sound = True
            self._waiting.append(waiting)
        place = self.settings.expected_transcriber
        if place is None:
            return
        if self._transcript is None:
            self._transcript = self.books.open(_transcription_request(place, self._uncommitted_bytes), place)
        elif self._transcript.place is place:
            self.books.grow(self._transcript, _transcription_request(place, self._uncommitted_bytes))

    def grow(self) -> bool:
        """Extend the reservation for an unrequested response, since the conversation or its limit has grown. Returns
        whether there is one. Errors as of `request_response`."""
        waiting = self._sound_turn()
        if waiting is not None:
            self.books.grow(waiting, self._request(None))
        return waiting is not None

    def forget(self, event: str) -> None:
        """Release the turn of the caller's `event`, which had no effect."""
        self.settings.refused(event)
        self._committing = False
        for turn in self._waiting:
            if turn.event == event and event:
                self._waiting.remove(turn)
                self.books.void(turn)
                return

    def take(self, event: ServerEvent) -> None:
        """Count an event of the provider. A response or transcript that it ends is durable when this returns.

        Unavailable when that takes too long; errors of `request_response` for a response that the provider began
        without an admitted turn, which is counted anyway.
        """
        if event.kind == "started":
            self._begin(event.id)
        elif event.kind == "done":
            self._finish(event)
        elif event.kind == "committed":
            self._commit(event.id)
        elif event.kind in TRANSCRIPTS:
            self._transcribed(event)
        elif event.kind == "settings":
            self.settings.confirmed(event)
        elif event.kind == "refused":
            self.forget(event.id)
        elif event.text_length or event.sound_bytes:
            turn = self._active.get(event.id) or next(iter(self._active.values()), None)
            if turn is not None:
                self._note(turn, event)

    def responses(self) -> list[str]:
        """Return the ids of the responses in progress."""
        return list(self._active)

    def close(self, error: GatewayError | None) -> None:
        """End the session without waiting or raising.

        Turns that the provider did not begin are released. Responses in progress and transcripts of committed sound are
        recorded by estimate, as left by the caller or, with an `error`, as failed.
        """
        self.books.closed = True
        left = list(self._waiting)
        transcript = self._transcript
        if transcript is not None and not transcript.attempt.first_at:
            left.append(transcript)
        self._waiting.clear()
        self._transcript = None
        for turn in left:
            self.books.void(turn)
        active = list(self._active.values())
        self._active = {}
        for turn in active:
            self.books.abandon(turn, self.conversation.estimate(turn.text_bytes, turn.sound_bytes), error)
        transcripts = list(self._transcribing.values())
        self._transcribing = {}
        if transcript is not None and transcript.attempt.first_at:
            transcript.sound_bytes = self._uncommitted_bytes  # live words of sound that was never committed
            transcripts.append(transcript)
        for turn in transcripts:
            self.books.abandon(turn, transcription_usage(turn.sound_bytes), error)

    # A response.

    def _sound_turn(self) -> Turn | None:
        """Return the waiting turn that only sound has caused so far."""
        return next((turn for turn in self._waiting if turn.sound), None)

    def _open(self, most_output: int | None) -> Turn:
        place = self.conversation.place
        turn = self.books.open(self._request(most_output), self._place)
        turn.requested_position = place
        return turn

    def _request(self, most_output: int | None) -> RealtimeRequest:
        limit = self.settings.most_output if most_output is None else most_output
        maximum = self._place.target.mapping.max_output or self._default_output
        output = maximum if limit == UNLIMITED else min(limit, maximum)
        return request_of(self._place.requested_model, RealtimeInput(), self.conversation.most_tokens, output)

    def _begin(self, response: str) -> None:
        if response in self._active or response in self._ended:
            return
        if len(self._active) > MAX_RESPONSES:
            raise UpstreamFailed(f"The provider began more than {MAX_RESPONSES} responses at once.")
        turn, error = self._next()
        self._active[response] = turn
        self.books.begin(turn)
        if error is not None:
            raise error

    def _next(self) -> tuple[Turn, GatewayError | None]:
        """Return the turn of a response that the provider begins now."""
        if self._waiting:
            return self._waiting.popleft(), None
        return self.books.open_late(self._request(None), self._place)

    def _note(self, turn: Turn, event: ServerEvent) -> None:
        """Add a piece of an answer. A longer answer than expected extends its reservation or ends the session."""
        self.books.note(turn, event.text_length, event.sound_bytes)
        tokens = output_tokens(turn.text_bytes, turn.sound_bytes)
        if tokens > turn.recorded:
            self.books.record_progress(turn, self.conversation.estimate(turn.text_bytes, turn.sound_bytes))
            turn.recorded = 2 * tokens
        if tokens > turn.output:
            self.books.grow(turn, self._request(2 * tokens))
            turn.output = max(turn.output, 2 * tokens)

    def _finish(self, event: ServerEvent) -> None:
        if event.id in self._ended:
            return
        late: GatewayError | None = None
        name = event.id or next(iter(self._active), "")
        turn = self._active.pop(name, None)
        if turn is None:
            if not self._waiting and event.usage is None:
                return
            turn, late = self._next()
        if name:
            self._ended.append(name)
        usage = event.usage
        if usage is not None and not counts_anything(usage):
            usage = None  # some providers report zeros for a response that they did not count
        error = _error_of(event, usage is not None or bool(turn.attempt.first_at))
        if error is None:
            usage = self.conversation.complete(usage, turn.text_bytes, turn.sound_bytes)
        if usage is not None:
            self.conversation.answered(usage, None if usage.basis == "estimated" else turn.requested_position)
        self.books.settle(turn, usage, event.finish, error)
        if late is not None:
            raise late

    # Transcripts of speech.

    def _commit(self, item: str) -> None:
        """Begin the transcript of the sound so far, by the model that the provider confirmed last."""
        turn = self._transcript
        self._transcript = None
        sound_bytes = self._uncommitted_bytes
        self._uncommitted_bytes = 0
        self._committing = False
        place = self.settings.transcriber
        error = None
        known = item in self._transcribing or item in self._ended or len(self._transcribing) >= MAX_RESPONSES
        if turn is not None and (turn.place is not place or known):
            if turn.attempt.first_at:
                self.books.abandon(turn, transcription_usage(sound_bytes), None)
            else:
                self.books.void(turn)
            turn = None
        if place is None or known:
            return
        if turn is None:
            turn, error = self.books.open_late(_transcription_request(place, sound_bytes), place)
        turn.sound_bytes = sound_bytes
        self.books.record_progress(turn, transcription_usage(sound_bytes))
        self._transcribing[item] = turn
        self.books.begin(turn)
        if error is not None:
            raise error

    def _transcribed(self, event: ServerEvent) -> None:
        if event.id in self._ended:
            return
        if event.kind == "transcribing":
            live = self._transcribing.get(event.id) or self._transcript
            if live is not None:
                self.books.note(live, event.text_length, 0)
            return
        turn = self._transcribing.pop(event.id, None)
        late = None
        usage = event.usage
        if turn is None:
            place = self.settings.transcriber or self.settings.expected_transcriber
            if usage is None or place is None:
                return
            turn, late = self.books.open_late(_transcription_request(place, self._uncommitted_bytes), place)
        self._ended.append(event.id)
        if usage is None and event.kind == "transcription_failed":
            self.books.void(turn)
            return
        sound_bytes = turn.sound_bytes
        if usage is not None and not sound_bytes:
            sound_bytes = usage.audio_ms * SECOND_BYTES // 1000
        estimated = transcription_usage(sound_bytes, event.text_length)
        if usage is None:
            usage = estimated
        else:
            usage = fill_unreported(usage, estimated, turn.place.target.mapping)
        self.books.settle(turn, usage, "stop", None)
        if late is not None:
            raise late


def _transcription_request(place: SessionPlace, sound_bytes: int) -> TranscriptionRequest:
    requirements = Requirements(stream=True, max_tokens=0, messages=1, units=transcription_units(sound_bytes))
    return TranscriptionRequest(place.requested_model, requirements, no_content)


def _error_of(event: ServerEvent, has_content: bool) -> GatewayError | None:
    """Return the error of a response without an answer; a cancelled response with content is an answer."""
    if event.finish == "error":
        return UpstreamFailed(f"The provider failed to respond{f': {event.fault}' if event.fault else ''}.")
    if event.finish == "cancelled" and not has_content:
        return Cancelled(CALLER_LEFT)
    return None
