"""Duration of audio: likely and maximum. Frames are counted; headers are not trusted."""

import math
from collections.abc import Callable

from gateway.media import boxed_sounds, lossless_sounds, mpeg_sounds, ogg_sounds
from gateway.media.frame_counting import Bytes, CountedSound
from gateway.neutral.file_types import HEAD, type_of
from gateway.runtime.large_files import StoredFile

SECOND_MS = 1000
LIKELY_BYTES_A_SECOND = 4_000
# The size of tags before the audio that decoders skip; further tags count as audio at the lowest rate of MP3.
TAGS_BYTES = 1 << 16
TAGS_LEAST = 1_000
MOST_TAGS = 16
NOTHING = CountedSound(0)
READERS: dict[str, Callable[[Bytes, int], CountedSound]] = {
    "audio/wav": lossless_sounds.count_wave,
    "audio/aiff": lossless_sounds.count_aiff,
    "audio/flac": lossless_sounds.count_flac,
    "audio/mpeg": mpeg_sounds.count_mpeg,
    "audio/aac": mpeg_sounds.count_adts,
    "audio/amr": mpeg_sounds.count_amr,
    "audio/ogg": ogg_sounds.count_ogg,
    "audio/mp4": boxed_sounds.count_mp4,
    "video/mp4": boxed_sounds.count_mp4,
    "video/webm": boxed_sounds.count_webm,
}


def length_of(file: StoredFile) -> tuple[int, int]:
    """Return the likely and the maximum milliseconds. Runs in a thread because the time is linear in the file's
    size.
    """
    data = Bytes(file)
    begin = _tags(data)
    reader = READERS.get(type_of(data.at(begin, HEAD)))
    if reader is not None:
        counted = reader(data, begin)
    else:
        counted = NOTHING
    if not counted.seconds:  # no decoder plays it, or only one that knows more formats
        counted = CountedSound(0, data.size, counted.least)
    tags = max(0, begin - TAGS_BYTES) / TAGS_LEAST
    most = counted.seconds + counted.rest / counted.least + tags
    likely = counted.seconds or min(most, data.size / LIKELY_BYTES_A_SECOND)
    return math.ceil(likely * SECOND_MS), math.ceil(max(likely, most) * SECOND_MS)


def _tags(data: Bytes) -> int:
    """Return the end of the tags before the audio (ID3v2)."""
    place = 0
    for _ in range(MOST_TAGS):
        head = data.at(place, 10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        place += 10 + size + (10 if head[5] & 0x10 else 0)
    return min(place, data.size)
