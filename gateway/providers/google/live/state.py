"""The state of a session: its settings, the items that are not sent yet, and the open turns of the model."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.realtime import UNLIMITED, ServerEvent
from gateway.neutral.usage import Usage, added
from gateway.providers.google.live.session_setup import PCM, LiveSettings

# Events for callers in the format of OpenAI's Realtime API (general availability).

Json = dict[str, Any]


class LiveResponse:
    """A response: an optional message, and function calls. Each method returns the events of new content."""

    def __init__(self, session: Json, spoken: bool, metadata: Any) -> None:
        self.ident = f"resp_{new_hex()}"
        self._session = session
        self.spoken = spoken
        self._metadata = metadata
        self._message: Json | None = None
        self._heard = False  # whether audio was passed on
        self._text = ""
        self._items: list[Json] = []

    def created(self) -> Json:
        return {"type": "response.created", "response": self._object("in_progress")}

    def sound(self, data: str, previous: str | None) -> list[Json]:
        """Add audio in base64; the last event has it."""
        opening = self._open(previous)
        self._heard = True
        return [*opening, {"type": "response.output_audio.delta", **self._place(), "delta": data}]

    def text(self, piece: str, previous: str | None) -> list[Json]:
        """Add a piece of the transcript, which is the text of a text response; the last event has it."""
        opening = self._open(previous)
        self._text += piece
        return [*opening, {"type": f"{self._kind}.delta", **self._place(), "delta": piece}]

    def call(self, ident: str, name: str, arguments: str, previous: str | None) -> list[Json]:
        """Add a function call."""
        item = self._add({"type": "function_call", "call_id": ident, "name": name, "arguments": ""})
        started = self._added(item, previous)
        about = {"response_id": self.ident, "item_id": item["id"], "output_index": len(self._items) - 1}
        item |= {"arguments": arguments, "status": "completed"}
        return [
            *started,
            {"type": "response.function_call_arguments.delta", **about, "call_id": ident, "delta": arguments},
            {"type": "response.function_call_arguments.done", **about, "call_id": ident, "name": name}
            | {"arguments": arguments},
            *self._ended(item, previous),
        ]

    def done(self, status: str, details: Json | None, usage: Usage | None, previous: str | None) -> list[Json]:
        """End the response and its message; the last event is `response.done`."""
        closing = self._close("completed" if status == "completed" else "incomplete", previous)
        response = self._object(status) | {
            "status_details": details,
            "usage": None if usage is None else write_usage(usage),
        }
        return [*closing, {"type": "response.done", "response": response}]

    @property
    def last(self) -> str | None:
        """The id of the last item."""
        if self._items:
            item_id: str = self._items[-1]["id"]
            return item_id
        return None

    @property
    def _kind(self) -> str:
        if self.spoken:
            return "response.output_audio_transcript"
        return "response.output_text"

    def _object(self, status: str) -> Json:
        return {
            "id": self.ident,
            "object": "realtime.response",
            "status": status,
            "status_details": None,
            "output": self._items,
            "conversation_id": self._session["conversation"],
            "output_modalities": ["audio"] if self.spoken else ["text"],
            "max_output_tokens": self._session["max_output_tokens"],
            "audio": {"output": {"format": PCM, "voice": self._session["audio"]["output"]["voice"]}},
            "metadata": self._metadata,
            "usage": None,
        }

    def _add(self, item: Json) -> Json:
        added = {"id": f"item_{new_hex()}", "object": "realtime.item", "status": "in_progress", **item}
        self._items.append(added)
        return added

    def _added(self, item: Json, previous: str | None) -> list[Json]:
        place = {"response_id": self.ident, "output_index": self._items.index(item)}
        return [
            {"type": "response.output_item.added", **place, "item": item.copy()},
            {"type": "conversation.item.added", "previous_item_id": previous, "item": item.copy()},
        ]

    def _ended(self, item: Json, previous: str | None) -> list[Json]:
        place = {"response_id": self.ident, "output_index": self._items.index(item)}
        return [
            {"type": "response.output_item.done", **place, "item": item},
            {"type": "conversation.item.done", "previous_item_id": previous, "item": item},
        ]

    def _open(self, previous: str | None) -> list[Json]:
        """Begin the message unless it has begun, and return its events."""
        if self._message is not None:
            return []
        self._message = self._add({"type": "message", "role": "assistant", "content": []})
        part = {"type": "audio", "transcript": ""} if self.spoken else {"type": "text", "text": ""}
        return [
            *self._added(self._message, previous),
            {"type": "response.content_part.added", **self._place(), "part": part},
        ]

    def _close(self, status: str, previous: str | None) -> list[Json]:
        if self._message is None:
            return []
        name = "transcript" if self.spoken else "text"
        place = self._place()
        kind = "output_audio" if self.spoken else "output_text"
        self._message |= {"status": status, "content": [{"type": kind, name: self._text}]}
        part = {"type": "audio" if self.spoken else "text", name: self._text}
        return [
            *([{"type": "response.output_audio.done", **place}] if self._heard else []),
            {"type": f"{self._kind}.done", **place, name: self._text},
            {"type": "response.content_part.done", **place, "part": part},
            *self._ended(self._message, previous),
        ]

    def _place(self) -> Json:
        message = self._message or {}
        index = self._items.index(message)
        return {"response_id": self.ident, "item_id": message["id"], "output_index": index, "content_index": 0}


def write_usage(usage: Usage) -> Json:
    """Return the usage object of the callers' format."""
    input_audio = usage.input_audio + usage.input_audio_cached
    cached = usage.cache_read + usage.input_audio_cached
    cached_details = {"text_tokens": usage.cache_read, "audio_tokens": usage.input_audio_cached, "image_tokens": 0}
    output_text = usage.output_total - usage.output_audio
    return {
        "total_tokens": usage.input_total + usage.output_total,
        "input_tokens": usage.input_total,
        "output_tokens": usage.output_total,
        "input_token_details": {
            "text_tokens": usage.input + usage.cache_read,
            "audio_tokens": input_audio,
            "image_tokens": usage.input_image,
            "cached_tokens": cached,
            "cached_tokens_details": cached_details,
        },
        "output_token_details": {"text_tokens": output_text, "audio_tokens": usage.output_audio},
    }


def write(wire: Json) -> str:
    """Return an event as JSON with a new event id."""
    return orjson.dumps({"event_id": f"event_{new_hex()}", **wire}).decode()


# The caller's speech: its begin, its end and its transcript.

BYTES_PER_MS = 48  # of PCM at 24 kHz


class Speech:
    """The caller's audio, one segment of speech at a time.

    `say` queues an event for the caller. `append` adds the item of a segment to the conversation, and returns the id of
    the preceding item. `sound` is the number of bytes since the last segment. `begun`: speech was detected. `activity`:
    the upstream has received an activityStart without an activityEnd.
    """

    def __init__(self, say: Callable[[Json], None], append: Callable[[str], str | None]) -> None:
        self._say = say
        self._append = append
        self.sound = 0
        self.begun = self.activity = False
        self._total = 0
        self._item = ""  # item id of the current segment
        self._early = ""  # transcript of the current segment so far
        self._heard = ""  # item id of the last segment while its transcript continues
        self._transcript = ""
        self._complete = False

    def add(self, size: int) -> None:
        """Count bytes of audio that were sent."""
        self.sound += size
        self._total += size

    def begin(self) -> None:
        """Report the begin of speech to the caller."""
        if self.begun:
            return
        self.begun = True
        self._say(
            {
                "type": "input_audio_buffer.speech_started",
                "audio_start_ms": max(0, self._total - self.sound) // BYTES_PER_MS,
                "item_id": self._ident(),
            }
        )

    def end(self) -> None:
        """Report the end of speech that the upstream detected, and commit the segment."""
        self.begin()
        about = {"audio_end_ms": self._total // BYTES_PER_MS, "item_id": self._ident()}
        self._say({"type": "input_audio_buffer.speech_stopped", **about})
        self.commit()

    def commit(self) -> None:
        """Make the segment an item of the conversation."""
        self.complete()
        item = self._ident()
        self._item = ""
        self.sound = 0
        self.begun = False
        previous = self._append(item)
        self._say({"type": "input_audio_buffer.committed", "previous_item_id": previous, "item_id": item})
        content = [{"type": "input_audio", "transcript": None}]
        wire = {"id": item, "object": "realtime.item", "type": "message", "role": "user", "content": content}
        for end in ("added", "done"):
            kind = f"conversation.item.{end}"
            self._say({"type": kind, "previous_item_id": previous, "item": {**wire, "status": "completed"}})
        self._heard = item
        early = self._early
        self._early = ""
        if early:
            self._transcribe(early)

    def add_transcript(self, text: str, finished: bool, detects: bool) -> None:
        """Add a piece of a transcript, which belongs to the last item until more speech is detected.

        `detects`: the upstream detects speech, so a transcript means that speech began.
        """
        if text and self._heard and not self.begun:
            self._transcribe(text)
        elif text:
            self._early += text
            if detects:
                self.begin()
        if finished and self._heard:
            self.complete()

    def complete(self) -> None:
        """End the transcript of the last item."""
        item = self._heard
        text = self._transcript
        self._heard = self._transcript = ""
        if item and text:
            # The usage of the transcription is part of the turn that answers the speech.
            usage = {"type": "tokens", "input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            self._say({"type": f"{TRANSCRIPT}.completed", **_at(item), "transcript": text, "usage": usage})

    def _transcribe(self, piece: str) -> None:
        self._transcript += piece
        self._say({"type": f"{TRANSCRIPT}.delta", **_at(self._heard), "delta": piece})

    def _ident(self) -> str:
        self._item = self._item or f"item_{new_hex()}"
        return self._item


TRANSCRIPT = "conversation.item.input_audio_transcription"


def _at(item: str) -> Json:
    return {"item_id": item, "content_index": 0}


Kind = Literal["", "started", "done", "refused", "settings"]


@dataclass(eq=False)
class LiveTurn:
    """A turn of the model, which is the unit of usage.

    `ident` is the id of its first response, and `response` the response in progress. `quiet`: its response has ended,
    so further content is counted and not passed on. `begun`: some content arrived. `generated`: it is complete.
    `redone`: it was requested again before its content began. `over`: it has ended, and its usage may arrive until
    `due` (monotonic time); the usage of a tool call has a `due`, too. `reason` is the reason of its end.
    """

    ident: str
    response: LiveResponse | None = None
    usage: Usage | None = None
    quiet: bool = False
    generated: bool = False
    over: bool = False
    interrupted: bool = False
    cancelled: bool = False
    begun: bool = False
    redone: bool = False
    reason: str = ""
    due: float | None = None

    def count(self, usage: Usage) -> None:
        """Add usage, which the provider reports in parts."""
        if self.usage is None:
            self.usage = usage
        else:
            self.usage = added((self.usage, usage))


@dataclass(eq=False)
class LiveState:
    """The state of a session.

    `pending` (turns by item id) and `results` (function responses) are not sent to the upstream yet. `calls` has the
    function names of open calls by call id. `out` has the next events for the caller.

    `said`: the upstream has a part of the conversation. `blocked`: the model waits for the results of its calls.
    `handle` resumes the conversation on another connection; `fresh`: it covers the whole conversation. `leaving`: the
    connection ends soon. `stale`: the settings changed since its setup. `overridden`: a single response has separate
    instructions. `uncounted`: the last turn ended without usage. `expected`: the upstream detected speech, and answers
    without a request.
    """

    settings: LiveSettings
    turns: deque[LiveTurn] = field(default_factory=deque)
    pending: dict[str, Json] = field(default_factory=dict)
    pending_size: int = 0
    results: list[Json] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    out: deque[ServerEvent] = field(default_factory=deque)
    conversation: str = field(default_factory=lambda: f"conv_{new_hex()}")
    last: str | None = None
    handle: str | None = None
    fresh: bool = False
    said: bool = False
    blocked: bool = False
    leaving: bool = False
    stale: bool = False
    overridden: bool = False
    uncounted: bool = False
    expected: bool = False
    speech: Speech = field(init=False)

    def __post_init__(self) -> None:
        self.speech = Speech(self.emit, self.append)

    def emit(self, wire: Json) -> None:
        """Queue an event for the caller."""
        self.out.append(ServerEvent(text=write(wire)))

    def emit_counted(self, kind: Kind, wire: Json | None = None, **about: Any) -> None:
        """Queue an event with a meaning for accounting; without `wire` the caller gets no event."""
        self.out.append(ServerEvent(kind, text="" if wire is None else write(wire), **about))

    def refuse(self, error: InvalidRequest, ident: str = "") -> None:
        """Queue an error event for the caller's event with the id `ident`, or for none."""
        wire = {
            "type": "invalid_request_error",
            "code": error.code,
            "message": error.message,
            "param": error.param or None,
            "event_id": ident or None,
        }
        self.emit_counted("refused", {"type": "error", "error": wire}, id=ident)

    def append(self, item: str | None) -> str | None:
        """Append an item to the conversation, and return the id of the preceding item."""
        previous = self.last
        self.last = item or self.last
        return previous

    @property
    def response(self) -> LiveResponse | None:
        """The response in progress."""
        return next((turn.response for turn in self.turns if turn.response is not None), None)

    def new_response(self, metadata: Any = None, spoken: bool | None = None) -> LiveResponse:
        """Return a new response."""
        session = self.settings.session | {"conversation": self.conversation}
        return LiveResponse(session, self.settings.spoken if spoken is None else spoken, metadata)

    def session(self, kind: str) -> None:
        """Queue a session event with the current settings."""
        wire = {"type": f"session.{kind}", "session": self.settings.session}
        limit = self.settings.session["max_output_tokens"]
        if limit == "inf":
            limit = UNLIMITED
        # The transcription has no separate model and no separate price.
        self.emit_counted("settings", wire, auto_responds=self.settings.detects, most_output=limit, transcriber="")
