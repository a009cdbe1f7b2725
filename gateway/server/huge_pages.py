"""Huge memory pages for the data of a worker: each request touches memory all over, and with 4 KB pages half of its
cache misses are address lookups."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HUGE = 2 << 20
# <linux/mman.h>. MADV_COLLAPSE merges pages at once (kernel 6.1 and later); otherwise the kernel merges them over time.
MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25
MAPS = Path("/proc/self/maps")
# A worker is in use after this many requests or seconds. Then it requests one page at a time, which delays its requests
# by 1 to 11 ms each.
REQUESTS = 200
UP_S = 60.0


class HugePages:
    """Requests huge pages, one at a time, for a worker in use. Merging costs a fifth of the work of a start, which
    would be wasted on a worker that is soon replaced."""

    def __init__(self, ask: Callable[[], Iterator[int]] | None = None) -> None:
        self._ask = ask or prefer_huge_pages
        self._steps: Iterator[int] | None = None

    def consider(self, answered: int, up_s: float) -> None:
        """Take the next step if it is due, after `answered` requests and `up_s` seconds since the start."""
        if self._steps is None:
            if answered < REQUESTS and up_s < UP_S:
                return
            self._steps = self._ask()
        next(self._steps, None)


def prefer_huge_pages() -> Iterator[int]:
    """Request 2 MB pages for this process's memory, one at a time; yields the address of each requested page.

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
    """Return the parts of the heap and of private anonymous memory that contain whole huge pages, as (start, bytes).
    `maps` is in the format of proc_pid_maps(5)."""
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split(None, 5)
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        low, _, high = addresses.partition("-")
        start = -(-int(low, 16) // HUGE) * HUGE
        end = int(high, 16) // HUGE * HUGE
        if start < end:
            yield start, end - start
