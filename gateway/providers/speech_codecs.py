"""Functions for all speech codecs: voices and formats of a mapping, and a binary answer as batches of chunks."""

import struct
from collections.abc import Iterator

from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, MediaPiece, Started
from gateway.neutral.speech import FORMATS, SpeechInput, format_among
from gateway.neutral.usage import Usage
from gateway.providers.answer_checks import EMPTY, UNKNOWN_SHAPE
from gateway.providers.protocol import Target, UpstreamReply

WAV_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")


def format_of(content: SpeechInput, target: Target) -> str:
    """Return the audio format to request. NotSupported for a format that the mapping lacks."""
    offered = target.mapping.formats or tuple(FORMATS)
    chosen = format_among(content.format, offered)
    if chosen not in offered:
        raise NotSupported(
            f"{target.mapping.key} does not support the format {chosen}; it supports {', '.join(offered)}.",
            param="response_format",
            code="unsupported_format",
        )
    return chosen


def voice_of(content: SpeechInput, target: Target) -> str:
    """Return the voice in the mapping's spelling, or its first voice if none was requested. NotSupported for an unknown
    voice."""
    offered = target.mapping.voices
    if not offered:
        return content.voice
    if not content.voice:
        return offered[0]
    if content.own_voice:
        message = f"{target.mapping.key} does not support custom voices."
        raise NotSupported(message, param="voice", code="unsupported_voice")
    known = next((voice for voice in offered if voice.lower() == content.voice.lower()), "")
    if not known:
        raise NotSupported(
            f"{target.mapping.key} has no voice {content.voice[:64]!r}; it has {', '.join(offered)}.",
            param="voice",
            code="unsupported_voice",
        )
    return known


def read_binary(reply: UpstreamReply, usage: Usage | None = None) -> Iterator[Batch]:
    """Yield the bytes of a 2xx response as they arrive. Yields Failed for text or JSON, and for an empty response."""
    kind = reply.headers.get("content-type", "").lower()
    if "json" in kind or kind.startswith("text/"):
        yield [Failed(UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200))]
        return
    yield [Started()]
    has_sound = False
    try:
        for chunk in reply.chunks():
            has_sound = has_sound or bool(chunk)
            yield [MediaPiece(chunk)] if chunk else [Heartbeat()]
    except GatewayError as error:
        yield [Failed(error)]
        return
    yield [Finished("stop", usage)] if has_sound else [Failed(UpstreamFailed(EMPTY, upstream_status=200))]


def as_wav(samples: bytes, rate: int, channels: int = 1, bits: int = 16) -> bytes:
    """Return PCM samples as a WAV file."""
    frame = channels * bits // 8
    size = len(samples)
    head = WAV_HEAD.pack(
        b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, channels, rate, rate * frame, frame, bits, b"data", size
    )
    return head + samples
