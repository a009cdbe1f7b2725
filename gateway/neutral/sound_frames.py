"""Parsing of frame headers of MPEG audio and of AAC in ADTS (ISO/IEC 11172-3, 13818-3 and 13818-7)."""

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
