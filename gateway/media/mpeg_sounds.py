"""Frames of MPEG audio, of AAC in ADTS and of AMR, which follow each other (ISO/IEC 11172-3 and 13818-7, RFC 4867)."""

from collections.abc import Callable

from gateway.media.frames import LEAST_OF_ANY, MOST_FRAMES, Bytes, CountedSound

KBPS = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
MPEG_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
LEAST_MPEG = 250  # bytes a second of frames in free format
AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
AAC_FRAME, LEAST_AAC = 1024, 50
ADTS_HEAD = 7
AMR_FRAME_S = 0.02
AMR_NARROW, AMR_WIDE = b"#!AMR\n", b"#!AMR-WB\n"
AMR_SIZES = {
    AMR_NARROW: (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1),
    AMR_WIDE: (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1),
}
CONSISTENT = 3  # frames in a row by which a decoder knows the format


def count_mpeg(data: Bytes, begin: int) -> CountedSound:
    """MPEG audio from `begin` on, which is behind the tags."""
    return _follow(data, begin, _mpeg_frame, LEAST_MPEG)


def count_adts(data: Bytes, begin: int) -> CountedSound:
    return _follow(data, begin, _adts_frame, LEAST_AAC)


def count_amr(data: Bytes, begin: int) -> CountedSound:
    """AMR of one channel; of several nothing is known."""
    kind = next((one for one in (AMR_WIDE, AMR_NARROW) if data.at(begin, len(one)) == one), b"")
    if not kind:
        return CountedSound(0, data.size)
    sizes, place, frames = AMR_SIZES[kind], begin + len(kind), 0
    while place < data.size and frames < MOST_FRAMES:
        place += sizes[data.at(place, 1)[0] >> 3 & 15]
        frames += 1
    return CountedSound(frames * AMR_FRAME_S, max(0, data.size - place), 50)


def _follow(data: Bytes, begin: int, read: Callable[[bytes], tuple[int, float]], least: int) -> CountedSound:
    """Frames as a decoder finds them: the next one where the last one ends, else at the next sync word."""
    seconds, rest, in_a_row, longest = 0.0, 0, 0, 0
    place = begin
    for _ in range(MOST_FRAMES):
        if place >= data.size:
            break
        size, length_s = read(data.at(place, ADTS_HEAD))
        if size:
            seconds += length_s
            place += size
            in_a_row += 1
            longest = max(longest, in_a_row)
        else:
            following = data.find(b"\xff", place + 1)
            rest += following - place
            place, in_a_row = following, 0
    rest += max(0, data.size - place)
    return CountedSound(seconds, rest, least if longest >= CONSISTENT else LEAST_OF_ANY)


def _mpeg_frame(head: bytes) -> tuple[int, float]:
    """Bytes and seconds of a frame of MPEG audio; 0 bytes for what is none, free format among it."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0, 0.0
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    bits, rate = head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer == 4 or not 0 < bits < 15 or rate == 3:
        return 0, 0.0
    first, hertz = version == 3, MPEG_RATES[version][rate]
    bytes_a_second = KBPS[first, layer][bits - 1] * 125
    padding = head[2] >> 1 & 1
    if layer == 1:
        return (12 * bytes_a_second * 8 // hertz + padding) * 4, 384 / hertz
    samples = 1152 if layer == 2 or first else 576
    return samples * bytes_a_second // hertz + padding, samples / hertz


def _adts_frame(head: bytes) -> tuple[int, float]:
    if len(head) < ADTS_HEAD or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 >= len(AAC_RATES):
        return 0, 0.0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    if size < ADTS_HEAD:
        return 0, 0.0
    return size, AAC_FRAME * ((head[6] & 3) + 1) / AAC_RATES[head[2] >> 2 & 15]
