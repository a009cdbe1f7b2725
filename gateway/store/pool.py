"""A bounded connection pool beneath a peewee database, cooperative and safe across a fork."""

import os
from collections.abc import Callable
from typing import Any

import peewee

from gateway import errors
from gateway.runtime.threads import Slots

# Makes them peewee's; its stubs do not show the name.
DRIVER_ERRORS: peewee.ExceptionWrapper = vars(peewee)["__exception_wrapper__"]


class Pool(peewee.Database):
    """Mixin before a peewee.Database: `connect` takes a connection, `close` gives it back.

    No lock is held while a connection is made, so a slow server delays nobody but the one who asked; the wait
    for a free slot is bounded.
    """

    # Peewee's own, which its stubs do not show.
    _state: Any
    server_version: Any
    _connect: Callable[[], Any]
    _set_server_version: Callable[[Any], None]

    def arrange_pool(self, size: int, wait_s: float) -> None:
        """At most `size` connections at once; whoever waits `wait_s` seconds for one gets Unavailable."""
        self._size = max(1, size)
        self._wait_s = wait_s
        self._reset_pool()

    def _reset_pool(self) -> None:
        self._owner = os.getpid()
        self._idle: list[Any] = []
        self._slots = Slots(self._size)

    def connect(self, reuse_if_open: bool = False) -> bool:
        """Give the running greenlet a connection. Unavailable when none comes free in time."""
        if not self._state.closed:
            if reuse_if_open:
                return False
            raise peewee.OperationalError("Connection already opened.")
        self.adopt(self.take())
        return True

    def close(self) -> bool:
        """Give the running greenlet's connection back; False when it has none."""
        if self._state.closed:
            return False
        if self.in_transaction():
            raise peewee.OperationalError("Attempting to close database while transaction is open.")
        connection = self.release()
        self.give(connection)
        return True

    def adopt(self, connection: Any) -> None:
        """Make `connection` the one of the running greenlet or thread."""
        self._state.reset()
        self._state.set_connection(connection)

    def release(self) -> Any:
        """Forget the running greenlet's connection without giving it back, and return it."""
        connection = self._state.conn
        self._state.reset()
        return connection

    def take(self, fresh: bool = False) -> Any:
        """An idle connection, or a new one (always a new one when `fresh`)."""
        if self._owner != os.getpid():
            self._reset_pool()  # The parent's sockets are not ours to use or to close.
        slots = self._slots
        if not slots.take(self._wait_s):
            raise errors.Unavailable("Every database connection is busy; try again.")
        try:
            if self._idle and not fresh:
                return self._idle.pop()
            return self.open_raw()
        except BaseException:
            slots.give()
            raise

    def open_raw(self) -> Any:
        """A new driver connection outside the count of the pool. Driver errors come as peewee's."""
        with DRIVER_ERRORS:
            connection = self._connect()
            if self.server_version is None:
                self._set_server_version(connection)
            return connection

    def give(self, connection: Any) -> None:
        """Take `connection` back; one with an open transaction or a lost server is closed instead."""
        if self.reusable(connection):
            self._idle.append(connection)
        else:
            self.discard(connection)
        self._slots.give()

    def reusable(self, connection: Any) -> bool:
        return not connection.in_transaction

    def discard(self, connection: Any) -> None:
        """Close a driver connection, whatever its state."""
        try:
            connection.close()
        except Exception:  # noqa: BLE001 - a broken connection may fail to close; nothing is left to do about it
            return

    def drain(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self.discard(self._idle.pop())


class PooledSqlite(Pool, peewee.SqliteDatabase):
    def rollback(self) -> None:
        """Undo the transaction, which SQLite has done already when the disk is full or broken."""
        if self._state.conn.in_transaction:
            super().rollback()


class PooledPostgresql(Pool, peewee.PostgresqlDatabase):
    _adapter: Any  # peewee's own as well

    def rollback(self) -> None:
        """Undo the transaction, which the server does by itself when the connection is lost."""
        if not self._state.conn.closed:
            super().rollback()

    def reusable(self, connection: Any) -> bool:
        return not connection.closed and self._adapter.txn_status(connection) == self._adapter.txn_idle
