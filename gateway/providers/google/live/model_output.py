"""What the model does, as callers are told it: content, calls, interruptions, ends of turns with their counts."""

from typing import Any

import orjson

from gateway.clock import Clock
from gateway.dialects import google as dialect
from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.usage import Usage
from gateway.providers.google.live.state import LiveState, LiveTurn

Json = dict[str, Any]
# How long the counts of a turn may follow its end, and those of a call its call.
COUNTED_S = 0.5
CALLED_S = 0.25
AUDIO = "audio/"
VIDEO = "VIDEO"
IMAGE = "IMAGE"
# Why a turn ended (types.TurnCompleteReason): these went wrong, all others of a name were kept from the caller.
WRONG = frozenset(("MALFORMED_FUNCTION_CALL", "RESPONSE_REJECTED", "MAX_REGENERATION_REACHED"))
USUAL = frozenset(("", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"))
MADE = {"candidatesTokenCount": "responseTokenCount", "candidatesTokensDetails": "responseTokensDetails"}
ENDS = {"completed": "stop", "cancelled": "cancelled", "incomplete": "content_filter", "failed": "error"}


class Answers:
    """Reads the messages of the upstream."""

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def take(self, message: Json) -> None:
        """A BidiGenerateContentServerMessage, of which several members may be set at once."""
        state = self._state
        self._take_activity(_object(message, "voiceActivity"))
        content = _object(message, "serverContent")
        self._take_content(content)
        if calls := [call for call in _list(_object(message, "toolCall"), "functionCalls") if isinstance(call, dict)]:
            self._take_calls(calls)
        for ident in _list(_object(message, "toolCallCancellation"), "ids"):
            self._take_back(str(ident))
        self._take_usage(read_usage(message.get("usageMetadata")))
        if content.get("turnComplete") is True:
            self._complete(_text(content.get("turnCompleteReason")))
        self._take_resumption(_object(message, "sessionResumptionUpdate"))
        state.leaving = state.leaving or "goAway" in message

    def due(self) -> float | None:
        """When counts are waited for no more (monotonic)."""
        return min((turn.due for turn in self._state.turns if turn.due is not None), default=None)

    def pass_by(self) -> None:
        """Counts that are due did not come: a turn ends without, a response that called something goes first."""
        if all(turn.due is None for turn in self._state.turns):
            return
        now = Clock.monotonic()
        for turn in [one for one in self._state.turns if one.due is not None and one.due <= now]:
            if turn.over:
                self.end(turn)
            else:
                turn.due = None
                turn.quiet = True
                self._finish(turn, None)

    def end(self, turn: LiveTurn) -> None:
        """A turn is over and counted as far as it was: its response ends with it."""
        state = self._state
        state.turns.remove(turn)
        state.uncounted = turn.usage is None
        self._finish(turn, turn)
        state.speech.complete()

    def _finish(self, turn: LiveTurn, counted: LiveTurn | None) -> None:
        """The end of a turn's response, and of the turn where it was `counted`."""
        state = self._state
        response = turn.response
        status, details = _status(turn)
        wire = None
        if response is not None:
            *events, wire = response.done(status, details, None if counted is None else turn.usage, state.last)
            for event in events:
                state.say(event)
            state.append(response.last)
            turn.response = None
        if counted is not None:
            if status == "failed":
                fault = turn.reason.lower()
            else:
                fault = ""
            state.mean("done", wire, id=turn.ident, usage=turn.usage, finish=ENDS[status], fault=fault)
        elif wire is not None:
            state.say(wire)

    # What comes.

    def _take_activity(self, activity: Json) -> None:
        kind = activity.get("type") or activity.get("voiceActivityType")
        speech = self._state.speech
        if kind == "ACTIVITY_START" and self._state.settings.detects:
            speech.begin()
        elif kind == "ACTIVITY_END" and self._state.settings.detects and speech.sound:
            speech.end()

    def _take_content(self, content: Json) -> None:
        state = self._state
        if content.get("interrupted") is True:
            state.blocked = False
            for turn in list(state.turns)[:1]:
                turn.interrupted = turn.made = True
            if state.settings.detects and state.speech.sound:
                state.speech.begin()
        heard = _object(content, "inputTranscription")
        if heard:
            state.speech.hear(_text(heard.get("text")), heard.get("finished") is True, state.settings.detects)
        for part in _list(_object(content, "modelTurn"), "parts"):
            if isinstance(part, dict) and part.get("thought") is not True:
                self._take_part(part)
        if said := _text(_object(content, "outputTranscription").get("text")):
            self._take_text(said)
        if content.get("generationComplete") is True and state.turns:
            state.turns[0].made = True

    def _take_part(self, part: Json) -> None:
        blob = _object(part, "inlineData")
        data = _text(blob.get("data"))
        if data and _text(blob.get("mimeType")).startswith(AUDIO):
            self._leave_behind()
            turn = self._current()
            size = len(data) * 3 // 4
            if turn is None:
                return
            if turn.response is not None and self._spoken:
                events = turn.response.sound(data, self._state.last)
            else:
                events = []
            self._pass_on(events, sound_bytes=size)
        elif text := _text(part.get("text")):
            self._take_text(text)

    def _take_text(self, text: str) -> None:
        turn = self._current()
        if turn is not None:
            if turn.response is None:
                events = []
            else:
                events = turn.response.text(text, self._state.last)
            self._pass_on(events, text_length=len(text))

    @property
    def _spoken(self) -> bool:
        response = self._state.response
        return response is not None and response.spoken

    def _pass_on(self, events: list[Json], sound_bytes: int = 0, text_length: int = 0) -> None:
        """Content: the last of `events` has it, or the caller is not told."""
        for event in events[:-1]:
            self._state.say(event)
        ident = self._state.turns[0].ident
        last = events[-1] if events else None
        self._state.mean("", last, id=ident, sound_bytes=sound_bytes, text_length=text_length)

    def _take_calls(self, calls: list[Json]) -> None:
        state = self._state
        turn = self._current()
        if turn is None or turn.response is None:
            return
        for call in calls:
            ident = _text(call.get("id")) or f"call_{new_hex()}"
            name = state.settings.caller_name(_text(call.get("name")))
            state.calls[ident] = _text(call.get("name"))
            arguments = orjson.dumps(call.get("args") or {}).decode()
            *events, last = turn.response.call(ident, name, arguments, state.last)
            for event in events:
                state.say(event)
            state.append(turn.response.last)
            self._pass_on([last], text_length=len(arguments))
        state.blocked = True
        turn.due = Clock.monotonic() + CALLED_S

    def _take_back(self, ident: str) -> None:
        """A call is answered no more. Who has given its result is told that it has no effect."""
        state = self._state
        state.blocked = False
        state.calls.pop(ident, None)
        if any(one["id"] == ident for one in state.results):
            state.results = [one for one in state.results if one["id"] != ident]
            text = f"The model took the call {ident[:100]} back when it was interrupted; its result has no effect."
            state.refuse(InvalidRequest(text, param="item.call_id", code="tool_call_unknown"))

    def _take_usage(self, usage: Usage | None) -> None:
        state = self._state
        if usage is None:
            return
        if not state.turns and state.uncounted:
            state.uncounted = False  # of the turn that was estimated already
            return
        if not state.turns:
            # The model heard something and said nothing: that is counted too.
            turn = LiveTurn(f"resp_{new_hex()}", over=True, due=Clock.monotonic())
            state.turns.append(turn)
            state.mean("started", id=turn.ident)
        turn = state.turns[0]
        turn.count(usage)
        if turn.due is not None:
            self.end(turn)

    def _complete(self, reason: str) -> None:
        state = self._state
        state.blocked = False
        if not state.turns:
            return
        turn = state.turns[0]
        if turn.redone and not turn.begun:
            # The end of what was asked for first, of which there was nothing; what was asked for then comes yet.
            turn.redone = turn.interrupted = turn.made = False
            return
        turn.over = True
        turn.reason = reason
        turn.due = Clock.monotonic() + COUNTED_S
        if turn.usage is not None:
            self.end(turn)

    def _take_resumption(self, update: Json) -> None:
        state = self._state
        if not update:
            return
        state.fresh = update.get("resumable") is True and bool(_text(update.get("newHandle")))
        state.handle = _text(update.get("newHandle")) or state.handle

    def _current(self) -> LiveTurn | None:
        """The turn that content belongs to, with a response unless it is not passed on; None where it belongs to one
        that has ended with a call."""
        state = self._state
        if state.turns and state.turns[0].over:
            self.end(state.turns[0])  # its counts are late, and this is the next one's
        if not state.turns:
            if state.blocked:
                return None
            self._begin()
        turn = state.turns[0]
        turn.begun = True
        if turn.quiet and not state.blocked and not turn.cancelled and turn.response is None:
            turn.quiet, turn.response = False, state.respond()
            state.say(turn.response.created())
        return turn

    def _leave_behind(self) -> None:
        """Something new is made, while a turn of which all was made is open still: its own end never came."""
        turns = self._state.turns
        if len(turns) > 1 and turns[0].made and turns[0].response is None:
            self.end(turns[0])

    def _begin(self) -> None:
        """The model answers by itself to what it heard."""
        state = self._state
        if state.settings.detects and state.speech.sound:
            state.speech.end()
        state.expected = False
        response = state.respond()
        state.turns.append(LiveTurn(response.ident, response))
        state.mean("started", response.created(), id=response.ident)


def _status(turn: LiveTurn) -> tuple[str, Json | None]:
    """How a turn ended in the callers' words, with details."""
    if turn.cancelled:
        return "cancelled", {"type": "cancelled", "reason": "client_cancelled"}
    if turn.interrupted:
        return "cancelled", {"type": "cancelled", "reason": "turn_detected"}
    if turn.reason in USUAL:
        return "completed", None
    if turn.reason in WRONG:
        error = {"type": "server_error", "code": turn.reason.lower(), "message": "The model failed to answer."}
        return "failed", {"type": "failed", "error": error}
    return "incomplete", {"type": "incomplete", "reason": "content_filter"}


def read_usage(wire: Any) -> Usage | None:
    """A `usageMetadata` of this API. One address says of the answer what others do of candidates; what moves is counted
    as pictures, whose price it has."""
    if not isinstance(wire, dict):
        return None
    known = dict(wire)
    for usual, here in MADE.items():
        known.setdefault(usual, wire.get(here))
    for name in ("promptTokensDetails", "cacheTokensDetails"):
        entries = wire.get(name)
        if isinstance(entries, list):
            known[name] = [_as_picture(entry) for entry in entries]
    return dialect.read_usage(known)


def _as_picture(entry: Any) -> Any:
    if isinstance(entry, dict) and entry.get("modality") == VIDEO:
        return {**entry, "modality": IMAGE}
    return entry


def _object(holder: Json, name: str) -> Json:
    found = holder.get(name)
    if isinstance(found, dict):
        return found
    return {}


def _list(holder: Json, name: str) -> list[Any]:
    found = holder.get(name)
    if isinstance(found, list):
        return found
    return []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
