"""The turns of one session: matches the provider's events with the caller's requests, and records their usage."""

from collections import deque
from collections.abc import Callable

from msgspec import structs

from gateway.billing.context import RequestContext
from gateway.billing.estimates import fill_unreported
from gateway.engine.realtime.books import (
    CALLER_LEFT,
    Report,
    SessionAccounting,
    SessionPlace,
    Turn,
    TurnParts,
    no_content,
)
from gateway.errors import Cancelled, GatewayError, RateLimited, UpstreamFailed
from gateway.neutral.realtime import (
    INPUT_TOKENS_PER_SECOND,
    MIN_BYTES_PER_TOKEN,
    OUTPUT_TOKENS_PER_SECOND,
    OVERHEAD_TOKENS,
    SECOND_BYTES,
    TEXT_BYTES_PER_TOKEN,
    UNLIMITED,
    ClientEvent,
    RealtimeInput,
    RealtimeRequest,
    ServerEvent,
    request_of,
    transcription_units,
)
from gateway.neutral.request import Requirements
from gateway.neutral.transcriptions import OUTPUT_TOKENS_PER_SECOND as TRANSCRIBED_TOKENS_PER_SECOND
from gateway.neutral.transcriptions import TranscriptionRequest
from gateway.neutral.usage import Usage, counts_anything

# The length of a session's conversation in tokens: as counted by the provider, else estimated from its bytes.

UNKNOWN_CONTEXT = 131_072  # tokens assumed for a model without a known context length


class ConversationLength:
    """The length of a conversation with a model that reads `limit` tokens (0: unknown). Every response reads all of it,
    and the next response reads its output too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit or UNKNOWN_CONTEXT
        # The provider's count of everything before a position, and the size of everything that was added.
        self._counted = OVERHEAD_TOKENS
        self._counted_at = 0
        self._added = 0
        self._apart = False
        self._text = self._sound = 0
        # Bytes of a second of sound in and out, as the provider confirmed them.
        self.heard_second = self.spoken_second = SECOND_BYTES

    @property
    def place(self) -> int:
        """The current position: a response requested now reads everything before it."""
        return self._added

    @property
    def most_tokens(self) -> int:
        """The most tokens that a response can read."""
        return min(self._counted + self._added - self._counted_at, self._limit)

    def add(self, event: ClientEvent) -> None:
        """Add an event of the caller."""
        self._added += event.text_bytes + -(-event.sound_bytes // MIN_BYTES_PER_TOKEN)
        if event.unseen:
            self._added += self._limit
        self._apart = self._apart or event.apart
        self._text += -(-event.text_bytes // TEXT_BYTES_PER_TOKEN)
        self._sound += -(-event.sound_bytes * INPUT_TOKENS_PER_SECOND // self.heard_second)

    def answered(self, usage: Usage, place: int | None) -> None:
        """Record a response with the token counts of the provider.

        Its input counts for everything before the position `place` at which it was requested, unless some response was
        to read another input. `place` is None where the position is unknown.
        """
        self._added += usage.output_total
        read = usage.input_total + OVERHEAD_TOKENS
        if place is None or place < self._counted_at or self._apart or not usage.input_total:
            before = self._counted + self._added - self._counted_at
            self._counted += max(0, read + usage.output_total - before)
        else:
            self._counted = read
            self._counted_at = place
        self._sound = usage.input_audio + usage.input_audio_cached + usage.output_audio
        self._text = usage.input_total - usage.input_audio - usage.input_audio_cached + usage.output

    def estimate(self, text_bytes: int, sound_bytes: int) -> Usage:
        """Estimate the usage of a response without a count from the bytes of its output."""
        sound = min(self._sound, self._limit)
        return Usage(
            input=min(self._text, self._limit - sound),
            input_audio=sound,
            output=-(-text_bytes // TEXT_BYTES_PER_TOKEN),
            output_audio=-(-sound_bytes * OUTPUT_TOKENS_PER_SECOND // self.spoken_second),
            basis="estimated",
        )

    def output_tokens(self, text_bytes: int, sound_bytes: int) -> int:
        """Return the usual number of tokens for this many bytes of an answer."""
        return text_bytes // TEXT_BYTES_PER_TOKEN + sound_bytes * OUTPUT_TOKENS_PER_SECOND // self.spoken_second

    def confirmed(self, event: ServerEvent) -> None:
        """Record the formats of sound in the settings that the provider reports."""
        self.heard_second = event.heard_second or self.heard_second
        self.spoken_second = event.spoken_second or self.spoken_second

    def complete(self, reported: Usage | None, text_bytes: int, sound_bytes: int) -> Usage:
        """Return the usage of a response, with estimates for its input or its output where nothing was reported."""
        estimated = self.estimate(text_bytes, sound_bytes)
        if reported is None:
            return estimated
        missing: dict[str, int] = {}
        if not reported.input_total:
            missing |= {"input": estimated.input, "input_audio": estimated.input_audio}
        if not reported.output_total:
            missing |= {"output": estimated.output, "output_audio": estimated.output_audio}
        if any(missing.values()):
            return structs.replace(reported, **missing, basis="estimated")
        return reported


def transcription_usage(sound: int, second: int, text: int | None = None) -> Usage:
    """Estimate the usage of a transcript from the bytes of its sound, of which a second has `second`, and its text
    (None: unknown)."""
    output = -(-sound * TRANSCRIBED_TOKENS_PER_SECOND // second)
    if text is not None:
        output = -(-text // TEXT_BYTES_PER_TOKEN)
    return Usage(
        input_audio=-(-sound * INPUT_TOKENS_PER_SECOND // second),
        output=output,
        audio_ms=sound * 1000 // second,
        basis="estimated",
    )


# The settings of a session that affect its cost. The caller requests changes, the provider confirms them.
#
# A change that makes the session more expensive counts when it is requested, since the provider may apply it before
# it confirms it. A change that makes it cheaper counts when the provider confirms it, since the provider may refuse
# it.

MAX_PENDING_UPDATES = 256  # unconfirmed updates; beyond it confirmations can no longer be assigned to updates


class SessionSettings:
    """Whether the provider begins responses unrequested (`auto_responds`), the limit of each (`most_output`,
    UNLIMITED), and the transcription model. `find_transcriber` returns the place of a transcription model, or
    raises."""

    def __init__(self, find_transcriber: Callable[[str], SessionPlace]) -> None:
        self._find_transcriber = find_transcriber
        self.auto_responds = True
        self.most_output = UNLIMITED
        self._known: dict[str, SessionPlace] = {}  # by the provider's name of the model
        self._requested: SessionPlace | None = None
        self._transcriber: SessionPlace | None = None
        self._confirmed = self._transcriber_confirmed = False
        self._updates: dict[str, None] = {}  # ids of unconfirmed updates, oldest first
        self._lost = False

    @property
    def transcriber(self) -> SessionPlace | None:
        """The transcription model that the provider confirmed, else the requested one."""
        if self._transcriber_confirmed:
            return self._transcriber
        return self._requested

    @property
    def expected_transcriber(self) -> SessionPlace | None:
        """The transcription model for speech that is sent now."""
        if self._updates:
            return self._requested or self.transcriber
        return self.transcriber

    def transcribe(self, model: str) -> str:
        """Select a transcription model; returns the provider's name of it. Errors of `find_transcriber`."""
        place = self._find_transcriber(model)
        name = place.target.mapping.external_id
        self._requested = self._known[name] = self._known.get(name, place)
        return name

    def requested(self, event: ClientEvent) -> None:
        """Record an event of the caller that is about to be sent."""
        if not event.updates:
            return
        self._lost = self._lost or len(self._updates) >= MAX_PENDING_UPDATES
        if not self._lost:
            self._updates[event.id] = None
        self.auto_responds = self.auto_responds or event.auto_responds
        if event.most_output is not None and _is_more(event.most_output, self.most_output):
            self.most_output = event.most_output

    def refused(self, event: str) -> None:
        """Record that the caller's `event` had no effect."""
        self._updates.pop(event, None)

    def confirmed(self, event: ServerEvent) -> None:
        """Record the settings that the provider reports, at the beginning and after each change."""
        if self._confirmed and self._updates:
            del self._updates[next(iter(self._updates))]
        self._confirmed = True
        settled = not self._updates and not self._lost
        if settled or event.auto_responds:
            self.auto_responds = event.auto_responds
        if event.most_output is not None and (settled or _is_more(event.most_output, self.most_output)):
            self.most_output = event.most_output
        if event.transcriber is not None:
            self._transcriber_confirmed = True
            if event.transcriber:
                self._transcriber = self._known.get(event.transcriber, self._requested)
            else:
                self._transcriber = None


def _is_more(limit: int, before: int) -> bool:
    return before != UNLIMITED and (limit == UNLIMITED or limit > before)


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
            self.conversation.confirmed(event)
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
            self.books.abandon(turn, self._heard(turn.sound_bytes), error)

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
        tokens = self.conversation.output_tokens(turn.text_bytes, turn.sound_bytes)
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
                self.books.abandon(turn, self._heard(sound_bytes), None)
            else:
                self.books.void(turn)
            turn = None
        if place is None or known:
            return
        if turn is None:
            turn, error = self.books.open_late(_transcription_request(place, sound_bytes), place)
        turn.sound_bytes = sound_bytes
        self.books.record_progress(turn, self._heard(sound_bytes))
        self._transcribing[item] = turn
        self.books.begin(turn)
        if error is not None:
            raise error

    def _heard(self, sound_bytes: int, text: int | None = None) -> Usage:
        """Estimate the usage of a transcript of sound in the session's format."""
        return transcription_usage(sound_bytes, self.conversation.heard_second, text)

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
            sound_bytes = usage.audio_ms * self.conversation.heard_second // 1000
        estimated = self._heard(sound_bytes, event.text_length)
        usage = estimated if usage is None else fill_unreported(usage, estimated, turn.place.target.mapping)
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
