"""Memory for large answers of upstreams while they are read."""

from collections.abc import Callable

import gevent
import pytest

from gateway.clock import Clock
from gateway.errors import Overloaded
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import work_for
from gateway.transport.answer_room import AnswerRoom, HeldAnswer, KeptBytes

NEVER = 3600.0


def reading(room: AnswerRoom, owner: str, work: Callable[[HeldAnswer], object]) -> gevent.Greenlet:
    """Work on an answer for an owner, in its own greenlet."""

    def run() -> object:
        work_for(owner)
        return work(room.hold())

    started = gevent.spawn(run)
    gevent.sleep(0)
    return started


def grown(*sizes: int) -> Callable[[HeldAnswer], HeldAnswer]:
    def grow(held: HeldAnswer) -> HeldAnswer:
        for size in sizes:
            held.grow(size)
        return held

    return grow


def test_an_owner_reads_one_large_answer_at_once_and_more_within_half_of_its_budget():
    budget = ByteBudget(1000, 100)
    room = AnswerRoom(budget, NEVER, Clock.monotonic)
    first = reading(room, "org", grown(30, 60)).get(timeout=60)
    second = reading(room, "org", grown(10))
    assert not second.ready() and budget.held == 90, "it waits; its connection fills up"
    assert reading(room, "other", grown(90)).get(timeout=60), "another organization has its own budget"
    first.release()
    assert second.get(timeout=60) and budget.held_by("org") == 10
    third = reading(room, "org", grown(40)).get(timeout=60)
    assert budget.held_by("org") == 50
    third.release()
    third.release()
    assert budget.held_by("org") == 10, "once"


def test_answers_that_found_no_room_in_time_are_read_one_after_the_other():
    budget = ByteBudget(1000, 100)
    room = AnswerRoom(budget, 0.0, Clock.monotonic)
    budget.grow("org", 100)
    first = reading(room, "org", grown(50, 50, 50)).get(timeout=60)
    second = reading(room, "org", grown(50))
    assert not second.ready() and budget.held == 100
    first.release()
    assert second.get(timeout=60).release() is None and budget.held == 100


def test_a_reader_that_is_killed_while_it_waits_holds_nothing():
    budget = ByteBudget(1000, 100)
    room = AnswerRoom(budget, NEVER, Clock.monotonic)
    budget.grow("org", 100)
    held: list[HeldAnswer] = []
    waiting = reading(room, "org", lambda one: held.append(one) or one.grow(10))
    waiting.kill()
    held[0].release()
    assert budget.held == 100
    budget.grow("org", -100)
    assert budget.held == 0 and budget.held_by("org") == 0


def test_kept_bytes_count_as_long_as_something_refers_to_them():
    budget = ByteBudget(1000, 100)
    kept = KeptBytes(budget)
    kept.grow(60)
    with pytest.raises(Overloaded):
        kept.grow(60)
    assert budget.held == 60
    del kept
    assert budget.held == 0
    KeptBytes(None).grow(10**12)  # a client without budgets
