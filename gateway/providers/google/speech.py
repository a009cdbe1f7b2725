"""Speech of Google's models: generateContent with PCM audio output.

Wire facts: Gemini API, "Speech generation": responseModalities, speechConfig. The MIME type of the audio contains its
rate (audio/L16;codec=pcm;rate=24000); it has sixteen bits and one channel.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.dialects import google as dialect
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import Batch, Failed, Finished, MediaPiece, Started
from gateway.neutral.file_types import decode_base64
from gateway.neutral.speech import SpeechInput, SpeechRequest
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.google.generate import GENERATE_CONTENT, Authorize, address_of
from gateway.providers.media_codecs import as_wav, format_of, voice_of
from gateway.providers.protocol import Call, PiecesCodec, PiecesReader, Target, UpstreamReply
from gateway.runtime.threads import compute

RATE = re.compile(r"rate=(\d{4,6})")
DEFAULT_SAMPLE_RATE = 24000
PIECE_BYTES = 1 << 17
WAV = "wav"


class GoogleSpeech(PiecesCodec):
    """POST {address}/models/{model}:generateContent. `authorize` adds the credential to the headers."""

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: SpeechRequest, target: Target) -> Call:
        """Build the call. NotSupported for a voice or format that the model lacks.

        Instructions go before the text, as the guide shows.
        """
        content: SpeechInput = request.content()
        text = content.text
        if content.instructions:
            text = f"{content.instructions}:\n{text}"
        speech: dict[str, Any] = {}
        if voice := voice_of(content, target):
            speech["voiceConfig"] = {"prebuiltVoiceConfig": {"voiceName": voice}}
        body = {
            "contents": [{"role": "user", "parts": [{"text": text}]}],
            "generationConfig": {"responseModalities": ["AUDIO"], "speechConfig": speech},
        }
        warnings: tuple[str, ...] = ()
        if content.speed != 1.0:
            warnings = (f"speed is not supported by {target.mapping.key} and was left out.",)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        reader = _SoundReader(format_of(content, target) == WAV)
        return Call(
            "POST", address_of(target, GENERATE_CONTENT), headers, json.encode(body), False, warnings, reader=reader
        )

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Read PCM; every call has its own reader, which converts it to the requested format."""
        return _SoundReader(wav=False).read_stream(reply, relayed)


class _SoundReader(PiecesReader):
    """Converts the PCM in an answer to the requested file format."""

    def __init__(self, wav: bool) -> None:
        self._wav = wav

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        try:
            sound, usage, model = compute(self._read, reply.read_all())
        except GatewayError as error:
            yield [Failed(error)]
            return
        yield [Started(model)]
        for at in range(0, len(sound), PIECE_BYTES):
            yield [MediaPiece(sound[at : at + PIECE_BYTES])]
        yield [Finished("stop", usage)]

    def _read(self, body: bytes) -> tuple[bytes, Usage | None, str]:
        wire = read_object(body)
        try:
            feedback = wire.get("promptFeedback") or {}
            parts = []
            if not feedback.get("blockReason"):
                parts = wire["candidates"][0].get("content", {}).get("parts", [])
            blobs = [part["inlineData"] for part in parts if "inlineData" in part]
            samples = b"".join(decode_base64(blob["data"]) for blob in blobs)
            rate = None
            if blobs:
                rate = RATE.search(blobs[0].get("mimeType", ""))
            usage = _usage_of(wire)
            model = wire.get("modelVersion") or ""
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        if not samples:
            raise UpstreamFailed(EMPTY, upstream_status=200)
        if self._wav:
            samples = as_wav(samples, int(rate[1]) if rate else DEFAULT_SAMPLE_RATE)
        return samples, usage, model if isinstance(model, str) else ""


def _usage_of(wire: dict[str, Any]) -> Usage | None:
    reported = wire.get("usageMetadata")
    if not reported:
        return None
    return Usage(
        input=read_count(reported.get("promptTokenCount")),
        output_audio=read_count(reported.get("candidatesTokenCount")),
    )
