"""Huge pages for what a worker has loaded: an interpreter is all over its memory in each request, and with pages of
4 KB half of its misses are for the addresses."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE = 2 << 20
# <linux/mman.h>; the second joins pages at once where the kernel knows how (6.1), else the kernel does it in time.
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
MAPS = Path("/proc/self/maps")


def prefer_huge_pages() -> int:
    """Ask the kernel to hold this process's own memory in pages of 2 MB; how many bytes it was asked for.

    Asked for and never insisted on: 0 and no change where there is no such thing (madvise(2), transparent huge pages).
    """
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None)
    advised = 0
    for start, size in list(regions(MAPS.read_text())):
        if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_HUGEPAGE) == 0:
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_COLLAPSE)
            advised += size
    return advised


def regions(maps: str) -> Iterator[tuple[int, int]]:
    """The parts of the heap and of private nameless memory that hold whole huge pages, as (start, bytes); `maps` in
    the form of proc_pid_maps(5)."""
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split(None, 5)
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        low, _, high = addresses.partition("-")
        start, end = -(-int(low, 16) // HUGE) * HUGE, int(high, 16) // HUGE * HUGE
        if start < end:
            yield start, end - start
