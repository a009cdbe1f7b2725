"""Carries out the caller's events as messages to the upstream; unsupported events and members are errors."""

import re
from collections.abc import Callable
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.file_types import decode_pieces
from gateway.providers.google.live.session_setup import (
    CONTEXT,
    LOCAL_MEMBERS,
    RATE,
    LiveSettings,
    invalid,
    members,
    read_modalities,
    size_within,
    unsupported,
)
from gateway.providers.google.live.state import LiveState, LiveTurn
from gateway.runtime.threads import compute_if

# Converts conversation items of the callers' format to turns and function responses of the Live API.

Json = dict[str, Any]
LARGE = 1 << 18  # characters from which base64 is checked in a thread
MIN_PART_LENGTH = 1 << 8
ROLES = {"user": "user", "assistant": "model"}
PICTURE = re.compile(r"data:(image/[\w.+-]{1,40});base64,", re.IGNORECASE)


def _unsupported(place: str, reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param=place, code="unsupported_item")


def is_base64(text: str, start: int = 0) -> bool:
    """Return whether a text is base64 from `start` on; the upstream ends a session that sends anything else."""
    return compute_if(len(text) > LARGE, _is_base64, text, start)


def _is_base64(text: str, start: int) -> bool:
    try:
        for _ in decode_pieces(text, start):
            pass
    except ValueError:
        return False
    return True


def size_of_turn(turn: Json) -> int:
    """Return the size of a turn: the characters of its content, and a fixed minimum for each part."""
    return sum(
        MIN_PART_LENGTH + len(part.get("text") or part.get("inlineData", {}).get("data", "")) for part in turn["parts"]
    )


def turn_of(item: Json) -> Json:
    """Return a message as a turn. InvalidRequest for unsupported roles and content."""
    role = item.get("role")
    if role not in ROLES:
        text = "This model's provider supports only the roles 'user' and 'assistant'; use 'instructions' for others."
        raise _unsupported("item.role", text)
    content = item.get("content")
    if not isinstance(content, list) or not content:
        raise invalid("item.content", "'content' must be a list.")
    return {"role": ROLES[role], "parts": [_part_of(part, f"item.content[{at}]") for at, part in enumerate(content)]}


def _part_of(part: Any, place: str) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text") and isinstance(part.get("text"), str):
        return {"text": part["text"]}
    if kind == "input_audio" and isinstance(part.get("audio"), str):
        if not is_base64(part["audio"]):
            raise invalid(f"{place}.audio", "'audio' must be base64.")
        return {"inlineData": {"mimeType": f"audio/pcm;rate={RATE}", "data": part["audio"]}}
    if kind == "output_audio" and isinstance(part.get("transcript"), str):
        return {"text": part["transcript"]}  # past output goes back as its transcript, without the audio
    if kind == "input_image":
        return _picture_of(part, place)
    raise _unsupported(place, f"This model's provider has no counterpart of content of the type {str(kind)[:64]!r}.")


def _picture_of(part: Json, place: str) -> Json:
    url = part.get("image_url")
    match = PICTURE.match(url) if isinstance(url, str) else None
    if match is None or not isinstance(url, str):
        message = "This model supports only images in data URLs (data:image/png;base64,…)."
        raise _unsupported(f"{place}.image_url", message)
    if not is_base64(url, match.end()):
        raise invalid(f"{place}.image_url", "The image must be base64.")
    if part.get("detail") not in (None, "auto"):
        raise _unsupported(f"{place}.detail", "This model's provider has no counterpart of 'detail'.")
    return {"inlineData": {"mimeType": match[1].lower(), "data": url[match.end() :]}}


def result_of(item: Json, names: dict[str, str]) -> Json:
    """Return the result of a call as a FunctionResponse; `names` has the function names of open calls by id."""
    call = item.get("call_id")
    if not isinstance(call, str) or call not in names:
        text = "There is no open call of this id: it was answered, or the model cancelled it when it was interrupted."
        raise InvalidRequest(text, param="item.call_id", code="tool_call_unknown")
    return {"id": call, "name": names[call], "response": _response_of(item.get("output"))}


def _response_of(output: Any) -> Json:
    """Return a JSON object as it is, and any other output as {output} (reference, FunctionResponse.response)."""
    if isinstance(output, str):
        parsed = compute_if(len(output) > LARGE, _parse, output)
        if isinstance(parsed, dict):
            return parsed
    size_within(output)
    return {"output": output}


def _parse(output: str) -> Any:
    """Return the value of a JSON text; None for any other text, and for JSON that is nested too deep to be written."""
    try:
        parsed = orjson.loads(output)
        size_within(parsed)
    except (orjson.JSONDecodeError, InvalidRequest):
        return None
    return parsed


# Content for a response.create in an empty conversation: the model does not answer without any content.
EMPTY_TURN = [{"role": "user", "parts": [{"text": "."}]}]
# The API cannot remove instructions, only replace them.
NO_INSTRUCTIONS = " "
ROOT = "root"
MAX_PENDING_CHARACTERS = 1 << 20  # characters of pending items from which they are sent before the next response
# Values of members of a response.create that equal the default.
NEUTRAL = {"conversation": ("auto",), "parallel_tool_calls": (True,)}


class LiveCommands:
    """Carries out a caller's events.

    `send` sends a message to the upstream; `renew` opens another connection with changed settings.
    """

    def __init__(self, state: LiveState, send: Callable[[Json], None], renew: Callable[[LiveSettings], None]) -> None:
        self._state = state
        self._send = send
        self._renew = renew

    def take(self, wire: Json) -> None:
        """Carry out an event. InvalidRequest for an invalid or unsupported event."""
        step = STEPS.get(wire.get("type", ""))
        if step is None:
            text = f"This model's provider has no counterpart of the event {wire.get('type')!r}."
            raise unsupported("type", text, code="unsupported_event")
        step(self, wire)

    def _update(self, wire: Json) -> None:
        state = self._state
        settings = state.settings.changed(members(wire.get("session") or {}, "session"))
        changes = settings.differs(state.settings) - LOCAL_MEMBERS
        if changes and not state.said:
            self._renew(settings)
        elif changes <= CONTEXT:
            state.settings = settings
            if changes:
                self._send(context_of(settings, changes))
        elif state.handle is None:
            text = "The provider cannot change this in a running session. Open a new session."
            raise unsupported(f"session.{min(changes - CONTEXT)}", text)
        else:
            state.stale = True
        state.settings = settings
        state.session("updated")

    def _append(self, wire: Json) -> None:
        state = self._state
        speech = self._state.speech
        data = wire.get("audio")
        if not isinstance(data, str):
            raise invalid("audio", "'audio' must be audio in base64.")
        if not is_base64(data):
            raise invalid("audio", "'audio' must be base64.")
        if not data:
            return
        if state.pending and not state.turns:
            self._send_pending(complete=False)
        if not state.settings.detects and not speech.activity:
            speech.activity = True
            self._send_audio({"activityStart": {}})
        self._send_audio({"audio": {"mimeType": f"audio/pcm;rate={RATE}", "data": data}})
        speech.add(len(data) * 3 // 4)

    def _commit(self, wire: Json) -> None:
        state = self._state
        if not state.speech.sound:
            raise InvalidRequest("The input audio buffer is empty.", code="input_audio_buffer_commit_empty")
        if state.settings.detects:
            state.expected = state.speech.begun
            self._send_audio({"audioStreamEnd": True})
        state.speech.commit()

    def _clear(self, wire: Json) -> None:
        if self._state.speech.sound:
            text = "This model's provider processes audio on arrival and cannot clear it; commit the buffer instead."
            raise unsupported("type", text, code="unsupported_event")
        self._state.emit({"type": "input_audio_buffer.cleared"})

    def _create(self, wire: Json) -> None:
        state = self._state
        item = wire.get("item")
        if not isinstance(item, dict):
            raise invalid("item", "'item' must be an object.")
        before = wire.get("previous_item_id")
        if before is not None and before != (state.last or ROOT):
            text = "This model's provider supports new items at the end of the conversation only."
            raise unsupported("previous_item_id", text, code="unsupported_item")
        given = item.get("id")
        ident = given if isinstance(given, str) and given else f"item_{new_hex()}"
        if item.get("type") == "message":
            turn = turn_of(item)
            self._drop(ident)
            state.pending[ident] = turn
            state.pending_size += size_of_turn(turn)
        elif item.get("type") == "function_call_output":
            result = result_of(item, state.calls)
            state.results.append(result)
            del state.calls[result["id"]]
        else:
            text = f"This model's provider has no counterpart of items of the type {str(item.get('type'))[:64]!r}."
            raise unsupported("item.type", text, code="unsupported_item")
        previous = state.append(ident)
        shown = _without_media({"object": "realtime.item", **item, "id": ident, "status": "completed"})
        for end in ("added", "done"):
            state.emit({"type": f"conversation.item.{end}", "previous_item_id": previous, "item": shown})
        if state.pending_size > MAX_PENDING_CHARACTERS:
            self._send_pending(complete=False)

    def _delete(self, wire: Json) -> None:
        if not self._drop(str(wire.get("item_id", ""))):
            text = "The provider has this item already and cannot delete it."
            raise unsupported("item_id", text, code="unsupported_event")
        self._state.emit({"type": "conversation.item.deleted", "item_id": wire["item_id"]})

    def _drop(self, ident: str) -> bool:
        """Drop a pending item, and return whether there was one."""
        turn = self._state.pending.pop(ident, None)
        if turn is None:
            return False
        self._state.pending_size -= size_of_turn(turn)
        return True

    def _respond(self, wire: Json) -> None:
        state = self._state
        if state.response is not None:
            text = "A response is in progress: wait until it is done, or cancel it."
            raise InvalidRequest(text, code="conversation_already_has_active_response")
        options = members(wire.get("response") or {}, "response")
        spoken = self._check_options(options)
        response = state.new_response(options.get("metadata"), spoken)
        open_turn = state.turns[-1] if state.turns else None
        if open_turn is not None and (not open_turn.cancelled or not open_turn.begun):
            # The model continues the turn of its tool call, or the turn that was cancelled before its content began.
            # The reservation of that turn covers this response.
            open_turn.redone = open_turn.cancelled
            open_turn.cancelled = False
            open_turn.response = response
            open_turn.quiet = False
            open_turn.due = None
            state.emit_counted("refused", id=wire.get("event_id", ""))
            state.emit(response.created())
        else:
            state.turns.append(LiveTurn(response.ident, response))
            state.emit_counted("started", response.created(), id=response.ident)
        if options.get("instructions"):
            state.overridden = True
            instructions = state.settings.instructions(options["instructions"])
            self._send({"contextUpdate": {"systemInstruction": instructions}})
        self._request_turn()

    def _request_turn(self) -> None:
        """Send what is pending to the upstream, and request an answer."""
        state = self._state
        speech = self._state.speech
        answered = bool(state.results)
        if answered:
            results = state.results
            state.results = []
            state.blocked = False
            self._send({"toolResponse": {"functionResponses": results}})
        if speech.activity:
            if speech.sound:
                speech.commit()
            if state.pending:
                self._send_pending(complete=False)
            speech.activity = False
            self._send_audio({"activityEnd": {}})
        elif state.pending or not (answered or state.expected):
            self._send_pending(complete=True)
        state.expected = False

    def _check_options(self, options: Json) -> bool | None:
        """Check the options of a response.create. Returns whether the response has audio; None for the session's
        modality."""
        session = self._state.settings.session
        for name, value in options.items():
            if value is None or name in ("instructions", "metadata", "output_modalities", "audio"):
                continue
            if value not in (session.get(name), *NEUTRAL.get(name, ())) and value != []:
                text = f"This model's provider has no counterpart of '{name}' of a single response."
                raise unsupported(f"response.{name}", text)
        audio = members(options.get("audio") or {}, "response.audio")
        output = members(audio.get("output") or {}, "response.audio.output")
        if not isinstance(options.get("instructions") or "", str):
            raise invalid("response.instructions", "'instructions' must be a string.")
        for name, value in output.items():
            if value not in (None, session["audio"]["output"].get(name)):
                text = f"This model's provider has no counterpart of '{name}' of a single response."
                raise unsupported(f"response.audio.output.{name}", text)
        if options.get("output_modalities") is None:
            return None
        return "audio" in read_modalities(options["output_modalities"], "response.output_modalities")

    def _cancel(self, wire: Json) -> None:
        """End the response for the caller; further content of the turn is counted and not passed on."""
        state = self._state
        ident = wire.get("response_id")
        if ident and any(turn.ident == ident and turn.response is None for turn in state.turns):
            return
        turn = next((turn for turn in state.turns if turn.response is not None), None)
        if turn is None or turn.response is None or ident not in (None, "", turn.response.ident, turn.ident):
            raise InvalidRequest("This response is not in progress.", code="response_cancel_not_active")
        details = {"type": "cancelled", "reason": "client_cancelled"}
        for event in turn.response.done("cancelled", details, None, state.last):
            state.emit(event)
        state.append(turn.response.last)
        turn.response = None
        turn.quiet = True
        turn.cancelled = True

    def _send_pending(self, complete: bool) -> None:
        """Send the pending items to the upstream; `complete` requests an answer."""
        state = self._state
        turns = list(state.pending.values())
        state.pending.clear()
        state.pending_size = 0
        if not turns and not state.said:
            turns = EMPTY_TURN
        state.said = True
        content: Json = {"turnComplete": complete}
        if turns:
            content["turns"] = turns
        self._send({"clientContent": content})

    def _send_audio(self, sound: Json) -> None:
        self._state.said = True
        self._send({"realtimeInput": sound})


def context_of(settings: LiveSettings, changes: frozenset[str]) -> Json:
    """Return a context update with the changed members."""
    update: Json = {}
    if "instructions" in changes:
        update["systemInstruction"] = settings.instructions(settings.session["instructions"] or NO_INSTRUCTIONS)
    if changes & {"tools", "tool_choice"}:
        update["tools"] = {"tools": settings.tools()}
    return {"contextUpdate": update}


def _without_media(item: Json) -> Json:
    """Return an item for the caller without audio and images, which the caller has already."""
    content = item.get("content")
    if not isinstance(content, list):
        return item
    parts = [part for part in content if isinstance(part, dict)]
    stripped = [{name: value for name, value in part.items() if name not in ("audio", "image_url")} for part in parts]
    return {**item, "content": stripped}


STEPS = {
    "session.update": LiveCommands._update,
    "input_audio_buffer.append": LiveCommands._append,
    "input_audio_buffer.commit": LiveCommands._commit,
    "input_audio_buffer.clear": LiveCommands._clear,
    "conversation.item.create": LiveCommands._create,
    "conversation.item.delete": LiveCommands._delete,
    "response.create": LiveCommands._respond,
    "response.cancel": LiveCommands._cancel,
}
