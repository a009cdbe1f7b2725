"""Helpers of the audio readers: windows into a file, and the result of a count."""

from typing import NamedTuple

from gateway.runtime.large_files import StoredFile

WINDOW = 1 << 20
# The lowest byte rate of any format that providers accept: silence in FLAC takes nine bytes a second.
MIN_BYTES_PER_SECOND = 9
MIN_SAMPLE_RATE = 8_000  # the lowest sample rate for which MIN_BYTES_PER_SECOND holds
MAX_FRAMES = 1_000_000  # per file; beyond it, bytes count at the lowest rate
MAX_CHANNELS = 16
# A decoder may find further blocks of AAC behind the first one of a frame (libavcodec does). The smallest is silence.
MIN_AAC_BLOCK_BYTES = 4


class CountedSound(NamedTuple):
    """Seconds of the counted frames. `rest` are the bytes outside of known frames, with the fewest bytes for a
    second. `hidden` are the seconds that only a decoder can see within the frames.
    """

    seconds: float
    rest: int = 0
    minimum: float = MIN_BYTES_PER_SECOND
    hidden: float = 0.0


class Unclear(Exception):
    """Decoders may play more of the file than its parts show."""


def unknown_sound(data: "Bytes", hertz: float = 0.0) -> CountedSound:
    """Return the count of an unknown codec. Samples of a lower rate than usual last longer; 0: the rate is unknown."""
    return CountedSound(0, data.size, MIN_BYTES_PER_SECOND * max(1.0, min(hertz, MIN_SAMPLE_RATE)) / MIN_SAMPLE_RATE)


def hidden_aac(data: "Bytes", counted: float, longest: float) -> float:
    """Return the seconds of AAC that may hide in a file beside those counted; `longest` is the duration of a block."""
    return max(0.0, data.size / MIN_AAC_BLOCK_BYTES * longest - counted)


class Bytes:
    """Random access to a file, in windows."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.size = len(file)
        self._begin = 0
        self._window = b""

    def at(self, place: int, size: int) -> bytes:
        """Return at most `size` bytes from `place` on."""
        inside = place - self._begin
        end = self._begin + len(self._window)
        if inside < 0 or (place + size > end and end < self.size) or place > end:
            self._begin, self._window = place, self._file.read(max(size, WINDOW), place)
            inside = 0
        return self._window[inside : inside + size]

    def number(self, place: int, size: int) -> int:
        """Return the unsigned big-endian number at `place`."""
        return int.from_bytes(self.at(place, size), "big")

    def contains(self, patterns: tuple[bytes, ...], place: int, size: int) -> bool:
        """Return whether one of `patterns` occurs within `size` bytes from `place` on."""
        longest = max(map(len, patterns))
        end = min(place + size, self.size)
        while place < end:
            window = self.at(place, min(WINDOW, end - place))
            if any(pattern in window for pattern in patterns):
                return True
            place += max(1, len(window) - longest + 1) if place + len(window) < end else len(window)
        return False

    def find(self, pattern: bytes, place: int) -> int:
        """Return the first offset of `pattern` from `place` on; the end of the file if it does not occur."""
        while place < self.size:
            inside = place - self._begin
            if not 0 <= inside <= len(self._window) - len(pattern):
                self.at(place, WINDOW)
                inside = place - self._begin  # not 0 near the end of the file, where the window stays
            offset = self._window.find(pattern, inside)
            if offset >= 0:
                return self._begin + offset
            place = self._begin + len(self._window) - len(pattern) + 1
            if self._begin + len(self._window) >= self.size:
                break
        return self.size
