"""The master outlives whatever becomes of its workers."""

import logging
import os
import queue
import signal
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event
from gunicorn.arbiter import Arbiter

from gateway.clock import Clock
from gateway.server import boot
from gateway.server import master as module
from gateway.server.master import Master
from gateway.server.worker import GatewayWorker


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
    new_master = object.__new__(Master)
    new_master.WORKERS, new_master._num_workers, new_master.worker_age = {}, 2, 0
    new_master._old_age = new_master._failed = 0
    new_master._backoff_until = 0.0
    new_master.reexec_pid = new_master.dirty_arbiter_pid = 0
    new_master.worker_class, new_master.pid = GatewayWorker, os.getpid()
    new_master.log = logging.getLogger("test of the master")
    new_master.cfg = SimpleNamespace(child_exit=lambda arbiter, worker: None)
    new_master.killed = []
    monkeypatch.setattr(new_master, "_look_at_files", lambda: None)
    monkeypatch.setattr(new_master, "kill_worker", lambda pid, sig: new_master.killed.append(pid))

    def spawn(arbiter: Any) -> int:
        arbiter.worker_age += 1
        arbiter.WORKERS[1000 + arbiter.worker_age] = Worker(1000 + arbiter.worker_age, arbiter.worker_age)
        return 1000 + arbiter.worker_age

    monkeypatch.setattr(Arbiter, "spawn_worker", spawn)
    return new_master


@pytest.mark.parametrize("variable", ["", "GUNICORN_FD", "LISTEN_FDS"])
def test_an_address_in_use_ends_the_start_unless_the_socket_is_inherited(
    master: Master, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(Arbiter, "start", lambda arbiter: started.append(arbiter))
    master.LISTENERS = []
    with socket.create_server(("127.0.0.1", 0)) as used:
        server = SimpleNamespace(host="127.0.0.1", port=used.getsockname()[1])
        chosen = SimpleNamespace(environment={variable: "3"}, server=server)
        monkeypatch.setattr(master, "_accepted", lambda: SimpleNamespace(settings=chosen, problems=[]))
        if variable:
            master.start()
        else:
            with pytest.raises(SystemExit):
                master.start()
    assert bool(started) is bool(variable)
    assert ("error: " in capsys.readouterr().err) is not bool(variable)


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
    new = [worker for pid, worker in master.WORKERS.items() if pid not in before]
    assert len(new) == 2 and master.killed == []
    new[0].report_ready()
    master.manage_workers()
    assert master.killed == before[:1]
    new[1].report_ready()
    master.manage_workers()
    assert master.killed == before
    master.manage_workers()
    assert master.killed == before, "each worker is asked once"


def test_a_reload_that_led_to_no_ready_worker_is_given_up_for_the_next(master: Master) -> None:
    master.manage_workers()
    before = list(master.WORKERS)
    for worker in master.WORKERS.values():
        worker.report_ready()
    master._old_age = master.worker_age
    master.manage_workers()
    waiting = [pid for pid in master.WORKERS if pid not in before]
    assert boot.ready_count.read() == 2
    master._old_age = master.worker_age
    master.manage_workers()
    assert master.killed == waiting and boot.ready_count.read() == 2


def test_every_signal_to_end_counts_as_asking_again(master: Master) -> None:
    master.SIG_QUEUE = queue.SimpleQueue()
    assert not master._signalled_again()
    for sent in (signal.SIGCHLD, signal.SIGTERM):
        master.SIG_QUEUE.put(sent)
    assert master._signalled_again() and set(module.END_SIGNALS) == {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


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


class EarlyWorker(GatewayWorker):
    """A worker that gets SIGTERM before it has installed its handlers. Its exit status says whether it noticed."""

    def __init__(self, *given: Any) -> None:
        self.cfg = SimpleNamespace(worker_int=lambda worker: None)
        self._clock, self._leaving_since, self._second_signal = Clock(), None, False
        self.alive, self.tmp, self._left = True, Worker(0, 0).tmp, Event()

    def init_process(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        self.PIPE = os.pipe()
        os.set_blocking(self.PIPE[1], False)
        self.init_signals()
        os._exit(7 if self._leaving_since is not None else 0)


def test_a_termination_signal_between_fork_and_handlers_is_not_lost() -> None:
    """The worker inherited the handler of the master, which queued the signal where nothing reads it, so a shutdown
    took the whole grace period."""
    new_master = object.__new__(Master)
    new_master.worker_class, new_master.worker_age, new_master.WORKERS, new_master.LISTENERS = EarlyWorker, 0, {}, []
    new_master.pid, new_master.app, new_master.timeout, new_master.proc_name, new_master._stats = (
        os.getpid(),
        None,
        30,
        "test",
        {"workers_spawned": 0},
    )
    new_master.log = logging.getLogger("test of the master")
    hooks = {name: (lambda *given: None) for name in ("pre_fork", "post_fork", "worker_exit")}
    new_master.cfg = SimpleNamespace(reuse_port=False, **hooks)
    before = signal.signal(signal.SIGTERM, lambda *given: None)  # as the arbiter's, which queues it
    try:
        pid = new_master.spawn_worker()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
