"""Realtime sessions of the sandbox. They answer with text, and with a tone of the duration that reading the text takes.

Source: OpenAI API reference, Realtime (general availability). Events are generated when the next event is requested, so
a session only stores its conversation, and deletes the oldest items above a limit. Input audio is only measured: its
"transcript" is its length.
"""

from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from queue import Queue
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson

from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.realtime import size_of
from gateway.providers.answer_checks import SHAPE_ERRORS
from gateway.providers.protocol import Call
from gateway.providers.sandbox import speech
from gateway.providers.sandbox.directives import find, strip
from gateway.providers.sandbox.prose import count, slice_text, write_answer
from gateway.providers.sandbox.response import write_refusal
from gateway.runtime.threads import compute, compute_if
from gateway.transport.websocket_channels import LOST, NORMAL, HandshakeRefused, SocketClosed

Json = dict[str, Any]
BYTES_PER_SECOND = 48_000  # 24 kHz PCM
TOKENS_PER_SECOND = 10
CHARACTERS_PER_SECOND = 15
PIECE_TOKENS = 8
SOUND_PIECE = 24_000
MAX_WAITING = 64  # unanswered events of the caller
MAX_EVENT = 1 << 18  # characters of an event, without its audio
MAX_CONVERSATION_LENGTH = 1 << 20  # characters of a conversation
MAX_ITEMS = 1_000  # items of a conversation
MAX_SOUND_S = 8.0


def connect(call: Call) -> "SandboxSession":
    """Return a session for the handshake of `call`. HandshakeRefused for a model without sessions."""
    query = parse_qs(urlsplit(call.url).query)
    model = query.get("model", [""])[0]
    if query.get("intent") == ["transcription"]:
        return SandboxSession("transcription", "transcribe")
    try:
        find(model, "realtime")
    except InvalidRequest as error:
        raise HandshakeRefused(error.status, {"content-type": "application/json"}, write_refusal(error)) from None
    return SandboxSession("realtime", model)


class ConversationItem(NamedTuple):
    """An item of the conversation: id, role, text, tokens of the text, and bytes of audio."""

    ident: str
    role: str
    text: str
    tokens: int
    sound: int


class SandboxSession:
    """A session as a SessionLink. Events are answered in their order, but a cancellation takes effect immediately."""

    def __init__(self, kind: str, model: str) -> None:
        self.code = LOST
        self.reason = ""
        self.closed = False
        self.received_count = 0
        self._given: Queue[Json | None] = Queue(MAX_WAITING)
        self._responding = False
        self._cancelled = False
        self._session: Json = {
            "type": kind,
            "object": "realtime.session",
            "id": f"sess_{new_hex()}",
            "model": model,
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": None,
                    "turn_detection": None,
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "calm"},
            },
        }
        self._said: deque[ConversationItem] = deque()
        self._size = 0  # characters of the conversation
        self._sound = 0
        self._read = 0  # text tokens that a previous response has read
        self._answered: Json = {}
        self._events: Iterator[Json] = iter([{"type": "session.created", "session": self._session}])

    def send(self, text: str) -> None:
        """Receive an event of the caller."""
        if self.closed:
            raise SocketClosed
        wire: Json = compute_if(len(text) > MAX_EVENT, orjson.loads, text)
        if wire.get("type") == "response.cancel" and self._responding:
            self._cancelled = True
            return
        if wire.get("type") == "input_audio_buffer.append":
            wire["audio"] = size_of(wire.get("audio")) * 3 // 4
        elif len(text) > MAX_EVENT:
            wire = {"type": "", "event_id": wire.get("event_id")}
        self._given.put(wire)

    def receive(self) -> str | None:
        """Return the next event; None when the session is closed."""
        while not self.closed:
            try:
                event = next(self._events, None)
            except SHAPE_ERRORS:
                event = _error(self._answered, "The sandbox does not understand this event.", "invalid_value")
            if event is not None:
                return orjson.dumps({"event_id": f"event_{new_hex()}", **event}).decode()
            wire = self._given.get()
            if wire is not None:
                self._answered = wire
                self._events = self._answer(wire)
        return None

    def ping(self) -> None:
        """Count a pong."""
        self.received_count += 1

    def close(self, number: int = NORMAL, reason: str = "") -> None:
        self.code = number
        self.reason = reason
        self.abort()

    def abort(self) -> None:
        self.closed = True
        if not self._given.full():
            self._given.put(None)

    def _answer(self, wire: Json) -> Iterator[Json]:
        answer = ANSWERS.get(wire.get("type", ""))
        if answer is None:
            text = f"The sandbox does not support this event, or it has more than {MAX_EVENT:,} characters."
            return iter([_error(wire, text, "invalid_value")])
        return answer(self, wire)

    def _update(self, wire: Json) -> Iterator[Json]:
        given = wire.get("session") or {}
        for name, value in given.items():
            if name == "audio":
                for side in ("input", "output"):
                    self._session["audio"][side] |= (value or {}).get(side) or {}
            elif name in self._session:
                self._session[name] = value
        yield {"type": "session.updated", "session": self._session}

    def _append(self, wire: Json) -> Iterator[Json]:
        self._sound += wire["audio"]
        if self._session["audio"]["input"]["turn_detection"] and self._sound >= BYTES_PER_SECOND:
            yield from self._commit(wire)
            yield from self._respond({})

    def _clear(self, wire: Json) -> Iterator[Json]:
        self._sound = 0
        yield {"type": "input_audio_buffer.cleared"}

    def _commit(self, wire: Json) -> Iterator[Json]:
        if not self._sound:
            yield _error(wire, "The input audio buffer is empty.", "input_audio_buffer_commit_empty")
            return
        size = self._sound
        self._sound = 0
        item = f"item_{new_hex()}"
        seconds = size / BYTES_PER_SECOND
        heard = f"{seconds:.1f} seconds of sound"
        self._say(item, "user", heard, size)
        yield {"type": "input_audio_buffer.committed", "item_id": item, "previous_item_id": None}
        content = [{"type": "input_audio", "transcript": None}]
        yield from _added({"id": item, "type": "message", "role": "user", "content": content})
        if self._session["audio"]["input"].get("transcription"):
            about = {"item_id": item, "content_index": 0}
            kind = "conversation.item.input_audio_transcription"
            yield {"type": f"{kind}.delta", **about, "delta": heard}
            usage = {"type": "duration", "seconds": seconds}
            yield {"type": f"{kind}.completed", **about, "transcript": heard, "usage": usage}

    def _create(self, wire: Json) -> Iterator[Json]:
        item = wire.get("item") or {}
        parts = item.get("content") or []
        text = " ".join(part.get("text") or part.get("transcript") or "" for part in parts if isinstance(part, dict))
        sound = sum(len(part.get("audio") or "") * 3 // 4 for part in parts if isinstance(part, dict))
        item = {"id": f"item_{new_hex()}", "status": "completed", **item}
        self._say(str(item["id"]), item.get("role", "user"), text or str(item.get("output", "")), sound)
        yield from _added(item)

    def _retrieve(self, wire: Json) -> Iterator[Json]:
        said = self._find(wire)
        if said is None:
            yield _error(wire, "There is no such item.", "item_not_found")
            return
        part = {"type": "input_audio", "transcript": said.text, "audio": None}
        if not said.sound:
            part = {"type": "output_text" if said.role == "assistant" else "input_text", "text": said.text}
        item = {"id": said.ident, "type": "message", "role": said.role, "status": "completed", "content": [part]}
        yield {"type": "conversation.item.retrieved", "item": item}

    def _delete(self, wire: Json) -> Iterator[Json]:
        said = self._find(wire)
        if said is None:
            yield _error(wire, "There is no such item.", "item_not_found")
            return
        self._said.remove(said)
        self._size -= len(said.text)
        yield {"type": "conversation.item.deleted", "item_id": said.ident}

    def _truncate(self, wire: Json) -> Iterator[Json]:
        """Confirm a truncation of an answer. The sandbox keeps the text."""
        if self._find(wire) is None:
            yield _error(wire, "There is no such item.", "item_not_found")
            return
        about = {name: wire.get(name) for name in ("item_id", "content_index", "audio_end_ms")}
        yield {"type": "conversation.item.truncated", **about}

    def _find(self, wire: Json) -> ConversationItem | None:
        return next((said for said in self._said if said.ident == wire.get("item_id")), None)

    def _respond(self, wire: Json) -> Iterator[Json]:
        """Yield the events of a message, as text or as audio with its transcript. A cancellation stops the pieces."""
        self._cancelled = False
        options = wire.get("response") or {}
        spoken = "audio" in (options.get("output_modalities") or self._session["output_modalities"])
        question = next((said.text for said in reversed(self._said) if said.role == "user" and said.text), "")
        limit = options.get("max_output_tokens") or self._session.get("max_output_tokens")
        text = write_answer(strip(question), question, None, limit if isinstance(limit, int) else None)
        response = f"resp_{new_hex()}"
        about = {"response_id": response, "item_id": f"item_{new_hex()}", "output_index": 0}
        item = {"id": about["item_id"], "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        metadata = options.get("metadata")
        self._responding = True
        yield {"type": "response.created", "response": _response(response, "in_progress", metadata)}
        yield {"type": "response.output_item.added", "response_id": response, "output_index": 0, "item": item}
        part = {"type": "audio", "transcript": ""} if spoken else {"type": "text", "text": ""}
        yield {"type": "response.content_part.added", **about, "content_index": 0, "part": part}
        sent = ""
        kind = "response.output_audio_transcript" if spoken else "response.output_text"
        for piece in slice_text(text, PIECE_TOKENS):
            if self._cancelled or self.closed:
                break
            sent += piece
            yield {"type": f"{kind}.delta", **about, "content_index": 0, "delta": piece}
        seconds = min(MAX_SOUND_S, len(sent) / CHARACTERS_PER_SECOND) if spoken and not self._cancelled else 0.0
        if seconds:
            yield from _sound(seconds, about)
        name = "transcript" if spoken else "text"
        yield {"type": f"{kind}.done", **about, "content_index": 0, name: sent}
        part = {**part, name: sent}
        yield {"type": "response.content_part.done", **about, "content_index": 0, "part": part}
        status = "cancelled" if self._cancelled else "completed"
        content = {**part, "type": f"output_{part['type']}"}
        item |= {"status": "incomplete" if self._cancelled else "completed", "content": [content]}
        yield {"type": "response.output_item.done", "response_id": response, "output_index": 0, "item": item}
        done = _response(response, status, metadata) | {"output": [item], "usage": self._usage(sent, seconds)}
        self._say(str(about["item_id"]), "assistant", sent, 0)
        self._cancelled = False
        self._responding = False
        yield {"type": "response.done", "response": done}

    def _cancel(self, wire: Json) -> Iterator[Json]:
        yield _error(wire, "There is no response in progress.", "response_cancel_not_active")

    def _say(self, ident: str, role: str, text: str, sound: int) -> None:
        """Add an item and delete the oldest items above the limits."""
        self._said.append(ConversationItem(ident, role, text, count(text), sound))
        self._size += len(text)
        while len(self._said) > MAX_ITEMS or (self._size > MAX_CONVERSATION_LENGTH and len(self._said) > 1):
            self._size -= len(self._said.popleft().text)

    def _usage(self, sent: str, seconds: float) -> Json:
        text = count(str(self._session["instructions"])) + sum(said.tokens for said in self._said)
        sound = sum(said.sound for said in self._said) * TOKENS_PER_SECOND // BYTES_PER_SECOND
        cached = min(self._read, text)
        self._read = text
        written = count(sent)
        heard = round(seconds * TOKENS_PER_SECOND)
        return {
            "total_tokens": text + sound + written + heard,
            "input_tokens": text + sound,
            "output_tokens": written + heard,
            "input_token_details": {
                "text_tokens": text,
                "audio_tokens": sound,
                "image_tokens": 0,
                "cached_tokens": cached,
                "cached_tokens_details": {"text_tokens": cached, "audio_tokens": 0, "image_tokens": 0},
            },
            "output_token_details": {"text_tokens": written, "audio_tokens": heard},
        }


ANSWERS = {
    "session.update": SandboxSession._update,
    "input_audio_buffer.append": SandboxSession._append,
    "input_audio_buffer.clear": SandboxSession._clear,
    "input_audio_buffer.commit": SandboxSession._commit,
    "conversation.item.create": SandboxSession._create,
    "conversation.item.retrieve": SandboxSession._retrieve,
    "conversation.item.delete": SandboxSession._delete,
    "conversation.item.truncate": SandboxSession._truncate,
    "response.create": SandboxSession._respond,
    "response.cancel": SandboxSession._cancel,
}


def _response(ident: str, status: str, metadata: Any) -> Json:
    """Return a response. Clients find that of their request by its metadata."""
    about = {"id": ident, "object": "realtime.response", "status": status}
    return {**about, "output": [], "metadata": metadata, "usage": None}


def _added(item: Json) -> Iterator[Json]:
    for end in ("added", "done"):
        yield {"type": f"conversation.item.{end}", "previous_item_id": None, "item": item}


def _sound(seconds: float, about: Json) -> Iterator[Json]:
    data = compute(speech.make, "pcm", seconds)
    for at in range(0, len(data), SOUND_PIECE):
        piece = b64encode(data[at : at + SOUND_PIECE]).decode()
        yield {"type": "response.output_audio.delta", **about, "content_index": 0, "delta": piece}
    yield {"type": "response.output_audio.done", **about, "content_index": 0}


def _error(wire: Json, message: str, code: str) -> Json:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": None}
    return {"type": "error", "error": {**error, "event_id": wire.get("event_id")}}
