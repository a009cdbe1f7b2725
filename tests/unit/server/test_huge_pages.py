"""Huge pages are requested only where they fit."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.configuration.settings import ROOT
from gateway.server.huge_pages import HUGE, REQUESTS, UP_S, HugePages, prefer_huge_pages, regions

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
# This runs in a separate process, because the test process has a hundred times as much memory to move.
ASKED = """
from gateway.server.huge_pages import HUGE, prefer_huge_pages
held = [bytes([number % 251]) * 100_000 for number in range(100)]
assert all(page % HUGE == 0 for page in prefer_huge_pages())
assert all(block == bytes([number % 251]) * 100_000 for number, block in enumerate(held))
"""


def test_only_own_memory_with_room_for_a_huge_page_counts():
    assert list(regions(MAPS)) == [(0x55F916800000, 3 * HUGE), (0x7FD104200000, HUGE)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages are a matter of Linux")
def test_asking_changes_nothing_that_was_there():
    done = subprocess.run([sys.executable, "-c", ASKED], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_worker_asks_once_it_is_in_use_and_for_one_page_at_a_time():
    asked = []

    def ask():
        for page in range(2):
            asked.append(page)
            yield page

    pages, idle = HugePages(ask), HugePages(ask)
    for answered, up_s in ((0, 0.0), (REQUESTS - 1, 1.0), (3, UP_S - 1)):
        pages.consider(answered, up_s)
    assert asked == []
    pages.consider(REQUESTS, 1.0)
    assert asked == [0]
    for _ in range(3):
        pages.consider(REQUESTS, 1.0)
    assert asked == [0, 1]
    idle.consider(0, UP_S)
    assert asked == [0, 1, 0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="huge pages are a matter of Linux")
def test_memory_of_a_worker_is_advised_after_its_first_requests(server, caller):
    (worker,) = server.workers()

    def is_advised() -> bool:
        lines = Path(f"/proc/{worker}/smaps").read_text().splitlines()
        return any(line.startswith("VmFlags:") and " hg" in line for line in lines)

    for _ in range(REQUESTS):
        caller.get("/ready").reply()
    until = time.monotonic() + 5
    while not is_advised() and time.monotonic() < until:
        time.sleep(0.02)
    assert is_advised() or not list(prefer_huge_pages())
