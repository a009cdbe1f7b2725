"""Range partitions of tables of requests on PostgreSQL, by request id; old partitions are dropped whole.

A request id is 16 bytes and begins with its creation time in milliseconds (RFC 9562, version 7), so a range of ids is a
range of time, and a unique key that begins with the id is unique over all partitions. On SQLite rows are deleted in
small steps instead.

An existing table becomes the first partition without being copied. While its rows are checked against the bound, all
processes continue to read and write, also those of the previous release; only the final exchange, which touches no
rows, takes a lock for a moment. The last partition has no upper bound, so that every insert finds a partition,
however long no new one is created.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from gateway.clock import DAY_US, SECOND_US
from gateway.errors import Unavailable
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

BOUND = re.compile(r"FROM \((?:MINVALUE|'\\x([0-9a-f]+)')\) TO \((?:MAXVALUE|'\\x([0-9a-f]+)')\)")
# A table with more rows is validated before the step that makes it the first partition.
SMALL_ROWS = 10_000
# How far in the future the bound of a table under conversion is: a release without partitions may run alone for days.
CONVERSION_MARGIN_US = 8 * DAY_US
MIN_MARGIN_US = DAY_US
# The longest wait for a lock, during which readers and writers of the table queue behind it.
LOCK_TIMEOUT_MS = 300
MAX_ID_MS = (1 << 48) - 1  # the largest time of an id

CHILDREN = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(?)
"""
KIND = "SELECT relkind FROM pg_class WHERE oid = to_regclass(?)"
FIND_CONSTRAINT = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(?) AND conname = ?"
INDEXES = """
SELECT x.relname, pg_get_indexdef(i.indexrelid), i.indisprimary FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = to_regclass(?)
"""


class Partition(NamedTuple):
    """A range [low, high) of request ids; `low` b"" and `high` None mean that there is no bound."""

    name: str
    low: bytes
    high: bytes | None


class Partitions:
    """The partitions of `table`, each `width_us` wide; `keys` is its primary key, beginning with the request id.

    On SQLite nothing happens. Every step may be repeated and may run in several processes at once. Unavailable when a
    lock was not available in time; the next round tries again.
    """

    def __init__(self, database: Database, table: str, keys: Sequence[str], width_us: int) -> None:
        self._database = database
        self.table = table
        self._keys = tuple(keys)
        self._width_us = max(DAY_US, width_us // DAY_US * DAY_US)

    def keep_ready(self, should_continue: ShouldContinue = always) -> None:
        """Convert the table if it has no partitions yet, and create the next range before it begins."""
        if self._database.kind != "postgresql":
            return
        if not self.exist():
            self._convert(should_continue)
        elif self._is_short():
            self._database.write(self._extend, patient=True)

    def exist(self) -> bool:
        """Return whether the table has partitions."""
        if self._database.kind != "postgresql":
            return False
        row = self._database.query_row(KIND, (self.table,))
        return row is not None and row[0] in ("p", b"p")

    def ranges(self) -> list[Partition]:
        """Return all partitions, oldest first; [] when the table has none."""
        if self._database.kind != "postgresql":
            return []
        partitions = []
        for name, bound in self._database.query_rows(CHILDREN, (self.table,)):
            match = BOUND.search(bound or "")
            if match is not None:  # there is no bound while another process detaches the partition
                high = bytes.fromhex(match[2]) if match[2] else None
                partitions.append(Partition(name, bytes.fromhex(match[1] or ""), high))
        return sorted(partitions, key=attrgetter("low"))

    def ended(self, before: bytes) -> list[Partition]:
        """Return the partitions that end at or before `before` (see `id_at`), oldest first, in which order they are
        dropped. The partition of late rows is excluded: its rows are deleted singly."""
        past = f"{self.table}_past"
        return [
            partition
            for partition in self.ranges()
            if partition.high is not None and partition.high <= before and partition.name != past
        ]

    def lock(self, partition: Partition) -> None:
        """Keep new rows out of a partition until the transaction ends. Unavailable when another process has dropped
        it."""
        self._run(f"LOCK TABLE {self.table} IN SHARE UPDATE EXCLUSIVE MODE")
        if partition not in self.ranges():
            raise Unavailable(f"Another process has dropped {partition.name}.")
        self._run(f"LOCK TABLE {partition.name} IN SHARE MODE")

    def drop(self, partition: Partition) -> None:
        """Drop the oldest partition with its rows, inside the transaction that moves its totals. Rows that arrive late
        for its range go to a separate partition."""
        self._limit_lock_wait()
        self.lock(partition)
        past = f"{self.table}_past"
        high = partition.high
        known = any(other.name == past for other in self.ranges())
        if known:
            self._run(f"ALTER TABLE {self.table} DETACH PARTITION {past}")
        self._run(f"DROP TABLE {partition.name}")
        if not known:
            self._run(f"CREATE TABLE {past} (LIKE {self.table} INCLUDING DEFAULTS)")
        self._attach(past, b"", high)

    def _convert(self, should_continue: ShouldContinue) -> None:
        """Make the table the first partition of a new table with its name."""
        sql = f"SELECT 1 FROM {self.table} OFFSET {SMALL_ROWS} LIMIT 1"
        now_us = self._database.now_us()
        if not self._database.query_rows(sql):
            bound = self._bound_after(now_us)
        else:
            bound = self._checked_bound(now_us)
            if not should_continue():
                return
        self._database.write(partial(self._exchange, bound), patient=True)

    def _checked_bound(self, now_us: int) -> bytes:
        """Return a bound that every row of a large table is below, validated while others read and write.

        Rows of a clock that is far ahead, which would fail the validation, are moved in the exchange.
        """
        far = self._bound_after(now_us + CONVERSION_MARGIN_US)
        if self._database.query_rows(f"SELECT 1 FROM {self.table} WHERE request >= {_literal(far)} LIMIT 1"):
            return far
        name = f"{self.table}_ends"
        row = self._database.query_row(FIND_CONSTRAINT, (self.table, name))
        known = re.search(r"'\\x([0-9a-f]+)'", row[0]) if row else None
        if known is not None and bytes.fromhex(known[1]) > id_at(now_us + MIN_MARGIN_US):
            bound = bytes.fromhex(known[1])
        else:
            bound = far
            self._database.write(partial(self._record_bound, name, bound, known=row is not None), patient=True)
        validate = f"ALTER TABLE {self.table} VALIDATE CONSTRAINT {name}"
        self._database.write(partial(self._run, validate), patient=True)
        return bound

    def _record_bound(self, name: str, bound: bytes, known: bool) -> None:
        self._limit_lock_wait()
        if known:
            self._run(f"ALTER TABLE {self.table} DROP CONSTRAINT {name}")
        self._run(f"ALTER TABLE {self.table} ADD CONSTRAINT {name} CHECK (request < {_literal(bound)}) NOT VALID")

    def _exchange(self, bound: bytes) -> None:
        """Exchange the table. A validated constraint spares reading its rows again; a small table is read."""
        self._limit_lock_wait()
        table = self.table
        first = f"{self.table}_first"
        self._run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        if self.exist():
            return
        indexes = self._database.execute(INDEXES, (table,)).fetchall()
        self._run(f"ALTER TABLE {table} RENAME TO {first}")
        for name, _, _ in indexes:
            self._run(f"ALTER INDEX {name} RENAME TO {name}_first")
        self._run(f"CREATE TABLE {table} (LIKE {first} INCLUDING DEFAULTS) PARTITION BY RANGE (request)")
        self._run(f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(self._keys)})")
        for _, definition, primary in indexes:
            if not primary:
                self._run(definition)
        self._run(f"CREATE TABLE {table}_rest PARTITION OF {table} FOR VALUES FROM ({_literal(bound)}) TO (MAXVALUE)")
        self._move(first, f"{table}_rest", f"request >= {_literal(bound)}")
        self._attach(first, b"", bound)
        self._run(f"ALTER TABLE {first} DROP CONSTRAINT IF EXISTS {table}_ends")

    def _is_short(self) -> bool:
        """Return whether the last range begins so soon that the next one must be created."""
        return self.ranges()[-1].low < id_at(self._database.now_us() + MIN_MARGIN_US)

    def _extend(self) -> None:
        """Bound the last range, which has few rows, and begin a new last range.

        Its end depends on the database's clock alone: by the ids of a node whose clock is years ahead, it would be
        years long and never be dropped. Such rows belong to the last range, however often a new one begins.
        """
        self._limit_lock_wait()
        table = self.table
        rest = f"{self.table}_rest"
        self._run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        if not self._is_short():
            return
        low = self.ranges()[-1].low
        bound = self._bound_after(max(self._database.now_us() + MIN_MARGIN_US, time_of(low)))
        name = f"{table}_{datetime.fromtimestamp(time_of(low) / SECOND_US, UTC):%Y%m%d}"
        self._run(f"ALTER TABLE {table} DETACH PARTITION {rest}")
        if self._database.execute(f"SELECT 1 FROM {rest} WHERE request >= {_literal(bound)} LIMIT 1").fetchone():
            self._run(f"CREATE TABLE {name} (LIKE {rest} INCLUDING DEFAULTS)")
            self._move(rest, name, f"request < {_literal(bound)}")
            self._attach(rest, bound, None)
        else:
            self._run(f"ALTER TABLE {rest} RENAME TO {name}")
            for index, _, _ in self._database.execute(INDEXES, (name,)).fetchall():
                self._run(f"ALTER INDEX {index} RENAME TO {index.replace(rest, name)}")
            self._run(f"CREATE TABLE {rest} PARTITION OF {table} FOR VALUES FROM ({_literal(bound)}) TO (MAXVALUE)")
        self._attach(name, low, bound)

    def _attach(self, name: str, low: bytes, high: bytes | None) -> None:
        first = _literal(low) if low else "MINVALUE"
        last = "MAXVALUE" if high is None else _literal(high)
        self._run(f"ALTER TABLE {self.table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({last})")

    def _move(self, source: str, target: str, condition: str) -> None:
        """Move rows from one table to another with the same columns."""
        moved = f"DELETE FROM {source} WHERE {condition} RETURNING *"
        self._run(f"WITH moved AS ({moved}) INSERT INTO {target} SELECT * FROM moved")

    def _bound_after(self, at_us: int) -> bytes:
        """Return the end of the range that contains a moment."""
        return id_at((at_us // self._width_us + 1) * self._width_us)

    def _limit_lock_wait(self) -> None:
        self._run(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")

    def _run(self, sql: str) -> None:
        self._database.execute(sql)


def id_at(at_us: int) -> bytes:
    """Return the least request id of a moment, limited to the times that an id can hold."""
    return min(max(0, at_us // 1000), MAX_ID_MS).to_bytes(6, "big") + bytes(10)


def time_of(request: bytes) -> int:
    """Return when a request id was made, in microseconds."""
    return int.from_bytes(request[:6], "big") * 1000


def _literal(ident: bytes) -> str:
    return f"'\\x{ident.hex()}'"


# Deletes old requests from tables: whole partitions where the table has them, small steps otherwise.

DELETED_ROWS_PER_STEP = 1_000
# Bound of the steps of one round; the next round continues.
DELETION_STEPS_PER_ROUND = 500
PAUSE_S = 0.02
WEEKS_FROM_DAYS = 60  # tables with a longer retention have partitions of a week, others of a day


class AgingTables:
    """Tables keyed by request id, from table name to primary key, deleted from in the given order after `keep_days`.

    `keep_days` None keeps rows for ever. `step(oldest)` deletes some rows of requests before `oldest` within an open
    transaction and returns how many; fewer than STEP_ROWS means that none are left.
    """

    def __init__(
        self,
        database: Database,
        tables: Mapping[str, Sequence[str]],
        keep_days: int | None,
        step: Callable[[bytes], int],
    ) -> None:
        width_us = (7 if keep_days is None or keep_days > WEEKS_FROM_DAYS else 1) * DAY_US
        self._database = database
        self._keep_days = keep_days
        self._step = step
        self.partitions = [Partitions(database, table, keys, width_us) for table, keys in tables.items()]

    def purge(self, now_us: int, should_continue: ShouldContinue = always) -> int:
        """Run one round: prepare partitions, drop old ones, and delete the remaining rows; returns how many of these.

        Safe to repeat. Unavailable: the next round does it.
        """
        for partitions in self.partitions:
            partitions.keep_ready(should_continue)
        if self._keep_days is None:
            return 0
        oldest = id_at(now_us - self._keep_days * DAY_US)
        deleted = 0
        for partitions in self.partitions:
            self._drop(partitions, oldest, should_continue)
        minimum = self._minimum(oldest)
        for _ in range(DELETION_STEPS_PER_ROUND):
            if not should_continue():
                break
            count = self._database.write(partial(self._step, minimum))
            deleted += count
            if count < DELETED_ROWS_PER_STEP:
                break
            pause(PAUSE_S)
        return deleted

    def _minimum(self, oldest: bytes) -> bytes:
        """Return the id before which rows are deleted singly; rows of an ordinary partition wait for its end."""
        ranges = self.partitions[0].ranges()
        extra = [part.high for part in ranges if part.high is not None and part.name.endswith(("_first", "_past"))]
        if extra or not ranges:
            return min([oldest, *extra])
        return b""

    def _drop(self, partitions: Partitions, oldest: bytes, should_continue: ShouldContinue) -> None:
        for partition in partitions.ended(oldest):
            if not should_continue():
                return
            self._database.write(partial(partitions.drop, partition), patient=True)
