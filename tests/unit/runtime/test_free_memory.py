"""Memory that a process no longer uses."""

import resource
from pathlib import Path

from gateway.runtime.threads import return_free_memory

BLOCK, BLOCKS = 4096, 10_000


def count_resident() -> int:
    """Return the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_pages_that_are_free_between_used_ones_are_returned():
    blocks = [bytes([1]) * BLOCK for _ in range(BLOCKS)]
    kept = blocks[::50]
    del blocks
    before = count_resident()
    return_free_memory()
    assert before - count_resident() > BLOCK * BLOCKS / 2
    assert len(kept) == BLOCKS // 50
