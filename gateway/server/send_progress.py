"""Measures how fast a caller reads a response, from the bytes that its system acknowledged."""

import fcntl
import struct
import termios

INTEGER = struct.Struct("i")


class SendProgress:
    """The waits for one caller to read more of one response, in ticks. `moved` is the tick of the last progress."""

    __slots__ = ("moved", "_socket", "_since", "_waited", "_taken", "_given", "_seen")

    def __init__(self, sock: int) -> None:
        self._socket = sock  # file descriptor
        self.moved = self._since = self._waited = 0
        self._taken = self._given = self._seen = 0

    def begin(self, tick: int) -> None:
        """Begin a wait: the kernel's buffer is full of data that the caller has not acknowledged."""
        self.moved = self._since = tick
        self._given = queued(self._socket)
        self._seen = 0

    def give(self, size: int) -> None:
        """Count `size` more bytes that were passed to the kernel."""
        self._given += size

    def end(self, tick: int) -> None:
        """End a wait: the kernel has accepted everything."""
        self._look(tick)
        self._taken += self._seen
        self._waited += tick - self._since
        self._since = self._seen = 0

    def is_too_slow(self, tick: int, patience: int, rate: float) -> bool:
        """Return whether the caller read nothing for `patience` ticks, or less than `rate` bytes per tick over the
        total wait beyond that patience."""
        if not self._since:
            return False
        self._look(tick)
        if tick - self.moved > patience:
            return True
        waited = self._waited + tick - self._since
        return waited > patience + (self._taken + self._seen) / rate

    def _look(self, tick: int) -> None:
        taken = self._given - queued(self._socket)
        if taken > self._seen:
            self._seen = taken
            self.moved = tick


def queued(sock: int) -> int:
    """Return the bytes that the kernel holds until the peer acknowledges them; 0 where this is not reported."""
    try:
        return int(INTEGER.unpack(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(INTEGER.size)))[0])
    except OSError:
        return 0
