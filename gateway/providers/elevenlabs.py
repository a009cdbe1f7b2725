"""Speech of ElevenLabs, which streams audio while it is generated.

Wire facts: API reference, "Stream speech": the path has the id of the voice, the query has the name of the format, and
speech is billed by characters.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from msgspec import json

from gateway.errors import NotSupported
from gateway.neutral.events import Batch
from gateway.neutral.speech import VOICE_ID, VOICE_IDS, SpeechInput, SpeechRequest
from gateway.providers.media_codecs import format_of, read_binary, voice_of
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Call, PiecesCodec, Target, UpstreamReply

NAME = "elevenlabs"
PATH = "/text-to-speech/{voice}/stream"
FORMATS = {"mp3": "mp3_44100_128", "wav": "wav_32000", "pcm": "pcm_32000", "opus": "opus_48000_128"}
MIN_SPEED = 0.7
MAX_SPEED = 1.2
RELATIVE = (".", "..")  # segments of a path that would lead to another operation


class ElevenLabsSpeech(PiecesCodec):
    """POST {address}/text-to-speech/{voice}/stream."""

    dialect = NAME

    def write(self, request: SpeechRequest, target: Target) -> Call:
        """Build the call. NotSupported for unknown voices and formats; speed is limited to the provider's range."""
        content: SpeechInput = request.content()
        warnings = []
        body: dict[str, Any] = {"text": content.text, "model_id": target.mapping.external_id}
        speed = min(max(content.speed, MIN_SPEED), MAX_SPEED)
        if speed != 1.0:
            body["voice_settings"] = {"speed": speed}
        if speed != content.speed:
            limits = f"{MIN_SPEED} to {MAX_SPEED}"
            warnings.append(f"speed was changed to {speed}: {target.mapping.key} supports {limits}.")
        if content.instructions:
            warnings.append(f"instructions is not supported by {target.mapping.key} and was left out.")
        audio_format = format_of(content, target)
        if audio_format not in FORMATS:
            raise NotSupported(f"{target.mapping.key} does not support {audio_format}.", param="response_format")
        voice = _voice_id(content, target)
        if voice in RELATIVE:
            raise NotSupported(f"{target.mapping.key} has no voice {voice!r}.", param="voice")
        path = PATH.format(voice=quote(voice, safe=""))
        url, headers = address_of(target, path)
        headers["content-type"] = "application/json"
        headers["accept"] = "*/*"
        url += ("&" if "?" in url else "?") + f"output_format={FORMATS[audio_format]}"
        return Call("POST", url, headers, json.encode(body), True, tuple(warnings))

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the audio as it arrives. The response has no usage, since the characters of the request are billed."""
        return read_binary(reply)


def _voice_id(content: SpeechInput, target: Target) -> str:
    if content.own_voice or VOICE_ID.fullmatch(content.voice):
        return content.voice
    ids: dict[str, str] = target.mapping.extra.get(VOICE_IDS) or {}
    name = voice_of(content, target)
    return ids.get(name, name)
