"""Slots, own threads, idle waits and steps on sockets."""

import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator

import gevent
import pytest
from gevent.monkey import get_original

from gateway.configuration.settings import ROOT
from gateway.errors import NotFound
from gateway.runtime.threads import IdleWait, Job, OwnThread, Slots, Threads, follow

real_sleep = get_original("time", "sleep")


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Native threads interrupt each other at any instruction."""
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


def test_an_exception_of_work_in_a_thread_is_raised_and_not_reported_as_uncaught(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(gevent.get_hub(), "print_exception", lambda *error: reported.append(error))

    def work() -> None:
        raise NotFound("There is none.")

    with pytest.raises(NotFound):
        threads.run(work)
    gevent.sleep(0)
    assert reported == []


@pytest.fixture
def own_thread() -> Iterator[OwnThread]:
    made = OwnThread()
    yield made
    made.close()


def test_work_of_an_own_thread_leaves_the_event_loop_free(own_thread: OwnThread) -> None:
    ended: list[str] = []
    sleeping = gevent.spawn(own_thread.finish, lambda: real_sleep(0.02) or "done", lambda: ended.append("after"))
    gevent.sleep(0)
    assert not ended, "it was begun, and this greenlet has its turn meanwhile"
    assert sleeping.get() == "done" and ended == ["after"]
    assert own_thread.finish(lambda: 2, ended.clear) == 2, "the next piece has the same thread"


def test_work_in_an_own_thread_ends_although_its_caller_was_killed(own_thread: OwnThread) -> None:
    ended: list[str] = []
    asking = gevent.spawn(own_thread.finish, lambda: real_sleep(0.01), lambda: ended.append("after"))
    gevent.sleep(0)
    asking.kill()
    assert not ended
    gevent.sleep(0.05)
    assert ended == ["after"] and own_thread.finish(lambda: 3, int) == 3


def test_an_own_thread_that_is_closed_ends_what_it_does() -> None:
    closed, done = OwnThread(), []
    asking = gevent.spawn(closed.finish, lambda: real_sleep(0.01) or done.append(1), lambda: done.append("after"))
    gevent.sleep(0)
    closed.close()
    closed.close()
    asking.get(timeout=60)
    assert done == [1, "after"], "once"


# A separate program: the greenlets and threads of other tests, which a fork of this process copies, may hold locks.
FORKING = """
from gevent import monkey

monkey.patch_all()

import os

from gateway.runtime.threads import OwnThread

own_thread = OwnThread()
assert own_thread.finish(lambda: 1, int) == 1
child = os.fork()
if not child:
    os._exit(own_thread.finish(lambda: 42, int))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_a_separate_own_thread() -> None:
    assert subprocess.run([sys.executable, "-c", FORKING], cwd=ROOT, timeout=120).returncode == 42


def test_an_idle_wait_ends_after_all_ready_greenlets() -> None:
    seen: list[int] = []
    idle = IdleWait(1.0)

    def busy() -> None:
        for number in range(3):
            seen.append(number)
            gevent.sleep(0)

    gevent.spawn(busy)
    idle.wait()
    assert seen == [0, 1, 2]


def test_an_idle_wait_has_a_timeout() -> None:
    def busy() -> None:
        while True:
            gevent.sleep(0)

    never_idle = gevent.spawn(busy)
    IdleWait(0.002).wait()
    never_idle.kill()


def test_each_wait_for_an_idle_moment_has_its_whole_time() -> None:
    def busy() -> None:
        while True:
            gevent.sleep(0)

    never_idle = gevent.spawn(busy)
    idle = IdleWait(0.2)
    taken_s = []
    for _ in range(3):
        start = time.monotonic()
        idle.wait()
        taken_s.append(time.monotonic() - start)
    never_idle.kill()
    assert min(taken_s) > 0.1


def reads(near: socket.socket, count: int) -> Generator[int, int, bytes]:
    """Steps that read this number of bytes, one at a time."""
    events = b""
    while len(events) < count:
        assert (yield 1)
        events += near.recv(1)
    return events


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


def test_an_error_of_a_job_is_raised_where_it_is_awaited_and_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise NotFound("nothing")

    job: Job[None] = Job(fail)
    with pytest.raises(NotFound, match="nothing"):
        job.result(60)
    assert job.is_over and job.outcome() is None
    assert capsys.readouterr().err == ""
