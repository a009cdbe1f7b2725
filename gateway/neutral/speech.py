"""Requests for speech: text in, audio out, streamed while it is generated (`neutral/events`: MediaPiece)."""

import math
import re
from typing import ClassVar

from msgspec import Struct

from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Request
from gateway.neutral.usage import Units, Usage

FORMATS = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
MIN_SPEED = 0.25
MAX_SPEED = 4.0
# Speakers read about 15 characters a second; vendors count 20 to 25 tokens for a second of speech. Numbers and symbols
# take many times their length when spoken, so the bound has a margin.
TOKENS_PER_CHARACTER = 1.7
MAX_TOKENS_PER_CHARACTER = 16
MIN_TOKENS_PER_SECOND = 20
BYTES_PER_TOKEN = 4
SECOND_MS = 1000
OWN_VOICE = "voice.id"
VOICE_ID = re.compile(r"[A-Za-z0-9]{20}")  # a text that may be the id of a voice instead of its name
VOICE_IDS = "voice_ids"  # a key of a mapping's `extra`: the provider's ids of the voices that it offers to everyone


class SpeechInput(Struct, frozen=True):
    """The text to speak.

    `voice` and `format` "": the model's default; `own_voice`: `voice` is the id of a voice that the caller created at
    the provider. `speed` 1 is normal.
    """

    text: str
    voice: str = ""
    format: str = ""
    speed: float = 1.0
    instructions: str = ""
    own_voice: bool = False


def voice_uses(content: SpeechInput) -> tuple[HostedUse, ...]:
    """Return the voice, if it is named by an id: most of them belong to an account at the provider."""
    if content.own_voice:
        return (HostedUse("", OWN_VOICE, "object", voice=content.voice),)
    if VOICE_ID.fullmatch(content.voice):
        return (HostedUse("", "voice", "object", voice=content.voice),)
    return NO_USES


class SpeechRequest(Request, eq=False):
    """A speech request. `decode` returns a SpeechInput."""

    operation: ClassVar[str] = "speech"


def format_among(requested: str, offered: tuple[str, ...]) -> str:
    """Return the requested format, else the first offered one (an empty list means that all are offered)."""
    return requested or (offered[0] if offered else next(iter(FORMATS)))


def length_as_text(sound_ms: int) -> int:
    """Return the length of a text with the fewest tokens that audio of this duration can have."""
    return sound_ms * MIN_TOKENS_PER_SECOND * BYTES_PER_TOKEN // SECOND_MS


def units_of(content: SpeechInput) -> Units:
    """Return the billable units of speech, for models billed by character and by token."""
    characters = len(content.text)
    longer = 1 / min(content.speed, 1.0)
    text = -(-len((content.text + content.instructions).encode("utf-8", "replace")) // BYTES_PER_TOKEN)
    maximum = Usage(characters=characters, output_audio=math.ceil(characters * MAX_TOKENS_PER_CHARACTER * longer) + 64)
    made = math.ceil(characters * TOKENS_PER_CHARACTER / content.speed)
    return Units(maximum, Usage(input=text, characters=characters, output_audio=made))
