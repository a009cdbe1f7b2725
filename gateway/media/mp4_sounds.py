"""Duration of audio in MP4 (ISO/IEC 14496-12 and 14496-1), by samples.

Readers find boxes at unusual places too, play edits repeatedly, and decode several blocks in a sample. A file whose
structure is not plain is therefore counted by its bytes, at the lowest rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.media.frame_counting import (
    MAX_FRAMES,
    MIN_BYTES_PER_SECOND,
    Bytes,
    CountedSound,
    Unclear,
    hidden_aac,
    unknown_sound,
)
from gateway.media.ogg_sounds import MAX_OPUS_PACKET_S
from gateway.neutral.sound_length import AAC_RATES, AAC_SAMPLES, FRAME_HEAD_BYTES, adts_frame, mpeg_frame

# Duration of consecutive frames of MPEG audio, AAC in ADTS and AMR (ISO/IEC 11172-3 and 13818-7, RFC 4867).

MIN_MPEG_BYTES_PER_SECOND = 250  # bytes a second of frames in free format
MIN_AAC_BYTES_PER_SECOND = 50
AMR_FRAME_S = 0.02
AMR_NARROW = b"#!AMR\n"
AMR_WIDE = b"#!AMR-WB\n"
AMR_SIZES = {
    AMR_NARROW: (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1),
    AMR_WIDE: (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1),
}
CONSISTENT = 3  # consecutive frames by which a decoder recognizes the format


def count_mpeg(data: Bytes, begin: int) -> CountedSound:
    """Count MPEG audio from `begin` on, which is after the tags."""
    return _follow(data, begin, MIN_MPEG_BYTES_PER_SECOND)


def count_adts(data: Bytes, begin: int) -> CountedSound:
    return _follow(data, begin, MIN_AAC_BYTES_PER_SECOND)


def count_amr(data: Bytes, begin: int) -> CountedSound:
    """Count AMR with one channel; files with several channels are unknown."""
    kind = next((signature for signature in (AMR_WIDE, AMR_NARROW) if data.at(begin, len(signature)) == signature), b"")
    if not kind:
        return CountedSound(0, data.size)
    sizes = AMR_SIZES[kind]
    place = begin + len(kind)
    frames = 0
    while place < data.size and frames < MAX_FRAMES:
        place += sizes[data.at(place, 1)[0] >> 3 & 15]
        frames += 1
    return CountedSound(frames * AMR_FRAME_S, max(0, data.size - place), 50)


def _follow(data: Bytes, begin: int, minimum: int) -> CountedSound:
    """Find frames like a decoder: at the end of the previous frame, else at the next sync word. Frames of both kinds
    count, because decoders may recognize the file by either."""
    seconds = 0.0
    rest = 0
    in_a_row = 0
    longest = 0
    longest_aac = 0.0
    place = begin
    for _ in range(MAX_FRAMES):
        if place >= data.size:
            break
        head = data.at(place, FRAME_HEAD_BYTES)
        size, length_s = mpeg_frame(head)
        is_aac = not size
        if is_aac:
            size, length_s = adts_frame(head)
        if size:
            seconds += length_s
            place += size
            in_a_row += 1
            longest = max(longest, in_a_row)
            if is_aac and in_a_row >= CONSISTENT:
                longest_aac = max(longest_aac, length_s)
        else:
            following = data.find(b"\xff", place + 1)
            rest += following - place
            place = following
            in_a_row = 0
    rest += max(0, data.size - place)
    least_of_rest = minimum if longest >= CONSISTENT else MIN_BYTES_PER_SECOND
    return CountedSound(seconds, rest, least_of_rest, hidden_aac(data, seconds, longest_aac))


CONTAINERS = frozenset((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"edts"))
MEDIA = b"mdat"
TABLES = (b"stsz", b"stz2", b"trun", b"elst")
# Boxes that make a sound longer. Readers find them in every other box, so one that contains such a name is unclear.
COUNTED_BOXES = (b"stsd", *TABLES, b"cmov")
MAX_BOXES = 100_000
MAX_DESCRIPTIONS = 16
MAX_EDITS = 1_000
DESCRIBED = 4_096
EDIT_SIZES = {0: 12, 1: 20}
EMPTY = b"\xff\xff\xff\xff"
# Video, text and time codes: no decoder plays them.
SILENT_HANDLERS = frozenset(
    (
        b"avc1",
        b"avc2",
        b"avc3",
        b"avc4",
        b"hvc1",
        b"hev1",
        b"dvh1",
        b"dvhe",
        b"av01",
        b"vp08",
        b"vp09",
        b"mp4v",
        b"s263",
        b"h263",
        b"jpeg",
        b"mjpa",
        b"mjpb",
        b"png ",
        b"apch",
        b"apcn",
        b"apcs",
        b"apco",
        b"ap4h",
        b"text",
        b"tx3g",
        b"wvtt",
        b"stpp",
        b"c608",
        b"tmcd",
        b"mett",
        b"mebx",
        b"rtp ",
    )
)
AAC_OBJECT_TYPES = (1, 2, 3, 4, 5, 29)
AAC = b"\x40"
MPEG = (b"\x69", b"\x6b")  # MPEG-2 and MPEG-1 audio: a sample may hold many frames


@dataclass
class _Track:
    descriptions: list[bytes] = field(default_factory=list)
    samples: int = 0
    edits: int = 0


def count_mp4(data: Bytes, begin: int) -> CountedSound:
    """Count the samples of all tracks with sound, each with the maximum duration for its codec."""
    try:
        return _count(data, begin)
    except Unclear:
        return unknown_sound(data)


def _count(data: Bytes, begin: int) -> CountedSound:
    tracks, fragments = _read_tracks(data, begin)
    seconds = longest = 0.0
    for track in tracks:
        if track.samples and not track.descriptions:
            raise Unclear
        for entry in (entry for described in track.descriptions for entry in _entries(described)):
            if _object_type(entry) in MPEG:
                return CountedSound(0, data.size, MIN_MPEG_BYTES_PER_SECOND)
            sample = _sample_seconds(entry)
            longest = max(longest, sample)
            seconds += track.samples * sample * max(1, track.edits)
    seconds += fragments * longest * max(1, *(track.edits for track in tracks))
    return CountedSound(seconds, hidden=hidden_aac(data, seconds, longest))


def _read_tracks(data: Bytes, begin: int) -> tuple[list[_Track], int]:
    """Return the tracks, and the samples in fragments. The first track has what is in none."""
    tracks = [_Track()]
    fragments = 0
    for name, place, size in _boxes(data, begin):
        if name == b"trak":
            tracks.append(_Track())
        elif name == b"stsd":
            tracks[-1].descriptions.append(data.at(place, min(size, DESCRIBED)))
        elif name in (b"stsz", b"stz2"):
            tracks[-1].samples += data.number(place + 8, 4)
        elif name == b"trun":
            fragments += data.number(place + 4, 4)
        elif name == b"elst":
            tracks[-1].edits += _edits(data, place, size)
    return tracks, fragments


def _boxes(data: Bytes, place: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, offset and size of the contents of every box; a container precedes the boxes within it."""
    ends = [data.size]
    for _ in range(MAX_BOXES):
        while len(ends) > 1 and place + 8 > ends[-1]:
            place = ends.pop()
        if place + 8 > data.size:
            return
        size = data.number(place, 4)
        name = data.at(place + 4, 4)
        head = 8
        if size == 1:
            size = data.number(place + 8, 8)
            head = 16
        elif size == 0:
            size = ends[-1] - place
        end = place + size
        if name == b"cmov" or size < head or (end > ends[-1] and (name != MEDIA or len(ends) > 1)):
            raise Unclear
        if name in CONTAINERS:
            ends.append(end)
        elif name != MEDIA and name not in TABLES and data.contains(COUNTED_BOXES, place + head, size - head):
            raise Unclear
        yield name, place + head, size - head
        place += head if name in CONTAINERS else size
    raise Unclear


def _edits(data: Bytes, place: int, size: int) -> int:
    """Return the number of parts of the media that an edit list plays; it may play one part repeatedly."""
    count = data.number(place + 4, 4)
    each = EDIT_SIZES.get(data.number(place, 1), 0)
    if not each or count > MAX_EDITS or count * each > size - 8:
        raise Unclear
    entries = data.at(place + 8, count * each)
    half = each // 2 - 2  # of a duration
    times = [entries[at + half : at + half + 4] for at in range(0, len(entries), each)]
    return sum(time != EMPTY for time in times)


def _entries(described: bytes) -> Iterator[bytes]:
    """Yield the entries of a sample description (`stsd`)."""
    count = int.from_bytes(described[4:8], "big")
    if count > MAX_DESCRIPTIONS:
        raise Unclear
    place = 8
    for _ in range(count):
        size = int.from_bytes(described[place : place + 4], "big")
        if size < 8:
            raise Unclear
        yield described[place : place + size]
        place += size


def _sample_seconds(entry: bytes) -> float:
    """Return the maximum duration of a sample by its description; 0 for other media than sound."""
    coding = entry[4:8]
    if coding in SILENT_HANDLERS:
        return 0.0
    if coding == b"Opus":
        return MAX_OPUS_PACKET_S
    if coding == b"alac":
        return _alac_seconds(entry)
    if coding != b"mp4a":
        raise Unclear
    return _aac_seconds(_elementary(entry))


def _alac_seconds(entry: bytes) -> float:
    """Return the same for Apple Lossless, by its cookie and by the lower one of two sample rates."""
    if entry.count(b"alac") != 2 or entry[16:18] != b"\0\0" or entry[40:44] != b"alac":
        raise Unclear
    frame = int.from_bytes(entry[48:52], "big")
    hertz = min(int.from_bytes(entry[32:34], "big") or 1, int.from_bytes(entry[68:72], "big"))
    return frame / max(1, hertz)


def _elementary(entry: bytes) -> bytes:
    """Return the descriptors of the elementary stream (`esds`)."""
    if entry.count(b"esds") != 1:
        raise Unclear
    return entry[entry.index(b"esds") + 8 :]


def _object_type(entry: bytes) -> bytes:
    """Return the object type of an `mp4a` entry; b"" for other entries."""
    if entry[4:8] != b"mp4a":
        return b""
    return _configuration(_elementary(entry))[:1]


def _configuration(descriptors: bytes) -> bytes:
    """Return the configuration of the decoder (ISO/IEC 14496-1, 7.2.6.6)."""
    tag, inner = _descriptor(descriptors)
    if tag != 3 or len(inner) < 3 or inner[2] & 0xE0:
        raise Unclear
    tag, inner = _descriptor(inner[3:])
    if tag != 4:
        raise Unclear
    return inner


def _aac_seconds(descriptors: bytes) -> float:
    """Return the same for AAC by its own configuration, because the container's sample rate may differ."""
    inner = _configuration(descriptors)
    tag, config = _descriptor(inner[13:])
    if inner[:1] != AAC or tag != 5:
        raise Unclear
    return aac_seconds(config)


def aac_seconds(config: bytes) -> float:
    """Return the duration of a block by the configuration of AAC (ISO/IEC 14496-3, 1.6.2.1). Raises Unclear."""
    if len(config) < 2 or config[0] >> 3 not in AAC_OBJECT_TYPES:
        raise Unclear
    rate = (config[0] & 7) << 1 | config[1] >> 7
    if rate < len(AAC_RATES):
        return AAC_SAMPLES / AAC_RATES[rate]
    explicit = int.from_bytes(config[1:5], "big") >> 7 & 0xFFFFFF
    if rate < 15 or len(config) < 5 or not explicit:
        raise Unclear
    return AAC_SAMPLES / explicit


def _descriptor(data: bytes) -> tuple[int, bytes]:
    """Return tag and contents of the first descriptor; tag 0 if there is none."""
    size = 0
    place = 1
    while 0 < place < min(len(data), 5):
        size = size << 7 | data[place] & 0x7F
        place += 1
        if not data[place - 1] & 0x80:
            return data[0], data[place : place + size]
    return 0, b""
