"""The duration of an audio file, counted while its bytes arrive.

MP3 and AAC are counted frame by frame, Ogg by the positions of its pages, WAV and PCM by their bytes. A FLAC stream
has its duration in its header; without it, and in any other container, the bytes count as uncompressed PCM, which
gives the shortest possible duration for compressed formats.

Sources: RFC 3533 and RFC 7845 (Ogg, Opus), RFC 9639 (FLAC), ID3v2.4.
"""

from collections.abc import Callable

from gateway.neutral.sound_frames import FRAME_HEAD, adts_frame, mpeg_frame

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
        if self._per_second:
            seconds = self._bytes / self._per_second
        else:
            seconds = self._seconds
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
    if at >= 0:
        rate = int.from_bytes(head[at + 12 : at + 16], "little")
    else:
        rate = 0
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
    head = data[at : at + FRAME_HEAD]
    if head[1] & LAYER_III[0] == LAYER_III[1]:
        frame = mpeg_frame(head)
    else:
        frame = adts_frame(head)
    if frame[0]:
        return frame
    return None
