"""A strict fake of the speech of OpenAI, of the Gemini API and of ElevenLabs.

Requests are held to the members that the `openai` and `google-genai` packages publish and ElevenLabs' reference names.
The audio of a text is its repeated bytes; OpenAI sends it in three pieces. `silent`: answers tell no usage; `broken`:
the connection ends after the first piece. `sound` is what OpenAI's models say instead of the text, and `usage` what
they report instead of the usual.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import SHUT_RDWR
from typing import Any

from fakes.server import FakeServer, headers_of, send_json
from google import genai
from openai.types.audio import SpeechCreateParams

TOKENS_IN, TOKENS_OUT = 12, 250
ELEVEN_FIELDS = {"text", "model_id", "voice_settings", "language_code"}
ELEVEN_FORMATS = {"mp3_44100_128", "wav_32000", "pcm_32000", "opus_48000_128"}


@dataclass
class Recorded:
    path: str
    query: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def sound_of(text: str) -> bytes:
    return (text.encode() * 100)[:6000] or b"x"


class FakeSpeechServices(FakeServer):
    """The services; `calls` are Recorded."""

    base = ""
    silent = False
    broken = False
    sound: bytes | None = None
    usage: dict[str, int] | None = None

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        call = Recorded(environ["PATH_INFO"], environ["QUERY_STRING"], headers_of(environ))
        call.body = json.loads(environ["wsgi.input"].read())
        self.calls.append(call)
        status = self.next_answer(200)
        if status != 200:
            return send_json(start, status, {"error": {"message": "no", "code": status, "status": "X"}})
        try:
            return self._answer(call, start, environ["fake.socket"])
        except AssertionError as error:
            call.problem = str(error)
            return send_json(start, 400, {"error": {"message": f"refused: {error}"}})

    def _answer(self, call: Recorded, start: Any, sock: Any) -> Iterator[bytes]:
        if call.path == "/v1/audio/speech":
            return self._openai(call.body, start, sock)
        if call.path.startswith("/eleven/v1/text-to-speech/"):
            return self._eleven(call, start)
        return self._google(call, start)

    def _openai(self, body: dict[str, Any], start: Any, sock: Any) -> Iterator[bytes]:
        assert body.keys() <= SpeechCreateParams.__annotations__.keys(), "unknown member"
        assert {"model", "input", "voice"} <= body.keys(), "missing member"
        assert not (body["model"].startswith("tts-1") and {"stream_format", "instructions"} & body.keys()), "not here"
        sound = self.sound or sound_of(body["input"])
        step = max(2000, len(sound) // 20)
        pieces = [sound[at : at + step] for at in range(0, len(sound), step)]
        if body.get("stream_format") == "sse":
            start("200 OK", [("Content-Type", "text/event-stream")])
            return self._events(pieces, sock)
        start("200 OK", [("Content-Type", "audio/mpeg")])
        return self._pieces(pieces, sock)

    def _pieces(self, pieces: list[bytes], sock: Any) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            if self.broken:
                sock.shutdown(SHUT_RDWR)
                return

    def _events(self, pieces: list[bytes], sock: Any) -> Iterator[bytes]:
        for piece in pieces:
            event = {"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()}
            yield b"data: " + json.dumps(event).encode() + b"\n\n"
            if self.broken:
                sock.shutdown(SHUT_RDWR)
                return
        usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
        done = {"type": "speech.audio.done"} | ({} if self.silent else {"usage": self.usage or usage})
        yield b"data: " + json.dumps(done).encode() + b"\n\n"

    def _eleven(self, call: Recorded, start: Any) -> Iterator[bytes]:
        voice, end = call.path.removeprefix("/eleven/v1/text-to-speech/").split("/")
        assert len(voice) == 20 and end == "stream", "voice"
        assert call.query.removeprefix("output_format=") in ELEVEN_FORMATS, "format"
        assert call.body.keys() <= ELEVEN_FIELDS and call.headers.get("xi-api-key"), "members"
        start("200 OK", [("Content-Type", "audio/mpeg")])
        return iter([sound_of(call.body["text"])])

    def _google(self, call: Recorded, start: Any) -> Iterator[bytes]:
        config = call.body["generationConfig"]
        genai.types.GenerateContentConfig.model_validate(
            {
                "response_modalities": config["responseModalities"],
                "speech_config": genai.types.SpeechConfig.model_validate(config["speechConfig"]),
            }
        )
        assert set(config) == {"responseModalities", "speechConfig"} and config["responseModalities"] == ["AUDIO"], (
            "set"
        )
        text = call.body["contents"][0]["parts"][0]["text"]
        data = base64.b64encode(sound_of(text)).decode()
        part = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": data}}
        answer: dict[str, Any] = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
        if not self.silent:
            answer["usageMetadata"] = {
                "promptTokenCount": TOKENS_IN,
                "candidatesTokenCount": TOKENS_OUT,
                "totalTokenCount": TOKENS_IN + TOKENS_OUT,
            }
        return send_json(start, 200, answer)
