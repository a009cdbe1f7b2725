"""SQLite: readers on the event loop, one writer per process in a native thread, all writers behind one file lock."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import peewee

from gateway import errors
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.runtime.threads import OwnThread, Slots, Threads, spawn
from gateway.store.pool import DRIVER_ERRORS, PooledSqlite
from gateway.store.statements import StatementBatch

# A fair lock among the processes of a node: one writer at a time, first come first served.

TRY_LOCK = fcntl.LOCK_EX | fcntl.LOCK_NB


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
            fcntl.flock(gate, TRY_LOCK)
            try:
                fcntl.flock(self._lock, TRY_LOCK)
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


T = TypeVar("T")

DATABASE_FILE = "gateway.db"
BUSY_TIMEOUT_S = 5
# Set on each connection; journal_mode is a property of the file, set once by the writer.
PRAGMAS = (("synchronous", "full"), ("foreign_keys", 1), ("temp_store", "memory"))

# The driver looks up an adapter for each value of these types. The search takes twice as long when there is none.
sqlite3.register_adapter(bytes, bytes.__bytes__)
sqlite3.register_adapter(NoneType, {None: None}.get)


class Sqlite:
    """The backend of `Database` for a file."""

    kind = "sqlite"

    def __init__(self, config: settings.DatabaseSettings, clock: Clock, threads: Threads) -> None:
        self.path = _prepare_file(config)
        self._clock = clock
        self._threads = threads
        self._wait_s = config.pool_wait_s
        self.peewee = PooledSqlite(
            str(self.path), pragmas=PRAGMAS, timeout=BUSY_TIMEOUT_S, autoconnect=False, check_same_thread=False
        )
        self.peewee.arrange_pool(config.pool_size, config.pool_wait_s)
        # One thread commits and one waits for the lock, separate from other work such as password hashing.
        self._committer = OwnThread()
        self._lock_waiter = Threads(1)
        self._turnstile = FairFileLock(self.path.with_name(f"{self.path.name}.writer"), self._lock_waiter)
        self._turn = Slots(1)
        self._writer: Any = None
        self._owner = 0
        self._closed = False

    def read(self, work: Callable[[], T], timeout_s: float | None) -> T:
        if not self.peewee.is_closed():
            return work()
        connection = self.peewee.take()
        try:
            return self._inside(connection, work)
        finally:
            self.peewee.give(connection)

    def report(self, work: Callable[[], T]) -> T:
        """Read in a native thread: long queries would block the event loop."""
        connection = self.peewee.take()
        inside = partial(self._inside, connection, work)
        return _result(self._threads.finish(partial(_attempt, inside), partial(self.peewee.give, connection)))

    def write(self, work: Callable[[], T], timeout_s: float | None) -> T:
        return self._in_turn(partial(self._commit, work))

    def can_write_together(self, batches: Sequence[StatementBatch]) -> bool:
        return True

    def write_together(self, batches: Sequence[StatementBatch]) -> None:
        """Run all batches as one transaction. Conflict when a row of an exact batch did not change one row."""
        self._in_turn(partial(self._commit_batches, batches))

    def _in_turn(self, transact: Callable[[], T]) -> T:
        """Return the result of a transaction, run in the committing thread while no other process writes."""
        if self._closed or not self._turn.take(self._wait_s):
            raise errors.Unavailable("The database is busy; try again.")
        try:
            if not self._turnstile.acquire(self._wait_s):
                raise errors.Unavailable("The database is busy with another process; try again.")
        except BaseException:
            self._turn.give()
            raise
        return self._committer.finish(transact, self._end_turn)

    def now_us(self) -> int:
        return self._clock.now_us()

    def moment_sql(self) -> str:
        return str(self._clock.now_us())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._turn.take(self._wait_s)  # not given back: a commit in progress ends first, and none follows
        self.peewee.drain()
        if self._writer is not None and self._owner == os.getpid():
            self.peewee.discard(self._writer)
        self._writer = None
        self._turnstile.close()
        self._committer.close()
        self._lock_waiter.close()

    def _end_turn(self) -> None:
        self._turnstile.release()
        self._turn.give()

    def _commit(self, work: Callable[[], T]) -> T:
        """Run one transaction in the committing thread. Peewee's own transaction takes five times the steps."""
        connection = self._open_writer()
        with DRIVER_ERRORS:
            connection.execute("BEGIN IMMEDIATE")
        self.peewee.push_transaction(self)
        try:
            result = work()
            with DRIVER_ERRORS:
                connection.execute("COMMIT")
            return result
        except BaseException:
            self.peewee.rollback()
            raise
        finally:
            self.peewee.pop_transaction()
            if connection.in_transaction:
                self._discard_writer()

    def _commit_batches(self, batches: Sequence[StatementBatch]) -> None:
        """Run statements as one transaction without the ORM, which adds a quarter to the bytecodes of a commit."""
        connection = self._open_writer()
        try:
            with DRIVER_ERRORS:
                connection.execute("BEGIN IMMEDIATE")
                for batch in batches:
                    changed = connection.executemany(batch.sql, batch.rows).rowcount
                    if batch.exact and changed != len(batch.rows):
                        raise batch.conflict(changed)
                connection.execute("COMMIT")
        except BaseException:
            self.peewee.rollback()
            raise
        finally:
            if connection.in_transaction:
                self._discard_writer()

    def _discard_writer(self) -> None:
        self.peewee.discard(self.peewee.release())
        self._writer = None

    def _inside(self, connection: Any, work: Callable[[], T]) -> T:
        self.peewee.adopt(connection)
        try:
            return work()
        finally:
            self.peewee.release()

    def _open_writer(self) -> Any:
        """Return the connection of the committing thread, which it keeps until either ends."""
        if self._writer is None or self._owner != os.getpid():
            self._writer = self._open()
            self._owner = os.getpid()
            self.peewee.adopt(self._writer)
        return self._writer

    def _open(self) -> Any:
        connection = self.peewee.open_raw()
        try:
            with DRIVER_ERRORS:
                connection.execute("PRAGMA journal_mode = wal").close()
        except peewee.PeeweeException:
            self.peewee.discard(connection)
            raise
        return connection


Outcome = tuple[list[T], BaseException | None]


def _attempt(work: Callable[[], T]) -> Outcome[T]:
    """Return the result, or the exception as a value, since the thread would print every exception."""
    try:
        return [work()], None
    except BaseException as error:
        return [], error


def _result(outcome: Outcome[T]) -> T:
    results, error = outcome
    if error is not None:
        raise error
    return results[0]


def _prepare_file(config: settings.DatabaseSettings) -> Path:
    """Create the database file with mode 0600 (a new data_dir with 0700). Unavailable when it cannot be created."""
    path = Path(config.url.removeprefix("sqlite:///")) if config.url else Path(config.data_dir) / DATABASE_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise errors.Unavailable(f"Cannot open the database file {path}: {error.strerror}.") from None
    return path.resolve()
