"""How many workers are ready, as the master knows it, told to all of them by memory that they share."""

import mmap
import struct

COUNT = struct.Struct("<I")


class ReadyCount:
    """Written by the master alone; 0 under another arbiter, which does not know."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, COUNT.size)

    def write(self, count: int) -> None:
        COUNT.pack_into(self._memory, 0, count)

    def read(self) -> int:
        (count,) = COUNT.unpack_from(self._memory)
        return int(count)


ready = ReadyCount()
