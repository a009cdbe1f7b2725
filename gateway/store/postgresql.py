"""PostgreSQL through psycopg 3: cooperative, with bounded waits, compatible with PgBouncer."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import peewee
import psycopg
from psycopg.conninfo import conninfo_to_dict

from gateway.configuration import settings
from gateway.runtime.stepwise import always
from gateway.runtime.threads import follow
from gateway.store.pool import DRIVER_ERRORS, PooledPostgresql
from gateway.store.statement_batch import StatementBatch
from gateway.store.statement_pipeline import StatementPipeline, is_stale

T = TypeVar("T")

REPORT_TIMEOUT_S = 120.0
CANCEL_TIMEOUT_S = 5.0
ABANDON_AFTER_S = 1.0
# libpq, "Parameter Key Words": an unreachable peer is noticed in about ten seconds.
KEEPALIVE = {
    "application_name": "llmgateway",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class _Connection(psycopg.Connection):
    """A connection with bounded waits: after `timeout_s` without a response it is closed and counts as lost."""

    timeout_s: float | None = None
    timed_out = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared: set[bytes] = set()  # names of statements

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        # The driver's own wait polls gevent ten times a second, which makes a query take half as long again.
        try:
            return follow(gen, self.pgconn.socket, self.timeout_s if timeout is None else timeout)
        except TimeoutError:
            self.timed_out = True
            self.close()
            raise psycopg.OperationalError("the database did not answer in time") from None
        except KeyboardInterrupt:
            self.cancel_safe(timeout=CANCEL_TIMEOUT_S)  # otherwise the server would continue the query
            raise
        except BaseException as error:
            if not isinstance(error, Exception):
                self._abandon()
            raise

    def _abandon(self) -> None:
        """Cancel the query of a killed greenlet and close the connection.

        The server would continue the query, so callers that disconnect repeatedly would keep more queries running than
        the pool has connections.
        """
        try:
            with suppress(psycopg.Error, OSError):
                self.cancel_safe(timeout=ABANDON_AFTER_S)
        finally:
            self.close()


class _Adapter(peewee.Psycopg3Adapter):
    def connect(self, db: peewee.Database, **params: Any) -> psycopg.Connection:
        return _Connection.connect(db.database, **params)


class _Pooled(PooledPostgresql):
    psycopg3_adapter = _Adapter


class Postgresql:
    """The backend of `Database` for a server."""

    kind = "postgresql"

    def __init__(self, config: settings.DatabaseSettings) -> None:
        self._timeout_s = config.pool_wait_s
        url = "postgresql://" + config.url.partition("://")[2]
        known = conninfo_to_dict(url)
        limits: dict[str, Any] = KEEPALIVE | {
            "connect_timeout": max(2, round(config.pool_wait_s)),
            "tcp_user_timeout": round(config.pool_wait_s * 1000),
        }
        self.peewee = _Pooled(
            url,
            prefer_psycopg3=True,
            autoconnect=False,
            client_encoding="UTF8",
            prepare_threshold=None,  # with PgBouncer's transaction mode each transaction may use another connection
            **{key: value for key, value in limits.items() if key not in known},
        )
        self.peewee.arrange_pool(config.pool_size, config.pool_wait_s)
        self._pipeline = StatementPipeline()

    def read(self, work: Callable[[], T], timeout_s: float | None) -> T:
        if not self.peewee.is_closed():
            return work()
        return self._lend(work, timeout_s, always)

    def report(self, work: Callable[[], T]) -> T:
        """Read with the longer timeout of reports."""
        return self.read(work, REPORT_TIMEOUT_S)

    def write(self, work: Callable[[], T], timeout_s: float | None) -> T:
        begun: list[bool] = []

        def transact() -> T:
            with self.peewee.transaction():
                begun.append(True)
                return work()

        if not self.peewee.is_closed():
            return transact()
        return self._lend(transact, timeout_s, lambda: not begun)

    def can_write_together(self, batches: Sequence[StatementBatch]) -> bool:
        return self._pipeline.can_run(batches)

    def write_together(self, batches: Sequence[StatementBatch]) -> None:
        """Run all batches as one transaction in one round trip; see StatementPipeline.run."""
        connection = self.peewee.take()
        if is_stale(connection):
            self.peewee.give(connection)
            self.peewee.drain()
            connection = self.peewee.take()
        connection.timeout_s = self._timeout_s
        try:
            with DRIVER_ERRORS:
                self._pipeline.run(connection, batches)
        finally:
            self.peewee.give(connection)

    def now_us(self) -> int:
        return self.read(self._select_now, self._timeout_s)

    def moment_sql(self) -> str:
        return NOW

    def close(self) -> None:
        self.peewee.drain()

    def _select_now(self) -> int:
        now_us: int = self.peewee.execute_sql(f"SELECT {NOW}").fetchone()[0]
        return now_us

    def _lend(self, work: Callable[[], T], timeout_s: float | None, may_repeat: Callable[[], bool]) -> T:
        """Run `work` on a pooled connection, and again on a new one when the pooled connection was closed."""
        connection = self.peewee.take()
        try:
            return self._use(connection, work, timeout_s)
        except peewee.PeeweeException:
            if connection.timed_out or not connection.closed or not may_repeat():
                raise
        self.peewee.drain()
        return self._use(self.peewee.take(), work, timeout_s)

    def _use(self, connection: _Connection, work: Callable[[], T], timeout_s: float | None) -> T:
        connection.timeout_s = timeout_s
        self.peewee.adopt(connection)
        try:
            return work()
        finally:
            self.peewee.release()
            self.peewee.give(connection)
