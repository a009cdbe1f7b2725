"""Huge memory pages for what a worker has loaded: an interpreter touches memory all over in each request, and with 4 KB
pages half of its cache misses are address lookups."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HUGE = 2 << 20
# <linux/mman.h>; MADV_COLLAPSE joins pages at once (kernel 6.1 and later), otherwise the kernel does it in time.
MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25
MAPS = Path("/proc/self/maps")
# A worker is in use once it has answered so many requests or has been up for so long; then it asks for one page at a
# time, which holds its requests up for 1 to 11 ms.
REQUESTS = 200
UP_S = 60.0


class HugePages:
    """Asks for them, page by page, when a worker is in use: to join them is a fifth of the work of its whole start, for
    nothing where it is soon replaced."""

    def __init__(self, ask: Callable[[], Iterator[int]] | None = None) -> None:
        self._ask = ask or prefer_huge_pages
        self._steps: Iterator[int] | None = None

    def consider(self, answered: int, up_s: float) -> None:
        """To be called now and then: `answered` requests so far, `up_s` seconds since the start."""
        if self._steps is None:
            if answered < REQUESTS and up_s < UP_S:
                return
            self._steps = self._ask()
        next(self._steps, None)


def prefer_huge_pages() -> Iterator[int]:
    """Ask the kernel, one after the other, to back this process's own memory with 2 MB pages; yields the address of
    each that was asked for.

    Best effort: nothing where madvise(2) or transparent huge pages are not available.
    """
    if not sys.platform.startswith("linux"):
        return
    madvise = ctypes.CDLL(None).madvise
    for start, size in list(regions(MAPS.read_text())):
        if madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_HUGEPAGE) == 0:
            for page in range(start, start + size, HUGE):
                madvise(ctypes.c_void_p(page), ctypes.c_size_t(HUGE), MADV_COLLAPSE)
                yield page


def regions(maps: str) -> Iterator[tuple[int, int]]:
    """The parts of the heap and of private anonymous memory that contain whole huge pages, as (start, bytes); `maps` is
    in the format of proc_pid_maps(5)."""
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split(None, 5)
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        low, _, high = addresses.partition("-")
        start = -(-int(low, 16) // HUGE) * HUGE
        end = int(high, 16) // HUGE * HUGE
        if start < end:
            yield start, end - start
