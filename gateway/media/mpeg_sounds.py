"""Duration of consecutive frames of MPEG audio, AAC in ADTS and AMR (ISO/IEC 11172-3 and 13818-7, RFC 4867)."""

from gateway.media.frame_counting import MAX_FRAMES, MIN_BYTES_PER_SECOND, Bytes, CountedSound, hidden_aac
from gateway.neutral.sound_frames import FRAME_HEAD, adts_frame, mpeg_frame

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
        head = data.at(place, FRAME_HEAD)
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
