"""Huge memory pages for what a worker has loaded: an interpreter touches memory all over in each request, and with 4 KB
pages half of its cache misses are address lookups."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE = 2 << 20
# <linux/mman.h>; MADV_COLLAPSE joins pages at once (kernel 6.1 and later), otherwise the kernel does it in time.
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
MAPS = Path("/proc/self/maps")


def prefer_huge_pages() -> int:
    """Ask the kernel to back this process's own memory with 2 MB pages; returns how many bytes were advised.

    Best effort: 0 and no change where madvise(2) or transparent huge pages are not available.
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
    """The parts of the heap and of private anonymous memory that contain whole huge pages, as (start, bytes); `maps` is
    in the format of proc_pid_maps(5)."""
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split(None, 5)
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        low, _, high = addresses.partition("-")
        start, end = -(-int(low, 16) // HUGE) * HUGE, int(high, 16) // HUGE * HUGE
        if start < end:
            yield start, end - start
