"""The master process: gunicorn's arbiter, which here survives failing workers and invalid configuration.

A configuration is validated before any worker is forked for it. A reload starts new workers beside the old ones, which
leave as the new ones become ready. A worker that exits before it was ready is restarted with increasing delay. A second
termination signal hurries the shutdown.
"""

import os
import queue
import signal
import sys
import time
from operator import attrgetter
from typing import Any

from gunicorn import sock, util
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from gateway.configuration.file import SettingsError
from gateway.configuration.settings import MANAGE
from gateway.server import boot
from gateway.server.boot import BootingWorker
from gateway.server.ports import problem_of
from gateway.worker import accepted_configuration

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
# A second signal within this time is one signal delivered twice; a later one means that the operator is in a hurry.
SECOND_SIGNAL_AFTER_S = 1.2
HURRIED_TIMEOUT_S = 3.0
CHECK_INTERVAL_S = 0.1
# Set by the process that passes us open sockets: the previous master, or systemd.
INHERITED = ("GUNICORN_FD", "LISTEN_FDS")
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Master(Arbiter):
    """The arbiter, one per installation and node. Its worker objects have `ready` and `leaving`."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        # The command with which SIGUSR2 starts the next master.
        self.START_CTX["args"] = [sys.executable, "-m", "gateway.server.launch", *sys.argv[1:]]
        self._old_age = 0  # workers up to this age run the previous configuration
        self._failed = 0  # consecutive workers that exited before they were ready
        self._backoff_until = 0.0
        self._files = accepted_configuration.fingerprint(self._accepted().settings)

    @staticmethod
    def _accepted() -> accepted_configuration.Accepted:
        return accepted_configuration.current() or accepted_configuration.begin()

    def start(self) -> None:
        """Bind the listeners; an address that cannot be bound ends the start with one line."""
        chosen = self._accepted().settings
        inherited = self.LISTENERS or any(name in chosen.environment for name in INHERITED)
        server = chosen.server
        problem = "" if inherited else problem_of(server.host, server.port)
        if problem:
            print(f"error: {problem}", file=sys.stderr, flush=True)
            sys.exit(1)
        super().start()
        if self._accepted().problems:
            self._log_refused("at this start", self._accepted().problems)

    # Workers.

    def manage_workers(self) -> None:
        """Keep the configured number of workers; those of an older configuration leave as new ones become ready."""
        self._look()
        staying = sorted((worker for worker in self.WORKERS.values() if not worker.leaving), key=attrgetter("age"))
        current = [worker for worker in staying if worker.age > self._old_age]
        before = [worker for worker in staying if worker.age <= self._old_age]
        missing = self.num_workers - len(current)
        if missing > 0 and time.monotonic() >= self._backoff_until:
            self._look_at_files()
            for _ in range(missing):
                self.spawn_worker()
        surplus = current[: max(0, -missing)]
        ready = sum(worker.ready for worker in current)
        serving = [worker for worker in before if worker.ready]
        surplus += [worker for worker in before if not worker.ready]
        surplus += serving[: max(0, len(serving) - max(0, self.num_workers - ready))]
        for worker in surplus:
            worker.leaving = True
            self.kill_worker(worker.pid, signal.SIGTERM)
        self._look()

    def spawn_worker(self) -> Any:
        """Fork a worker; does not return in the child.

        A worker inherits this process's handlers, which would queue a termination signal where no worker looks. It is
        therefore blocked until the worker has its own handlers.
        """
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, END_SIGNALS if issubclass(self.worker_class, BootingWorker) else ()
        )
        try:
            pid = super().spawn_worker()
        finally:
            if os.getpid() == self.pid:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker = self.WORKERS[pid]
        worker.ready = worker.leaving = False
        return pid

    def reap_workers(self) -> None:
        """Collect workers that exited. One that could not boot does not end the others."""
        self._look()
        before = dict(self.WORKERS)
        while True:
            try:
                super().reap_workers()
                break
            except HaltServer:
                continue
        for pid, worker in before.items():
            if pid not in self.WORKERS and not worker.ready and not worker.leaving:
                self._failed += 1
                backoff_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._failed - 1))
                self._backoff_until = time.monotonic() + backoff_s
                self.log.error("Worker (pid:%s) exited before it was ready; starting another in %.1f s", pid, backoff_s)

    def _look(self) -> None:
        """Find out which workers are ready: a ready worker writes a byte to its heartbeat file."""
        for worker in self.WORKERS.values():
            if not worker.ready and os.fstat(worker.tmp.fileno()).st_size:
                worker.ready = True
                self._failed = 0
        ready = sum(worker.ready and not worker.leaving for worker in self.WORKERS.values())
        boot.ready_count.write(ready)

    def _look_at_files(self) -> None:
        """Log a configuration change that a worker started now does not use, and whether a reload would."""
        if not self.WORKERS and not self._old_age:
            return
        files = accepted_configuration.fingerprint(self._accepted().settings)
        if files == self._files:
            return
        self._files = files
        try:
            accepted_configuration.check_files()
        except SettingsError as error:
            accepted_configuration.refuse(error)
            self._log_refused("noticed as a worker starts", str(error).splitlines())
            return
        self.log.info("The catalogue's files have changed; send SIGHUP to load them")

    # Signals.

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        """Return the queued signals: SIGHUP once, and not at all beside a termination. A reload takes seconds and boots
        every worker again, and the last of several reloads reads the same files."""
        received: list[int] = super().wait_for_signals(timeout)
        others = [number for number in received if number != signal.SIGHUP]
        if len(others) == len(received) or not set(END_SIGNALS).isdisjoint(others):
            return others
        return [*others, signal.SIGHUP]

    def reload(self) -> None:
        """SIGHUP: apply the current configuration, or keep the previous one and log why."""
        self._stats["reloads"] += 1
        try:
            waiting = accepted_configuration.renew()
        except SettingsError as error:
            self._files = accepted_configuration.fingerprint(self._accepted().settings)
            self._log_refused("by SIGHUP", str(error).splitlines())
            return
        self._files = accepted_configuration.fingerprint(self._accepted().settings)
        if waiting:
            self.log.warning("Changes of %s need a restart", ", ".join(waiting))
        self.app.reload()
        self.setup(self.app)
        self.log.reopen_files()
        self.cfg.on_reload(self)
        util._setproctitle(f"master [{self.proc_name}]")
        self._old_age = self.worker_age
        self._failed = 0
        self._backoff_until = 0.0
        self.log.info("Reloaded: catalogue %s", self._accepted().catalogue.version)
        self.manage_workers()

    def stop(self, graceful: bool = True) -> None:
        """Shut the workers down gracefully; another termination signal hurries them."""
        unlink = self.reexec_pid == self.master_pid == 0 and not self.systemd and not self.cfg.reuse_port
        sock.close_sockets(self.LISTENERS, unlink)
        self.LISTENERS: list[Any] = []
        began = time.monotonic()
        limit = began + self.cfg.graceful_timeout
        signalled_again = False
        hurried = False
        self.kill_workers(signal.SIGTERM if graceful else signal.SIGQUIT)
        while self.WORKERS and time.monotonic() < limit:
            signalled_again = signalled_again or self._signalled_again()
            if signalled_again and not hurried and time.monotonic() - began >= SECOND_SIGNAL_AFTER_S:
                hurried = True
                self.log.info("Second termination signal: cancelling requests in progress")
                self.kill_workers(signal.SIGQUIT)
                limit = min(limit, time.monotonic() + HURRIED_TIMEOUT_S)
            self.reap_workers()
            time.sleep(CHECK_INTERVAL_S)
        self.kill_workers(signal.SIGKILL)
        self.reap_workers()

    def _signalled_again(self) -> bool:
        while True:
            try:
                if self.SIG_QUEUE.get_nowait() in END_SIGNALS:
                    return True
            except queue.Empty:
                return False

    def _log_refused(self, when: str, problems: list[str] | tuple[str, ...]) -> None:
        """Log details for the operator; workers report the same problem to probes, without the details."""
        self.log.error(
            "Refused %s: %s. The previous configuration stays in force. To see all: %s config check",
            when,
            accepted_configuration.in_one_line(problems),
            MANAGE,
        )
