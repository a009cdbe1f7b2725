"""A bounded, cooperative and fork-safe connection pool beneath a peewee database."""

import os
from collections.abc import Callable
from typing import Any

import peewee

from gateway import errors
from gateway.runtime.threads import Slots

# Converts driver errors to peewee's; the type stubs do not declare it.
DRIVER_ERRORS: peewee.ExceptionWrapper = vars(peewee)["__exception_wrapper__"]


class Pool(peewee.Database):
    """A mixin before a peewee.Database: `connect` takes a connection, `close` returns it.

    No lock is held while a connection is made, so a slow server delays only the greenlet that connects; the wait for a
    free slot is bounded.
    """

    # Attributes of peewee that its type stubs do not declare.
    _state: Any
    server_version: Any
    _connect: Callable[[], Any]
    _set_server_version: Callable[[Any], None]

    def arrange_pool(self, size: int, wait_s: float) -> None:
        """Allow `size` connections at once; a wait of `wait_s` seconds for a free one ends in Unavailable."""
        self._size = max(1, size)
        self._wait_s = wait_s
        self._reset_pool()

    def _reset_pool(self) -> None:
        self._owner = os.getpid()
        self._idle: list[Any] = []
        self._retired: list[Any] = []
        self._slots = Slots(self._size)

    def connect(self, reuse_if_open: bool = False) -> bool:
        """Take a connection for the running greenlet. Unavailable when none becomes free in time."""
        if not self._state.closed:
            if reuse_if_open:
                return False
            raise peewee.OperationalError("Connection already opened.")
        self.adopt(self.take())
        return True

    def close(self) -> bool:
        """Return the running greenlet's connection to the pool; False when it has none."""
        if self._state.closed:
            return False
        if self.in_transaction():
            raise peewee.OperationalError("Attempting to close database while transaction is open.")
        connection = self.release()
        self.give(connection)
        return True

    def adopt(self, connection: Any) -> None:
        """Make `connection` the connection of the running greenlet or thread."""
        self._state.reset()
        self._state.set_connection(connection)

    def release(self) -> Any:
        """Detach the running greenlet's connection without returning it to the pool."""
        connection = self._state.conn
        self._state.reset()
        return connection

    def take(self, fresh: bool = False) -> Any:
        """Return an idle connection, or a new one (always a new one when `fresh`)."""
        if self._owner != os.getpid():
            self._reset_pool()  # the sockets belong to the parent process
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
        """Open a driver connection that the pool does not count. Driver errors become peewee's."""
        with DRIVER_ERRORS:
            connection = self._connect()
            if self.server_version is None:
                self._set_server_version(connection)
            return connection

    def give(self, connection: Any) -> None:
        """Return a connection to the pool; with an open transaction or a lost server, or once retired, it is closed
        instead."""
        retired = connection in self._retired
        if retired:
            self._retired.remove(connection)
        if self.reusable(connection) and not retired:
            self._idle.append(connection)
        else:
            self.discard(connection)
        self._slots.give()

    def retire(self) -> None:
        """Let the running greenlet's connection be closed after its use, with the memory of its statements."""
        self._retired.append(self._state.conn)

    def reusable(self, connection: Any) -> bool:
        return not connection.in_transaction

    def discard(self, connection: Any) -> None:
        """Close a driver connection, whatever its state."""
        try:
            connection.close()
        except Exception:
            return

    def drain(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self.discard(self._idle.pop())


class PooledSqlite(Pool, peewee.SqliteDatabase):
    def rollback(self) -> None:
        """Roll back, unless SQLite has done so already because the disk is full or broken."""
        if self._state.conn.in_transaction:
            super().rollback()


class PooledPostgresql(Pool, peewee.PostgresqlDatabase):
    _adapter: Any  # an attribute of peewee

    def rollback(self) -> None:
        """Roll back, unless the connection is lost: then the server has rolled back."""
        if not self._state.conn.closed:
            super().rollback()

    def reusable(self, connection: Any) -> bool:
        return not connection.closed and self._adapter.txn_status(connection) == self._adapter.txn_idle
