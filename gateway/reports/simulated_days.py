"""The stored usage of an organization's last days as simulations read it: the newest first, some rows at a time."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any

from msgspec import Struct

from gateway.metering.usage_table import raw_id
from gateway.runtime.threads import give_way
from gateway.store.database import Database
from gateway.store.partitions import id_at, time_of

MAX_ROWS = 200_000  # usage rows that one simulation reads, the newest of its days
MAX_DAYS = 92
CHUNK_ROWS = 2_000
# The rows of one project that a query reads: few at first, since there may be many projects.
FIRST_ROWS, MOST_ROWS = 20, 1_000
NEWEST = b"\xff" * 16

StoredRow = Sequence[Any]


class SimulatedDays(Struct):
    """The requests of [since_us, until_us). `complete` is false if the days have more usage than is read at once; then
    `since_us` is later."""

    since_us: int
    until_us: int
    complete: bool = True
    requests: int = 0


def walk_days(database: Database, sql: str, projects: Iterable[str], done: SimulatedDays) -> Iterator[list[StoredRow]]:
    """Yield the usage rows of projects. `sql` selects those of a project between two request ids, at most so many, the
    newest first; their request is the first column. Where there are more than MAX_ROWS, `done` says how far the rows
    go."""
    low = id_at(done.since_us)
    found = (_read_project(database, sql, raw_id(project), low) for project in projects)
    rows = merge(*found, key=request_of, reverse=True)
    read = 0
    while chunk := list(islice(rows, min(CHUNK_ROWS, MAX_ROWS + 1 - read))):
        yield chunk
        give_way()
        read += len(chunk)
        if read > MAX_ROWS:
            done.complete = False
            done.since_us = max(done.since_us, time_of(request_of(chunk[-1])))
            return


def request_of(row: StoredRow) -> bytes:
    """Return the id of the request of a row."""
    return bytes(row[0])


def _read_project(database: Database, sql: str, project: bytes, low: bytes) -> Iterator[StoredRow]:
    """Yield the rows of a project; those of a request in one go."""
    before = NEWEST
    size = FIRST_ROWS
    while True:
        rows = database.view(partial(database.fetch, sql, (project, low, before, size)))
        if len(rows) < size:
            yield from rows
            return
        size = min(2 * size, MOST_ROWS)
        last = request_of(rows[-1])
        whole = [row for row in rows if request_of(row) != last]
        if whole:
            yield from whole
            before = request_of(whole[-1])
        elif size == MOST_ROWS:  # more attempts than any request has
            yield from rows
            before = last
