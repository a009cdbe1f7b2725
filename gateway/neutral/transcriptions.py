"""A request for the text of an audio file, in its language or in English, and its result."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage
from gateway.runtime.large_files import StoredFile

# Providers count 10 to 33 tokens for a second of audio, and speech is some 4 tokens of text a second; bounds have room.
AUDIO_TOKENS_A_SECOND = 10
MOST_AUDIO_TOKENS_A_SECOND = 50
OUTPUT_TOKENS_A_SECOND = 4
MOST_OUTPUT_TOKENS_A_SECOND = 25
BYTES_A_TOKEN = 4
SECOND_MS = 1000
LEAST_AUDIO = "least_audio_s"  # of a mapping's `extra`: seconds that each call is billed at the least


@dataclass(frozen=True, slots=True)
class TranscriptionInput:
    """`sound` with the media type that its first bytes tell. `format` is the caller's word for the answer ("json", …);
    `granularities` of times: word, segment. `diarize`: who says what is told. `keywords` are words that are likely,
    `languages` those that may be spoken, where it is not one alone."""

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


class TranscriptionRequest(Request, eq=False):
    """`decode` gives a TranscriptionInput."""

    operation: ClassVar[str] = "transcriptions"


class TranslationRequest(TranscriptionRequest, eq=False):
    """The same, with an English text for an answer."""

    operation: ClassVar[str] = "translations"


@dataclass(slots=True, unsafe_hash=True)
class TranscriptionResult(WholeResult):
    """`words` ({word, start, end, speaker?}) and `segments` ({id, start, end, text, speaker?, …}) are as the provider
    has them, in seconds; `duration` None: not told."""

    text: str
    language: str = ""
    duration: float | None = None
    words: list[dict[str, Any]] = field(default_factory=list, hash=False)
    segments: list[dict[str, Any]] = field(default_factory=list, hash=False)
    logprobs: list[Any] = field(default_factory=list, hash=False)

    def text_length(self) -> int:
        return len(self.text)


def units_of(wanted: TranscriptionInput, likely_ms: int, most_ms: int) -> Units:
    """What an audio file of so many milliseconds may count as, whether its model is billed by the hour or by tokens."""
    prompt = -(-len(wanted.prompt.encode("utf-8", "replace")) // BYTES_A_TOKEN)
    return Units(
        _units(prompt, most_ms, MOST_AUDIO_TOKENS_A_SECOND, MOST_OUTPUT_TOKENS_A_SECOND),
        _units(prompt, likely_ms, AUDIO_TOKENS_A_SECOND, OUTPUT_TOKENS_A_SECOND),
    )


def _units(prompt: int, length_ms: int, audio_rate: int, output_rate: int) -> Usage:
    seconds = length_ms / SECOND_MS
    return Usage(
        input=prompt,
        input_audio=math.ceil(seconds * audio_rate),
        output=math.ceil(seconds * output_rate),
        audio_ms=length_ms,
    )
