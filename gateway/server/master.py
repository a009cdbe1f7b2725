"""The master: gunicorn's arbiter, which here never ends because of a worker or of a change that means nothing.

A configuration is checked before any worker is forked for it. A reload starts new workers beside the old ones, which
leave as the new ones are ready. A worker that ends before it was ready is started again, later each time. The second
signal to end hurries the first.
"""

import os
import queue
import signal
import sys
import time
from typing import Any

from gunicorn import sock, util
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from gateway import accepted
from gateway.server import siblings
from gateway.server.ports import problem_of
from gateway.settings import MANAGE, SettingsError

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
# A second signal this long after the first is an operator in a hurry, not one signal come twice.
HURRY_AFTER_S, HURRY_S = 1.2, 3.0
STEP_S = 0.1
# Set by whoever listens for us already: the master before, systemd.
INHERITED = ("GUNICORN_FD", "LISTEN_FDS")
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Master(Arbiter):
    """One per installation and node. Its workers carry `ready` and `leaving`, as it knows them."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        # How SIGUSR2 starts the next master.
        self.START_CTX["args"] = [sys.executable, "-m", "gateway.server.launch", *sys.argv[1:]]
        self._old_age = 0  # workers up to this age are of the configuration before
        self._failed = 0  # workers in a row that ended before they were ready
        self._backoff_until = 0.0
        self._files = accepted.fingerprint(self._accepted().settings)

    @staticmethod
    def _accepted() -> accepted.Accepted:
        return accepted.current() or accepted.begin()

    def start(self) -> None:
        """Listen; a port that cannot be had ends the start with one line."""
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
        """Keep as many workers as wanted; those of an older configuration leave as new ones are ready."""
        self._look()
        staying = sorted((one for one in self.WORKERS.values() if not one.leaving), key=lambda one: one.age)
        current = [one for one in staying if one.age > self._old_age]
        before = [one for one in staying if one.age <= self._old_age]
        missing = self.num_workers - len(current)
        if missing > 0 and time.monotonic() >= self._backoff_until:
            self._look_at_files()
            for _ in range(missing):
                self.spawn_worker()
        surplus = current[: max(0, -missing)]
        ready = sum(one.ready for one in current)
        serving = [one for one in before if one.ready]
        surplus += [one for one in before if not one.ready]
        surplus += serving[: max(0, len(serving) - max(0, self.num_workers - ready))]
        for worker in surplus:
            worker.leaving = True
            self.kill_worker(worker.pid, signal.SIGTERM)
        self._look()

    def spawn_worker(self) -> Any:
        """Fork a worker; in the child this does not return."""
        pid = super().spawn_worker()
        worker = self.WORKERS[pid]
        worker.ready = worker.leaving = False
        return pid

    def reap_workers(self) -> None:
        """Take leave of workers that ended. One that could not boot is no reason to end the others."""
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
                rest_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._failed - 1))
                self._backoff_until = time.monotonic() + rest_s
                self.log.error("Worker (pid:%s) ended before it was ready; the next one in %.1f s", pid, rest_s)

    def _look(self) -> None:
        """Notice which workers are ready: those write a byte into the file of their sign of life."""
        for worker in self.WORKERS.values():
            if not worker.ready and os.fstat(worker.tmp.fileno()).st_size:
                worker.ready, self._failed = True, 0
        siblings.ready.write(sum(one.ready and not one.leaving for one in self.WORKERS.values()))

    def _look_at_files(self) -> None:
        """Tell of a change that a worker started now does not take, and whether a reload would."""
        if not self.WORKERS and not self._old_age:
            return
        files = accepted.fingerprint(self._accepted().settings)
        if files == self._files:
            return
        self._files = files
        try:
            accepted.check_files()
        except SettingsError as error:
            accepted.refuse(error)
            self._log_refused("noticed as a worker starts", str(error).splitlines())
            return
        self.log.info("The catalogue's files have changed; SIGHUP puts them in force")

    # Signals.

    def reload(self) -> None:
        """SIGHUP: take the configuration as it is now, or keep what is in force and say why."""
        self._stats["reloads"] += 1
        try:
            waiting = accepted.renew()
        except SettingsError as error:
            self._files = accepted.fingerprint(self._accepted().settings)
            self._log_refused("by SIGHUP", str(error).splitlines())
            return
        self._files = accepted.fingerprint(self._accepted().settings)
        if waiting:
            self.log.warning("Changes of %s wait for a restart", ", ".join(waiting))
        self.app.reload()
        self.setup(self.app)
        self.log.reopen_files()
        self.cfg.on_reload(self)
        util._setproctitle(f"master [{self.proc_name}]")
        self._old_age, self._failed, self._backoff_until = self.worker_age, 0, 0.0
        self.log.info("Reloaded: catalogue %s", self._accepted().catalogue.version)
        self.manage_workers()

    def stop(self, graceful: bool = True) -> None:
        """End the workers in order; another signal to end hurries them."""
        unlink = self.reexec_pid == self.master_pid == 0 and not self.systemd and not self.cfg.reuse_port
        sock.close_sockets(self.LISTENERS, unlink)
        self.LISTENERS: list[Any] = []
        began = time.monotonic()
        limit, signalled_again, hurried = began + self.cfg.graceful_timeout, False, False
        self.kill_workers(signal.SIGTERM if graceful else signal.SIGQUIT)
        while self.WORKERS and time.monotonic() < limit:
            signalled_again = signalled_again or self._signalled_again()
            if signalled_again and not hurried and time.monotonic() - began >= HURRY_AFTER_S:
                hurried = True
                self.log.info("Asked to end a second time: requests under way are cut")
                self.kill_workers(signal.SIGQUIT)
                limit = min(limit, time.monotonic() + HURRY_S)
            self.reap_workers()
            time.sleep(STEP_S)
        self.kill_workers(signal.SIGKILL)
        self.reap_workers()

    def _signalled_again(self) -> bool:
        while True:
            try:
                if self.SIG_QUEUE.get_nowait() in ENDS:
                    return True
            except queue.Empty:
                return False

    def _log_refused(self, when: str, problems: list[str] | tuple[str, ...]) -> None:
        """The operator reads what is wrong and what to do; workers say the same to probes, without the details."""
        self.log.error(
            "Refused %s: %s. What was in force stays so. To see all: %s config check",
            when,
            accepted.in_one_line(problems),
            MANAGE,
        )
