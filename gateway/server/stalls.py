"""How fast a caller takes an answer for which has to be waited: what its side confirmed, and in which time."""

import fcntl
import struct
import termios

INTEGER = struct.Struct("i")


class Stall:
    """The waits for one caller to take more of one answer, in ticks. `moved` is the tick of the last that it took."""

    __slots__ = ("moved", "_socket", "_since", "_waited", "_taken", "_given", "_seen")

    def __init__(self, sock: int) -> None:
        self._socket = sock  # descriptor
        self.moved = self._since = self._waited = 0
        self._taken = self._given = self._seen = 0

    def begin(self, tick: int) -> None:
        """A wait begins: the kernel takes no more, and what it holds the caller has not taken."""
        self.moved = self._since = tick
        self._given = queued(self._socket)
        self._seen = 0

    def give(self, size: int) -> None:
        """So much more was given to the kernel."""
        self._given += size

    def end(self, tick: int) -> None:
        """The wait is over: the kernel has all of it."""
        self._look(tick)
        self._taken += self._seen
        self._waited += tick - self._since
        self._since = self._seen = 0

    def is_too_slow(self, tick: int, patience: int, rate: float) -> bool:
        """Whether the caller has taken nothing for `patience` ticks, or fewer than `rate` bytes a tick in all the time
        that was waited for it, beyond that patience."""
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
            self._seen, self.moved = taken, tick


def queued(sock: int) -> int:
    """Bytes that the kernel holds until the other side confirms them; 0 where the system does not report it."""
    try:
        return int(INTEGER.unpack(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(INTEGER.size)))[0])
    except OSError:
        return 0
