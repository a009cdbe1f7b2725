"""Speech in OpenAI's format. The answer is binary audio or a stream of events.

Source: OpenAI API reference, "Create speech" and its stream events. Models billed by tokens report their usage only in
events, which `speech_events` in a mapping's `extra` requests.
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import UpstreamFailed
from gateway.neutral.events import Batch, Event, Failed, Finished, MediaPiece
from gateway.neutral.speech import SpeechInput, SpeechRequest
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY
from gateway.providers.media_codecs import format_of, read_binary, voice_of
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.openai.typed_events import TypedEvents
from gateway.providers.protocol import Call, PiecesCodec, Target, UpstreamReply
from gateway.providers.sse import read_batches

PATH = "/audio/speech"
ASKS_EVENTS = "speech_events"
EVENT_STREAM = "text/event-stream"
DEFAULT_SPEED = 1.0


class OpenAISpeech(PiecesCodec):
    """POST {address}/audio/speech. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: SpeechRequest, target: Target) -> Call:
        """Return the call. NotSupported for a voice or format that the model lacks."""
        content: SpeechInput = request.content()
        body: dict[str, Any] = {
            "model": target.mapping.external_id,
            "input": content.text,
            "voice": {"id": content.voice} if content.own_voice else voice_of(content, target),
            "response_format": format_of(content, target),
        }
        warnings = []
        if content.speed != DEFAULT_SPEED and target.mapping.extra.get("no_speed"):
            warnings.append(f"speed is not supported by {target.mapping.key} and was left out.")
        elif content.speed != DEFAULT_SPEED:
            body["speed"] = content.speed
        if content.instructions and target.mapping.extra.get("no_instructions"):
            warnings.append(f"instructions is not supported by {target.mapping.key} and was left out.")
        elif content.instructions:
            body["instructions"] = content.instructions
        if target.mapping.extra.get(ASKS_EVENTS):
            body["stream_format"] = "sse"
        url, headers = address_of(target, PATH, self._tokens)
        headers["content-type"] = "application/json"
        if ASKS_EVENTS in target.mapping.extra:
            headers["accept"] = EVENT_STREAM
        else:
            headers["accept"] = "*/*"
        return Call("POST", url, headers, json.encode(body), True, tuple(warnings))

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the audio as it arrives, and the usage if the answer consists of events."""
        if EVENT_STREAM in reply.headers.get("content-type", "").lower():
            return read_batches(reply, TypedEvents(_SoundEvents().read))
        return read_binary(reply)


class _SoundEvents:
    """Reads stream events: `speech.audio.delta` contains audio in base64, `speech.audio.done` the usage."""

    def __init__(self) -> None:
        self._content = False

    def read(self, wire: dict[str, Any]) -> Event | None:
        if wire["type"] == "speech.audio.delta":
            sound = b64decode(wire["audio"], validate=True)
            self._content = self._content or bool(sound)
            if sound:
                return MediaPiece(sound)
            return None
        if wire["type"] == "speech.audio.done":
            empty = UpstreamFailed(EMPTY, upstream_status=200)
            if self._content:
                return Finished("stop", _usage_of(wire))
            return Failed(empty)
        return None


def _usage_of(wire: dict[str, Any]) -> Usage | None:
    reported = wire.get("usage")
    if not reported:
        return None
    return Usage(input=read_count(reported.get("input_tokens")), output_audio=read_count(reported.get("output_tokens")))
