"""Duration of audio: likely and maximum. Frames are counted; headers are not trusted."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.media import lossless_sounds, mp4_sounds, ogg_sounds
from gateway.media.frame_counting import MAX_FRAMES, Bytes, CountedSound, Unclear, hidden_aac, unknown_sound
from gateway.media.mp4_sounds import aac_seconds
from gateway.media.ogg_sounds import MAX_OPUS_PACKET_S, opus_seconds, vorbis_seconds
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.runtime.large_files import StoredFile

# Duration of audio in WebM and Matroska (RFC 9559), by blocks.
#
# After an error a reader looks for the next cluster. From an element that its container cannot hold, or that contains
# the name of a cluster, a file is therefore counted by its bytes.

SEGMENT = 0x18538067
CLUSTER = 0x1F43B675
CLUSTER_NAME = (b"\x1f\x43\xb6\x75",)
GROUP = 0xA0
TRACKS = 0x1654AE6B
TRACK = 0xAE
SIMPLE_BLOCK = 0xA3
BLOCK = 0xA1
TRACK_NUMBER = 0xD7
CODEC = 0x86
PRIVATE = 0x63A2
ENCODINGS = 0x6D80  # compressed packets, or packets without their first bytes
CONTAINERS = frozenset((SEGMENT, CLUSTER, GROUP, TRACKS))
BROKEN_ELEMENT = 0
MAX_TRACK_BYTES = 1 << 20
MAX_FIELDS = 1_000  # of a track
OPUS = b"A_OPUS"
VORBIS_HEAD = b"\x01vorbis"
SILENT_CODECS = (b"V_", b"S_", b"D_", b"B_")  # video, subtitles and buttons


@dataclass
class _Track:
    codecs: set[bytes] = field(default_factory=set)
    privates: set[bytes] = field(default_factory=set)
    is_encoded: bool = False
    longest: float = 0.0  # seconds of a packet; 0 for other media than sound

    def read_duration(self) -> None:
        """Set the duration of a packet. Raises Unclear for an unknown codec, and for a track that has two."""
        if len(self.codecs) != 1 or len(self.privates) > 1:
            raise Unclear
        (codec,) = self.codecs
        private = next(iter(self.privates), b"")
        if codec == OPUS:
            self.longest = MAX_OPUS_PACKET_S
        elif codec == b"A_VORBIS" and VORBIS_HEAD in private[:64]:
            self.longest = vorbis_seconds(private[private.index(VORBIS_HEAD) :])
        elif codec == b"A_AAC":
            self.longest = aac_seconds(private)
        elif not codec.startswith(SILENT_CODECS):
            raise Unclear


def count_webm(data: Bytes, begin: int) -> CountedSound:
    """Count the blocks of all tracks with sound."""
    tracks: dict[int, _Track] = {}
    seconds = 0.0
    rest = 0
    try:
        for ident, place, size in _elements(data, begin):
            if ident == TRACK:
                _read_track(data.at(place, size), tracks)
            elif ident in (BLOCK, SIMPLE_BLOCK):
                seconds += _block_seconds(data.at(place, min(size, 16)), tracks)
            elif ident == BROKEN_ELEMENT:
                rest = data.size - place
    except Unclear:
        return unknown_sound(data)
    if rest and any(track.longest != MAX_OPUS_PACKET_S for track in tracks.values()):
        return unknown_sound(data)
    aac = max((track.longest for track in tracks.values() if b"A_AAC" in track.codecs), default=0.0)
    return CountedSound(seconds, rest, hidden=hidden_aac(data, seconds, aac))


def _elements(data: Bytes, place: int) -> Iterator[tuple[int, int, int]]:
    """Yield id, offset and size of the contents of every element, a container before those within it; BROKEN_ELEMENT
    with the offset from which on the structure is not plain."""
    ends = [data.size]
    for _ in range(MAX_FRAMES):
        while len(ends) > 1 and place >= ends[-1]:
            ends.pop()
        if place >= data.size:
            return
        begin = place
        ident, size, place = _element(data, begin)
        is_container = ident in CONTAINERS
        if not place or (size < 0 and not is_container) or place + size > ends[-1]:
            break
        if is_container:
            ends.append(place + size if size >= 0 else ends[-1])
        elif ident not in (BLOCK, SIMPLE_BLOCK) and data.contains(CLUSTER_NAME, place, size):
            break
        if ident == TRACK and size > MAX_TRACK_BYTES:
            break
        yield ident, place, size
        if not is_container:
            place += size
    else:
        begin = place
    yield BROKEN_ELEMENT, begin, 0


def _element(data: Bytes, place: int) -> tuple[int, int, int]:
    """Return id, size and offset of an element's contents: offset 0 if there is none, size -1 if it is unknown."""
    head = data.at(place, 12)
    ident_size = 9 - head[0].bit_length() if head else 9
    if ident_size > 4 or len(head) <= ident_size:
        return 0, 0, 0
    size_size = 9 - head[ident_size].bit_length()
    if size_size > 8 or len(head) < ident_size + size_size:
        return 0, 0, 0
    ident = int.from_bytes(head[:ident_size], "big")
    unknown = (1 << 7 * size_size) - 1
    size = int.from_bytes(head[ident_size : ident_size + size_size], "big") & unknown
    return ident, -1 if size == unknown else size, place + ident_size + size_size


def _read_track(contents: bytes, tracks: dict[int, _Track]) -> None:
    """Add a track to `tracks`. Raises Unclear."""
    file = Bytes(StoredFile.of(contents))
    number = 0
    track = _Track()
    place = 0
    for _ in range(MAX_FIELDS):
        ident, size, at = _element(file, place)
        if not at or size < 0 or at + size > len(contents):
            break
        value = contents[at : at + size]
        place = at + size
        if ident == TRACK_NUMBER:
            number = int.from_bytes(value[:8], "big")
        elif ident == CODEC:
            track.codecs.add(value.rstrip(b"\0"))
        elif ident == PRIVATE:
            track.privates.add(value)
        elif ident == ENCODINGS:
            track.is_encoded = True
    if place < len(contents) or number in tracks:
        raise Unclear
    track.read_duration()
    tracks[number] = track


def _block_seconds(block: bytes, tracks: dict[int, _Track]) -> float:
    """Return the maximum duration of the packets of a block by its first bytes. Raises Unclear."""
    width = 9 - block[0].bit_length() if block else 9
    if width > 8 or len(block) < width + 4:
        raise Unclear
    track = tracks.get(int.from_bytes(block[:width], "big") & ((1 << 7 * width) - 1))
    if track is None:
        return 0.0  # readers skip blocks of unknown tracks
    packet = block[width + 3 :]
    if block[width + 2] & 0x06:
        return track.longest * (packet[0] + 1)
    if track.codecs == {OPUS} and not track.is_encoded:
        return opus_seconds(packet)
    return track.longest


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
    "audio/mpeg": mp4_sounds.count_mpeg,
    "audio/aac": mp4_sounds.count_adts,
    "audio/amr": mp4_sounds.count_amr,
    "audio/ogg": ogg_sounds.count_ogg,
    "audio/mp4": mp4_sounds.count_mp4,
    "video/mp4": mp4_sounds.count_mp4,
    "video/webm": count_webm,
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
    counted = reader(data, begin) if reader is not None else unknown_sound(data)
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
