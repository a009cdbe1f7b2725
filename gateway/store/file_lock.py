"""A fair lock among the processes of a node: one writer at a time, first come first served."""

import fcntl
import os
from pathlib import Path
from typing import Any

from gateway.runtime.threads import Threads, spawn

NON_BLOCKING = fcntl.LOCK_EX | fcntl.LOCK_NB


class FairFileLock:
    """An exclusive lock on a file behind a second lock, the gate, which is held while waiting for the first.

    Without the gate a busy process would take the lock again before a sleeping process wakes up. With it no process has
    to pause between two commits. The kernel drops both locks when a process dies. Used by one greenlet at a time.
    """

    def __init__(self, path: Path, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._owner = 0
        self._gate = self._lock = -1
        self._pending: Any = None
        self._wanted = self._held = False

    def acquire(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` for the lock; returns whether it was acquired."""
        self._open()
        if self._pending is None and self._try():
            return True
        if self._pending is None:
            self._pending = spawn(self._wait_in_thread)
        self._wanted = True
        try:
            self._pending.join(timeout_s)
        except BaseException:
            if self._held:
                self.release()  # the lock was acquired while this greenlet was being killed
            raise
        finally:
            self._wanted = False
            held = self._held
            self._held = False
        return held

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._owner == os.getpid():
            os.close(self._gate)
            os.close(self._lock)
        self._owner = 0

    def _open(self) -> None:
        # A lock belongs to the open file, which a forked child would share with its parent.
        if self._owner != os.getpid():
            self._gate = os.open(f"{self._path}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._owner = os.getpid()
            self._pending = None

    def _try(self) -> bool:
        gate = self._gate
        try:
            fcntl.flock(gate, NON_BLOCKING)
            try:
                fcntl.flock(self._lock, NON_BLOCKING)
            finally:
                fcntl.flock(gate, fcntl.LOCK_UN)
        except BlockingIOError:
            return False
        return True

    def _wait_in_thread(self) -> None:
        try:
            self._threads.run(self._wait_blocking)
            self._held = self._wanted
            if not self._wanted:
                self.release()
        finally:
            self._pending = None

    def _wait_blocking(self) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
