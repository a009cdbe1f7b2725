"""The length of a sound file, counted while its bytes arrive.

MP3 and AAC are counted frame by frame, Ogg by the positions of its pages, WAV and PCM by their bytes. A FLAC stream
has its length in its head; without it, and in any other container, the bytes count as PCM, which is the longest form of
a second: no sound of that format is shorter.

Facts: ISO/IEC 11172-3 and 13818-3 (MP3 headers), ISO/IEC 13818-7 (ADTS), RFC 3533 and RFC 7845 (Ogg, Opus),
RFC 9639 (FLAC), ID3v2.4.
"""

from collections.abc import Callable

SECOND_MS = 1000
PCM_RATE = 24_000  # samples a second of bare PCM: sixteen bits, one channel (OpenAI's and Google's speech guides)
PCM_BYTES_A_SECOND = 2 * PCM_RATE
FLAC_BYTES_A_SECOND = PCM_BYTES_A_SECOND  # what its samples take without compression
LONGEST_HEAD = 64  # bytes within which every format here shows what it is
OPUS_RATE = 48_000
# Kilobits a second by the index of a header: of MPEG-1 layer III, and of MPEG-2 and 2.5.
BITRATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
)
MP3_RATES = (44_100, 48_000, 32_000)
MP3_HALVINGS = {3: 0, 2: 1, 0: 2}  # MPEG-1, 2 and 2.5 by the two bits of their version
MP3_SAMPLES, MPEG_1 = 576, 3
AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
AAC_SAMPLES = 1024
FRAME_HEAD, PAGE_HEAD, ID3_HEAD, WAV_HEAD, FLAC_HEAD = 7, 27, 10, 44, 42

# Reads the unit (a frame, a page) that begins at a position: its bytes and its seconds; None where none begins, and
# (0, 0.0) where more bytes are needed to tell.
Unit = tuple[int, float]
NEEDS_MORE: Unit = (0, 0.0)


class SoundLength:
    """Counts the milliseconds of one file. `add` takes its next bytes, of any number; a file of fewer than
    LONGEST_HEAD bytes has no length."""

    __slots__ = ("_bytes", "_per_second", "_position", "_rate", "_rest", "_seconds", "_skip", "_unit")

    def __init__(self) -> None:
        self._rest = b""
        self._skip = self._bytes = self._position = self._rate = 0
        self._seconds, self._per_second = 0.0, 0
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
            if len(self._rest) < LONGEST_HEAD:
                return
            self._recognize(self._rest)
            data, self._rest = self._rest, b""
        if self._unit is not None:
            self._count(data)

    def _recognize(self, head: bytes) -> None:
        if head[:4] == b"OggS":
            self._unit = self._page
            self._rate = OPUS_RATE if b"OpusHead" in head else _vorbis_rate(head)
        elif head[:3] == b"ID3" or _frame(head, 0):
            self._unit = _frame
        elif head[:4] == b"RIFF" and len(head) >= WAV_HEAD:
            self._bytes -= WAV_HEAD
            self._per_second = int.from_bytes(head[28:32], "little") or PCM_BYTES_A_SECOND
        elif head[:4] == b"fLaC" and len(head) >= FLAC_HEAD:
            self._read_flac(head)
        else:
            self._per_second = PCM_BYTES_A_SECOND

    def _read_flac(self, head: bytes) -> None:
        packed = int.from_bytes(head[18:26], "big")  # 20 bits of rate, 8 of form, 36 of samples
        rate, samples = packed >> 44, packed & (1 << 36) - 1
        if rate and samples:
            self._seconds, self._unit = samples / rate, _nothing
        else:
            self._per_second = FLAC_BYTES_A_SECOND

    def _count(self, data: bytes) -> None:
        """Count the units that begin within what came. Bytes that begin none are passed over one by one."""
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        data, at, unit = self._rest + data[self._skip :], 0, self._unit
        self._skip = 0
        while unit is not None and at < len(data):
            found = unit(data, at)
            if found == NEEDS_MORE:
                break
            size, seconds = found or (1, 0.0)
            at += size
            self._seconds += seconds
        self._rest = data[at:]
        self._skip = max(0, at - len(data))

    def _page(self, data: bytes, at: int) -> Unit | None:
        """A page of Ogg: its position counts samples from the beginning, in each of several files that follow."""
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
        before, self._position = self._position, position
        return size, (position - before if position >= before else position) / self._rate


def _nothing(data: bytes, at: int) -> Unit | None:
    """Of a file whose head told its length."""
    return len(data) - at, 0.0


def _vorbis_rate(head: bytes) -> int:
    at = head.find(b"\x01vorbis")
    rate = int.from_bytes(head[at + 12 : at + 16], "little") if at >= 0 else 0
    return rate or OPUS_RATE


def _frame(data: bytes, at: int) -> Unit | None:
    """A frame of MP3 or AAC, or the tag in front of the first."""
    if len(data) - at < ID3_HEAD:
        return NEEDS_MORE
    if data.startswith(b"ID3", at):
        size = 0
        for byte in data[at + 6 : at + ID3_HEAD]:
            size = size << 7 | byte & 127
        return ID3_HEAD + size, 0.0
    if data[at] != 0xFF:
        return None
    return _mp3_frame(data, at) or _aac_frame(data, at)


def _mp3_frame(data: bytes, at: int) -> Unit | None:
    """A frame of layer III."""
    if data[at + 1] & 0xE6 != 0xE2:
        return None
    version, bitrate, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 4, data[at + 2] >> 2 & 3
    halved = MP3_HALVINGS.get(version)
    kilobits = BITRATES[version != MPEG_1][bitrate]
    if halved is None or rate == len(MP3_RATES) or not kilobits:
        return None
    samples, hertz = MP3_SAMPLES * (2 if version == MPEG_1 else 1), MP3_RATES[rate] >> halved
    return samples * kilobits * 125 // hertz + (data[at + 2] >> 1 & 1), samples / hertz


def _aac_frame(data: bytes, at: int) -> Unit | None:
    """A frame of AAC with its ADTS header."""
    if data[at + 1] & 0xF6 != 0xF0:
        return None
    rate = data[at + 2] >> 2 & 15
    size = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
    if rate >= len(AAC_RATES) or size < FRAME_HEAD:
        return None
    return size, AAC_SAMPLES * ((data[at + 6] & 3) + 1) / AAC_RATES[rate]
