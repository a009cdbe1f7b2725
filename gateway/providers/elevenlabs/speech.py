"""Speech of ElevenLabs: the call, and its answer, audio streamed as it is generated.

Facts: API reference, "Stream speech": voices are ids in the path, the format is one of its names in the query, billed
by characters.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from msgspec import json

from gateway.errors import NotSupported
from gateway.neutral.events import Batch
from gateway.neutral.speech import SpeechInput, SpeechRequest
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.speech_codecs import format_of, read_binary, voice_of
from gateway.providers.written import PiecesCodec

NAME = "elevenlabs"
PATH = "/text-to-speech/{voice}/stream"
FORMATS = {"mp3": "mp3_44100_128", "wav": "wav_32000", "pcm": "pcm_32000", "opus": "opus_48000_128"}
VOICES = "voice_ids"  # of a mapping's `extra`: what its voices are called there
ID_LENGTH = 20  # an id has as many letters and digits; one that is not listed may be the caller's own voice
LEAST_SPEED = 0.7
MOST_SPEED = 1.2


class ElevenLabsSpeech(PiecesCodec):
    """POST {address}/text-to-speech/{voice}/stream."""

    dialect = NAME

    def write(self, request: SpeechRequest, target: Target) -> Call:
        """The call. NotSupported for a voice or format that is not there; speed is kept within its range."""
        wanted: SpeechInput = request.content()
        warnings = []
        body: dict[str, Any] = {"text": wanted.text, "model_id": target.mapping.external_id}
        speed = min(max(wanted.speed, LEAST_SPEED), MOST_SPEED)
        if speed != 1.0:
            body["voice_settings"] = {"speed": speed}
        if speed != wanted.speed:
            warnings.append(f"speed was taken as {speed}: {target.mapping.key} speaks no slower or faster.")
        if wanted.instructions:
            warnings.append(f"instructions is not supported by {target.mapping.key} and was left out.")
        made = format_of(wanted, target)
        if made not in FORMATS:
            raise NotSupported(f"{target.mapping.key} makes no {made}.", param="response_format")
        path = PATH.format(voice=quote(_voice_id(wanted, target), safe=""))
        url, headers = address_of(target, path)
        headers["content-type"] = "application/json"
        headers["accept"] = "*/*"
        url += ("&" if "?" in url else "?") + f"output_format={FORMATS[made]}"
        return Call("POST", url, headers, json.encode(body), True, tuple(warnings))

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """The audio as it comes; what it costs are the characters that were sent."""
        return read_binary(reply)


def _voice_id(wanted: SpeechInput, target: Target) -> str:
    if wanted.own_voice or len(wanted.voice) == ID_LENGTH and wanted.voice.isalnum():
        return wanted.voice
    ids: dict[str, str] = target.mapping.extra.get(VOICES) or {}
    name = voice_of(wanted, target)
    return ids.get(name, name)
