"""The control version: propagates changes to every worker within a second, and tracks the live workers; and caches that
are valid while it is unchanged."""

import logging
import os
import platform
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from gateway import errors
from gateway.clock import SECOND_US, Clock
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.loop_turns import RESTING_TICK_S, TICK_S, until_tick
from gateway.runtime.threads import Job, pause, spawn
from gateway.store.database import Database

T = TypeVar("T")

log = logging.getLogger(__name__)

# How long a worker may trust the version, counted from the start of the read.
VERSION_LEASE_S = 1.0
POLL_INTERVAL_S = TICK_S
RESTING_POLL_INTERVAL_S = 2 * TICK_S
HEARTBEAT_INTERVAL_S = 3 * TICK_S  # each is a commit
WORKER_TIMEOUT_S = 2.0
# Polling intervals of `confirm`: the first and the longest.
CONFIRM_INTERVAL_S = 0.002
MAX_CONFIRM_INTERVAL_S = 0.02
# How long a request waits for a read that another request started.
SHARED_READ_TIMEOUT_S = 5.0
# Rows of dead workers are kept until their leases have certainly been recovered.
DEAD_WORKER_RETENTION_S = 7 * 24 * 3600
# How much longer a worker may trust its state after each failed read, while it may serve without the store.
COAST_STEP_S = 3.0
SUSPENDED = "its process or the database was blocked for more than a second: see llmgateway_loop_lag_seconds"


class SharedReading:
    """A read of the version that several requests wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failed = False


def node_name(port: int = 0) -> str:
    """Return the name of this worker's node: host, port, and the process that started the workers, because several
    nodes may run on one host."""
    host = platform.node() or "node"
    address = f"{host}:{port}" if port else host
    return f"{address} (process {os.getppid()})"


class Control:
    """One per process. `check` costs nothing while the lease is valid.

    The lease ends with the worker's own row, so that a change is confirmed as soon as every worker with a live row has
    seen it. With `coast_s`, a worker that cannot reach the store extends both for that long: it is `coasting`, and
    does not see changes that are made meanwhile.
    """

    def __init__(self, database: Database, clock: Clock, node: str = "", coast_s: float = 0.0) -> None:
        self._database = database
        self._clock = clock
        self.node = node or node_name()
        self.epoch = 0
        self.version = 0
        self._read_start = self._row_until = self._trusted_until = float("-inf")
        self._reading: SharedReading | None = None
        self._listeners: list[Callable[[int], object]] = []
        self._readers: list[Callable[[int], object]] = []
        self._coast_s = coast_s
        self._renewed_at = float("-inf")
        self.coasting = False
        self._coast_callbacks: list[Callable[[bool], object]] = []
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._tasks: list[Any] = []

    @classmethod
    def observer(cls, database: Database, clock: Clock | None = None) -> "Control":
        """Create a Control for a process that makes changes and serves no requests (operator commands).

        It has no row, and every check reads the version.
        """
        return cls(database, clock or Clock())

    def start(self) -> None:
        """Register this worker under a new epoch, read the version, and keep both fresh. Raise Unavailable."""
        self._register()
        self._refresh()
        self._stopping.clear()
        poll = spawn(self._every, POLL_INTERVAL_S, RESTING_POLL_INTERVAL_S, self._refresh_or_coast)
        beat = spawn(self._every, HEARTBEAT_INTERVAL_S, RESTING_TICK_S, self._beat)
        self._tasks = [poll, beat]

    def stop(self) -> None:
        """Give up the row and the lease; safe to repeat."""
        self._stopping.set()
        for task in self._tasks:
            task.join(POLL_INTERVAL_S)
        self._tasks = []
        with self._renewing:
            epoch = self.epoch
            self.epoch = 0
            if not epoch:
                return  # never started, or stopped before: there is no row
            try:
                self._database.write(partial(self._database.execute, "DELETE FROM worker WHERE epoch = ?", (epoch,)))
            except errors.Unavailable:
                log.info("the worker's row stays until it expires: the database is unavailable")
            self._row_until = self._trusted_until = float("-inf")

    def check(self) -> int:
        """Return the version that caches may be trusted for. Raise Unavailable if the lease ended and the read
        failed.
        """
        if self._clock.monotonic() < self._trusted_until:
            return self.version
        return self._renew()

    def alive(self) -> bool:
        """Return whether this worker's row is certainly live, so that no other worker may take over its leases."""
        return self._clock.monotonic() < self._row_until

    def owns(self, epoch: int) -> bool:
        """Return whether this worker is certainly alive under `epoch`, so that it still owns what it reserved under
        it.
        """
        return self.epoch == epoch and self._clock.monotonic() < self._row_until

    def renew_suspended(self, epoch: int) -> bool:
        """Renew a row that expired while this process was suspended, for a request before the next heartbeat.

        Return whether this worker still owns what it reserved under `epoch`. It is False if the store is unavailable,
        or if another worker removed the row: this worker then continues under a new epoch.
        """
        try:
            with self._renewing:
                if self.epoch and not self.alive():
                    self._renew_row_alone(self.version)
        except errors.Unavailable:
            return False
        return self.owns(epoch)

    def coast_left_s(self) -> float:
        """Return how much longer this worker may serve without the store; 0 when it may not."""
        return max(0.0, min(self._read_start, self._renewed_at) + self._coast_s - self._clock.monotonic())

    def serves_alone(self) -> bool:
        """Return whether this worker cannot reach the store and may serve without it."""
        return self.coasting and self.coast_left_s() > 0

    def age_s(self) -> float:
        """Return the seconds since the start of the last read of the version."""
        return self._clock.monotonic() - self._read_start

    def bump(self) -> None:
        """Announce a change; only inside the `database.write` that makes it."""
        if not self._database.peewee.in_transaction():
            raise errors.Internal("A change must be announced inside its transaction.")
        self._database.execute("UPDATE control SET version = version + 1 WHERE id = 1")

    def confirm(self) -> None:
        """Wait until no worker can act on the old state any more, at most VERSION_LEASE_S. Call it after the commit."""
        deadline = self._clock.monotonic() + VERSION_LEASE_S
        again_s = CONFIRM_INTERVAL_S
        try:
            version = self._refresh()
            while self._clock.monotonic() < deadline and self._count_behind(version):
                pause(again_s)
                again_s = min(2 * again_s, MAX_CONFIRM_INTERVAL_S)
        except errors.Unavailable:
            # The change is committed; if the store is unavailable, the end of all leases confirms it.
            pause(max(0.0, deadline - self._clock.monotonic()))

    def on_coasting(self, callback: Callable[[bool], object]) -> None:
        """Call `callback(True)` when this worker begins to serve without the store, and `callback(False)` when the
        store is back."""
        self._coast_callbacks.append(callback)

    def on_change(self, forget: Callable[[int], object], read: Callable[[int], object] | None = None) -> None:
        """Call `forget(version)` in this process with each change, and then `read(version)`; their errors are logged.

        All listeners forget before the new version is used, so `forget` waits for nothing. They read the store one
        after the other; meanwhile a request reads what it needs itself.
        """
        self._listeners.append(forget)
        if read is not None:
            self._readers.append(read)

    def live_epochs(self) -> dict[int, str]:
        """Return epoch → node of every worker with a live row, by the store's clock."""
        sql = f"SELECT epoch, node FROM worker WHERE expires_at > {self._database.moment_sql()}"

        def fetch() -> list[tuple[int, str]]:
            return self._database.execute(sql).fetchall()

        return dict(self._database.read(fetch))

    def _renew(self) -> int:
        until = self._clock.monotonic() + SHARED_READ_TIMEOUT_S
        # Other workers do not wait for a worker without a live row, so each check must start after the row was
        # renewed.
        while self.alive():
            reading = self._reading
            if reading is None:
                return self._read_for_all()
            reading.done.wait(SHARED_READ_TIMEOUT_S)
            now = self._clock.monotonic()
            if now < self._trusted_until:
                return self.version
            if reading.failed or now >= until:
                raise errors.Unavailable()
            # The version was read, but this process was suspended until it expired, or the reading request was
            # cancelled.
        return self._refresh_or_coast()

    def _read_for_all(self) -> int:
        reading = self._reading = SharedReading()
        try:
            return self._refresh_or_coast()
        except Exception:  # a cancelled read is repeated by the next request
            reading.failed = True
            raise
        finally:
            self._reading = None
            reading.done.set()

    def _refresh_or_coast(self) -> int:
        """Read the version; when the store is down, extend the trust in the last one while that is allowed."""
        if not self._coast_s:
            return self._refresh()
        try:
            version: int = Job(_attempt, self._refresh).result(VERSION_LEASE_S)()
            return version
        except (errors.Unavailable, TimeoutError):
            if not self._coast():
                raise errors.Unavailable() from None
            return self.version

    def _coast(self) -> bool:
        """Trust version and row for a while longer; False when the time without the store is over."""
        left_s = self.coast_left_s()
        if not left_s or not self.epoch:
            return False
        self._row_until = self._trusted_until = self._clock.monotonic() + min(left_s, COAST_STEP_S)
        self._set_coasting(True)
        return True

    def _set_coasting(self, coasting: bool) -> None:
        if coasting is self.coasting:
            return
        self.coasting = coasting
        for callback in self._coast_callbacks:
            callback(coasting)

    def _refresh(self) -> int:
        """Read the version, report a new one to the store and the callbacks, and return it."""
        start = self._clock.monotonic()
        version = self._database.read(self._read_version)
        changed = self._accept(start, version)
        if changed:
            self._call_back(version)
            spawn(self._notify, version)
        return version

    def _read_version(self) -> int:
        version: int = self._database.execute("SELECT version FROM control WHERE id = 1").fetchone()[0]
        return version

    def _accept(self, start: float, version: int) -> bool:
        if start < self._read_start:
            return False  # a newer read returned first
        changed = version != self.version
        self._read_start = start
        self.version = version
        self._trust()
        return changed

    def _trust(self) -> None:
        self._trusted_until = min(self._read_start + VERSION_LEASE_S, self._row_until)

    def _notify(self, version: int) -> None:
        """Report the version that was read, so that `confirm` in other workers returns before the lease time ends."""
        if not self.epoch or self._stopping.is_set():
            return
        try:
            self._renew_row(version)
        except errors.Unavailable:
            log.info("version %d is not confirmed: the database is unavailable", version)

    def _call_back(self, version: int) -> None:
        for callback in (*self._listeners, *self._readers):
            try:
                callback(version)
            except Exception:  # a fault of one listener must not stop the poll for the others
                log.exception("a callback for changed control data failed")

    def _count_behind(self, version: int) -> int:
        """Count the other live workers with an older version; this process has already read it."""
        live = f"expires_at > {self._database.moment_sql()} AND epoch <> ?"
        sql = f"SELECT count(*) FROM worker WHERE {live} AND seen_version < ?"

        def count() -> int:
            waiting: int = self._database.execute(sql, (self.epoch, version)).fetchone()[0]
            return waiting

        return self._database.read(count)

    def _register(self) -> None:
        start = self._clock.monotonic()
        self.epoch = self._database.write(self._insert_row)
        self._renewed_at = start
        self._row_until = start + WORKER_TIMEOUT_S
        self._trust()

    def _insert_row(self) -> int:
        run = self._database.execute
        now = self._database.moment_sql()
        run("UPDATE control SET epoch = epoch + 1 WHERE id = 1")
        epoch: int = run("SELECT epoch FROM control WHERE id = 1").fetchone()[0]
        run(f"DELETE FROM worker WHERE expires_at < {now} - {DEAD_WORKER_RETENTION_S * SECOND_US}")
        run(
            "INSERT INTO worker (epoch, node, expires_at, seen_version) "
            f"VALUES (?, ?, {now} + {_us(WORKER_TIMEOUT_S)}, 0)",
            (epoch, self.node),
        )
        return epoch

    def _renew_row(self, version: int) -> None:
        """Extend the row; a removed row is never restored: this worker continues under a new epoch."""
        with self._renewing:
            if self.epoch:
                self._renew_row_alone(version)

    def _renew_row_alone(self, version: int) -> None:
        start = self._clock.monotonic()
        end = f"{self._database.moment_sql()} + {_us(WORKER_TIMEOUT_S)}"
        sql = f"UPDATE worker SET expires_at = {end}, seen_version = ? WHERE epoch = ?"

        def update() -> int:
            return self._database.execute(sql, (version, self.epoch)).rowcount

        renewed = self._database.write(update)
        self._renewed_at = start
        if not renewed:
            log.warning(
                "the row of worker %d was removed by another worker; it continues under a new epoch",
                self.epoch,
                extra={"event": "worker.given_up", "remedy": SUSPENDED},
            )
            self._register()
            return
        self._row_until = max(self._row_until, start + WORKER_TIMEOUT_S)
        self._trust()
        if self._read_start > start - WORKER_TIMEOUT_S:
            self._set_coasting(False)

    def _beat(self) -> None:
        self._renew_row(self.version)

    def _every(self, seconds: float, resting_s: float, work: Callable[[], object]) -> None:
        while not self._stopping.wait(until_tick(seconds, resting_s)):
            try:
                work()
            except errors.Unavailable:
                self._coast()  # otherwise the lease expires, and `check` raises Unavailable
            except Exception:  # without these loops every request would read the version until a restart
                log.exception("the copy of the control data could not be updated")


def _attempt(work: Callable[[], T]) -> Callable[[], T]:
    """Return a function with the result of `work` or its Unavailable: an error that leaves a greenlet is printed."""
    try:
        result = work()
    except errors.Unavailable as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: Exception) -> NoReturn:
    raise error


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)


# A cache of values read from the store, valid while the control version is unchanged.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class VersionedCache(Generic[K, V]):
    """A bounded cache, emptied when the control version changes.

    Concurrent misses of one key share one read that began under the version they saw: a request that starts after a
    confirmed change is never answered from an earlier read. Values for which `minor` is true (refusals of unknown
    tokens) have a separate limit, so that a flood of them does not evict the others.
    """

    def __init__(
        self, control: Control, size: int, minor: Callable[[V], bool] | None = None, minor_size: int = 1
    ) -> None:
        self._control = control
        self._size = size
        self._minor = minor
        self._minor_size = minor_size
        self._version = -1
        self._values: dict[K, V] = {}
        self._minors: dict[K, V] = {}
        self._shared_calls: SharedCalls[tuple[int, K], V] = SharedCalls()

    def get(self, key: K, read: Callable[[int], V]) -> V:
        """Return the value of `key`, from memory or from `read(version)`. Raises Unavailable if the store fails."""
        version = self._control.check()
        if version != self._version:
            self._forget(version)
        value = self._values.get(key)
        if value is None:
            value = self._minors.get(key)
            if value is None:
                return self._read(key, version, read)
        return value

    def drop(self, key: K) -> None:
        """Read the value of `key` again when it is next needed."""
        self._values.pop(key, None)
        self._minors.pop(key, None)

    def _forget(self, version: int) -> None:
        self._version = version
        self._values = {}
        self._minors = {}

    def _read(self, key: K, version: int, read: Callable[[int], V]) -> V:
        return self._shared_calls.run((version, key), lambda: self._keep(key, version, read(version)))

    def _keep(self, key: K, version: int, value: V) -> V:
        # A read that a change overtook may hold the old state: it serves its waiting callers, but is not cached.
        if version != self._version:
            return value
        values = self._values
        size = self._size
        if self._minor is not None and self._minor(value):
            values = self._minors
            size = self._minor_size
        if len(values) >= size:
            del values[next(iter(values))]
        values[key] = value
        return value
