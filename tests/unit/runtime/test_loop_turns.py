"""Turns on the event loop for pieces of large bodies and for work of low priority."""

import itertools
import socket
import time
from collections.abc import Callable

import gevent
import pytest

from gateway.runtime.loop_turns import (
    BULK_SLICE_S,
    RESTING_TICK_S,
    TICK_S,
    TURNS_PER_SLICE,
    bulk_turn,
    continuation_turn,
    low_priority,
    low_priority_turn,
    rest,
    until_tick,
)
from gateway.runtime.threads import work_for

ROUND = "round"


def test_large_bodies_move_a_few_pieces_in_each_interval() -> None:
    moved: list[int] = []

    def move(number: int) -> None:
        for _ in range(4):
            bulk_turn()
            moved.append(number)

    gevent.sleep(5 * BULK_SLICE_S)
    start = time.monotonic()
    gevent.joinall([gevent.spawn(move, number) for number in range(8)], raise_error=True)
    # At least this number of intervals passed; a timer that is late once fires earlier the next time.
    assert time.monotonic() - start >= (32 / TURNS_PER_SLICE) / 2 * BULK_SLICE_S
    assert moved[TURNS_PER_SLICE : TURNS_PER_SLICE + 8] == list(range(8)), "who waits first goes first"


@pytest.mark.parametrize("turn", [bulk_turn, low_priority_turn])
def test_owners_take_turns(turn: Callable[[], None]) -> None:
    order: list[str] = []

    def work(owner: str) -> None:
        work_for(owner)
        turn()
        order.append(owner)

    owners = [*["flood"] * 12, "other", "other", "third"]
    gevent.joinall([gevent.spawn(work, owner) for owner in owners], raise_error=True)
    waited = order[TURNS_PER_SLICE:]  # the first ones may have had no one before them
    last = len(waited) - 1 - waited[::-1].index("other")
    assert last <= 6 and waited.index("third") <= 3
    assert order.count("flood") == 12


def test_a_cancelled_waiter_leaves_its_turn_to_others() -> None:
    holders = [gevent.spawn(bulk_turn) for _ in range(TURNS_PER_SLICE)]
    leaving = [gevent.spawn(bulk_turn) for _ in range(3 * TURNS_PER_SLICE)]
    gevent.sleep(0)
    gevent.killall(leaving)
    staying = [gevent.spawn(bulk_turn) for _ in range(3)]
    assert len(gevent.joinall([*holders, *staying], timeout=60)) == TURNS_PER_SLICE + 3


def test_one_alone_has_its_turn_at_once() -> None:
    gevent.sleep(5 * BULK_SLICE_S)
    seen: list[str] = []
    gevent.spawn(seen.append, "another")
    bulk_turn()
    assert seen == []


def test_at_most_one_low_priority_turn_is_granted_in_a_round_of_the_event_loop() -> None:
    events: list[str] = []
    rounds = gevent.get_hub().loop.check()
    rounds.start(events.append, ROUND)

    def work(name: str) -> None:
        for _ in range(3):
            low_priority_turn()
            events.append(name)

    try:
        gevent.joinall([gevent.spawn(work, f"work {number}") for number in range(8)], raise_error=True)
    finally:
        rounds.stop()
    done = [event for event in events if event != ROUND]
    assert len(done) == 24
    assert not [pair for pair in itertools.pairwise(events) if ROUND not in pair]


def test_low_priority_turns_are_granted_in_order_of_arrival() -> None:
    order: list[int] = []

    def work(number: int) -> None:
        low_priority_turn()
        order.append(number)

    gevent.joinall([gevent.spawn(work, number) for number in range(8)], raise_error=True)
    assert order == list(range(8))


def test_a_low_priority_turn_is_granted_although_other_work_is_always_ready() -> None:
    def busy() -> None:
        while True:
            gevent.sleep(0)

    never_idle = gevent.spawn(busy)
    for _ in range(3):
        low_priority_turn()
    never_idle.kill()


def test_work_that_is_ready_goes_before_a_low_priority_turn() -> None:
    order: list[str] = []
    near, far = socket.socketpair()

    def receive() -> None:
        near.recv(1)
        order.append("socket")

    def work(name: str) -> None:
        low_priority_turn()
        order.append(name)
        if name == "first":
            far.send(b"x")

    with near, far:
        receiving = gevent.spawn(receive)
        gevent.sleep(0)
        gevent.joinall([receiving, *(gevent.spawn(work, name) for name in ("first", "second"))], raise_error=True)
    assert order == ["first", "socket", "second"]


def test_a_lone_low_priority_turn_is_granted_at_once() -> None:
    gevent.sleep(0.01)
    seen: list[str] = []
    gevent.spawn(seen.append, "another")
    low_priority_turn()
    assert seen == []


def test_a_cancelled_waiter_leaves_its_low_priority_turn_to_others() -> None:
    holder = gevent.spawn(low_priority_turn)
    leaving = [gevent.spawn(low_priority_turn) for _ in range(5)]
    gevent.sleep(0)
    gevent.killall(leaving)
    staying = [gevent.spawn(low_priority_turn) for _ in range(3)]
    assert len(gevent.joinall([holder, *staying], timeout=60)) == 4


def test_work_of_low_priority_continues_after_work_that_is_ready() -> None:
    order: list[str] = []

    def report() -> None:
        with low_priority():
            order.append("begun")
            gevent.spawn(order.append, "model call")
            continuation_turn()
            order.append("ended")

    gevent.spawn(report).join()
    assert order == ["begun", "model call", "ended"]


def test_other_work_needs_no_turn_to_continue() -> None:
    order: list[str] = []

    def work() -> None:
        with low_priority():
            pass
        gevent.spawn(order.append, "another")
        continuation_turn()
        order.append("ended")

    gevent.spawn(work).join()
    assert order[0] == "ended"


@pytest.mark.parametrize("every_s", [TICK_S, 2 * TICK_S, 8 * TICK_S])
def test_a_loop_waits_for_a_tick_that_all_loops_share(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1000.0 + number * 0.0371 for number in range(200)]
    ticks = []
    for moment in moments:
        monkeypatch.setattr(time, "monotonic", lambda moment=moment: moment)
        wait_s = until_tick(every_s)
        assert every_s / 2 <= wait_s <= every_s * 1.5
        ticks.append(moment + wait_s)
    monkeypatch.setattr(time, "monotonic", lambda: 500.0)
    first = 500.0 + until_tick()
    assert all(abs((tick - first + TICK_S / 2) % TICK_S - TICK_S / 2) < 1e-6 for tick in ticks)


def test_loops_wait_for_rarer_ticks_while_the_process_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 500.0)
    to_tick_s = until_tick(RESTING_TICK_S)
    assert until_tick() < RESTING_TICK_S / 2
    rest(True)
    try:
        assert until_tick() == until_tick(3 * TICK_S) == to_tick_s  # loops with different intervals share a tick
        assert until_tick(resting_s=TICK_S) < RESTING_TICK_S / 2
        assert until_tick(8 * TICK_S) >= 4 * TICK_S  # a longer interval stays
    finally:
        rest(False)
    assert until_tick() < RESTING_TICK_S / 2
