"""The one door to the relational store: a pool, repeatable reads and writes, and the base of every model."""

import functools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import peewee

from gateway import errors
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import ERROR, INFO, StateChange, StateLog
from gateway.runtime.threads import Threads, pause
from gateway.store.faults import Verdict, is_full, judge
from gateway.store.pool import DRIVER_ERRORS
from gateway.store.sqlite import Sqlite

T = TypeVar("T")

SUBJECT = "database"
MEANWHILE = "requests that need it are answered 503, what was settled is written as soon as it is back"
REMEDY = f"start it, or check DATABASE_URL, the disk and the number of connections; {MEANWHILE}"
MAKE_ROOM = f"make room on its disk; {MEANWHILE}"
BACK = StateChange("database.back", SUBJECT, "the database answers again", INFO)
SCHEMES = ("sqlite", "postgresql")
KNOWN_URLS = "sqlite:///path or postgresql://user:password@host/database"
ATTEMPTS = 6
BACKOFF_S = 0.01
QUIET_S = 1.0  # without a failure, before a store counts as back: on a full disk small writes still succeed

log = logging.getLogger(__name__)
postgresql = LazyImport("gateway.store.postgresql")


class NanoField(peewee.BigIntegerField):
    """An amount of money in nano-dollars."""


class TimeField(peewee.BigIntegerField):
    """A moment in microseconds since the epoch, UTC."""


class Base(peewee.Model):
    """The base of every stored model; unbound until `Database.bind`, tables named like `api_key` for ApiKey."""

    class Meta:
        legacy_table_names = False


class Backend(Protocol):
    """What a kind of store offers to Database; errors leave it as the driver's, wrapped by peewee."""

    kind: str

    @property
    def peewee(self) -> peewee.Database: ...

    def read(self, work: Callable[[], T], patience_s: float | None) -> T: ...
    def report(self, work: Callable[[], T]) -> T: ...
    def write(self, work: Callable[[], T], patience_s: float | None) -> T: ...
    def now_us(self) -> int: ...
    def moment_sql(self) -> str: ...
    def close(self) -> None: ...


class Database:
    """Work is a function without arguments that runs queries; it must be repeatable, and for SQLite free of waits
    other than queries, since it may run in a native thread.

    A connection is held only while the work runs. IntegrityError, DataError and mistakes in SQL pass through
    unchanged; everything that means "the store cannot serve now" becomes Unavailable.
    """

    def __init__(self, backend: Backend, patience_s: float, clock: Clock, states: StateLog | None = None) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._clock = clock
        self._states = states or StateLog()
        # What cannot be written to, as on a full disk, may well be read: then only a write tells that it is back.
        self._away = not self._states.is_healthy(SUBJECT)
        self._unwritable = False
        self._failed_at = 0.0
        self.kind = backend.kind
        self.peewee = backend.peewee

    def bind(self, models: Sequence[type[peewee.Model]]) -> None:
        self.peewee.bind(models, bind_refs=False, bind_backrefs=False)

    def read(self, work: Callable[[], T]) -> T:
        """The result of `work`, run with a pooled connection (the one in hand inside another read or write)."""
        return self._guard(lambda: self._backend.read(work, self._patience_s))

    def report(self, work: Callable[[], T]) -> T:
        """Like `read`, for long queries: off the event loop on SQLite, with more patience on PostgreSQL."""
        return self._guard(lambda: self._backend.report(work))

    def write(self, work: Callable[[], T], patient: bool = False) -> T:
        """Run `work` in one transaction, again when it lost against another; inside a write it joins that one.

        `patient` lifts the deadline of a statement (migrations). An error after which the outcome is unknown (the
        connection broke while committing) is Unavailable and is not repeated here.
        """
        if self.peewee.in_transaction():
            return work()
        if patient:
            patience_s = None
        else:
            patience_s = self._patience_s
        return self._guard(lambda: self._repeat(lambda: self._backend.write(work, patience_s)), writes=True)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Run a statement with `?` placeholders inside a read or write; the driver's cursor."""
        return self.peewee.execute_sql(self.translate(sql), tuple(params))

    def fetch(self, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement; an error on the way to a later row is peewee's too."""
        cursor = self.execute(sql, params)
        with DRIVER_ERRORS:
            return list(cursor.fetchall())

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement with `?` placeholders for each of `rows`, inside a write; how many rows changed."""
        with DRIVER_ERRORS:
            cursor = self.peewee.cursor()
            cursor.executemany(self.translate(sql), rows)
            changed = cursor.rowcount
            cursor.close()
        return changed

    def translate(self, sql: str) -> str:
        """A statement with `?` placeholders, in the SQL of this store. It holds no literal `?` or `%`."""
        if self.kind == "sqlite":
            return sql
        return sql.replace("?", "%s")

    def now_us(self) -> int:
        """The store's clock: microseconds since the epoch, UTC."""
        return self._guard(self._backend.now_us)

    def moment_sql(self) -> str:
        """The store's clock as an SQL expression (microseconds), for conditions decided where the rows are."""
        return self._backend.moment_sql()

    def exact_sums(self, sql: str) -> str:
        """A statement whose every SUM of whole numbers may leave 64 bits; SQLite's own ends in an error then.

        There each becomes two sums, of the halves: together exact within 64 bits, the nearest double beyond.
        """
        if self.kind != "sqlite":
            return sql
        return _split_sums(sql)

    def close(self) -> None:
        self._backend.close()

    def _repeat(self, run: Callable[[], T]) -> T:
        for attempt in range(1, ATTEMPTS):
            try:
                return run()
            except peewee.PeeweeException as error:
                if judge(error) is not Verdict.RETRY:
                    raise
            pause(random.uniform(0.5, 1.0) * BACKOFF_S * 2**attempt)
        return run()

    def _guard(self, run: Callable[[], T], writes: bool = False) -> T:
        try:
            result = run()
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
        if self._clock.monotonic() >= self._failed_at + QUIET_S:
            self._away = self._unwritable = False
            self._states.resolve(BACK)

    def _note_away(self, error: Exception) -> None:
        self._away, self._failed_at = True, self._clock.monotonic()
        message = f"the database is unavailable: {str(error).strip()}"
        if is_full(error):
            remedy = MAKE_ROOM
        else:
            remedy = REMEDY
        self._states.fire(StateChange("database.away", SUBJECT, message, ERROR, remedy))


@functools.lru_cache(maxsize=256)
def _split_sums(sql: str) -> str:
    before, found, rest = sql.partition("SUM(")
    if not found:
        return sql
    depth = 1
    end = 0
    while depth:
        depth += {"(": 1, ")": -1}.get(rest[end], 0)
        end += 1
    inner = rest[: end - 1]
    rest = rest[end:]
    return f"{before}(sum(({inner}) >> 31) * 2147483648 + sum(({inner}) & 2147483647)){_split_sums(rest)}"


def open_database(
    config: settings.DatabaseSettings, clock: Clock, threads: Threads, states: StateLog | None = None
) -> Database:
    """The store named by the settings: "" is SQLite in data_dir, sqlite:///path a file, postgresql:// a server.

    Connects to nothing yet. Unavailable when the file cannot be made; SettingsError for another scheme.
    """
    check_scheme(config)
    if config.scheme == "sqlite":
        backend = Sqlite(config, clock, threads)
    else:
        backend = postgresql.Postgresql(config)
    return Database(backend, config.pool_wait_s, clock, states)


def check_scheme(config: settings.DatabaseSettings) -> None:
    """SettingsError for a URL of a store that nobody knows, or that would be read otherwise than it is meant."""
    if config.scheme not in SCHEMES:
        # What else is in the URL may be a password.
        raise settings.SettingsError(f"DATABASE_URL: {config.scheme[:20]}:// is not known; use {KNOWN_URLS}")
    if config.scheme == "postgresql" and config.url.partition("://")[2].partition("/")[0].count("@") > 1:
        # The driver would take a part of the password for the host, and name it.
        raise settings.SettingsError("DATABASE_URL: write an @ in the user or password as %40")
