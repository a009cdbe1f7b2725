"""Duration of audio in Ogg (RFC 3533), by packets of Opus, Vorbis and Speex (RFC 6716, Vorbis I)."""

from gateway.media.frame_counting import MAX_FRAMES, Bytes, CountedSound, Unclear, unknown_sound
from gateway.media.lossless_sounds import count_flac

PAGE = b"OggS"
HEAD = 27
STREAM_HEAD = 68
MAX_OPUS_PACKET_S = 0.12
MAX_SPEEX_SAMPLES = 640  # samples of a frame
OPUS = -1.0
FLAC = (b"\x7fFLAC", b"fLaC")  # frames of FLAC are counted apart
SILENT_STREAMS = (b"fishead", b"fisbone", b"\x80theora", b"BBCD")  # skeletons and video
OPUS_CELT_MS = (2.5, 5, 10, 20)
OPUS_SILK_MS = (10, 20, 40, 60)
OPUS_HYBRID_MS = (10, 20)
CONTINUED = 1


def opus_seconds(packet: bytes) -> float:
    """Return the duration of a packet by its first bytes."""
    if not packet:
        return MAX_OPUS_PACKET_S
    config = packet[0] >> 3
    code = packet[0] & 3
    if config >= 16:
        frame_ms: float = OPUS_CELT_MS[config & 3]
    else:
        frame_ms = OPUS_SILK_MS[config & 3] if config < 12 else OPUS_HYBRID_MS[config & 1]
    frames = 1 if code == 0 else 2
    if code == 3:
        frames = packet[1] & 63 if len(packet) > 1 else 48
    return min(frames * frame_ms / 1000, MAX_OPUS_PACKET_S)


def vorbis_seconds(head: bytes) -> float:
    """Return the maximum duration of a packet of Vorbis by the identification header."""
    if len(head) < 29:
        raise Unclear
    hertz = int.from_bytes(head[12:16], "little")
    block = 1 << (head[28] >> 4)
    return block / 2 / max(1, hertz)


def count_ogg(data: Bytes, begin: int) -> CountedSound:
    """Count the packets of all pages, including pages within others: a decoder uses them if the outer page is
    broken.
    """
    try:
        return _count(data, begin)
    except Unclear:
        return unknown_sound(data)


def _count(data: Bytes, begin: int) -> CountedSound:
    streams: dict[bytes, float] = {}
    flac = 0
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
                start = data.at(at, STREAM_HEAD)
                if start.startswith(FLAC):
                    flac = flac or data.find(b"fLaC", at)
                seconds += _packet_seconds(start, serial, streams)
            at += lace
            begins = lace < 255
        if packets > MAX_FRAMES:
            raise Unclear
        place = data.find(PAGE, place + 4)
    if not flac:
        return CountedSound(seconds)
    if data.find(b"fLaC", flac + 4) < data.size:
        raise Unclear
    counted = count_flac(data, flac)
    return counted._replace(seconds=counted.seconds + seconds)


def _packet_seconds(start: bytes, serial: bytes, streams: dict[bytes, float]) -> float:
    """Return the seconds of the packet with these first bytes. A header counts nothing, but sets the length of later
    packets of its stream: seconds of each, or OPUS, where each packet has its own. A stream has one codec: a packet of
    Opus may begin like a header of Vorbis.
    """
    told = _stream_seconds(start)
    known = streams.get(serial)
    if told is not None:
        if known is not None and known != told and min(known, told) <= 0:
            raise Unclear
        streams[serial] = told if known is None else max(known, told)
        return 0.0
    if start[:8] == b"OpusTags":
        return 0.0
    if known is None:
        raise Unclear
    if known == OPUS:
        return opus_seconds(start)
    return known


def _stream_seconds(start: bytes) -> float | None:
    """Return the length of packets by the header of a stream; None if the packet is no header."""
    if start.startswith(b"OpusHead"):
        return OPUS
    if start.startswith(b"\x01vorbis"):
        return vorbis_seconds(start)
    if start.startswith(b"Speex   ") and len(start) >= STREAM_HEAD:
        hertz = int.from_bytes(start[36:40], "little")
        return MAX_SPEEX_SAMPLES * max(1, int.from_bytes(start[64:68], "little")) / max(1, hertz)
    if start.startswith((*SILENT_STREAMS, *FLAC)):
        return 0.0
    return None
