"""The only access to the relational store: a pool, repeatable reads and writes, parts of long lists, and the base of
every model."""

import dataclasses
import functools
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import peewee

from gateway import errors
from gateway.clock import SECOND_US, Clock
from gateway.configuration import settings
from gateway.errors import Unavailable
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import continuation_turn
from gateway.runtime.state_changes import ERROR, INFO, WARNING, StateChange, StateLog
from gateway.runtime.threads import Threads, pause
from gateway.store.database_addresses import check_scheme
from gateway.store.pool import DRIVER_ERRORS, Pool
from gateway.store.sqlite import Sqlite
from gateway.store.statements import StatementBatch, Verdict, is_full, is_locked, judge

# The part of a long list that one query reads.


class ListSlice(NamedTuple):
    """At most `limit` rows of a list (0: all), those that follow the row with the id `after` ("": from the start). The
    row itself may have been deleted in the meantime."""

    after: str = ""
    limit: int = 0

    def narrow(self, query: Any, ident: Any, *, newest_first: bool = False) -> Any:
        """Return the query, which is sorted by the column `ident`, for these rows only."""
        if self.after:
            query = query.where(ident < self.after if newest_first else ident > self.after)
        if self.limit:
            query = query.limit(self.limit)
        return query


WHOLE = ListSlice()


# A read replica: a copy of the database that reports, statistics and the request log read.
#
# It serves while it answers and repeats the primary's changes within `lag_s`; otherwise the primary does. No figure
# that decides about money is read from it.

T = TypeVar("T")

REPLICA_SUBJECT = "database replica"
REPLICA_REMEDY = "check database.replica_url and the replication; meanwhile reports are read from the primary"
REPLICA_BACK = StateChange("replica.back", REPLICA_SUBJECT, "reports are read from the replica again", INFO)
LAG_CACHE_S = 2.0  # how long a measured lag counts
RETRY_AFTER_S = 5.0  # how long after a failure no query goes to the replica
# A replica repeats the locks of the primary's table changes and holds them while its replay is paused or behind.
REPLICA_LOCK_TIMEOUT_S = 2
RETRY_AFTER_LOCK_S = 30.0  # as RETRY_AFTER_S, after a query waited for a locked table
BOUND_LOCKS = (
    f"SET LOCAL lock_timeout = '{REPLICA_LOCK_TIMEOUT_S}s'"  # a session belongs to the pooler, if there is one
)
# The leader's row is renewed every two seconds, by the primary's clock: the age of its copy is the replica's lag.
REPLICA_HEARTBEAT = "SELECT COALESCE(MAX(expires_at), 0), {now} FROM leader"


class ReplicaBackend(Protocol):
    """The part of a backend that a replica needs."""

    @property
    def peewee(self) -> peewee.Database: ...
    def read(self, work: Callable[[], T], timeout_s: float | None) -> T: ...
    def report(self, work: Callable[[], T]) -> T: ...
    def moment_sql(self) -> str: ...
    def close(self) -> None: ...


class ReadReplica:
    """A replica of the database. `lag_s` is the highest acceptable lag, `term_us` the time for which the leader's row
    is renewed, `timeout_s` how long a measurement of the lag may take."""

    def __init__(
        self, backend: ReplicaBackend, lag_s: float, term_us: int, timeout_s: float, clock: Clock, states: StateLog
    ) -> None:
        self._backend = backend
        self.peewee = backend.peewee
        self._lag_s = lag_s
        self._term_us = term_us
        self._timeout_s = timeout_s
        self._clock = clock
        self._states = states
        self._asked_at = float("-inf")  # the end of the time for which the last decision counts
        self._usable = False
        self.measured_s: float | None = None

    def is_reading(self) -> bool:
        """Return whether the running greenlet is inside a report that the replica serves."""
        return not self.peewee.is_closed()

    def report(self, work: Callable[[], T], otherwise: Callable[[Callable[[], T]], T]) -> T:
        """Return the result of `work` from the replica, or that of `otherwise(work)` if the replica cannot serve it."""
        if not self.is_usable():
            return otherwise(work)
        try:
            return self._backend.report(partial(self._bound_locks, work))
        except Unavailable:  # every connection is busy
            return otherwise(work)
        except peewee.PeeweeException as error:
            # Not only a lost connection: a replica cancels queries that conflict with changes, and it may still lack a
            # new column. A fault of the query itself is repeated, and reported, by the primary.
            if is_locked(error):
                self._leave_locked()
            elif judge(error) is Verdict.AWAY:
                self._leave(error)
            return otherwise(work)

    def is_usable(self) -> bool:
        """Return whether reports should be read from the replica; measured at most every few seconds."""
        now = self._clock.monotonic()
        if now < self._asked_at:
            return self._usable
        self._asked_at = now + LAG_CACHE_S  # other greenlets do not wait for this measurement
        try:
            lag_s = self.measured_s = self.measure_lag_s()
        except (Unavailable, peewee.PeeweeException) as error:
            self._leave(error)
            return False
        self._usable = lag_s <= self._lag_s
        if self._usable:
            self._states.resolve(REPLICA_BACK)
        else:
            message = f"the database replica is {lag_s:.0f} s behind, more than database.replica_lag_s"
            self._states.fire(StateChange("replica.lags", REPLICA_SUBJECT, message, WARNING, REPLICA_REMEDY))
        return self._usable

    def measure_lag_s(self) -> float:
        """Return the age of the newest heartbeat that the replica has. Unavailable, or an error of the driver."""
        expires_us, now_us = self._backend.read(self._read_heartbeat, self._timeout_s)
        return max(0, now_us - (expires_us - self._term_us)) / SECOND_US

    def close(self) -> None:
        self._backend.close()

    def _read_heartbeat(self) -> tuple[int, int]:
        with DRIVER_ERRORS:
            row = self.peewee.execute_sql(REPLICA_HEARTBEAT.format(now=self._backend.moment_sql())).fetchone()
        return int(row[0]), int(row[1])

    def _bound_locks(self, work: Callable[[], T]) -> T:
        with self.peewee.transaction():
            self.peewee.execute_sql(BOUND_LOCKS)
            return work()

    def _leave(self, error: Exception) -> None:
        self._stop_asking(RETRY_AFTER_S)
        message = f"the database replica is unavailable: {str(error).strip()}"
        self._states.fire(StateChange("replica.away", REPLICA_SUBJECT, message, WARNING, REPLICA_REMEDY))

    def _leave_locked(self) -> None:
        self._stop_asking(RETRY_AFTER_LOCK_S)
        message = f"a report waited for {REPLICA_LOCK_TIMEOUT_S} s for a table that the database replica has locked"
        self._states.fire(StateChange("replica.locked", REPLICA_SUBJECT, message, WARNING, REPLICA_REMEDY))

    def _stop_asking(self, seconds: float) -> None:
        self._usable = False
        self.measured_s = None
        self._asked_at = self._clock.monotonic() + seconds


SUBJECT = "database"
OUTAGE_EFFECT = "requests that need it are answered 503; settlements are written when it is back"
REMEDY = f"start it, or check DATABASE_URL, the disk and the number of connections; {OUTAGE_EFFECT}"
MAKE_ROOM = f"make room on its disk; {OUTAGE_EFFECT}"
DATABASE_BACK = StateChange("database.back", SUBJECT, "the database answers again", INFO)
ATTEMPTS = 6
BACKOFF_S = 0.01
RECOVERY_S = 1.0  # time without a failure before a store counts as back: on a full disk small writes still succeed

log = logging.getLogger(__name__)
postgresql = LazyImport("gateway.store.postgresql")


class NanoField(peewee.BigIntegerField):
    """An amount of money in nano-dollars."""


class TimeField(peewee.BigIntegerField):
    """A moment in microseconds since the epoch, UTC."""


class Base(peewee.Model):
    """The base of every stored model. They are unbound until `Database.bind`; ApiKey has the table `api_key`."""

    class Meta:
        legacy_table_names = False


class Backend(Protocol):
    """The operations that a kind of store provides; errors are the driver's, wrapped by peewee."""

    kind: str

    @property
    def peewee(self) -> Pool: ...

    def read(self, work: Callable[[], T], timeout_s: float | None) -> T: ...
    def report(self, work: Callable[[], T]) -> T: ...
    def write(self, work: Callable[[], T], timeout_s: float | None) -> T: ...
    def can_write_together(self, batches: Sequence[StatementBatch]) -> bool: ...
    def write_together(self, batches: Sequence[StatementBatch]) -> None: ...
    def now_us(self) -> int: ...
    def moment_sql(self) -> str: ...
    def close(self) -> None: ...


class Cursor(Protocol):
    """The driver's cursor after a statement, as far as it is used."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, size: int) -> list[Any]: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Database:
    """Runs reads and writes on a backend.

    Work is a function that runs queries. It must be repeatable and, on SQLite, wait for nothing but queries, since it
    may run in a native thread. A connection is held only while the work runs. IntegrityError, DataError and mistakes in
    SQL pass through unchanged; every error that means that the store cannot serve now becomes Unavailable.
    """

    def __init__(self, backend: Backend, timeout_s: float, clock: Clock, states: StateLog | None = None) -> None:
        self._backend = backend
        self._timeout_s = timeout_s
        self._clock = clock
        self._states = states or StateLog()
        # A full disk refuses writes but not reads, so only a successful write shows that the store is back.
        self._away = not self._states.is_healthy(SUBJECT)
        self._unwritable = False
        self._failed_at = 0.0
        self._primary = backend.peewee
        self.kind = backend.kind
        self.replica: ReadReplica | None = None
        # Answers the questions of reports instead of the tables (metering/rollups/queries.py), if one is configured.
        self.statistics: Any = None
        # Keeps usage rows that were removed from the tables (metering/log/archived_requests.py), if one is configured.
        self.archive: Any = None

    @property
    def peewee(self) -> peewee.Database:
        """The ORM's database: that of the replica inside a report that the replica serves."""
        if self.replica is not None and self.replica.is_reading():
            return self.replica.peewee
        return self._primary

    def bind(self) -> None:
        """Let every stored model, also those of modules that are imported later, use this database."""
        self._primary.bind([Base, *Base.__subclasses__()], bind_refs=False, bind_backrefs=False)

    def read(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, run with a pooled connection or with that of an outer read or write."""
        if self.replica is not None and self.replica.is_reading():
            return work()
        result: T = self._guard(self._backend.read, work, self._timeout_s)
        if self.peewee.is_closed():
            # SQLite reads without waiting: a report of ten reads would hold the event loop for some milliseconds.
            continuation_turn()
        return result

    def report(self, work: Callable[[], T]) -> T:
        """Like `read`, for long queries: off the event loop on SQLite, with a longer timeout on PostgreSQL."""
        result: T = self._guard(self._backend.report, work)
        return result

    def retire_connection(self) -> None:
        """Let the connection of the running report be closed after it, with the memory of its statements: for long
        statements that run rarely."""
        self._primary.retire()

    def view(self, work: Callable[[], T]) -> T:
        """Like `report`, from the replica if there is one, whose rows may be some seconds old. Nothing that decides
        about money may depend on it."""
        if self.replica is None:
            return self.report(work)
        if self.replica.is_reading():
            return work()
        return self.replica.report(work, self.report)

    def write(self, work: Callable[[], T], patient: bool = False) -> T:
        """Run `work` in one transaction, repeated after a conflict with another; inside a write it joins that one.

        `patient` lifts the time limit of a statement (migrations). An error that leaves the outcome unknown (the
        connection broke while committing) is Unavailable and is not repeated here.
        """
        if self.peewee.in_transaction():
            return work()
        timeout_s = None if patient else self._timeout_s
        result: T = self._guard(self._repeat, self._backend.write, work, timeout_s, writes=True)
        return result

    def can_write_together(self, batches: Sequence[StatementBatch]) -> bool:
        """Return whether `write_together` can run these batches: on PostgreSQL, usually."""
        return self._backend.can_write_together(batches)

    def write_together(self, batches: Sequence[StatementBatch]) -> None:
        """Run all batches as one transaction in one round trip, outside a write; repeated and guarded as `write`."""
        self._guard(self._repeat, self._backend.write_together, batches, writes=True)

    def query_rows(self, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        """Run a query with `?` placeholders as a read and return all rows."""
        return self.read(functools.partial(self.fetch, sql, params))

    def query_row(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Run a query with `?` placeholders as a read and return the first row, or None."""
        return self.read(functools.partial(self._fetch_row, sql, params))

    def change_rows(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run a statement with `?` placeholders as a write and return how many rows changed."""
        return self.write(functools.partial(self._execute_change, sql, params))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Cursor:
        """Run a statement with `?` placeholders inside a read or write and return the driver's cursor."""
        cursor: Cursor = self.peewee.execute_sql(self.translate(sql), tuple(params))
        return cursor

    def fetch(self, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a statement inside a read or write, with the driver's errors wrapped by peewee."""
        cursor = self.execute(sql, params)
        with DRIVER_ERRORS:
            return list(cursor.fetchall())

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement with `?` placeholders for each of `rows` inside a write; returns how many rows changed."""
        with DRIVER_ERRORS:
            cursor = self.peewee.cursor()
            cursor.executemany(self.translate(sql), rows)
            changed: int = cursor.rowcount
            cursor.close()
        return changed

    def translate(self, sql: str) -> str:
        """Return a statement with `?` placeholders in the SQL of this store. It must hold no literal `?` or `%`."""
        if self.kind == "sqlite":
            return sql
        return sql.replace("?", "%s")

    def now_us(self) -> int:
        """The store's clock: microseconds since the epoch, UTC."""
        return self._guard(self._backend.now_us)

    def moment_sql(self) -> str:
        """Return the store's clock as an SQL expression (microseconds), for conditions that the store evaluates."""
        return self._backend.moment_sql()

    def exact_sums(self, sql: str) -> str:
        """Return a statement in which no SUM of integers overflows 64 bits, which is an error in SQLite.

        There each SUM becomes two sums, of the high and low bits: exact within 64 bits, the nearest double beyond.
        """
        if self.kind != "sqlite":
            return sql
        return _split_sums(sql)

    def close(self) -> None:
        self._backend.close()
        if self.replica is not None:
            self.replica.close()

    def _fetch_row(self, sql: str, params: Sequence[Any]) -> Any:
        return self.execute(sql, params).fetchone()

    def _execute_change(self, sql: str, params: Sequence[Any]) -> int:
        return self.execute(sql, params).rowcount

    def _repeat(self, run: Callable[..., T], *args: Any) -> T:
        for attempt in range(1, ATTEMPTS):
            try:
                return run(*args)
            except peewee.PeeweeException as error:
                if judge(error) is not Verdict.RETRY:
                    raise
            pause(random.uniform(0.5, 1.0) * BACKOFF_S * 2**attempt)
        return run(*args)

    def _guard(self, run: Callable[..., T], *args: Any, writes: bool = False) -> T:
        try:
            result = run(*args)
        except peewee.PeeweeException as error:
            if judge(error) is Verdict.OTHER:
                raise
            self._unwritable = self._unwritable or writes
            self._note_away(error)
            raise errors.Unavailable("The database is temporarily unavailable; try again.") from error
        if self._away and (writes or not self._unwritable):
            self._note_success()
        return result

    def _note_success(self) -> None:
        if self._clock.monotonic() >= self._failed_at + RECOVERY_S:
            self._away = self._unwritable = False
            self._states.resolve(DATABASE_BACK)

    def _note_away(self, error: Exception) -> None:
        self._away = True
        self._failed_at = self._clock.monotonic()
        message = f"the database is unavailable: {str(error).strip()}"
        remedy = MAKE_ROOM if is_full(error) else REMEDY
        self._states.fire(StateChange("database.away", SUBJECT, message, ERROR, remedy))


@functools.lru_cache(maxsize=64)
def _split_sums(sql: str) -> str:
    pieces = []
    at = 0
    while (begin := sql.find("SUM(", at)) >= 0:
        end = _end_of_parenthesis(sql, begin + 4)
        inner = sql[begin + 4 : end]
        pieces.append(f"{sql[at:begin]}(sum(({inner}) >> 31) * 2147483648 + sum(({inner}) & 2147483647))")
        at = end + 1
    pieces.append(sql[at:])
    return "".join(pieces)


def _end_of_parenthesis(sql: str, begin: int) -> int:
    """Return the place of the parenthesis that closes the one before `begin`."""
    depth = 1
    at = begin
    while True:
        depth += {"(": 1, ")": -1}.get(sql[at], 0)
        if not depth:
            return at
        at += 1


def open_replica(config: settings.DatabaseSettings, term_us: int, clock: Clock, states: StateLog) -> ReadReplica | None:
    """Return the replica of the settings, if there is one; does not connect yet. `term_us` as in ReadReplica."""
    if not config.replica_url:
        return None
    backend = postgresql.Postgresql(dataclasses.replace(config, url=config.replica_url))
    return ReadReplica(backend, config.replica_lag_s, term_us, config.pool_wait_s, clock, states)


def open_database(
    config: settings.DatabaseSettings, clock: Clock, threads: Threads, states: StateLog | None = None
) -> Database:
    """Return the store of the settings: "" is SQLite in data_dir, sqlite:///path a file, postgresql:// a server.

    Does not connect yet. Unavailable when the file cannot be created; SettingsError for another scheme.
    """
    check_scheme(config)
    backend = Sqlite(config, clock, threads) if config.scheme == "sqlite" else postgresql.Postgresql(config)
    return Database(backend, config.pool_wait_s, clock, states)
