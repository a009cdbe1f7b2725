"""The master outlives whatever becomes of its workers."""

import logging
import os
import queue
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.arbiter import Arbiter

from gateway.server import master as module
from gateway.server import ready_workers
from gateway.server.master import Master


class Worker:
    """The master's view of a worker: a process and its heartbeat file."""

    def __init__(self, pid: int, age: int) -> None:
        self.pid, self.age, self.ready, self.leaving, self.aborted = pid, age, False, False, False
        self.tmp = os.fdopen(os.memfd_create("worker"), "w+b")

    def report_ready(self) -> None:
        os.ftruncate(self.tmp.fileno(), 1)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """A master of two workers that forks none; `killed` lists the workers that it signalled to leave."""
    made = object.__new__(Master)
    made.WORKERS, made._num_workers, made.worker_age = {}, 2, 0
    made._old_age = made._failed = 0
    made._backoff_until = 0.0
    made.reexec_pid = made.dirty_arbiter_pid = 0
    made.log = logging.getLogger("test of the master")
    made.cfg = SimpleNamespace(child_exit=lambda arbiter, worker: None)
    made.killed = []
    monkeypatch.setattr(made, "_look_at_files", lambda: None)
    monkeypatch.setattr(made, "kill_worker", lambda pid, sig: made.killed.append(pid))

    def spawn(arbiter: Any) -> int:
        arbiter.worker_age += 1
        arbiter.WORKERS[1000 + arbiter.worker_age] = Worker(1000 + arbiter.worker_age, arbiter.worker_age)
        return 1000 + arbiter.worker_age

    monkeypatch.setattr(Arbiter, "spawn_worker", spawn)
    return made


def ended(master: Master, status: int) -> Worker:
    """A worker of a real process that ends with this status."""
    pid = os.fork()
    if not pid:
        os._exit(status)
    master.worker_age += 1
    worker = master.WORKERS[pid] = Worker(pid, master.worker_age)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return worker


@pytest.mark.parametrize("status", [Arbiter.WORKER_BOOT_ERROR, Arbiter.APP_LOAD_ERROR, 1])
def test_a_worker_that_cannot_boot_ends_nothing_and_the_next_one_waits(master: Master, status: int) -> None:
    master.manage_workers()
    others = set(master.WORKERS)
    ended(master, status)
    master.reap_workers()
    assert set(master.WORKERS) == others and master._backoff_until > time.monotonic()
    del master.WORKERS[others.pop()]
    master.manage_workers()
    assert len(master.WORKERS) == 1
    master._backoff_until = 0.0
    master.manage_workers()
    assert len(master.WORKERS) == 2


def test_pauses_grow_until_a_worker_is_ready(master: Master) -> None:
    pauses = []
    for _ in range(3):
        ended(master, 1)
        master.reap_workers()
        pauses.append(master._backoff_until - time.monotonic())
    assert pauses == sorted(pauses) and pauses[-1] > 3 * pauses[0] / 2
    master._backoff_until = 0.0
    master.manage_workers()
    next(iter(master.WORKERS.values())).report_ready()
    master._look()
    assert master._failed == 0


def test_a_ready_worker_that_dies_is_replaced_at_once(master: Master) -> None:
    ended(master, 1).report_ready()
    master.reap_workers()
    assert master._backoff_until == 0.0


def test_workers_of_the_configuration_before_leave_as_new_ones_are_ready(master: Master) -> None:
    master.manage_workers()
    before = list(master.WORKERS)
    for worker in master.WORKERS.values():
        worker.report_ready()
    master._old_age = master.worker_age
    master.manage_workers()
    new = [one for pid, one in master.WORKERS.items() if pid not in before]
    assert len(new) == 2 and master.killed == []
    new[0].report_ready()
    master.manage_workers()
    assert master.killed == before[:1]
    new[1].report_ready()
    master.manage_workers()
    assert master.killed == before
    master.manage_workers()
    assert master.killed == before, "nobody is asked twice"


def test_a_reload_that_led_to_no_ready_worker_is_given_up_for_the_next(master: Master) -> None:
    master.manage_workers()
    before = list(master.WORKERS)
    for worker in master.WORKERS.values():
        worker.report_ready()
    master._old_age = master.worker_age
    master.manage_workers()
    waiting = [pid for pid in master.WORKERS if pid not in before]
    assert ready_workers.ready_count.read() == 2
    master._old_age = master.worker_age
    master.manage_workers()
    assert master.killed == waiting and ready_workers.ready_count.read() == 2


def test_every_signal_to_end_counts_as_asking_again(master: Master) -> None:
    master.SIG_QUEUE = queue.SimpleQueue()
    assert not master._signalled_again()
    for sent in (signal.SIGCHLD, signal.SIGTERM):
        master.SIG_QUEUE.put(sent)
    assert master._signalled_again() and set(module.ENDS) == {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


def test_hang_ups_that_came_together_are_one_reload_and_none_beside_an_end(master: Master) -> None:
    master.SIG_QUEUE = queue.SimpleQueue()
    came = []
    for sent in (
        [signal.SIGHUP, signal.SIGCHLD, signal.SIGHUP, signal.SIGHUP],
        [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP],
        [signal.SIGCHLD],
    ):
        for one in sent:
            master.SIG_QUEUE.put(one)
        came.append(master.wait_for_signals(0))
    assert came == [[signal.SIGCHLD, signal.SIGHUP], [signal.SIGTERM], [signal.SIGCHLD]]
