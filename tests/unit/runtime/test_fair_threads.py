"""Native threads that owners use in turns."""

from collections.abc import Iterator

import gevent
import pytest
from gevent.monkey import get_original

from gateway.runtime.fair_threads import FairThreads, QueueFull
from gateway.runtime.threads import Job, compute, work_for

real_sleep = get_original("time", "sleep")
allocate_lock = get_original("_thread", "allocate_lock")


class Gate:
    """Blocks native threads until it is opened."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def wait(self) -> None:
        with self._lock:
            return

    def open(self) -> None:
        self._lock.release()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def pool() -> Iterator[FairThreads]:
    made = FairThreads(2, each=1)
    yield made
    made.close()


def test_one_owner_occupies_one_thread_and_others_begin_at_once(pool: FairThreads, gate: Gate) -> None:
    flood = [gevent.spawn(pool.run, "flood", gate.wait) for _ in range(16)]
    gevent.sleep(0)
    assert pool.waiting == 15
    assert pool.run("other", lambda: "served") == "served", "while no piece of the flood has ended"
    gate.open()
    gevent.joinall(flood, timeout=60, raise_error=True)


def test_owners_take_turns(gate: Gate) -> None:
    pool, order = FairThreads(1, each=1), []
    first = gevent.spawn(pool.run, "first", gate.wait)
    gevent.sleep(0)
    waiting = [
        gevent.spawn(pool.run, owner, lambda owner=owner: order.append(owner))
        for owner in ["a"] * 4 + ["b"] * 2 + ["c"]
    ]
    gevent.sleep(0)
    gate.open()
    gevent.joinall([first, *waiting], timeout=60, raise_error=True)
    assert order == ["a", "b", "c", "a", "b", "a", "a"]
    pool.close()


def test_a_waiting_owner_that_is_killed_leaves_its_turn_to_others(pool: FairThreads, gate: Gate) -> None:
    holders = [gevent.spawn(pool.run, name, gate.wait) for name in ("one", "two")]
    gevent.sleep(0)
    leaving = [gevent.spawn(pool.run, "leaving", gate.wait) for _ in range(3)]
    gevent.sleep(0)
    gevent.killall(leaving)
    assert pool.waiting == 0
    gate.open()
    gevent.joinall(holders, timeout=60, raise_error=True)
    assert [pool.run("leaving", lambda: 1) for _ in range(3)] == [1, 1, 1]


def test_a_thread_is_free_again_only_when_the_work_of_a_killed_caller_has_ended(gate: Gate) -> None:
    pool = FairThreads(1, each=1)
    asking = gevent.spawn(pool.run, "one", gate.wait)
    gevent.sleep(0)
    asking.kill()
    following = gevent.spawn(pool.run, "two", lambda: "done")
    gevent.sleep(0.01)
    assert pool.waiting == 1
    gate.open()
    assert following.get(timeout=60) == "done"
    pool.close()


def test_an_exception_of_the_work_is_raised_for_its_caller_and_frees_the_thread(pool: FairThreads) -> None:
    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            pool.run("one", lambda: 1 // 0)
    assert pool.run("one", lambda: 1) == 1


def test_work_beyond_a_full_queue_is_refused(gate: Gate) -> None:
    pool = FairThreads(1, each=1, max_waiting=3, max_each=2)
    flood = [gevent.spawn(pool.run, owner, gate.wait) for owner in ("a", "a", "a", "b")]
    gevent.sleep(0)
    for owner in ("a", "c"):
        with pytest.raises(QueueFull):
            pool.run(owner, gate.wait)
    urgent = gevent.spawn(pool.run, "c", lambda: "urgent", True)
    gate.open()
    assert urgent.get(timeout=60) == "urgent"
    gevent.joinall(flood, timeout=60, raise_error=True)
    pool.close()


def test_uploads_of_one_organization_leave_a_computing_thread_to_others(gate: Gate) -> None:
    order: list[str] = []

    def serve(organization: str, work) -> None:
        work_for(organization)
        Job(compute, work).result()
        order.append(organization)

    uploads = [gevent.spawn(serve, "uploads", gate.wait) for _ in range(16)]
    gevent.sleep(0)
    gevent.sleep(0)
    chat = gevent.spawn(serve, "chat", lambda: real_sleep(0.001))
    chat.get(timeout=60)
    assert order == ["chat"], "none of the uploads was done, and the chat did not wait for one"
    gate.open()
    gevent.joinall(uploads, timeout=60, raise_error=True)
