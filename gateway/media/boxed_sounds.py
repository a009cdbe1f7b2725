"""Duration of audio in MP4 (ISO/IEC 14496-12 and 14496-1) and WebM (RFC 9559), by samples and blocks."""

from collections.abc import Iterator

from gateway.media.frame_counting import MOST_FRAMES, Bytes, CountedSound
from gateway.media.ogg_sounds import LONGEST_OPUS_S, LONGEST_PACKET_S, opus_seconds
from gateway.neutral.sound_frames import AAC_RATES, AAC_SAMPLES

BOXES = frozenset((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"edts"))
MOST_BOXES = 100_000
VIDEO = b"vide"
USUAL_AAC = (1, 2, 3, 4, 5, 29)
SEGMENT = 0x18538067
CLUSTER = 0x1F43B675
GROUP = 0xA0
TRACKS = 0x1654AE6B
TRACK = 0xAE
SIMPLE_BLOCK = 0xA3
BLOCK = 0xA1
TRACK_NUMBER = 0xD7
CODEC = 0x86
OPENED = frozenset((SEGMENT, CLUSTER, GROUP, TRACKS, TRACK))


def count_mp4(data: Bytes, begin: int) -> CountedSound:
    """Count the samples of all tracks other than video, each with the maximum duration for its codec."""
    samples = 0
    longest = 0.0
    is_video = False
    for name, place, size in _boxes(data, begin):
        if name == b"trak":
            is_video = False
        elif name == b"hdlr":
            is_video = data.at(place + 8, 4) == VIDEO
        elif name == b"stsd" and not is_video:
            longest = max(longest, _sample_seconds(data.at(place, min(size, 4096))))
        elif name in (b"stsz", b"stz2") and not is_video:
            samples += data.number(place + 8, 4)
        elif name == b"trun":
            samples += data.number(place + 4, 4)
    if not samples:
        return CountedSound(0, data.size)
    return CountedSound(samples * (longest or LONGEST_PACKET_S))


def _boxes(data: Bytes, place: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, offset and size of the contents of every box; a container precedes the boxes within it."""
    for _ in range(MOST_BOXES):
        if place + 8 > data.size:
            return
        size = data.number(place, 4)
        name = data.at(place + 4, 4)
        head = 8
        if size == 1:
            size = data.number(place + 8, 8)
            head = 16
        elif size == 0:
            size = data.size - place
        yield name, place + head, max(0, size - head)
        place += head if name in BOXES else max(size, head)


def _sample_seconds(described: bytes) -> float:
    """Return the maximum duration of a sample by the description of a track (from `stsd` on).

    It is LONGEST_PACKET_S if the codec is unknown or there are several descriptions.
    """
    if int.from_bytes(described[4:8], "big") != 1:
        return LONGEST_PACKET_S
    coding = described[12:16]
    if coding == b"Opus":
        return LONGEST_OPUS_S
    if coding != b"mp4a" or described[24:26] != b"\0\0" or described[48:52] != b"esds":
        return LONGEST_PACKET_S
    return _aac_seconds(described[56:])


def _aac_seconds(descriptors: bytes) -> float:
    """Return the same for AAC by its own configuration, because the container's sample rate may differ."""
    tag, inner = _descriptor(descriptors)
    if tag != 3 or len(inner) < 3 or inner[2] & 0xE0:
        return LONGEST_PACKET_S
    tag, inner = _descriptor(inner[3:])
    if tag != 4 or inner[:1] != b"\x40":
        return LONGEST_PACKET_S
    tag, config = _descriptor(inner[13:])
    if tag != 5 or len(config) < 2 or config[0] >> 3 not in USUAL_AAC:
        return LONGEST_PACKET_S
    rate = (config[0] & 7) << 1 | config[1] >> 7
    if rate < len(AAC_RATES):
        return AAC_SAMPLES / AAC_RATES[rate]
    return LONGEST_PACKET_S


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


def count_webm(data: Bytes, begin: int) -> CountedSound:
    """Count the blocks of all tracks other than video."""
    codecs: dict[int, bytes] = {}
    number = blocks = 0
    seconds = 0.0
    place = begin
    while place < data.size and blocks < MOST_FRAMES:
        ident, size, at = _element(data, place)
        if not at:
            return CountedSound(seconds, data.size - place)
        if ident == TRACK_NUMBER:
            number = data.number(at, min(size, 8))
        elif ident == CODEC:
            codecs[number] = data.at(at, min(size, 32)).rstrip(b"\0")
        elif ident in (SIMPLE_BLOCK, BLOCK):
            blocks += 1
            seconds += _block_seconds(data.at(at, min(size, 16)), codecs)
        place = at if ident in OPENED else at + size
    return CountedSound(seconds, max(0, data.size - place))


def _element(data: Bytes, place: int) -> tuple[int, int, int]:
    """Return id, size and offset of an element's contents; offset 0 if there is no element.

    The contents of an element of unknown size follow it.
    """
    head = data.at(place, 12)
    if head:
        ident_size = 9 - head[0].bit_length()
    else:
        ident_size = 9
    if ident_size > 4 or len(head) <= ident_size:
        return 0, 0, 0
    size_size = 9 - head[ident_size].bit_length()
    if size_size > 8 or len(head) < ident_size + size_size:
        return 0, 0, 0
    ident = int.from_bytes(head[:ident_size], "big")
    size = int.from_bytes(head[ident_size : ident_size + size_size], "big") & ((1 << 7 * size_size) - 1)
    if size == (1 << 7 * size_size) - 1 and ident not in OPENED:
        return 0, 0, 0
    return ident, size, place + ident_size + size_size


def _block_seconds(block: bytes, codecs: dict[int, bytes]) -> float:
    if block:
        width = 9 - block[0].bit_length()
    else:
        width = 9
    if width > 8 or len(block) < width + 4:
        return LONGEST_PACKET_S
    codec = codecs.get(int.from_bytes(block[:width], "big") & ((1 << 7 * width) - 1), b"")
    if codec.startswith(b"V_"):
        return 0.0
    laced = block[width + 2] & 0x06
    packet = block[width + 3 :]
    if codec != b"A_OPUS":
        return LONGEST_PACKET_S * (packet[0] + 1 if laced else 1)
    if laced:
        return LONGEST_OPUS_S * (packet[0] + 1)
    return opus_seconds(packet)
