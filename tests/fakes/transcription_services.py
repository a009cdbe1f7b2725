"""A strict fake of the transcriptions of OpenAI, Groq and Mistral: forms are held to the published members.

The text of a sound is `HEARD`, three seconds long; gpt-4o's models count tokens, whisper seconds, Mistral both. Models
that stream send two deltas. `reported`: what answers say of their usage instead; `duration`: of the
sound, as verbose answers have it; `counted`: Mistral's tell tokens alone.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from fakes.server import FakeServer, headers_of, send_json
from multipart import MultipartParser, parse_options_header
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsBase
from openai.types.audio.translation_create_params import TranslationCreateParams

HEARD = "Mary had a little lamb."
SECONDS = 3.0
TEXT_TOKENS, AUDIO_TOKENS, SAID_TOKENS = 4, 30, 7
MISTRAL = {"model", "file", "file_url", "language", "temperature", "timestamp_granularities[]", "diarize", "stream"}
MISTRAL |= {"context_bias"}


@dataclass
class Recorded:
    path: str
    headers: dict[str, str]
    fields: list[tuple[str, str]] = field(default_factory=list)
    file: bytes = b""
    filename: str = ""
    media_type: str = ""
    problem: str = ""
    media: str = ""

    def get(self, name: str) -> str:
        return dict(self.fields).get(name, "")


class FakeTranscriptionServices(FakeServer):
    """The services; `calls` are Recorded."""

    base = ""
    reported: dict[str, Any] | None = None
    duration = SECONDS
    counted = False

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        call = Recorded(environ["PATH_INFO"], headers_of(environ), media=environ["CONTENT_TYPE"])
        self.calls.append(call)
        raw = environ["wsgi.input"].read()
        status = self.next_answer(200)
        if status != 200:
            return send_json(start, status, {"error": {"message": "no"}})
        try:
            self._take_form(call, raw)
            return self._answer(call, start)
        except AssertionError as error:
            call.problem = str(error)
            return send_json(start, 400, {"error": {"message": f"refused: {error}"}})

    def _take_form(self, call: Recorded, raw: bytes) -> None:
        kind, options = parse_options_header(call.media)
        assert kind == "multipart/form-data", kind
        for part in MultipartParser(BytesIO(raw), options["boundary"], len(raw), strict=True):
            if part.filename is None:
                call.fields.append((part.name, part.value))
            else:
                call.file, call.filename, call.media_type = part.raw, part.filename, part.content_type

    def _answer(self, call: Recorded, start: Any) -> Iterator[bytes]:
        model, response_format = call.get("model"), call.get("response_format") or "json"
        assert call.file and "." in call.filename, "no file"
        if model.startswith("voxtral"):
            assert {name for name, _ in call.fields} <= MISTRAL, "unknown member"
        else:
            known = TranscriptionCreateParamsBase if "transcriptions" in call.path else TranslationCreateParams
            names = {name.removesuffix("[]") for name, _ in call.fields} - {"stream"}
            assert names <= known.__annotations__.keys(), f"unknown member {names}"
            groq = model.startswith("whisper-large")
            assert groq == call.path.startswith("/groq/openai/v1/audio/"), "another service"
            assert "translations" not in call.path or not model.endswith("turbo"), "it does not translate"
            assert response_format == "json" or model == "whisper-1" or groq, "not this format"
        if call.get("stream") == "true":
            assert model != "whisper-1", "it does not stream"
            start("200 OK", [("Content-Type", "text/event-stream")])
            return self._events(model)
        return send_json(start, 200, self._whole(model, response_format))

    def _whole(self, model: str, response_format: str) -> dict[str, Any]:
        answer: dict[str, Any] = {"text": HEARD} | self._usage(model)
        if model.startswith("whisper-large"):
            answer |= {"x_groq": {"id": "req-1"}}
        if model.startswith("voxtral"):
            return answer | {"model": model, "language": "en", "segments": []}
        if response_format == "verbose_json":
            answer |= {"task": "transcribe", "language": "english", "duration": self.duration}
            segment = {"id": 0, "seek": 0, "start": 0.0, "end": 3.0, "text": f" {HEARD}", "tokens": [1]}
            segment |= {"temperature": 0.0, "avg_logprob": -0.1, "compression_ratio": 1.0, "no_speech_prob": 0.0}
            answer["segments"] = [segment]
            answer["words"] = [{"word": "Mary", "start": 0.0, "end": 0.5}]
            TranscriptionVerbose.model_validate(answer)
            return answer
        Transcription.model_validate(answer)
        return answer

    def _usage(self, model: str) -> dict[str, Any]:
        if model.startswith("whisper-large"):
            return {}
        if self.reported is not None:
            return self.reported
        if model == "whisper-1":
            return {"usage": {"type": "duration", "seconds": SECONDS}}
        if model.startswith("voxtral"):
            usage = {} if self.counted else {"prompt_audio_seconds": 3}
            usage |= {"prompt_tokens": TEXT_TOKENS, "completion_tokens": SAID_TOKENS}
            return {"usage": usage | {"total_tokens": TEXT_TOKENS + SAID_TOKENS}}
        input_tokens = TEXT_TOKENS + AUDIO_TOKENS
        details = {"text_tokens": TEXT_TOKENS, "audio_tokens": AUDIO_TOKENS}
        usage = {
            "type": "tokens",
            "input_tokens": input_tokens,
            "input_token_details": details,
            "output_tokens": SAID_TOKENS,
        }
        return {"usage": usage | {"total_tokens": input_tokens + SAID_TOKENS}}

    def _events(self, model: str) -> Iterator[bytes]:
        for piece in (HEARD[:8], HEARD[8:]):
            yield b"data: " + json.dumps({"type": "transcript.text.delta", "delta": piece}).encode() + b"\n\n"
        done = {"type": "transcript.text.done", "text": HEARD} | self._usage(model)
        yield b"data: " + json.dumps(done).encode() + b"\n\n"
