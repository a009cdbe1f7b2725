"""Uploaded audio: its format, from its first bytes and never from its name, and its duration."""

from typing import NamedTuple

from gateway.errors import InvalidRequest
from gateway.media.sounds import SECOND_MS as SECOND_MS
from gateway.media.sounds import SoundDuration, length_of
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute

# Kind of audio → media type sent upstream. Containers that may also hold video are treated as audio.
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
    """The format and duration of an audio file."""

    media_type: str
    filename: str
    length: SoundDuration


def detect_format(file: StoredFile, param: str) -> Sound:
    """Detect the format of a file. Raises InvalidRequest `empty_file`, or `unsupported_media` for other content than
    audio."""
    if not len(file):
        raise InvalidRequest("The file is empty.", param=param, code="empty_file")
    kind, ending = KINDS.get(type_of(file.read(HEAD_BYTES)), ("", ""))
    if not kind:
        raise InvalidRequest(
            "The audio format of the file is not supported: send WAV, MP3, FLAC, Ogg, MP4, WebM, AAC, AIFF or AMR.",
            param=param,
            code="unsupported_media",
        )
    return Sound(kind, f"sound.{ending}", compute(length_of, file))
