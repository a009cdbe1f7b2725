"""Speech: an audio file of the duration that reading the text takes.

Source: OpenAI API reference, "Create speech" and its stream events.
"""

import math
import struct
from array import array
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from gateway.neutral.speech import FORMATS
from gateway.providers.media_codecs import as_wav
from gateway.providers.sandbox.checks import Check, between, check_fields, of, one_of
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.prose import count
from gateway.providers.sandbox.response import Response, refuse, write_event

# Generates valid audio files of a given duration.
#
# WAV and PCM contain a quiet tone. The other formats contain silence, because an encoder would be larger than the
# sandbox.
#
# Sources: RIFF/WAVE; RFC 9639 (FLAC); ISO/IEC 11172-3 (MP3); RFC 7845 and RFC 3533 (Opus in Ogg); ISO/IEC 13818-7
# (ADTS).

SAMPLE_RATE = 16_000
AMPLITUDE = 2000
TONE_HZ = 220
BLOCK = 4096  # samples in a FLAC frame
# Frames of silence: MP3 with 1152 samples at 44.1 kHz and 128 kbit/s, Opus with 20 ms, AAC with 1024 samples at 44.1
# kHz.
MP3_FRAME = bytes.fromhex("fffb9064") + bytes(413)
MP3_FRAME_S = 1152 / 44_100
OPUS_FRAME_S = 0.02
AAC_FRAME_S = 1024 / 44_100
OPUS_SILENCE = bytes.fromhex("f8fffe")
AAC_SILENCE = bytes.fromhex("00c800802380")
OPUS_RATE = 48_000
PACKETS_PER_PAGE = 50


def make(format: str, seconds: float) -> bytes:
    """Return a file in a speech format that lasts `seconds`, rounded up to a frame."""
    return ENCODERS[format](seconds)


def _pcm(seconds: float) -> bytes:
    count = round(seconds * SAMPLE_RATE)
    period = [
        round(AMPLITUDE * math.sin(2 * math.pi * TONE_HZ * n / SAMPLE_RATE)) for n in range(SAMPLE_RATE // TONE_HZ)
    ]
    return array("h", (period * (count // len(period) + 1))[:count]).tobytes()


def _wav(seconds: float) -> bytes:
    return as_wav(_pcm(seconds), SAMPLE_RATE)


def _flac(seconds: float) -> bytes:
    """Return a silent FLAC file: its frames have the smallest subframe, with all samples 0."""
    total = round(seconds * SAMPLE_RATE)
    info = struct.pack(">HH", BLOCK, BLOCK) + bytes(6)
    info += ((SAMPLE_RATE << 44) | (0 << 41) | (15 << 36) | total).to_bytes(8, "big") + bytes(16)
    starts = range(0, total, BLOCK)
    frames = b"".join(_flac_frame(number, min(BLOCK, total - at)) for number, at in enumerate(starts))
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + frames


def _flac_frame(number: int, samples: int) -> bytes:
    # Sync and fixed block size; sixteen bits of block size and the rate of the stream; one channel, sixteen bits; the
    # number, encoded like a character in UTF-8.
    head = b"\xff\xf8\x70\x08" + chr(number).encode("utf-8", "surrogatepass") + struct.pack(">H", samples - 1)
    frame = head + bytes([_crc(head, 8)]) + b"\0\0\0"
    return frame + _crc(frame, 16).to_bytes(2, "big")


def _mp3(seconds: float) -> bytes:
    return MP3_FRAME * max(1, math.ceil(seconds / MP3_FRAME_S))


def _aac(seconds: float) -> bytes:
    size = 7 + len(AAC_SILENCE)
    # MPEG-4 AAC-LC, 44.1 kHz (4), one channel, no CRC.
    head = bytes((0xFF, 0xF1, 0x50, 0x40 | size >> 11, size >> 3 & 0xFF, (size & 7) << 5 | 0x1F, 0xFC))
    return (head + AAC_SILENCE) * max(1, math.ceil(seconds / AAC_FRAME_S))


def _opus(seconds: float) -> bytes:
    packets = max(1, math.ceil(seconds / OPUS_FRAME_S))
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, OPUS_RATE, 0, 0)
    tags = b"OpusTags" + struct.pack("<I", 7) + b"sandbox" + struct.pack("<I", 0)
    pages = [_ogg_page(0, 0, 2, [head]), _ogg_page(1, 0, 0, [tags])]
    for number, at in enumerate(range(0, packets, PACKETS_PER_PAGE), 2):
        end = min(at + PACKETS_PER_PAGE, packets)
        granule = round(end * OPUS_FRAME_S * OPUS_RATE)
        pages.append(_ogg_page(number, granule, 4 if end == packets else 0, [OPUS_SILENCE] * (end - at)))
    return b"".join(pages)


def _ogg_page(number: int, granule: int, flags: int, packets: list[bytes]) -> bytes:
    """Return an Ogg page of whole packets of less than 255 bytes."""
    laces = bytes(map(len, packets))
    head = struct.pack("<4sBBQIIIB", b"OggS", 0, flags, granule, 1, number, 0, len(laces)) + laces
    body = b"".join(packets)
    return head[:22] + struct.pack("<I", _crc(head + body, 32)) + head[26:] + body


def _crc(data: bytes, bits: int) -> int:
    table = CHECKSUM_TABLES[bits]
    value = 0
    mask = (1 << bits) - 1
    shift = bits - 8
    for byte in data:
        value = (value << 8 & mask) ^ table[(value >> shift) ^ byte]
    return value


def _table(bits: int, polynomial: int) -> list[int]:
    table = []
    top = 1 << bits - 1
    mask = (1 << bits) - 1
    for byte in range(256):
        value = byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
        table.append(value)
    return table


# The checksums of FLAC's frame headers, of FLAC's frames, and of Ogg's pages.
CHECKSUM_TABLES = {8: _table(8, 0x07), 16: _table(16, 0x8005), 32: _table(32, 0x04C11DB7)}
ENCODERS: dict[str, Callable[[float], bytes]] = {
    "wav": _wav, "pcm": _pcm, "flac": _flac, "mp3": _mp3, "opus": _opus, "aac": _aac,
}  # fmt: skip


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
    text: str = body["input"]
    return text


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body: the file in pieces, or as events."""
    text = strip(body["input"])
    sound_format = body.get("response_format") or "mp3"
    seconds = max(0.1, len(text) / CHARACTERS_PER_SECOND / (body.get("speed") or 1.0))
    sound = make(sound_format, seconds)
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
