"""Requests for the text of an audio file, in its language or in English, and their result."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import Struct

from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage
from gateway.runtime.large_files import StoredFile

# Providers count 10 to 33 tokens for a second of audio, and speech has about 4 text tokens a second; the bounds have a
# margin.
AUDIO_TOKENS_PER_SECOND = 10
MAX_AUDIO_TOKENS_PER_SECOND = 50
OUTPUT_TOKENS_PER_SECOND = 4
MAX_OUTPUT_TOKENS_PER_SECOND = 25
BYTES_PER_TOKEN = 4
SECOND_MS = 1000
MIN_AUDIO_KEY = "least_audio_s"  # key in a mapping's `extra`: the minimum seconds that each call is billed for


class TranscriptionInput(Struct, frozen=True):
    """The audio file to transcribe.

    `media_type` is detected from its first bytes. `format` is the caller's response format ("json", …);
    `granularities` of timestamps: word, segment. `diarize`: the result names the speakers. `keywords` are words that
    are likely to occur, `languages` those that may be spoken if there are several.
    """

    sound: StoredFile
    media_type: str
    filename: str
    language: str = ""
    prompt: str = ""
    format: str = "json"
    temperature: float | None = None
    granularities: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    diarize: bool = False
    chunking: str = ""
    keywords: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def text_bytes(self) -> int:
        """Return the size of the text that the model reads with the sound."""
        return sum(len(text.encode("utf-8", "replace")) for text in (self.prompt, *self.keywords))


class TranscriptionRequest(Request, eq=False):
    """A transcription request. `decode` returns a TranscriptionInput."""

    operation: ClassVar[str] = "transcriptions"


class TranslationRequest(TranscriptionRequest, eq=False):
    """A transcription request with an English text as its result."""

    operation: ClassVar[str] = "translations"


@dataclass(slots=True, unsafe_hash=True)
class TranscriptionResult(WholeResult):
    """The transcribed text.

    `words` ({word, start, end, speaker?}) and `segments` ({id, start, end, text, speaker?, …}) are as the provider
    sent them, in seconds; `duration` None: not reported.
    """

    text: str
    language: str = ""
    duration: float | None = None
    words: list[dict[str, Any]] = field(default_factory=list, hash=False)
    segments: list[dict[str, Any]] = field(default_factory=list, hash=False)
    logprobs: list[Any] = field(default_factory=list, hash=False)

    def text_length(self) -> int:
        return len(self.text)


def units_of(content: TranscriptionInput, likely_ms: int, max_ms: int, foreseen_ms: int) -> Units:
    """Return the billable units of audio with these durations, for models billed by the hour and by token."""
    prompt = -(-content.text_bytes // BYTES_PER_TOKEN)
    maximum, foreseen = (
        _units(prompt, length_ms, MAX_AUDIO_TOKENS_PER_SECOND, MAX_OUTPUT_TOKENS_PER_SECOND)
        for length_ms in (max_ms, foreseen_ms)
    )
    likely = _units(prompt, likely_ms, AUDIO_TOKENS_PER_SECOND, OUTPUT_TOKENS_PER_SECOND)
    return Units(maximum, likely, foreseen if foreseen_ms < max_ms else None)


def _units(prompt: int, length_ms: int, audio_rate: int, output_rate: int) -> Usage:
    seconds = length_ms / SECOND_MS
    return Usage(
        input=prompt,
        input_audio=math.ceil(seconds * audio_rate),
        output=math.ceil(seconds * output_rate),
        audio_ms=length_ms,
    )
