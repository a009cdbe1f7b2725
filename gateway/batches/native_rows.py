"""The rows of providers' batches: each serves some lines of a batch of the gateway."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gateway.store.database import Database

TABLE = "provider_batch"
LINES = "provider_batch_line"
INSERTED = 500  # lines that one transaction inserts
DELETED = 2000
DIVERTED = "request"  # in place of a part: the line is to be sent as a request

# The states of a provider's batch.
CREATING = "creating"  # its creation is intended; whether the provider has it is known after a look
WORKING = "working"
READING = "reading"  # it has ended, and its results are read
CLOSED = "closed"  # all its lines have results, or are to be sent again
REFUSED = "refused"  # the provider did not take it
FAILED = "failed"  # its creation failed for the moment; its lines are sent in another batch
LOST = "lost"  # the provider does not know it any more
OPEN = (CREATING, WORKING, READING)
SPOILT = (REFUSED, LOST)


class ProviderBatchRow(NamedTuple):
    """A row of `provider_batch`, in the order of its columns. Times are microseconds.

    `mapping`, `source` and `credential` say who serves the lines, `place` is what they share at the provider. `remote`
    is the provider's id, "" before it is known, `upload` and `files` (separated by blanks) are its files, `word` is its
    own name of the state. `misses` counts answers in succession by which the provider does not know the batch; while
    it is created, the earlier creations for the same target that failed. Without `verified` it was found by its time
    and size, and may be that of another application until its results are read.
    """

    id: str
    batch: str
    organization: str
    mapping: str
    source: str
    credential: str
    place: str
    operation: str
    state: str
    remote: str
    upload: str
    files: str
    word: str
    total: int
    succeeded: int
    failed: int
    polls: int
    misses: int
    created_at: int
    next_at: int
    ended_at: int | None
    reason: str
    verified: bool

    @property
    def provider(self) -> str:
        return self.mapping.partition("/")[0]

    @property
    def model(self) -> str:
        return self.mapping.partition("/")[2]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN


class SentNumber(NamedTuple):
    """A line that a provider's batch has, and the hold that pays for it."""

    number: int
    hold: str


COLUMNS = ", ".join(ProviderBatchRow._fields)
INSERT = f"INSERT INTO {TABLE} ({COLUMNS}) VALUES ({', '.join('?' * len(ProviderBatchRow._fields))})"


class ProviderBatchRows:
    """The providers' batches of all batches. Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, part: ProviderBatchRow, lines: Iterable[SentNumber]) -> None:
        """Insert a part. Its lines come first: without the row of a part they count as not sent."""
        sql = f"INSERT INTO {LINES} (batch, number, part, hold) VALUES (?, ?, ?, ?)"
        source = iter(lines)
        while some := [(part.batch, line.number, part.id, line.hold) for line in islice(source, INSERTED)]:
            self._database.write(partial(self._database.execute_many, sql, some))
        self._database.write(partial(self._database.execute, INSERT, tuple(part)))

    def change(self, part: ProviderBatchRow, **values: Any) -> ProviderBatchRow:
        """Set columns of a part."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {TABLE} SET {columns} WHERE id = ?"
        self._database.write(partial(self._database.execute, sql, (*values.values(), part.id)))
        return part._replace(**values)

    def of_batches(self, batches: Sequence[str]) -> dict[str, list[ProviderBatchRow]]:
        """Return the parts of some batches by the ids of these."""
        found: dict[str, list[ProviderBatchRow]] = {}
        for start in range(0, len(batches), INSERTED):
            some = batches[start : start + INSERTED]
            sql = f"SELECT {COLUMNS} FROM {TABLE} WHERE batch IN ({', '.join('?' * len(some))}) ORDER BY id"
            for row in self._database.query_rows(sql, tuple(some)):
                part = ProviderBatchRow(*row)
                found.setdefault(part.batch, []).append(part)
        return found

    def of_batch(self, batch: str) -> list[ProviderBatchRow]:
        """Return the parts of a batch in the order of their creation."""
        sql = f"SELECT {COLUMNS} FROM {TABLE} WHERE batch = ? ORDER BY id"
        return [ProviderBatchRow(*row) for row in self._database.query_rows(sql, (batch,))]

    def is_known(self, remote: str, besides: str) -> bool:
        """Return whether another part than `besides` is the provider's batch `remote`."""
        sql = f"SELECT 1 FROM {TABLE} WHERE remote = ? AND id <> ?"
        return bool(self._database.query_rows(sql, (remote, besides)))

    def numbers(self, batch: str, diverted: bool) -> set[int]:
        """Return the numbers of the lines that parts have, and with `diverted` of those that requests are to have."""
        sql = f"SELECT number FROM {LINES} WHERE batch = ?" + ("" if diverted else f" AND part <> '{DIVERTED}'")
        return {row[0] for row in self._fetch_many(sql, (batch,))}

    def assigned(self, batch: str, diverted: bool) -> int:
        """Return how many lines of a batch have a result or are among `numbers`."""
        only = "" if diverted else f"AND s.part <> '{DIVERTED}'"
        sql = (
            f"SELECT (SELECT COUNT(*) FROM {LINES} s WHERE s.batch = ? {only}) + (SELECT COUNT(*) FROM batch_line l "
            f"WHERE l.batch = ? AND NOT EXISTS (SELECT 1 FROM {LINES} s WHERE s.batch = l.batch "
            f"AND s.number = l.number {only}))"
        )
        return int(self._fetch_many(sql, (batch, batch))[0][0])

    def lines_of(self, part: str) -> dict[int, str]:
        """Return the holds of a part's lines by their numbers."""
        return dict(self._fetch_many(f"SELECT number, hold FROM {LINES} WHERE part = ?", (part,)))

    def delivered(self, part: str) -> int:
        """Return how many lines of a part have their results."""
        sql = (
            f"SELECT COUNT(*) FROM {LINES} s JOIN batch_line l ON l.batch = s.batch AND l.number = s.number "
            "WHERE s.part = ?"
        )
        return int(self._fetch_many(sql, (part,))[0][0])

    def free(self, part: str, numbers: Sequence[int] | None = None) -> None:
        """Let lines of a part, None: all, be sent in another way."""
        if numbers is None:
            numbers = list(self.lines_of(part))
        sql = f"DELETE FROM {LINES} WHERE part = ? AND number = ?"
        for start in range(0, len(numbers), DELETED):
            some = [(part, number) for number in numbers[start : start + DELETED]]
            self._database.write(partial(self._database.execute_many, sql, some))

    def divert(self, part: str, numbers: Sequence[int]) -> None:
        """Let lines of a part be sent as requests."""
        sql = f"UPDATE {LINES} SET part = '{DIVERTED}' WHERE part = ? AND number = ?"
        for start in range(0, len(numbers), DELETED):
            some = [(part, number) for number in numbers[start : start + DELETED]]
            self._database.write(partial(self._database.execute_many, sql, some))

    def free_unknown(self, batch: str) -> None:
        """Free the lines of parts that were never inserted, because their worker died."""
        sql = (
            f"DELETE FROM {LINES} WHERE batch = ? AND part <> '{DIVERTED}' "
            f"AND part NOT IN (SELECT id FROM {TABLE} WHERE batch = ?)"
        )
        self._database.write(partial(self._database.execute, sql, (batch, batch)))

    def delete(self, part: ProviderBatchRow) -> None:
        """Delete a part that was never created, with its lines."""
        self.free(part.id)
        self._database.write(partial(self._database.execute, f"DELETE FROM {TABLE} WHERE id = ?", (part.id,)))

    def forget_lines(self, batch: str) -> None:
        """Delete the lines of all parts of a batch."""
        sql = f"DELETE FROM {LINES} WHERE batch = ?"
        self._database.write(partial(self._database.execute, sql, (batch,)))

    def forget(self, batch: str) -> None:
        """Delete the parts of a batch."""
        self.forget_lines(batch)
        self._database.write(partial(self._database.execute, f"DELETE FROM {TABLE} WHERE batch = ?", (batch,)))

    def walk_open(self, batch: str) -> Iterator[ProviderBatchRow]:
        """Yield the parts that have not ended."""
        return (part for part in self.of_batch(batch) if part.is_open)

    def _fetch_many(self, sql: str, params: tuple[Any, ...]) -> list[Any]:
        """Return the rows of a query of all lines, which may be long: off the event loop."""
        return self._database.report(partial(self._database.fetch, sql, params))
