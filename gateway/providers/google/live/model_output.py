"""Turns the upstream's messages into events for the caller: content, calls, interruptions, and ends with usage."""

from typing import Any

import orjson

from gateway.clock import Clock
from gateway.dialects import google as dialect
from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.usage import Usage
from gateway.providers.google.live.state import LiveState, LiveTurn

Json = dict[str, Any]
# Seconds for which the session waits for the usage of an ended turn, and for that of a tool call.
USAGE_TIMEOUT_S = 0.5
TOOL_CALL_USAGE_TIMEOUT_S = 0.25
AUDIO = "audio/"
VIDEO = "VIDEO"
IMAGE = "IMAGE"
# Reasons of an end (types.TurnCompleteReason): FAILURE_REASONS are failures; all others except NORMAL_REASONS mean
# filtered content.
FAILURE_REASONS = frozenset(("MALFORMED_FUNCTION_CALL", "RESPONSE_REJECTED", "MAX_REGENERATION_REACHED"))
NORMAL_REASONS = frozenset(("", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"))
RESPONSE_COUNTS = {"candidatesTokenCount": "responseTokenCount", "candidatesTokensDetails": "responseTokensDetails"}
FINISH_REASONS = {"completed": "stop", "cancelled": "cancelled", "incomplete": "content_filter", "failed": "error"}


class ModelOutput:
    """Reads the upstream's messages and updates the state."""

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def take(self, message: Json) -> None:
        """Handle a BidiGenerateContentServerMessage, which may have several members at once."""
        state = self._state
        self._take_activity(_object(message, "voiceActivity"))
        content = _object(message, "serverContent")
        self._take_content(content)
        if calls := [call for call in _list(_object(message, "toolCall"), "functionCalls") if isinstance(call, dict)]:
            self._take_calls(calls)
        for ident in _list(_object(message, "toolCallCancellation"), "ids"):
            self._cancel_call(str(ident))
        self._take_usage(read_usage(message.get("usageMetadata")))
        if content.get("turnComplete") is True:
            self._complete(_text(content.get("turnCompleteReason")))
        self._take_resumption(_object(message, "sessionResumptionUpdate"))
        state.leaving = state.leaving or "goAway" in message

    def due(self) -> float | None:
        """Return the monotonic time at which the next wait for usage ends."""
        return min((turn.due for turn in self._state.turns if turn.due is not None), default=None)

    def end_overdue(self) -> None:
        """End turns, and responses with tool calls, if their usage did not arrive in time."""
        if all(turn.due is None for turn in self._state.turns):
            return
        now = Clock.monotonic()
        for turn in [turn for turn in self._state.turns if turn.due is not None and turn.due <= now]:
            if turn.over:
                self.end(turn)
            else:
                turn.due = None
                turn.quiet = True
                self._finish(turn, None)

    def end(self, turn: LiveTurn) -> None:
        """End a turn and its response, with the usage so far."""
        state = self._state
        state.turns.remove(turn)
        state.uncounted = turn.usage is None
        self._finish(turn, turn)
        state.speech.complete()

    def _finish(self, turn: LiveTurn, counted: LiveTurn | None) -> None:
        """End the response of a turn, and the turn itself if it is `counted`."""
        state = self._state
        response = turn.response
        status, details = _status(turn)
        wire = None
        if response is not None:
            *events, wire = response.done(status, details, None if counted is None else turn.usage, state.last)
            for event in events:
                state.emit(event)
            state.append(response.last)
            turn.response = None
        if counted is not None:
            fault = turn.reason.lower() if status == "failed" else ""
            state.emit_counted(
                "done", wire, id=turn.ident, usage=turn.usage, finish=FINISH_REASONS[status], fault=fault
            )
        elif wire is not None:
            state.emit(wire)

    # Members of a message.

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
                turn.interrupted = turn.generated = True
            if state.settings.detects and state.speech.sound:
                state.speech.begin()
        transcription = _object(content, "inputTranscription")
        if transcription:
            state.speech.add_transcript(
                _text(transcription.get("text")), transcription.get("finished") is True, state.settings.detects
            )
        for part in _list(_object(content, "modelTurn"), "parts"):
            if isinstance(part, dict) and part.get("thought") is not True:
                self._take_part(part)
        if said := _text(_object(content, "outputTranscription").get("text")):
            self._take_text(said)
        if content.get("generationComplete") is True and state.turns:
            state.turns[0].generated = True

    def _take_part(self, part: Json) -> None:
        blob = _object(part, "inlineData")
        data = _text(blob.get("data"))
        if data and _text(blob.get("mimeType")).startswith(AUDIO):
            self._end_complete()
            turn = self._current()
            size = len(data) * 3 // 4
            if turn is None:
                return
            events: list[Json] = []
            if turn.response is not None and self._spoken:
                events = turn.response.sound(data, self._state.last)
            self._pass_on(events, sound_bytes=size)
        elif text := _text(part.get("text")):
            self._take_text(text)

    def _take_text(self, text: str) -> None:
        turn = self._current()
        if turn is not None:
            events = [] if turn.response is None else turn.response.text(text, self._state.last)
            self._pass_on(events, text_length=len(text))

    @property
    def _spoken(self) -> bool:
        response = self._state.response
        return response is not None and response.spoken

    def _pass_on(self, events: list[Json], sound_bytes: int = 0, text_length: int = 0) -> None:
        """Queue content. The last of `events` has the content; without events it is only counted."""
        for event in events[:-1]:
            self._state.emit(event)
        ident = self._state.turns[0].ident
        last = events[-1] if events else None
        self._state.emit_counted("", last, id=ident, sound_bytes=sound_bytes, text_length=text_length)

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
                state.emit(event)
            state.append(turn.response.last)
            self._pass_on([last], text_length=len(arguments))
        state.blocked = True
        turn.due = Clock.monotonic() + TOOL_CALL_USAGE_TIMEOUT_S

    def _cancel_call(self, ident: str) -> None:
        """Cancel a tool call. A caller that has sent its result already gets an error event."""
        state = self._state
        state.blocked = False
        state.calls.pop(ident, None)
        if any(result["id"] == ident for result in state.results):
            state.results = [result for result in state.results if result["id"] != ident]
            text = f"The model cancelled the call {ident[:100]} when it was interrupted; its result has no effect."
            state.refuse(InvalidRequest(text, param="item.call_id", code="tool_call_unknown"))

    def _take_usage(self, usage: Usage | None) -> None:
        state = self._state
        if usage is None:
            return
        if not state.turns and state.uncounted:
            state.uncounted = False  # late usage of a turn that ended with an estimate
            return
        if not state.turns:
            # The model got input and gave no output, which is billed as a turn.
            turn = LiveTurn(f"resp_{new_hex()}", over=True, due=Clock.monotonic())
            state.turns.append(turn)
            state.emit_counted("started", id=turn.ident)
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
            # This is the end of the first request, which had no content; the second request is still open.
            turn.redone = turn.interrupted = turn.generated = False
            return
        turn.over = True
        turn.reason = reason
        turn.due = Clock.monotonic() + USAGE_TIMEOUT_S
        if turn.usage is not None:
            self.end(turn)

    def _take_resumption(self, update: Json) -> None:
        state = self._state
        if not update:
            return
        state.fresh = update.get("resumable") is True and bool(_text(update.get("newHandle")))
        state.handle = _text(update.get("newHandle")) or state.handle

    def _current(self) -> LiveTurn | None:
        """Return the turn of new content, with a response unless the content is not passed on.

        Returns None for content after a tool call, which belongs to an ended turn.
        """
        state = self._state
        if state.turns and state.turns[0].over:
            self.end(state.turns[0])  # its usage is late; the content belongs to the next turn
        if not state.turns:
            if state.blocked:
                return None
            self._begin()
        turn = state.turns[0]
        turn.begun = True
        if turn.quiet and not state.blocked and not turn.cancelled and turn.response is None:
            turn.quiet = False
            turn.response = state.new_response()
            state.emit(turn.response.created())
        return turn

    def _end_complete(self) -> None:
        """End a complete turn without a reported end, once the next turn has content."""
        turns = self._state.turns
        if len(turns) > 1 and turns[0].generated and turns[0].response is None:
            self.end(turns[0])

    def _begin(self) -> None:
        """Begin a turn that the model starts on speech, without a request."""
        state = self._state
        if state.settings.detects and state.speech.sound:
            state.speech.end()
        state.expected = False
        response = state.new_response()
        state.turns.append(LiveTurn(response.ident, response))
        state.emit_counted("started", response.created(), id=response.ident)


def _status(turn: LiveTurn) -> tuple[str, Json | None]:
    """Return the status of an ended turn in the callers' format, with its details."""
    if turn.cancelled:
        return "cancelled", {"type": "cancelled", "reason": "client_cancelled"}
    if turn.interrupted:
        return "cancelled", {"type": "cancelled", "reason": "turn_detected"}
    if turn.reason in NORMAL_REASONS:
        return "completed", None
    if turn.reason in FAILURE_REASONS:
        error = {"type": "server_error", "code": turn.reason.lower(), "message": "The model failed to answer."}
        return "failed", {"type": "failed", "error": error}
    return "incomplete", {"type": "incomplete", "reason": "content_filter"}


def read_usage(wire: Any) -> Usage | None:
    """Return the usage of a `usageMetadata`.

    The Gemini API names output tokens after the response, and Vertex AI after candidates. Video input counts as images,
    since it has the price of images.
    """
    if not isinstance(wire, dict):
        return None
    known = dict(wire)
    for usual, here in RESPONSE_COUNTS.items():
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
    value = holder.get(name)
    if isinstance(value, dict):
        return value
    return {}


def _list(holder: Json, name: str) -> list[Any]:
    value = holder.get(name)
    if isinstance(value, list):
        return value
    return []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
