"""Duration of audio in Ogg (RFC 3533), by packets of Opus or Vorbis (RFC 6716, Vorbis I)."""

from gateway.media.frame_counting import MOST_FRAMES, Bytes, CountedSound
from gateway.media.lossless_sounds import count_flac

PAGE = b"OggS"
HEAD = 27
LONGEST_OPUS_S, LONGEST_PACKET_S = 0.12, 8.0  # of Opus, and of any other codec
OPUS_CELT_MS = (2.5, 5, 10, 20)
OPUS_SILK_MS = (10, 20, 40, 60)
OPUS_HYBRID_MS = (10, 20)
CONTINUED = 1


def opus_seconds(packet: bytes) -> float:
    """Return the duration of a packet by its first bytes."""
    if not packet:
        return LONGEST_OPUS_S
    config = packet[0] >> 3
    code = packet[0] & 3
    if config >= 16:
        frame_ms: float = OPUS_CELT_MS[config & 3]
    else:
        if config < 12:
            frame_ms = OPUS_SILK_MS[config & 3]
        else:
            frame_ms = OPUS_HYBRID_MS[config & 1]
    frames = 1 if code == 0 else 2
    if code == 3:
        if len(packet) > 1:
            frames = packet[1] & 63
        else:
            frames = 48
    return min(frames * frame_ms / 1000, LONGEST_OPUS_S)


def count_ogg(data: Bytes, begin: int) -> CountedSound:
    """Count the packets of all pages, including pages within others: a decoder uses them if the outer page is
    broken.
    """
    # seconds of a packet by stream; 0 for Opus, where each packet has its own duration
    longest: dict[bytes, float] = {}
    seconds = 0.0
    packets = 0
    place = data.find(PAGE, begin)
    while place < data.size:
        head = data.at(place, HEAD + 255)
        count = head[26] if len(head) > 26 else 0
        serial = head[14:18]
        laces = head[HEAD : HEAD + count]
        at = place + HEAD + count
        begins = not head[5:6] or not head[5] & CONTINUED
        for lace in laces:
            if begins:
                packets += 1
                start = data.at(at, 32)
                if start[:5] == b"\x7fFLAC":
                    return count_flac(data, begin)
                seconds += _packet_seconds(start, serial, longest)
            at += lace
            begins = lace < 255
        if packets > MOST_FRAMES:
            return CountedSound(seconds, data.size - place)
        place = data.find(PAGE, place + 4)
    return CountedSound(seconds)


def _packet_seconds(start: bytes, serial: bytes, longest: dict[bytes, float]) -> float:
    """Return the seconds of the packet with these first bytes. A header counts nothing, but sets the length of later
    packets.
    """
    if start[:8] == b"OpusHead":
        longest.setdefault(serial, 0.0)
        return 0.0
    if start[:8] == b"OpusTags":
        return 0.0
    if start[:7] == b"\x01vorbis" and len(start) > 28:
        hertz = int.from_bytes(start[12:16], "little")
        block = 1 << (start[28] >> 4)
        longest[serial] = max(longest.get(serial, 0.0), block / 2 / max(1, hertz))
        return 0.0
    known = longest.get(serial, LONGEST_PACKET_S)
    if known == 0.0:
        return opus_seconds(start)
    return known
