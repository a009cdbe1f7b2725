"""Helpers of the audio readers: windows into a file, and the result of a count."""

from typing import NamedTuple

from gateway.runtime.large_files import StoredFile

WINDOW = 1 << 20
# The lowest byte rate of any format that providers accept: silence in FLAC takes nine bytes a second.
LEAST_OF_ANY = 9
MOST_FRAMES = 1_000_000  # per file; beyond it, bytes count at the lowest rate


class CountedSound(NamedTuple):
    """Seconds of the counted frames. `rest` are the bytes outside of known frames, with the fewest bytes for a
    second.
    """

    seconds: float
    rest: int = 0
    least: float = LEAST_OF_ANY


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
