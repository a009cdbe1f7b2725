"""Log entries: the parts of a request that usage rows lack, and the index of custom metadata."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from gateway.store import partitions
from gateway.store.database import Database
from gateway.store.journal import Row, Statement
from gateway.store.partitions import AgingTables, id_at

TAG_BYTES = 8


class LogEntry(NamedTuple):
    """A row of `log_entry`, in the order of its columns. Ids are the 16 bytes after their prefix.

    `requests` is the number of requests that the row represents: 1, or more when many identical rejections share a row.
    `status` is the response status. `asked` is the model as the caller wrote it. `metadata` is a JSON object of
    strings.
    """

    request: bytes
    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes
    requests: int
    status: int
    operation: str
    path: str
    asked: str
    source: str
    error: str | None = None
    label: str | None = None
    metadata: str | None = None

    @property
    def tags(self) -> dict[str, str]:
        """The caller's metadata, {} when there is none."""
        if self.metadata:
            decoded: dict[str, str] = orjson.loads(self.metadata)
            return decoded
        return {}


FIELDS = ", ".join(LogEntry._fields)
STORE = Statement(
    "log_entry",
    f"INSERT INTO log_entry ({FIELDS}) VALUES ({', '.join('?' * len(LogEntry._fields))}) "
    "ON CONFLICT (request) DO NOTHING",
)
INSERT_TAG = Statement(
    "log_tag",
    "INSERT INTO log_tag (project, tag, request) VALUES (?, ?, ?) ON CONFLICT (project, tag, request) DO NOTHING",
)


def write_rows(entry: LogEntry, tags: Mapping[str, str]) -> list[Row]:
    """Return the journal rows of an entry: the entry and one row for each of its `tags`."""
    return [
        (STORE, entry[:]),
        *((INSERT_TAG, (entry.project, tag_of(name, value), entry.request)) for name, value in tags.items()),
    ]


def tag_of(name: str, value: str) -> bytes:
    """Return the index key of a metadata item: a hash, so that its length is fixed."""
    return hashlib.blake2b(f"{name}\0{value}".encode(errors="replace"), digest_size=TAG_BYTES).digest()


def entries_of(database: Database, requests: list[bytes]) -> dict[bytes, LogEntry]:
    """Return the entries of these requests by id; inside a read."""
    if not requests:
        return {}
    sql = f"SELECT {FIELDS} FROM log_entry WHERE request IN ({', '.join('?' * len(requests))})"
    entries = [_read(row) for row in database.execute(sql, requests).fetchall()]
    return {entry.request: entry for entry in entries}


def log_tables(database: Database, keep_days: int) -> AgingTables:
    """Return the tables of entries and metadata tags, with a retention of `keep_days` days (0: unlimited)."""
    tables = {"log_entry": ("request",), "log_tag": ("project", "tag", "request")}
    return AgingTables(database, tables, keep_days or None, lambda oldest: _delete(database, oldest))


def first_id(at_us: int) -> bytes:
    """Return the first request id made at a time or later; ids contain the time in milliseconds."""
    return id_at(at_us + 999)


def _delete(database: Database, oldest: bytes) -> int:
    chosen = "SELECT request FROM log_entry WHERE request < ? ORDER BY request LIMIT ?"
    requests = [
        (bytes(row[0]),) for row in database.execute(chosen, (oldest, partitions.DELETED_ROWS_PER_STEP)).fetchall()
    ]
    marked = [
        (bytes(project), tag_of(name, value), bytes(request))
        for request, project, metadata in _tagged(database, requests)
        for name, value in orjson.loads(metadata).items()
    ]
    if marked:
        database.execute_many("DELETE FROM log_tag WHERE project = ? AND tag = ? AND request = ?", marked)
    if requests:
        database.execute_many("DELETE FROM log_entry WHERE request = ?", requests)
    return len(requests)


def _tagged(database: Database, requests: list[tuple[bytes]]) -> list[tuple[Any, ...]]:
    if not requests:
        return []
    sql = (
        "SELECT request, project, metadata FROM log_entry WHERE request >= ? AND request <= ? AND metadata IS NOT NULL"
    )
    return list(database.execute(sql, (requests[0][0], requests[-1][0])).fetchall())


def _read(row: tuple[Any, ...]) -> LogEntry:
    """Return a row of FIELDS as an entry; the drivers return bytes or memoryview."""
    cells: list[Any] = [bytes(cell) if isinstance(cell, memoryview) else cell for cell in row]
    return LogEntry(*cells)
