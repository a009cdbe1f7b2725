"""PostgreSQL through psycopg 3: cooperative, with bounded waits, compatible with PgBouncer."""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import peewee
import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import error_from_result

from gateway.configuration import settings
from gateway.runtime.loop_turns import always
from gateway.runtime.threads import follow
from gateway.store.pool import DRIVER_ERRORS, PooledPostgresql
from gateway.store.statements import StatementBatch

# Transactions of known statements in one round trip to PostgreSQL: libpq's pipeline mode and prepared statements.
#
# All statements before a Sync message are one transaction, so there is no BEGIN and no COMMIT. The rows of an INSERT
# travel as one array per column. Measured against a cursor that runs BEGIN, `executemany` for each statement and
# COMMIT: one round trip instead of six, and half the CPU time of a row in a commit of 32.

# Up to so many rows run one by one: the server needs 0.2 ms more to unpack the arrays of one usage row.
MAX_SINGLE_ROWS = 4
READ = 1
READ_WRITE = 3
# INSERT INTO table (columns) VALUES (?, ?) and whatever follows.
INSERT = re.compile(r"(INSERT INTO \w+ \([^)]*\)) VALUES \([?, ]+\)(.*)", re.S)
UPSERT = "DO UPDATE"  # one statement must not change a row twice, but several rows of a batch may name the same one
CONFLICT = re.compile(r" ON CONFLICT \([^()]*+\) DO NOTHING")
# invalid_sql_statement_name and duplicate_prepared_statement: a pooler gives each transaction another session.
UNPREPARED = {"26000", "42P05"}
NUMBERS = {"smallint", "integer", "bigint"}
BYTES = "bytea"

Values = Sequence[Any]
Result = TypeVar("Result")
Steps = Generator[int, int, Result]
Message = tuple[bytes, bytes, list[bytes | None]]  # name, SQL, parameters


class PipelinedConnection(Protocol):
    """A connection of psycopg that waits cooperatively and remembers the statements that it has prepared."""

    pgconn: pq.abc.PGconn
    prepared: set[bytes]

    def wait(self, gen: Steps[Result]) -> Result: ...
    def close(self) -> None: ...


class StatementPlan(NamedTuple):
    """A statement in PostgreSQL's form. `columns` are the encoders of its arrays; () runs it once for each row."""

    name: bytes
    sql: bytes
    columns: tuple[Callable[[Values], str], ...] = ()

    def messages(self, rows: Sequence[Values]) -> list[Message]:
        """Return the executions of this plan for `rows`, with parameters in the text format."""
        if not self.columns:
            return [(self.name, self.sql, [_write_value(value) for value in row]) for row in rows]
        columns = zip(self.columns, zip(*rows, strict=True), strict=True)
        return [(self.name, self.sql, [_check(f"{{{write(values)}}}".encode()) for write, values in columns])]


class StatementPipeline:
    """Runs batches on connections of one database. The name of a prepared statement contains a hash of its SQL, so that
    a name never stands for another statement, whichever session a pooler chooses."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, bool, bool], StatementPlan] = {}
        self._named = True

    def can_run(self, batches: Iterable[StatementBatch]) -> bool:
        """Return whether the server itself refuses what `exact` forbids: its answer arrives after the commit."""
        return all(not batch.exact or CONFLICT.search(batch.sql) for batch in batches)

    def run(self, connection: PipelinedConnection, batches: Iterable[StatementBatch]) -> None:
        """Run all batches as one transaction. Raise the driver's error of the first statement that failed; then nothing
        was changed, except after an OperationalError without SQLSTATE, which leaves the outcome unknown."""
        messages: list[Message] = []
        for batch in batches:
            many = len(batch.rows) > MAX_SINGLE_ROWS
            plan = self._plans.get((batch.sql, batch.exact, many)) or self._make_plan(connection, batch, many)
            messages += plan.messages(batch.rows)
        try:
            connection.wait(_converse(connection, messages, self._named))
        except psycopg.Error as error:
            if not self._named or error.sqlstate not in UNPREPARED:
                raise
            self._named = False
            connection.wait(_converse(connection, messages, False))

    def _make_plan(self, connection: PipelinedConnection, batch: StatementBatch, many: bool) -> StatementPlan:
        sql = batch.sql
        if batch.exact:
            sql = CONFLICT.sub("", sql)  # then a second row for the same key is an error, which ends the transaction
        parts = INSERT.fullmatch(sql)
        if not many or parts is None or UPSERT in sql:
            plan = _name(_number(sql))
        else:
            types = connection.wait(_describe(connection, _number(sql)))
            arrays = ", ".join(f"${place}::{name}[]" for place, name in enumerate(types, 1))
            columns = tuple(_encoder_of(name) for name in types)
            plan = _name(f"{parts[1]} SELECT * FROM unnest({arrays}){parts[2]}")._replace(columns=columns)
        self._plans[batch.sql, batch.exact, many] = plan
        return plan


def _name(sql: str) -> StatementPlan:
    return StatementPlan(f"gateway_{hashlib.sha256(sql.encode()).hexdigest()[:24]}".encode(), sql.encode())


def _number(sql: str) -> str:
    """Return a statement with `$1` instead of the first `?`, and so on."""
    first, *rest = sql.split("?")
    return first + "".join(f"${place}{text}" for place, text in enumerate(rest, 1))


def _write_value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, (bytes, memoryview)):
        return b"\\x" + value.hex().encode()
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"no parameter of a statement: {type(value).__name__}")
    return _check(str(value).encode())


def _check(data: bytes) -> bytes:
    """Refuse NUL, at which libpq would end the text."""
    if b"\0" in data:
        raise psycopg.DataError("a text contains a NUL character")
    return data


def _encoder_of(name: str) -> Callable[[Values], str]:
    if name in NUMBERS:
        return _write_numbers
    if name == BYTES:
        return _write_bytes
    return _write_texts


def _write_numbers(values: Values) -> str:
    text = ",".join(map(str, values))
    if None in values:
        return text.replace("None", "NULL")
    return text


def _write_bytes(values: Values) -> str:
    return ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values])


def _write_texts(values: Values) -> str:
    return ",".join(["NULL" if value is None else _quote(value) for value in values])


def _quote(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _converse(connection: PipelinedConnection, messages: Sequence[Message], named: bool) -> Steps[None]:
    """Send the messages and one Sync, and read all results."""
    pgconn = connection.pgconn
    prepared = connection.prepared
    fresh: set[bytes] = set()

    def send() -> None:
        for name, sql, params in messages:
            if not named:
                pgconn.send_query_params(sql, params)
                continue
            if name not in prepared and name not in fresh:
                pgconn.send_prepare(name, sql)
                fresh.add(name)
            pgconn.send_query_prepared(name, params)

    results = yield from _exchange(connection, send)
    failed = next((result for result in results if result.status == pq.ExecStatus.FATAL_ERROR), None)
    if failed is None:
        prepared.update(fresh)
        return
    error = error_from_result(failed)
    if fresh and error.sqlstate not in UNPREPARED:
        connection.close()  # some of them may have been prepared
    raise error


def _describe(connection: PipelinedConnection, sql: str) -> Steps[list[str]]:
    """Return the types of a statement's parameters."""

    def send() -> None:
        connection.pgconn.send_prepare(b"", sql.encode())
        connection.pgconn.send_describe_prepared(b"")

    results = yield from _exchange(connection, send)
    described = results[-1]
    if described.status != pq.ExecStatus.COMMAND_OK:
        raise error_from_result(results[0])
    return [psycopg.adapters.types[described.param_type(place)].regtype for place in range(described.nparams)]


def _exchange(connection: PipelinedConnection, send: Callable[[], None]) -> Steps[list[pq.abc.PGresult]]:
    """Send requests and one Sync, and return the results. The connection is closed when that does not end."""
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    try:
        send()
        pgconn.pipeline_sync()
        while pgconn.flush():
            ready = yield READ_WRITE
            if ready & READ:
                pgconn.consume_input()
        results: list[pq.abc.PGresult] = []
        while not results or results[-1].status != pq.ExecStatus.PIPELINE_SYNC:
            while pgconn.is_busy():
                yield READ
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is not None:  # None ends the results of one request
                results.append(result)
        pgconn.exit_pipeline_mode()
    except BaseException:
        connection.close()
        raise
    return results[:-1]


def is_stale(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server closed an idle connection, as it does when it ends."""
    with suppress(psycopg.Error):
        connection.pgconn.consume_input()
        return False
    connection.close()
    return True


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

    def read(self, work: Callable[[], Result], timeout_s: float | None) -> Result:
        if not self.peewee.is_closed():
            return work()
        return self._lend(work, timeout_s, always)

    def report(self, work: Callable[[], Result]) -> Result:
        """Read with the longer timeout of reports."""
        return self.read(work, REPORT_TIMEOUT_S)

    def write(self, work: Callable[[], Result], timeout_s: float | None) -> Result:
        begun: list[bool] = []

        def transact() -> Result:
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

    def _lend(self, work: Callable[[], Result], timeout_s: float | None, may_repeat: Callable[[], bool]) -> Result:
        """Run `work` on a pooled connection, and again on a new one when the pooled connection was closed."""
        connection = self.peewee.take()
        try:
            return self._use(connection, work, timeout_s)
        except peewee.PeeweeException:
            if connection.timed_out or not connection.closed or not may_repeat():
                raise
        self.peewee.drain()
        return self._use(self.peewee.take(), work, timeout_s)

    def _use(self, connection: _Connection, work: Callable[[], Result], timeout_s: float | None) -> Result:
        connection.timeout_s = timeout_s
        self.peewee.adopt(connection)
        try:
            return work()
        finally:
            self.peewee.release()
            self.peewee.give(connection)
