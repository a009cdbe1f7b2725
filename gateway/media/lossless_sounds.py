"""Duration of PCM in WAVE and AIFF, by bytes, and of FLAC, by frames (RFC 9639)."""

import re
from typing import Literal

from gateway.media.frame_counting import MAX_CHANNELS, MAX_FRAMES, WINDOW, Bytes, CountedSound, unknown_sound
from gateway.neutral.sound_length import is_compressed

PCM = 1
FLOAT = 3
A_LAW = 6
MU_LAW = 7
EXTENSIBLE = 0xFFFE
LAWS = (A_LAW, MU_LAW)
MS_ADPCM = 2  # two samples in a byte
IMA_ADPCM = 0x11
STANDARD_ADPCM_BITS = 4  # bits of a sample; decoders accept two, of which a byte has four
MAX_SAMPLES_PER_BYTE = 4
ADPCM = (MS_ADPCM, IMA_ADPCM)
PROBED = 1 << 18  # bytes of PCM in which readers look for compressed sound
GUID_REST = bytes.fromhex("000000001000800000aa00389b71")
MAX_CHUNKS = 1_000
SYNC = re.compile(rb"\xff[\xf8\xf9]", re.DOTALL)
MAX_HEAD_BYTES = 16
FLAC_BLOCKS = {
    1: 192,
    **{code: 144 << code for code in range(2, 6)},
    **{code: 1 << code for code in range(8, 16)},
}
FLAC_RATES = (0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value << 1 ^ 7) & 255 if value & 128 else value << 1
        table.append(value)
    return tuple(table)


CRC = _crc_table()


def count_wave(data: Bytes, begin: int) -> CountedSound:
    """Count all bytes of PCM at its rate, whatever length its chunk declares."""
    fmt, size = _described(data, begin, b"fmt ", b"data")
    coding, channels, hertz = (int.from_bytes(fmt[a:b], "little") for a, b in ((0, 2), (2, 4), (4, 8)))
    frame = int.from_bytes(fmt[12:14], "little")
    bits = int.from_bytes(fmt[14:16], "little")
    if coding == EXTENSIBLE and fmt[26:40] == GUID_REST:
        coding = int.from_bytes(fmt[24:26], "little")
    if coding in LAWS:
        frame = channels  # decoders ignore the rest of the description
    elif coding not in (PCM, FLOAT, *ADPCM) or (coding not in ADPCM and frame != channels * -(-bits // 8)):
        return unknown_sound(data, hertz)
    if not 0 < channels <= MAX_CHANNELS or not frame * hertz:
        return unknown_sound(data, hertz)
    if coding == MS_ADPCM:
        return CountedSound(size * 2 / (channels * hertz))
    if coding == IMA_ADPCM:
        return CountedSound(size * (2 if bits >= STANDARD_ADPCM_BITS else MAX_SAMPLES_PER_BYTE) / (channels * hertz))
    if coding == PCM and is_compressed(data.at(data.size - size, PROBED)):
        return unknown_sound(data, hertz)
    return CountedSound(size / (frame * hertz))


def count_aiff(data: Bytes, begin: int) -> CountedSound:
    """Count all bytes of AIFF at its rate; AIFF-C may have other codecs."""
    common, size = _described(data, begin, b"COMM", b"SSND")
    channels = int.from_bytes(common[:2], "big")
    bits = int.from_bytes(common[6:8], "big")
    exponent = int.from_bytes(common[8:10], "big") - 16_383 - 63
    mantissa = int.from_bytes(common[10:18], "big")
    if not -63 <= exponent <= -32:
        return unknown_sound(data)
    hertz = mantissa / (1 << -exponent)
    if data.at(begin + 8, 4) != b"AIFF" or not channels * bits * mantissa or channels > MAX_CHANNELS:
        return unknown_sound(data, hertz)
    return CountedSound(size / (channels * -(-bits // 8) * max(1.0, hertz)))


def count_flac(data: Bytes, begin: int) -> CountedSound:
    """Count the samples of every frame in the file, at any offset."""
    declared = data.number(begin + 18, 3) >> 4
    seconds = 0.0
    looks = 0
    place = begin
    while place < data.size and looks < MAX_FRAMES:
        window = data.at(place, WINDOW)
        whole = len(window) < WINDOW
        for match in SYNC.finditer(window):
            looks += 1
            if looks < MAX_FRAMES and (whole or match.start() < WINDOW - MAX_HEAD_BYTES):
                seconds += _flac_frame(window[match.start() : match.start() + MAX_HEAD_BYTES], declared)
        place += WINDOW - MAX_HEAD_BYTES
    if looks < MAX_FRAMES:
        return CountedSound(seconds)
    return CountedSound(seconds, data.size)


def _flac_frame(head: bytes, declared: int) -> float:
    """Return the seconds of the frame with this header; 0 if it is not a frame."""
    if len(head) < 6:
        return 0.0
    block = head[2] >> 4
    rate = head[2] & 15
    place = 5 + (head[4] >= 0xC0) + (head[4] >= 0xE0) + (head[4] >= 0xF0) + (head[4] >= 0xF8) + (head[4] >= 0xFC)
    place += head[4] == 0xFE
    samples = FLAC_BLOCKS.get(block, 0)
    if block in (6, 7):
        size = block - 5
        samples = int.from_bytes(head[place : place + size], "big") + 1
        place += size
    hertz = FLAC_RATES[rate] if rate < len(FLAC_RATES) else 0
    if rate in (12, 13, 14):
        size = 1 if rate == 12 else 2
        hertz = int.from_bytes(head[place : place + size], "big") * {12: 1000, 13: 1, 14: 10}[rate]
        place += size
    value = 0
    for byte in head[:place]:
        value = CRC[value ^ byte]
    if rate == 15 or place >= len(head) or head[place] != value:
        return 0.0
    return samples / (min(filter(None, (hertz, declared)), default=1))


def _described(data: Bytes, begin: int, description: bytes, sound: bytes) -> tuple[bytes, int]:
    """Return the only description of a RIFF or IFF file (b"" if there are several), and the bytes from the first audio
    on.
    """
    order: Literal["little", "big"] = "little" if description == b"fmt " else "big"
    descriptions: set[bytes] = set()
    place = begin + 12
    sounding = 0
    for _ in range(MAX_CHUNKS):
        head = data.at(place, 8)
        if len(head) < 8:
            break
        if head[:4] == description:
            descriptions.add(data.at(place + 8, 40))
        elif head[:4] == sound:
            sounding = max(sounding, data.size - place - 8)
        size = int.from_bytes(head[4:], order)
        place += 8 + size + size % 2
    return descriptions.pop() if len(descriptions) == 1 else b"", sounding or data.size
