"""The duration of an audio file, counted while its bytes arrive.

MP3 and AAC are counted frame by frame, Ogg by the positions of its pages, WAV and PCM by their bytes. A FLAC stream
has its duration in its header; without it, and in any other container, the bytes count as uncompressed PCM, which
gives the shortest possible duration for compressed formats.

Sources: RFC 3533 and RFC 7845 (Ogg, Opus), RFC 9639 (FLAC), ID3v2.4.
"""

import re
from collections.abc import Callable

# Parsing of frame headers of MPEG audio and of AAC in ADTS (ISO/IEC 11172-3, 13818-3 and 13818-7).
#
# `is_compressed` knows those of AC-3 and E-AC-3 (ETSI TS 102 366), LOAS (ISO/IEC 14496-3), DTS (ETSI TS 102 114),
# TrueHD and S/PDIF (IEC 61937) too.

FRAME_HEAD_BYTES = 7  # bytes of a header
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
    if len(head) < FRAME_HEAD_BYTES or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 >= len(AAC_RATES):
        return 0, 0.0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    if size < FRAME_HEAD_BYTES:
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
            size = _frame_size(data[place : place + FRAME_HEAD_BYTES])
            if not size:
                break
            place += size
        else:
            return True
    return False


def _frame_size(head: bytes) -> int:
    """Return the bytes of a compressed frame with this header; 0 for anything else."""
    if len(head) < FRAME_HEAD_BYTES:
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


SECOND_MS = 1000
PCM_RATE = 24_000  # sample rate of raw PCM: 16 bits, one channel (OpenAI's and Google's speech guides)
PCM_BYTES_PER_SECOND = 2 * PCM_RATE
FLAC_BYTES_PER_SECOND = PCM_BYTES_PER_SECOND  # the size of its samples without compression
MAX_HEAD_BYTES = 64  # bytes within which every supported format can be recognized
OPUS_RATE = 48_000
PAGE_HEAD = 27
ID3_HEAD = 10
WAV_HEAD = 44
FLAC_HEAD = 42
LAYER_III = (0xE6, 0xE2)  # Masks and values of the second header byte: sync and layer bits, for layer III.

# A function that reads the unit (frame or page) at a position returns its bytes and seconds; None if there is none,
# and (0, 0.0) if more bytes are needed.
Unit = tuple[int, float]
NEEDS_MORE: Unit = (0, 0.0)


class SoundLength:
    """Counts the milliseconds of one file.

    `add` takes its next bytes, of any number; a file with fewer than MAX_HEAD_BYTES has no duration.
    """

    __slots__ = ("_bytes", "_per_second", "_position", "_rate", "_rest", "_seconds", "_skip", "_unit")

    def __init__(self) -> None:
        self._rest = b""
        self._skip = self._bytes = self._position = self._rate = 0
        self._seconds = 0.0
        self._per_second = 0
        self._unit: Callable[[bytes, int], Unit | None] | None = None

    @property
    def milliseconds(self) -> int:
        seconds = self._bytes / self._per_second if self._per_second else self._seconds
        return round(seconds * SECOND_MS)

    def add(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._per_second:
            return
        if self._unit is None:
            self._rest += data
            if len(self._rest) < MAX_HEAD_BYTES:
                return
            self._recognize(self._rest)
            data = self._rest
            self._rest = b""
        if self._unit is not None:
            self._count(data)

    def _recognize(self, head: bytes) -> None:
        if head[:4] == b"OggS":
            self._unit = self._page
            if b"OpusHead" in head:
                self._rate = OPUS_RATE
            else:
                self._rate = _vorbis_rate(head)
        elif head[:3] == b"ID3" or _frame(head, 0):
            self._unit = _frame
        elif head[:4] == b"RIFF" and len(head) >= WAV_HEAD:
            self._bytes -= WAV_HEAD
            self._per_second = int.from_bytes(head[28:32], "little") or PCM_BYTES_PER_SECOND
        elif head[:4] == b"fLaC" and len(head) >= FLAC_HEAD:
            self._read_flac(head)
        else:
            self._per_second = PCM_BYTES_PER_SECOND

    def _read_flac(self, head: bytes) -> None:
        packed = int.from_bytes(head[18:26], "big")  # 20 bits of sample rate, 8 of format, 36 of sample count
        rate = packed >> 44
        samples = packed & (1 << 36) - 1
        if rate and samples:
            self._seconds = samples / rate
            self._unit = _nothing
        else:
            self._per_second = FLAC_BYTES_PER_SECOND

    def _count(self, data: bytes) -> None:
        """Count the units that begin within the data. Bytes that begin no unit are skipped one by one."""
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        data = self._rest + data[self._skip :]
        at = 0
        unit = self._unit
        self._skip = 0
        while unit is not None and at < len(data):
            frame = unit(data, at)
            if frame == NEEDS_MORE:
                break
            size, seconds = frame or (1, 0.0)
            at += size
            self._seconds += seconds
        self._rest = data[at:]
        self._skip = max(0, at - len(data))

    def _page(self, data: bytes, at: int) -> Unit | None:
        """Read a page of Ogg. Its position counts samples from the start, for each of several concatenated files."""
        if len(data) - at < PAGE_HEAD:
            return NEEDS_MORE
        if data[at : at + 4] != b"OggS":
            return None
        segments = data[at + 26]
        if len(data) - at < PAGE_HEAD + segments:
            return NEEDS_MORE
        size = PAGE_HEAD + segments + sum(data[at + PAGE_HEAD : at + PAGE_HEAD + segments])
        position = int.from_bytes(data[at + 6 : at + 14], "little", signed=True)
        if position < 0:  # no packet ends on this page
            return size, 0.0
        before = self._position
        self._position = position
        return size, (position - before if position >= before else position) / self._rate


def _nothing(data: bytes, at: int) -> Unit | None:
    """Skip the data: the header gave the duration."""
    return len(data) - at, 0.0


def _vorbis_rate(head: bytes) -> int:
    at = head.find(b"\x01vorbis")
    rate = int.from_bytes(head[at + 12 : at + 16], "little") if at >= 0 else 0
    return rate or OPUS_RATE


def _frame(data: bytes, at: int) -> Unit | None:
    """Read a frame of MP3 or AAC, or the ID3 tag before the first frame."""
    if len(data) - at < ID3_HEAD:
        return NEEDS_MORE
    if data.startswith(b"ID3", at):
        size = 0
        for byte in data[at + 6 : at + ID3_HEAD]:
            size = size << 7 | byte & 127
        return ID3_HEAD + size, 0.0
    if data[at] != 0xFF:
        return None
    head = data[at : at + FRAME_HEAD_BYTES]
    frame = mpeg_frame(head) if head[1] & LAYER_III[0] == LAYER_III[1] else adts_frame(head)
    if frame[0]:
        return frame
    return None
