"""Shared by the readers of sound: bytes at a place of a file, and the result of a count."""

from typing import NamedTuple

from gateway.runtime.large_files import StoredFile

WINDOW = 1 << 20
# Silence in FLAC: a second in nine bytes. No format of those that providers take has less.
LEAST_OF_ANY = 9
MOST_FRAMES = 1_000_000  # of one file; beyond, its bytes count at the lowest rate


class CountedSound(NamedTuple):
    """Seconds of the frames that were counted; `rest` are bytes that hold no known frame, and the fewest of them that a
    second may take."""

    seconds: float
    rest: int = 0
    least: int = LEAST_OF_ANY


class Bytes:
    """A file as something that is read at any place, in windows."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.size = len(file)
        self._begin = 0
        self._window = b""

    def at(self, place: int, size: int) -> bytes:
        """At most `size` bytes from `place` on."""
        inside = place - self._begin
        end = self._begin + len(self._window)
        if inside < 0 or (place + size > end and end < self.size) or place > end:
            self._begin, self._window = place, self._file.read(max(size, WINDOW), place)
            inside = 0
        return self._window[inside : inside + size]

    def number(self, place: int, size: int) -> int:
        """The unsigned big-endian number at `place`."""
        return int.from_bytes(self.at(place, size), "big")

    def find(self, wanted: bytes, place: int) -> int:
        """Where `wanted` stands first from `place` on; the end of the file where it does not."""
        while place < self.size:
            inside = place - self._begin
            if not 0 <= inside <= len(self._window) - len(wanted):
                self.at(place, WINDOW)
                inside = 0
            found = self._window.find(wanted, inside)
            if found >= 0:
                return self._begin + found
            place = self._begin + len(self._window) - len(wanted) + 1
            if self._begin + len(self._window) >= self.size:
                break
        return self.size
