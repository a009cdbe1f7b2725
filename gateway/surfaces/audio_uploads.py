"""Uploaded audio: its format, from its first bytes and never from its name, and its duration."""

import io
import math
from typing import NamedTuple

from tinytag import TinyTag
from tinytag.tinytag import TinyTagException

from gateway.errors import InvalidRequest
from gateway.files import StoredFile
from gateway.neutral.file_types import HEAD, type_of
from gateway.threads import compute

MOST_READS = 200_000  # of one file, in some 0.4 s; well-made ones take hundreds
SECOND_MS = 1000
# An audio file whose container does not tell its length is no longer than at six kilobits a second, the least that
# coders of speech make, and most likely at some thirty.
LEAST_BYTES_A_SECOND, LIKELY_BYTES_A_SECOND = 750, 4000
# One whose container tells less than its bytes last at the highest rate of its format lasts that long: the length is
# what is reserved, and a container says what its sender likes. MPEG's is layer I's, AAC's two channels at 96 kHz, Ogg's
# Opus and Vorbis; MP4 and WebM may hold images, and PCM is bounded by what its own header says a second takes.
HIGHEST_BYTES_A_SECOND = {"mp3": 56_000, "aac": 144_000, "ogg": 64_000, "amr": 4_000}
MOST_BYTES_A_SECOND = 500_000
TAGS_BYTES = 65_536  # of a file that may be names and a small image
RAW = ("wav", "aiff", "flac")
MOST_RAW_BYTES_A_SECOND = 1_536_000  # 192 kHz, two channels of 32 bits
# Where a WAVE's first part tells its coding, and which codings are PCM; others take at most what MPEG does.
WAVE_CODING, PCM = slice(20, 22), (b"\x01\0", b"\x03\0", b"\xfe\xff")
# Kinds of audio → what they are sent as: containers that may hold moving pictures too are taken for audio.
KINDS = {
    "audio/wav": ("audio/wav", "wav"),
    "audio/aiff": ("audio/aiff", "aiff"),
    "audio/mpeg": ("audio/mpeg", "mp3"),
    "audio/aac": ("audio/aac", "aac"),
    "audio/flac": ("audio/flac", "flac"),
    "audio/ogg": ("audio/ogg", "ogg"),
    "audio/amr": ("audio/amr", "amr"),
    "audio/mp4": ("audio/mp4", "m4a"),
    "video/mp4": ("audio/mp4", "m4a"),
    "video/webm": ("audio/webm", "webm"),
}


class Sound(NamedTuple):
    """`likely_ms` and `most_ms` are equal where the container contains the duration."""

    media_type: str
    filename: str
    likely_ms: int
    most_ms: int


def look_at(file: StoredFile, param: str) -> Sound:
    """What a file is. InvalidRequest `empty_file`, or `unsupported_media` for what is no audio."""
    if not len(file):
        raise InvalidRequest("The file is empty.", param=param, code="empty_file")
    kind, ending = KINDS.get(type_of(file.read(HEAD)), ("", ""))
    if not kind:
        raise InvalidRequest(
            "The file is in no known audio format: send WAV, MP3, FLAC, Ogg, MP4, WebM, AAC, AIFF or AMR.",
            param=param,
            code="unsupported_media",
        )
    likely, most = _length_of(file, ending)
    return Sound(kind, f"sound.{ending}", likely, most)


def _length_of(file: StoredFile, ending: str) -> tuple[int, int]:
    size = len(file)
    duration = compute(_read_length, file, ending)
    if duration is not None:
        length = math.ceil(duration * SECOND_MS)
        return length, length
    return math.ceil(size / LIKELY_BYTES_A_SECOND * SECOND_MS), math.ceil(size / LEAST_BYTES_A_SECOND * SECOND_MS)


def _read_length(file: StoredFile, ending: str) -> float | None:
    """Duration in seconds, at least that of the bytes; None when unknown."""
    try:
        found = TinyTag.get(file_obj=_CountedReader(_Opened(file)), tags=False)
        duration = found.duration
    except (TinyTagException, ValueError, LookupError, OSError, ArithmeticError, TypeError, MemoryError):
        return None
    if not duration or not math.isfinite(duration) or duration < 0:
        return None
    sounding = max(0, len(file) - TAGS_BYTES)
    return max(float(duration), sounding / _highest_rate(ending, found, file.read(WAVE_CODING.stop)))


def _highest_rate(ending: str, found: TinyTag, head: bytes) -> float:
    """The most bytes that a second of this audio takes."""
    if ending not in RAW:
        return HIGHEST_BYTES_A_SECOND.get(ending, MOST_BYTES_A_SECOND)
    if ending == "wav" and head[12:16] == b"fmt " and head[WAVE_CODING] not in PCM:
        return HIGHEST_BYTES_A_SECOND["mp3"]
    raw = (found.samplerate or 0) * (found.channels or 0) * (found.bitdepth or 0) / 8
    return min(raw, MOST_RAW_BYTES_A_SECOND) or MOST_RAW_BYTES_A_SECOND


class _CountedReader(io.BufferedReader):
    """Fails after MOST_READS: a file can be crafted so that a parser reads each of its bytes."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self._left = MOST_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ValueError("more reads than a sound takes")
        return super().read(size)


class _Opened(io.RawIOBase):
    """A stored file with its own read position."""

    def __init__(self, file: StoredFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._file)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._file.read(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
