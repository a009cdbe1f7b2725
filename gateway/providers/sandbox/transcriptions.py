"""Transcriptions: returns the size of the audio as text.

Source: OpenAI API reference, "Create transcription" and its stream events.
"""

from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, accept, check_fields, of, one_of
from gateway.providers.sandbox.directives import Directives, Persona
from gateway.providers.sandbox.prose import count, slice_text
from gateway.providers.sandbox.response import Response, write_event
from gateway.providers.sandbox.speech import CHARACTERS_PER_SECOND

WORDS_PER_SEGMENT = 8
TOKENS_PER_PIECE = 4


def check_transcriptions(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "file"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the prompt, because the audio is not decoded at this point."""
    return body.get("prompt") or ""


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body."""
    text = f"A sound of {len(body['file'])} bytes."
    duration = round(len(text) / CHARACTERS_PER_SECOND, 2)
    usage = {} if directives.no_usage else {"usage": {"type": "duration", "seconds": duration}}
    if body.get("stream") == "true":
        pieces = slice_text(text, TOKENS_PER_PIECE)
        frames = [write_event({"type": "transcript.text.delta", "delta": piece}) for piece in pieces]
        frames.append(write_event({"type": "transcript.text.done", "text": text, **usage}))
        return Response(frames=tuple(frames), streamed=True, pieces=len(pieces))
    whole: dict[str, Any] = {"text": text, **usage}
    if body.get("response_format") == "verbose_json":
        whole |= {"task": "transcribe", "language": "english", "duration": duration} | _times(text, duration)
    return Response(orjson.dumps(whole), pieces=count(text), bare=orjson.dumps({"text": ""}))


def _times(text: str, duration: float) -> dict[str, Any]:
    """Return words and segments with times. All words have the same duration."""
    words = text.split()
    step = duration / len(words) if words else 0.0
    timed: list[dict[str, Any]] = [
        {"word": word, "start": round(n * step, 2), "end": round((n + 1) * step, 2)} for n, word in enumerate(words)
    ]
    segments = []
    for number, at in enumerate(range(0, len(words), WORDS_PER_SEGMENT)):
        part = timed[at : at + WORDS_PER_SEGMENT]
        said = " ".join(entry["word"] for entry in part)
        segments.append({"id": number, "start": part[0]["start"], "end": part[-1]["end"], "text": f" {said}"})
    return {"words": timed, "segments": segments}


FIELDS: dict[str, Check] = {
    "model": of(str),
    "file": accept,
    "language": of(str),
    "prompt": of(str),
    "response_format": one_of("json", "verbose_json"),
    "temperature": of(str),
    "timestamp_granularities[]": one_of("word", "segment"),
    "include[]": of(str),
    "chunking_strategy": of(str),
    "stream": one_of("true", "false"),
}
