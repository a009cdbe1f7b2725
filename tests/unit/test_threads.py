"""Slots that are counted, given back by whoever has one."""

import socket
import sys
import time
from collections.abc import Generator, Iterator

import gevent
import pytest

from gateway.threads import MOMENT_S, PIECES_A_MOMENT, Slots, Threads, bulk_turn, follow


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


def test_what_is_large_moves_a_few_pieces_in_a_moment_whoever_has_them() -> None:
    moved: list[int] = []

    def move(number: int) -> None:
        for _ in range(4):
            bulk_turn()
            moved.append(number)

    gevent.sleep(5 * MOMENT_S)
    start = time.monotonic()
    gevent.joinall([gevent.spawn(move, number) for number in range(8)], raise_error=True)
    # So many moments went by at the least; a timer that is late once rings the sooner the next time.
    assert time.monotonic() - start >= (32 / PIECES_A_MOMENT) / 2 * MOMENT_S
    assert moved[PIECES_A_MOMENT : PIECES_A_MOMENT + 8] == list(range(8)), "who waits first goes first"


def test_who_gives_up_leaves_the_turn_to_others() -> None:
    holders = [gevent.spawn(bulk_turn) for _ in range(PIECES_A_MOMENT)]
    leaving = [gevent.spawn(bulk_turn) for _ in range(3 * PIECES_A_MOMENT)]
    gevent.sleep(0)
    gevent.killall(leaving)
    staying = [gevent.spawn(bulk_turn) for _ in range(3)]
    assert len(gevent.joinall([*holders, *staying], timeout=5)) == PIECES_A_MOMENT + 3


def test_one_alone_has_its_turn_at_once() -> None:
    gevent.sleep(5 * MOMENT_S)
    seen: list[str] = []
    gevent.spawn(seen.append, "another")
    bulk_turn()
    assert seen == []


def reads(near: socket.socket, count: int) -> Generator[int, int, bytes]:
    """Steps that read so many bytes, one at a time."""
    got = b""
    while len(got) < count:
        assert (yield 1)
        got += near.recv(1)
    return got


def test_steps_about_a_socket_go_on_as_it_has_something_and_others_run_meanwhile() -> None:
    near, far = socket.socketpair()
    with near, far:
        gevent.spawn_later(0.02, far.sendall, b"ab")
        gevent.spawn_later(0.04, far.sendall, b"c")
        assert follow(reads(near, 3), near.fileno(), 2) == b"abc"


def test_steps_that_take_too_long_end_and_the_time_of_another_is_anothers() -> None:
    near, far = socket.socketpair()
    with near, far:
        with pytest.raises(TimeoutError):
            follow(reads(near, 1), near.fileno(), 0.02)
        with pytest.raises(gevent.Timeout) as told, gevent.Timeout(0.02):
            follow(reads(near, 1), near.fileno(), 2)
        assert told.value.seconds == 0.02
        far.sendall(b"x")
        assert follow(reads(near, 1), near.fileno(), None) == b"x"
