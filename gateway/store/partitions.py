"""Tables of requests in partitions, on PostgreSQL: ranges of the request id, dropped whole when they are old.

A request id is 16 bytes and begins with the milliseconds of its making (RFC 9562, version 7), so that a range of ids is
a range of time and every unique key that begins with the id stays one over all partitions. SQLite has none of it: there
rows are deleted in small steps.

A table that is there already becomes the first partition as it lies. While its rows are checked to end before the next
one begins, everybody goes on reading and writing, processes of the version before too; only the last step, a moment
without rows, waits for a lock. Behind the ranges there is always one without an end, so that no insert ever finds no
place, whoever runs and for how long.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gateway.clock import DAY_US, SECOND_US
from gateway.store.database import Database

BOUND = re.compile(r"FROM \((?:MINVALUE|'\\x([0-9a-f]+)')\) TO \((?:MAXVALUE|'\\x([0-9a-f]+)')\)")
# A table with more rows is checked apart from the step that makes it the first partition.
SMALL_ROWS = 10_000
# So long before new rows reach the bound of a table that is being converted: long enough that a version which knows
# nothing of it may run alone for days.
FAR_US = 8 * DAY_US
NEAR_US = DAY_US
# Nobody who reads or writes the table waits longer behind the moment of a change; it is tried again another time.
LOCK_MS = 300
LATEST_MS = (1 << 48) - 1  # that an id can tell

CHILDREN = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(?)
"""
KIND = "SELECT relkind FROM pg_class WHERE oid = to_regclass(?)"
CHECKED = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(?) AND conname = ?"
INDEXES = """
SELECT x.relname, pg_get_indexdef(i.indexrelid), i.indisprimary FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = to_regclass(?)
"""


class Partition(NamedTuple):
    """A range [low, high) of request ids; `low` b"" and `high` None have no bound."""

    name: str
    low: bytes
    high: bytes | None


class Partitions:
    """The partitions of `table`, whose primary key is `keys`, the request id first; each is `width_us` wide.

    Everything here does nothing on SQLite. Work may be repeated and may run in several processes at once. Unavailable
    when a lock was not to be had in time: the next round does it.
    """

    def __init__(self, database: Database, table: str, keys: Sequence[str], width_us: int) -> None:
        self._database = database
        self.table = table
        self._keys = tuple(keys)
        self._width_us = max(DAY_US, width_us // DAY_US * DAY_US)

    def keep_ready(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Convert the table if it is not in partitions yet, and have the next range ready before it begins."""
        if self._database.kind != "postgresql":
            return
        if not self.exist():
            self._convert(go_on)
        elif self._is_short():
            self._database.write(self._extend, patient=True)

    def exist(self) -> bool:
        """Whether the table lies in partitions."""
        if self._database.kind != "postgresql":
            return False
        found = self._database.read(lambda: self._database.execute(KIND, (self.table,)).fetchone())
        return found is not None and found[0] in ("p", b"p")

    def ranges(self) -> list[Partition]:
        """All of them, oldest first; [] where there are none."""
        if self._database.kind != "postgresql":
            return []
        rows = self._database.read(lambda: self._database.execute(CHILDREN, (self.table,)).fetchall())
        found = []
        for name, bound in rows:
            read = BOUND.search(bound)
            if read is not None:
                if read[2]:
                    high = bytes.fromhex(read[2])
                else:
                    high = None
                found.append(Partition(name, bytes.fromhex(read[1] or ""), high))
        return sorted(found, key=lambda one: one.low)

    def ended(self, before: bytes) -> list[Partition]:
        """Those of which every request id lies before `before` (see `id_at`), oldest first, so that they are dropped in
        that order. What came for ranges that were dropped is none of them: its rows are deleted."""
        past = f"{self.table}_past"
        return [one for one in self.ranges() if one.high is not None and one.high <= before and one.name != past]

    def drop(self, partition: Partition) -> None:
        """Remove the oldest partition with its rows, within an open transaction, where what counted them is moved. Rows
        that come for its range afterwards have a place of their own."""
        self._hurry()
        past = f"{self.table}_past"
        high = partition.high
        known = any(one.name == past for one in self.ranges())
        if known:
            self._run(f"ALTER TABLE {self.table} DETACH PARTITION {past}")
        self._run(f"DROP TABLE {partition.name}")
        if not known:
            self._run(f"CREATE TABLE {past} (LIKE {self.table} INCLUDING DEFAULTS)")
        self._attach(past, b"", high)

    def _convert(self, go_on: Callable[[], bool]) -> None:
        """Make the table the first partition of a new one of its name."""
        sql = f"SELECT 1 FROM {self.table} OFFSET {SMALL_ROWS} LIMIT 1"
        now_us = self._database.now_us()
        if not self._database.read(lambda: self._database.execute(sql).fetchone()):
            bound = self._bound_after(now_us)
        else:
            bound = self._checked_bound(now_us)
            if not go_on():
                return
        self._database.write(lambda: self._exchange(bound), patient=True)

    def _checked_bound(self, now_us: int) -> bytes:
        """A bound before which every row of a large table surely lies: rows are checked while others read and write."""
        name = f"{self.table}_ends"
        row = self._database.read(lambda: self._database.execute(CHECKED, (self.table, name)).fetchone())
        if row:
            known = re.search(r"'\\x([0-9a-f]+)'", row[0])
        else:
            known = None
        if known is not None and bytes.fromhex(known[1]) > id_at(now_us + NEAR_US):
            bound = bytes.fromhex(known[1])
        else:
            bound = self._bound_after(now_us + FAR_US)
            self._database.write(lambda: self._promise(name, bound, known=row is not None), patient=True)
        validate = f"ALTER TABLE {self.table} VALIDATE CONSTRAINT {name}"
        self._database.write(lambda: self._run(validate), patient=True)
        return bound

    def _promise(self, name: str, bound: bytes, known: bool) -> None:
        self._hurry()
        if known:
            self._run(f"ALTER TABLE {self.table} DROP CONSTRAINT {name}")
        self._run(f"ALTER TABLE {self.table} ADD CONSTRAINT {name} CHECK (request < {_literal(bound)}) NOT VALID")

    def _exchange(self, bound: bytes) -> None:
        """The moment of the change. What is checked is not read again; what is small is."""
        self._hurry()
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
        self._attach(first, b"", bound)
        self._run(f"ALTER TABLE {first} DROP CONSTRAINT IF EXISTS {table}_ends")
        self._run(f"CREATE TABLE {table}_rest PARTITION OF {table} FOR VALUES FROM ({_literal(bound)}) TO (MAXVALUE)")

    def _is_short(self) -> bool:
        """Whether the range without an end begins so soon that the one before needs a successor."""
        return self.ranges()[-1].low < id_at(self._database.now_us() + NEAR_US)

    def _extend(self) -> None:
        """Give the range without an end a bound behind all of its rows, which are none or few, and begin a new one."""
        self._hurry()
        table = self.table
        rest = f"{self.table}_rest"
        self._run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        if not self._is_short():
            return
        low = self.ranges()[-1].low
        newest = self._database.execute(f"SELECT request FROM {rest} ORDER BY request DESC LIMIT 1").fetchone()
        latest_us = max(self._database.now_us() + NEAR_US, time_of(bytes(newest[0])) if newest else 0, time_of(low))
        bound = self._bound_after(latest_us)
        name = f"{table}_{datetime.fromtimestamp(time_of(low) / SECOND_US, UTC):%Y%m%d}"
        self._run(f"ALTER TABLE {table} DETACH PARTITION {rest}")
        self._run(f"ALTER TABLE {rest} RENAME TO {name}")
        for index, _, _ in self._database.execute(INDEXES, (name,)).fetchall():
            self._run(f"ALTER INDEX {index} RENAME TO {index.replace(rest, name)}")
        self._attach(name, low, bound)
        self._run(f"CREATE TABLE {rest} PARTITION OF {table} FOR VALUES FROM ({_literal(bound)}) TO (MAXVALUE)")

    def _attach(self, name: str, low: bytes, high: bytes | None) -> None:
        first = _literal(low) if low else "MINVALUE"
        if high is None:
            last = "MAXVALUE"
        else:
            last = _literal(high)
        self._run(f"ALTER TABLE {self.table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({last})")

    def _bound_after(self, at_us: int) -> bytes:
        """The end of the range in which a moment lies."""
        return id_at((at_us // self._width_us + 1) * self._width_us)

    def _hurry(self) -> None:
        self._run(f"SET LOCAL lock_timeout = {LOCK_MS}")

    def _run(self, sql: str) -> None:
        self._database.execute(sql)


def id_at(at_us: int) -> bytes:
    """The least request id of a moment, or of the nearest that an id can tell."""
    return min(max(0, at_us // 1000), LATEST_MS).to_bytes(6, "big") + bytes(10)


def time_of(request: bytes) -> int:
    """When a request id was made, in microseconds."""
    return int.from_bytes(request[:6], "big") * 1000


def _literal(ident: bytes) -> str:
    return f"'\\x{ident.hex()}'"
