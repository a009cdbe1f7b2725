"""Parsing of frame headers of MPEG audio and of AAC in ADTS (ISO/IEC 11172-3, 13818-3 and 13818-7).

`is_compressed` knows those of AC-3 and E-AC-3 (ETSI TS 102 366), LOAS (ISO/IEC 14496-3), DTS (ETSI TS 102 114), TrueHD
and S/PDIF (IEC 61937) too.
"""

import re

FRAME_HEAD = 7  # bytes of a header
KBPS = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
MPEG_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
AAC_SAMPLES = 1024


def mpeg_frame(head: bytes) -> tuple[int, float]:
    """Return the bytes and seconds of a frame of MPEG audio; 0 bytes for anything else, including free format."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0, 0.0
    version = head[1] >> 3 & 3
    layer = 4 - (head[1] >> 1 & 3)
    bits = head[2] >> 4
    rate = head[2] >> 2 & 3
    if version == 1 or layer == 4 or not 0 < bits < 15 or rate == 3:
        return 0, 0.0
    first = version == 3
    hertz = MPEG_RATES[version][rate]
    bytes_a_second = KBPS[first, layer][bits - 1] * 125
    padding = head[2] >> 1 & 1
    if layer == 1:
        return (12 * bytes_a_second * 8 // hertz + padding) * 4, 384 / hertz
    samples = 1152 if layer == 2 or first else 576
    return samples * bytes_a_second // hertz + padding, samples / hertz


def adts_frame(head: bytes) -> tuple[int, float]:
    """Return the bytes and seconds of a frame of AAC with its ADTS header; 0 bytes for anything else."""
    if len(head) < FRAME_HEAD or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 >= len(AAC_RATES):
        return 0, 0.0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    if size < FRAME_HEAD:
        return 0, 0.0
    return size, AAC_SAMPLES * ((head[6] & 3) + 1) / AAC_RATES[head[2] >> 2 & 15]


AC3_KBPS = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640)
AC3_RATES = (48_000, 44_100, 32_000)
AC3_SAMPLES = 1536
OLD_AC3 = 10  # the highest bitstream id of AC-3; E-AC-3 has higher ones
SYNC = re.compile(rb"\xff[\xe2-\xff]|\x0b\x77|\x56[\xe0-\xff]", re.DOTALL)
MARKS = (
    b"\x7f\xfe\x80\x01",
    b"\xfe\x7f\x01\x80",
    b"\x1f\xff\xe8\x00",
    b"\xff\x1f\x00\xe8",
    b"\xf8\x72\x6f\xba",
    b"\x72\xf8\x1f\x4e",
)
CONSECUTIVE_FRAMES = 3  # frames by which readers recognize compressed sound


def is_compressed(data: bytes) -> bool:
    """Return whether readers may take the beginning of PCM for compressed sound."""
    if any(mark in data for mark in MARKS):
        return True
    for match in SYNC.finditer(data):
        place = match.start()
        for _ in range(CONSECUTIVE_FRAMES):
            size = _frame_size(data[place : place + FRAME_HEAD])
            if not size:
                break
            place += size
        else:
            return True
    return False


def _frame_size(head: bytes) -> int:
    """Return the bytes of a compressed frame with this header; 0 for anything else."""
    if len(head) < FRAME_HEAD:
        return 0
    if head[0] == 0xFF:
        return mpeg_frame(head)[0] or adts_frame(head)[0]
    if head[0] == 0x56 and head[1] & 0xE0 == 0xE0:
        return ((head[1] & 0x1F) << 8 | head[2]) + 3
    if head[:2] != b"\x0b\x77":
        return 0
    if head[5] >> 3 > OLD_AC3:
        return ((head[2] & 7) << 8 | head[3]) * 2 + 2
    rate = head[4] >> 6
    bits = head[4] & 0x3F
    if rate == len(AC3_RATES) or bits >= 2 * len(AC3_KBPS):
        return 0
    words = AC3_KBPS[bits >> 1] * 1000 * AC3_SAMPLES // (AC3_RATES[rate] * 16)
    return 2 * (words + (bits & 1 if AC3_RATES[rate] == 44_100 else 0))
