"""Slots that are counted, given back by whoever has one."""

import sys
from collections.abc import Iterator

import gevent
import pytest

from gateway.threads import Slots, Threads


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Native threads take turns in the middle of whatever they do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_slots_given_back_by_the_event_loop_are_never_lost(threads: Threads, hasty_threads: None) -> None:
    slots = Slots(3)

    def use() -> None:
        for _ in range(10_000):
            if slots.take(1):
                slots.give()

    user = gevent.spawn(threads.run, use)
    for _ in range(2_000):
        assert slots.take(1)
        gevent.get_hub().loop.run_callback(slots.give)
        gevent.sleep(0)
    user.get()
    assert [slots.take(0) for _ in range(4)] == [True, True, True, False]
