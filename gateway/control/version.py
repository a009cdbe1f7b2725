"""The control version: how every worker learns of a change within a second, and who the live workers are."""

import logging
import platform
import threading
from collections.abc import Callable

from gateway import errors
from gateway.clock import SECOND_US, Clock
from gateway.runtime.threads import pause, spawn
from gateway.store.database import Database

log = logging.getLogger(__name__)

# How long a worker may trust what it read, counted from the start of the read.
LEASE_S = 1.0
POLL_S = 0.25
BEAT_S = 0.5
WORKER_S = 1.5
# How soon `confirm` looks again: at first, and at most.
CONFIRM_S = 0.002
CONFIRM_MOST_S = 0.02
# How long a request waits for the read that another one started.
SHARE_S = 5.0
# Rows of workers that died so long ago that whoever recovers their leases has done so.
FORGET_S = 7 * 24 * 3600
STOOD_STILL = "its process or the database stood still for more than a second: see llmgateway_loop_lag_seconds"


class SharedReading:
    """A read of the version that several requests wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failed = False


class Control:
    """One per process. `check` costs nothing while the lease holds; the lease ends with the worker's own row, so
    that a change is confirmed as soon as every worker with a live row has seen it.
    """

    def __init__(self, database: Database, clock: Clock, node: str = "") -> None:
        self._database = database
        self._clock = clock
        self.node = node or platform.node() or "node"
        self.epoch = 0
        self.version = 0
        self._read_start = self._row_until = self._trusted_until = float("-inf")
        self._reading: SharedReading | None = None
        self._callbacks: list[Callable[[int], object]] = []
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._tasks: list = []

    @classmethod
    def observer(cls, database: Database, clock: Clock | None = None) -> "Control":
        """For a process that makes changes and serves nothing (operator commands): no row, every check reads."""
        return cls(database, clock or Clock())

    def start(self) -> None:
        """Register this worker under a new epoch, read the version, and keep both fresh. Unavailable if it cannot."""
        self._register()
        self._refresh()
        self._stopping.clear()
        self._tasks = [spawn(self._every, POLL_S, self._refresh), spawn(self._every, BEAT_S, self._beat)]

    def stop(self) -> None:
        """Give up the row and the lease; safe to call twice."""
        self._stopping.set()
        for task in self._tasks:
            task.join(POLL_S)
        self._tasks = []
        with self._renewing:
            epoch = self.epoch
            self.epoch = 0
            try:
                self._database.write(lambda: self._database.execute("DELETE FROM worker WHERE epoch = ?", (epoch,)))
            except errors.Unavailable:
                log.info("the worker's row stays until it expires: the database is away")
            self._row_until = self._trusted_until = float("-inf")

    def check(self) -> int:
        """The version that caches may be trusted for. Unavailable when the lease ended and the read failed."""
        if self._clock.monotonic() < self._trusted_until:
            return self.version
        return self._renew()

    def alive(self) -> bool:
        """Whether this worker's row is surely live, so that nobody may take over what its epoch holds."""
        return self._clock.monotonic() < self._row_until

    def owns(self, epoch: int) -> bool:
        """Whether this worker is surely alive and acts under `epoch`, so that what was taken under it is still its
        own."""
        return self.epoch == epoch and self._clock.monotonic() < self._row_until

    def regain(self, epoch: int) -> bool:
        """Renew a row that ran out while this process stood still, for a request that comes before the next beat;
        whether what was taken under `epoch` is still this worker's. False when the store is away, or somebody gave the
        row up meanwhile: then this worker goes on under a new epoch."""
        try:
            with self._renewing:
                if self.epoch and not self.alive():
                    self._renew_row_alone(self.version)
        except errors.Unavailable:
            return False
        return self.owns(epoch)

    def age_s(self) -> float:
        """Seconds since the version was read, from the start of that read."""
        return self._clock.monotonic() - self._read_start

    def bump(self) -> None:
        """Announce a change; only inside the `database.write` that makes it."""
        if not self._database.peewee.in_transaction():
            raise errors.Internal("A change is announced inside its transaction.")
        self._database.execute("UPDATE control SET version = version + 1 WHERE id = 1")

    def confirm(self) -> None:
        """Call after the commit: returns once no worker can act on the old state any more, at most LEASE_S later."""
        deadline = self._clock.monotonic() + LEASE_S
        again_s = CONFIRM_S
        try:
            version = self._refresh()
            while self._clock.monotonic() < deadline and self._count_behind(version):
                pause(again_s)
                again_s = min(2 * again_s, CONFIRM_MOST_S)
        except errors.Unavailable:
            # The change is committed; without a store to ask, the lease time settles it.
            pause(max(0.0, deadline - self._clock.monotonic()))

    def on_change(self, callback: Callable[[int], object]) -> None:
        """Call `callback(version)` in this process after each change; its errors are logged."""
        self._callbacks.append(callback)

    def live_epochs(self) -> dict[int, str]:
        """epoch → node of every worker whose row is live on the store's clock."""
        sql = f"SELECT epoch, node FROM worker WHERE expires_at > {self._database.moment_sql()}"
        return dict(self._database.read(lambda: self._database.execute(sql).fetchall()))

    def _renew(self) -> int:
        until = self._clock.monotonic() + SHARE_S
        # Nobody waits for a worker without a live row, so each answer must have been read after its question.
        while self.alive():
            reading = self._reading
            if reading is None:
                return self._read_for_all()
            reading.done.wait(SHARE_S)
            now = self._clock.monotonic()
            if now < self._trusted_until:
                return self.version
            if reading.failed or now >= until:
                raise errors.Unavailable()
            # It was read, but this process stood still until that was too old; or who read it was ended by its caller.
        return self._refresh()

    def _read_for_all(self) -> int:
        reading = self._reading = SharedReading()
        try:
            return self._refresh()
        except Exception:  # where its caller ended it, the next one reads
            reading.failed = True
            raise
        finally:
            self._reading = None
            reading.done.set()

    def _refresh(self) -> int:
        """Read the version, tell the store and the callbacks about a new one, and return what was read."""
        start = self._clock.monotonic()
        version = self._database.read(self._read_version)
        changed = self._accept(start, version)
        if changed:
            self._call_back(version)
            spawn(self._notify, version)
        return version

    def _read_version(self) -> int:
        return self._database.execute("SELECT version FROM control WHERE id = 1").fetchone()[0]

    def _accept(self, start: float, version: int) -> bool:
        if start < self._read_start:
            return False  # A newer read came back first.
        changed = version != self.version
        self._read_start = start
        self.version = version
        self._trust()
        return changed

    def _trust(self) -> None:
        self._trusted_until = min(self._read_start + LEASE_S, self._row_until)

    def _notify(self, version: int) -> None:
        """Report the version read, so that `confirm` elsewhere returns early, else after the lease time."""
        if not self.epoch or self._stopping.is_set():
            return
        try:
            self._renew_row(version)
        except errors.Unavailable:
            log.info("version %d is not confirmed: the database is away", version)

    def _call_back(self, version: int) -> None:
        for callback in self._callbacks:
            try:
                callback(version)
            except Exception:  # One listener's mistake must not stop the poll that every other one needs.
                log.exception("a listener of control changes failed")

    def _count_behind(self, version: int) -> int:
        """Of the others: this process has read it already."""
        live = f"expires_at > {self._database.moment_sql()} AND epoch <> ?"
        sql = f"SELECT count(*) FROM worker WHERE {live} AND seen_version < ?"
        return self._database.read(lambda: self._database.execute(sql, (self.epoch, version)).fetchone()[0])

    def _register(self) -> None:
        start = self._clock.monotonic()
        self.epoch = self._database.write(self._insert_row)
        self._row_until = start + WORKER_S
        self._trust()

    def _insert_row(self) -> int:
        run = self._database.execute
        now = self._database.moment_sql()
        run("UPDATE control SET epoch = epoch + 1 WHERE id = 1")
        epoch = run("SELECT epoch FROM control WHERE id = 1").fetchone()[0]
        run(f"DELETE FROM worker WHERE expires_at < {now} - {FORGET_S * SECOND_US}")
        run(
            f"INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (?, ?, {now} + {_us(WORKER_S)}, 0)",
            (epoch, self.node),
        )
        return epoch

    def _renew_row(self, version: int) -> None:
        """Extend the row; a row that somebody removed is never revived: this worker goes on under a new epoch."""
        with self._renewing:
            if self.epoch:
                self._renew_row_alone(version)

    def _renew_row_alone(self, version: int) -> None:
        start = self._clock.monotonic()
        end = f"{self._database.moment_sql()} + {_us(WORKER_S)}"
        sql = f"UPDATE worker SET expires_at = {end}, seen_version = ? WHERE epoch = ?"
        if not self._database.write(lambda: self._database.execute(sql, (version, self.epoch)).rowcount):
            log.warning(
                "worker %d was given up by the others; it goes on under a new epoch",
                self.epoch,
                extra={"event": "worker.given_up", "remedy": STOOD_STILL},
            )
            self._register()
            return
        self._row_until = max(self._row_until, start + WORKER_S)
        self._trust()

    def _beat(self) -> None:
        self._renew_row(self.version)

    def _every(self, seconds: float, work: Callable[[], object]) -> None:
        while not self._stopping.wait(seconds):
            try:
                work()
            except errors.Unavailable:
                continue  # The lease runs out; `check` says so to whoever asks.
            except Exception:  # Without these two loops every request would read for itself until a restart.
                log.exception("the control plane could not be kept fresh")


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)
