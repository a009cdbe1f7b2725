"""Speech: an audio file of the duration that reading the text takes.

Source: OpenAI API reference, "Create speech" and its stream events.
"""

from base64 import b64encode
from typing import Any

from gateway.neutral.speech import FORMATS
from gateway.providers.sandbox import audio_files
from gateway.providers.sandbox.checks import Check, between, check_fields, of, one_of
from gateway.providers.sandbox.counting import count
from gateway.providers.sandbox.directives import Directives, strip
from gateway.providers.sandbox.error_responses import refuse
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.response import Response, write_event

OWN_VOICES = ("calm", "bright")
# Those of OpenAI's models, so that a program for them runs unchanged.
USUAL_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
VOICES = (*OWN_VOICES, *USUAL_VOICES)
CHARACTERS_PER_SECOND = 15
MAX_CHARACTERS = 4096  # the limit in the API reference
TOKENS_PER_SECOND = 20
PIECE_BYTES = 16_384


def check_speech(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "input", "voice"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the input."""
    return body["input"]


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body: the file in pieces, or as events."""
    text = strip(body["input"])
    sound_format = body.get("response_format") or "mp3"
    seconds = max(0.1, len(text) / CHARACTERS_PER_SECOND / (body.get("speed") or 1.0))
    sound = audio_files.make(sound_format, seconds)
    pieces = [sound[at : at + PIECE_BYTES] for at in range(0, len(sound), PIECE_BYTES)]
    if body.get("stream_format") != "sse":
        return Response(frames=tuple(pieces), streamed=True, pieces=len(pieces), media=FORMATS[sound_format])
    frames = [write_event({"type": "speech.audio.delta", "audio": b64encode(piece).decode()}) for piece in pieces]
    tokens = count(text)
    heard = round(seconds * TOKENS_PER_SECOND)
    usage = {"input_tokens": tokens, "output_tokens": heard, "total_tokens": tokens + heard}
    done: dict[str, Any] = {"type": "speech.audio.done"}
    frames.append(write_event(done if directives.no_usage else done | {"usage": usage}))
    return Response(frames=tuple(frames), streamed=True, pieces=len(pieces))


def _input(value: Any, param: str) -> None:
    of(str)(value, param)
    if not value:
        raise refuse(f"Invalid '{param}': empty string.", param, "empty_string")
    if len(value) > MAX_CHARACTERS:
        raise refuse(
            f"Invalid '{param}': string too long. Expected a string with maximum length {MAX_CHARACTERS}.",
            param,
            "string_above_max_length",
        )


FIELDS: dict[str, Check] = {
    "model": of(str),
    "input": _input,
    "voice": one_of(*VOICES),
    "response_format": one_of(*FORMATS),
    "speed": between(0.25, 4.0),
    "instructions": of(str),
    "stream_format": one_of("audio", "sse"),
}
