"""Huge pages are asked for where they fit, and nowhere else."""

import subprocess
import sys

import pytest

from gateway.server.huge_pages import HUGE, regions
from gateway.settings import ROOT

MAPS = """\
55f916800000-55f916e00000 rw-p 00000000 00:00 0                          [heap]
7fd0ffe00000-7fd100000000 r--p 00000000 00:00 0
7fd100000000-7fd100400000 r-xp 00000000 fe:00 1234                       /usr/lib/libpython3.11.so.1.0
7fd104100000-7fd104500000 rw-p 00000000 00:00 0
7fd105000000-7fd105100000 rw-p 00000000 00:00 0
7fd106000000-7fd106400000 rw-p 00000000 fe:00 99                         /data/journal/one.log
7fd107000000-7fd107400000 rw-s 00000000 00:01 7                          /dev/zero (deleted)
7ffe73c00000-7ffe74000000 rw-p 00000000 00:00 0                          [stack]
"""
# In a process of its own: that of the tests has a hundred times as much memory to be moved.
ASKED = """
from gateway.server.huge_pages import HUGE, prefer_huge_pages
held = [bytes([number % 251]) * 100_000 for number in range(100)]
assert prefer_huge_pages() % HUGE == 0
assert all(block == bytes([number % 251]) * 100_000 for number, block in enumerate(held))
"""


def test_only_own_memory_with_room_for_a_huge_page_counts():
    assert list(regions(MAPS)) == [(0x55F916800000, 3 * HUGE), (0x7FD104200000, HUGE)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages are a matter of Linux")
def test_asking_changes_nothing_that_was_there():
    done = subprocess.run([sys.executable, "-c", ASKED], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
