"""Duration of audio: likely and maximum. Frames are counted; headers are not trusted."""

import math
from collections.abc import Callable
from typing import NamedTuple

from gateway.media import lossless_sounds, mp4_sounds, mpeg_sounds, ogg_sounds, webm_sounds
from gateway.media.frame_counting import Bytes, CountedSound, unknown_sound
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.runtime.large_files import StoredFile

SECOND_MS = 1000
TYPICAL_BYTES_PER_SECOND = 4_000
# The size of tags before the audio that decoders skip; further tags count as audio at the lowest rate of MP3.
TAGS_BYTES = 1 << 16
TAGS_LEAST = 1_000
MAX_TAGS = 16
READERS: dict[str, Callable[[Bytes, int], CountedSound]] = {
    "audio/wav": lossless_sounds.count_wave,
    "audio/aiff": lossless_sounds.count_aiff,
    "audio/flac": lossless_sounds.count_flac,
    "audio/mpeg": mpeg_sounds.count_mpeg,
    "audio/aac": mpeg_sounds.count_adts,
    "audio/amr": mpeg_sounds.count_amr,
    "audio/ogg": ogg_sounds.count_ogg,
    "audio/mp4": mp4_sounds.count_mp4,
    "video/mp4": mp4_sounds.count_mp4,
    "video/webm": webm_sounds.count_webm,
}


class SoundDuration(NamedTuple):
    """Milliseconds of a sound: the likely ones, the most, and the most by its frames. A decoder may find more than
    `foreseen_ms` within the frames, but not more than `max_ms`."""

    likely_ms: int
    max_ms: int
    foreseen_ms: int


def length_of(file: StoredFile) -> SoundDuration:
    """Return the length of a sound. Runs in a thread because the time is linear in the file's size."""
    data = Bytes(file)
    begin = _tags(data)
    reader = READERS.get(type_of(data.at(begin, HEAD_BYTES)))
    if reader is not None:
        counted = reader(data, begin)
    else:
        counted = unknown_sound(data)
    if not counted.seconds:  # no decoder plays it, or only one that knows more formats
        counted = CountedSound(0, data.size, counted.minimum)
    tags = max(0, begin - TAGS_BYTES) / TAGS_LEAST
    foreseen = counted.seconds + counted.rest / counted.minimum + tags
    likely = counted.seconds or min(foreseen, data.size / TYPICAL_BYTES_PER_SECOND)
    foreseen = max(likely, foreseen)
    return SoundDuration(*(math.ceil(seconds * SECOND_MS) for seconds in (likely, foreseen + counted.hidden, foreseen)))


def _tags(data: Bytes) -> int:
    """Return the end of the tags before the audio (ID3v2)."""
    place = 0
    for _ in range(MAX_TAGS):
        head = data.at(place, 10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        place += 10 + size + (10 if head[5] & 0x10 else 0)
    return min(place, data.size)
