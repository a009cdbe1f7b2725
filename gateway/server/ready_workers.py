"""The number of ready workers, counted by the master and shared with all workers in memory."""

import mmap
import struct

COUNTER = struct.Struct("<I")


class ReadyCount:
    """The shared counter, written only by the master; stays 0 under another arbiter."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, COUNTER.size)

    def write(self, count: int) -> None:
        COUNTER.pack_into(self._memory, 0, count)

    def read(self) -> int:
        (count,) = COUNTER.unpack_from(self._memory)
        return int(count)


ready_count = ReadyCount()
