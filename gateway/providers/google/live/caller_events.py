"""Events for callers in the format of OpenAI's Realtime API (general availability)."""

from typing import Any

import orjson

from gateway.ids import new_hex
from gateway.neutral.usage import Usage
from gateway.providers.google.live.session_setup import PCM

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
            return self._items[-1]["id"]
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
        if self.spoken:
            part = {"type": "audio", "transcript": ""}
        else:
            part = {"type": "text", "text": ""}
        return [
            *self._added(self._message, previous),
            {"type": "response.content_part.added", **self._place(), "part": part},
        ]

    def _close(self, status: str, previous: str | None) -> list[Json]:
        if self._message is None:
            return []
        name = "transcript" if self.spoken else "text"
        place = self._place()
        if self.spoken:
            kind = "output_audio"
        else:
            kind = "output_text"
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
