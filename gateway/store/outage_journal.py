"""The outage journal: a worker's local file of records that the database could not take, posted when it is back.

A record is durable (`fdatasync`) before its answers end. It keeps the sequence number under which the journal may have
committed it already, so it is posted exactly once, by this worker or, after its death, by another one of the node. As
long as a record waits here, all later ones follow it: the marks of the journal only rise.
"""

import fcntl
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct, msgpack

from gateway.clock import DAY_US, Clock
from gateway.errors import Unavailable
from gateway.runtime.threads import OwnThread, pause, spawn
from gateway.store.database import Database
from gateway.store.intents import FRAME, lock_orphan
from gateway.store.journal import BACKOFF_S, MAX_BACKOFF_S, Row, Statement, commit_groups, gather, marks_of

SUFFIX = ".outage"
EXPIRED_SUFFIX = ".outage-expired"
# Records may wait this long. The store keeps for longer what it needs to post each of them once: the marks of journals,
# and the empty leases of lost workers.
RETENTION_US = 90 * DAY_US
DEDUPLICATION_US = RETENTION_US + DAY_US
# A file of this size refuses further records; then answers wait for the database as without a file.
MAX_BYTES = 256 << 20

log = logging.getLogger(__name__)


class KeptStatement(Struct, array_like=True):
    """The parts of a Statement that its rows need, so that another release can run them."""

    name: str
    sql: str
    ordered: bool
    exact: bool
    sums: bool


class KeptRecord(Struct, array_like=True):
    """A group of entries. A row of an entry is the number of its statement and the parameters; `since_us` is the time
    from which the rows waited."""

    writer: str
    seq: int
    since_us: int
    statements: list[KeptStatement]
    entries: list[list[tuple[int, list[Any]]]]


encode = msgpack.Encoder().encode
decode = msgpack.Decoder(KeptRecord).decode


class OutageJournal:
    """The file of one worker: it exists while records wait, and is locked by its owner. `count` is their number."""

    def __init__(self, database: Database, clock: Clock, directory: Path, owner: str) -> None:
        self._database = database
        self._clock = clock
        self.path = path_of(directory, owner)
        self.count = 0
        self._thread = OwnThread()
        self._handle = -1
        self._start = 0
        self._end = 0
        self._posting = False
        self._closed = False

    @property
    def behind(self) -> bool:
        """Whether a record waits, so that no later one may be committed before it."""
        return self.count > 0

    def keep(self, writer: str, seq: int, since_us: int, entries: Sequence[Sequence[Row]]) -> None:
        """Write a group, and post it as soon as the database is back. Unavailable when the file cannot take it; called
        by one greenlet."""
        frame = _frame(writer, seq, since_us, entries)
        if self._end + len(frame) > MAX_BYTES:
            raise Unavailable(f"{self.path.name} has reached its largest size.")
        self.count += 1
        try:
            self._thread.finish(partial(self._write, frame), int)
        except OSError as error:
            self.count -= 1
            raise Unavailable(f"Cannot write to {self.path.parent}: {error.strerror}.") from None
        self._end += len(frame)
        if not self._posting:
            self._posting = True
            spawn(self._post_all)

    def close(self) -> None:
        """Delete the file, or leave it to the next worker of this node when records wait in it."""
        self._closed = True
        if self._handle >= 0:
            if not self.behind:
                self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1
        self._thread.close()

    def _write(self, frame: bytes) -> None:
        """Append in a native thread."""
        if self._handle < 0:
            self._handle = _create(self.path)
        os.pwrite(self._handle, frame, self._end)
        os.fdatasync(self._handle)

    def _post_all(self) -> None:
        """Post the records in their order until none is left."""
        delay_s = BACKOFF_S
        while self.behind and not self._closed:
            if self._start == self._end:
                pause(BACKOFF_S)  # the last record is being written
                continue
            record, size = _read(self._handle, self._start)
            try:
                post(self._database, record, self._clock.now_us())
            except Unavailable:
                pause(delay_s)
                delay_s = min(delay_s * 2, MAX_BACKOFF_S)
                continue
            delay_s = BACKOFF_S
            self._start += size
            self.count -= 1
        self._posting = False
        if not self.behind and self._handle >= 0:
            os.ftruncate(self._handle, 0)
            self._start = self._end = 0


def post(database: Database, record: KeptRecord, now_us: int) -> None:
    """Commit a record unless it was committed before. An entry that the database refuses is logged and left out.
    Unavailable."""
    statements = [Statement(*_values(kept)) for kept in record.statements]
    entries = [[(statements[number], tuple(params)) for number, params in entry] for entry in record.entries]
    marks = marks_of(record.writer, record.seq, now_us, record.since_us)
    try:
        database.write(partial(commit_groups, database, marks, gather(entries)))
    except Unavailable:
        raise
    except Exception:  # one of the entries is at fault
        database.write(partial(_post_each, database, marks, entries))


def post_orphans(
    database: Database, directory: Path, now_us: int, set_aside: Callable[[Path], object] = log.error
) -> int:
    """Post and delete the files of workers that have ended; return the number of records. A file that waited for longer
    than RETENTION_US gets the suffix EXPIRED_SUFFIX instead, and `set_aside` is called. Unavailable: the next call
    continues."""
    count = 0
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        handle = lock_orphan(path)
        if handle < 0:
            continue
        try:
            if next((record.since_us for record in records(handle)), now_us) < now_us - RETENTION_US:
                expired = path.with_suffix(EXPIRED_SUFFIX)
                path.rename(expired)
                set_aside(expired)
                continue
            for record in records(handle):
                post(database, record, now_us)
                count += 1
            path.unlink(missing_ok=True)
        finally:
            os.close(handle)
    return count


def path_of(directory: Path, owner: str) -> Path:
    """Return the path of the outage journal of a worker, named as its intents."""
    return directory / f"{owner}{SUFFIX}"


def list_set_aside(directory: Path) -> list[Path]:
    """Return the files of this node that waited for too long."""
    return sorted(directory.glob(f"*{EXPIRED_SUFFIX}"))


def kept_bytes(directory: Path) -> int:
    """Return the size of all files of this node, those of living workers included."""
    return sum(path.stat().st_size for path in directory.glob(f"*{SUFFIX}"))


def records(handle: int) -> Iterator[KeptRecord]:
    """Yield the whole records of an open file; a torn one at the end was never confirmed."""
    place = 0
    while True:
        try:
            record, size = _read(handle, place)
        except (ValueError, DecodeError):
            return
        yield record
        place += size


def _post_each(database: Database, marks: list[Any], entries: list[list[Row]]) -> None:
    if not commit_groups(database, marks, []):
        return
    for entry in entries:
        try:
            with database.peewee.savepoint():
                commit_groups(database, [], gather([entry]))
        except Exception as error:
            if isinstance(error, Unavailable):
                raise
            log.error("a kept record was refused by the database: %s", type(error).__name__, exc_info=error)


def _frame(writer: str, seq: int, since_us: int, entries: Sequence[Sequence[Row]]) -> bytes:
    """Return a record as bytes. Unavailable when a value has no form in the file."""
    numbers: dict[Statement, int] = {}
    kept: list[list[tuple[int, list[Any]]]] = [
        [(numbers.setdefault(statement, len(numbers)), list(params)) for statement, params in rows] for rows in entries
    ]
    statements = [KeptStatement(*(getattr(row, name) for name in KeptStatement.__struct_fields__)) for row in numbers]
    try:
        body = encode(KeptRecord(writer, seq, since_us, statements, kept))
    except (TypeError, OverflowError) as error:
        raise Unavailable("A record cannot be kept outside the database.") from error
    return FRAME.pack(len(body), zlib.crc32(body)) + body


def _read(handle: int, place: int) -> tuple[KeptRecord, int]:
    """Return the record at `place` and its size in the file. ValueError when there is no whole one."""
    head = os.pread(handle, FRAME.size, place)
    if len(head) < FRAME.size:
        raise ValueError("the end of the file")
    length, check = FRAME.unpack(head)
    body = os.pread(handle, length, place + FRAME.size)
    if len(body) < length or not length or zlib.crc32(body) != check:
        raise ValueError("a torn record")
    return decode(body), FRAME.size + length


def _values(kept: KeptStatement) -> tuple[Any, ...]:
    return kept.name, kept.sql, kept.ordered, kept.exact, kept.sums


def _create(path: Path) -> int:
    """Create the file, locked before it has its name, and make the name durable."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = path.with_suffix(".new-outage")
    handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(hidden, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return handle
