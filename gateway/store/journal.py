"""Group commit: many appends, one transaction, waiters woken together."""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from gateway import errors, ids
from gateway.clock import SECOND_US, Clock
from gateway.runtime.loop_turns import until_tick
from gateway.runtime.send_batch import current_batch
from gateway.runtime.threads import IdleWait, pause, spawn
from gateway.store.database import Database
from gateway.store.statements import StatementBatch

CAPACITY = 20_000
BATCH = 500
BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0
# A batch that is not committed after this time (at most twice of it) makes its waiters start their own timers.
UNTIMED_WAIT_S = 0.5
# How long a busy process gathers appends at most: greenlets that are ready to run join the commit, which costs the same
# for many rows.
GATHER_S = 0.005
# Entries of a lone request, its decision and its usage row. After such a batch the next one as small begins at once,
# because there is hardly another request that it could wait for.
LONE_ENTRIES = 2
# The first statement of each transaction. It changes no row when this group was committed before and only the response
# was lost; a commit still running on a lost connection holds the row, so this statement waits for it.
WRITE_MARK = (
    "INSERT INTO journal (writer, seq, at) VALUES (?, ?, ?) ON CONFLICT (writer) "
    "DO UPDATE SET seq = excluded.seq, at = excluded.at WHERE journal.seq < excluded.seq"
)

# Runs in transactions after a failed one: their rows are committed later than their own times say.
MARK_LATE = (
    "INSERT INTO late_commit (writer, since, at) VALUES (?, ?, ?) "
    "ON CONFLICT (writer) DO UPDATE SET at = excluded.at, since = CASE WHEN excluded.since < late_commit.since "
    "THEN excluded.since ELSE late_commit.since END"
)

log = logging.getLogger(__name__)


class Statement(Struct, frozen=True, eq=False):
    """SQL with `?` placeholders.

    `ordered`: rows run sorted by their params, so that all writers lock shared rows in the same order. `exact`: each
    row must change exactly one database row, else its entry fails. `sums`: params are (ids, amount) while the SQL takes
    (amount, id); the amounts of one id are added up and run once, sorted by id.
    """

    name: str
    sql: str
    ordered: bool = False
    exact: bool = False
    sums: bool = False


Row = tuple[Statement, tuple[Any, ...]]


class Fallback(Protocol):
    """Interface of a durable file for groups that the store cannot take (outage_journal.py). While it is `behind`, no
    later group may be committed before those in it."""

    @property
    def behind(self) -> bool: ...
    def keep(self, writer: str, seq: int, since_us: int, entries: Sequence[Sequence[Row]]) -> None: ...
    def close(self) -> None: ...


class _Batch:
    """Appends that are committed together. `done`: settled; `stir`: settled, or so slow that waiters need timers."""

    __slots__ = ("done", "entries", "stir", "watched")

    def __init__(self) -> None:
        self.entries: list[Ticket] = []
        self.done = threading.Event()
        self.stir = threading.Event()
        self.watched = False

    def settle(self) -> None:
        for ticket in self.entries:
            ticket.rows = ()  # tickets may be kept for a while, which must not keep their rows in memory
        self.done.set()
        self.stir.set()
        if len(self.entries) > LONE_ENTRIES:
            current_batch().open()  # their answers are sent together


class Ticket:
    """The promise of one append."""

    __slots__ = ("_batch", "error", "rows")

    def __init__(self, batch: _Batch, rows: Sequence[Row]) -> None:
        self._batch = batch
        self.rows = rows
        self.error: Exception | None = None

    def written_soon(self) -> bool:
        """Wait for a short time, without a timer of its own; return whether the rows are durable."""
        batch = self._batch
        batch.stir.wait()
        return batch.done.is_set() and self.error is None

    def wait(self, timeout_s: float) -> None:
        """Wait until the rows are durable. Unavailable when they were refused or `timeout_s` passed; after a timeout
        they are still written when the store is back."""
        batch = self._batch
        if timeout_s > UNTIMED_WAIT_S:
            # Usually the batch is settled within UNTIMED_WAIT_S, and this wait needs no timer.
            batch.stir.wait()
            timeout_s -= UNTIMED_WAIT_S
        if not batch.done.is_set() and not batch.done.wait(timeout_s):
            raise errors.Unavailable("The record could not be written in time; try again.")
        if self.error is not None:
            raise errors.Unavailable("The record could not be written.") from self.error

    def posted(self) -> bool:
        """Return whether the rows are durable."""
        return self._batch.done.is_set() and self.error is None

    def settled(self) -> bool:
        """Return whether the rows are durable or were refused for good."""
        return self._batch.done.is_set()


class Journal:
    """Writes the appends of all greenlets of a process in one greenlet.

    A batch is everything that was queued while the previous batch was committed and while other greenlets were ready to
    run; an idle process commits at once, and so does one whose requests come one by one. Each group of rows is written
    exactly once, even when the response to a commit is lost. All callers must list the statements of an entry in the
    same order, in which they lock rows.
    """

    def __init__(self, database: Database, clock: Clock, capacity: int = CAPACITY) -> None:
        self._database = database
        self._clock = clock
        self._capacity = capacity
        self._writer = ids.new_hex()
        self._seq = 0
        self._queue: deque[_Batch] = deque()
        self._filling: _Batch | None = None  # the last batch of the queue
        self._writing: _Batch | None = None
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = False
        self._closed = threading.Event()
        self._give_up_at = 0.0
        self._fallback: Fallback | None = None
        self._late_since_us = 0  # the time from which rows wait because of failed commits; 0: none wait
        self.pending = self.posted = self.failed = self.max_batch = self.commits = 0
        self.commit_s = 0.0
        self._lone = False  # the last batch was that of one request
        self._task = spawn(self._run)
        self._watch = spawn(self._wake_late_waiters)

    def fall_back(self, fallback: Fallback) -> None:
        """Keep groups in `fallback` while the store is down; answers then wait for the file alone."""
        self._fallback = fallback

    @property
    def behind(self) -> bool:
        """Return whether settled groups are not in the store yet."""
        return self._fallback is not None and self._fallback.behind

    def append(self, *rows: Row) -> Ticket:
        """Queue `rows` for one transaction without blocking. Unavailable when the queue is full."""
        if self._closing:
            raise errors.Unavailable("The gateway is shutting down.")
        if self.pending >= self._capacity:
            raise errors.Unavailable("Too many records wait for the database; try again.")
        batch = self._filling
        if batch is None or len(batch.entries) >= BATCH:
            batch = self._begin_batch()
        ticket = Ticket(batch, rows)
        batch.entries.append(ticket)
        self.pending += 1
        return ticket

    @property
    def commits_at_once(self) -> bool:
        """Return whether the writer is idle, and will not gather the next appends with those of other requests."""
        return self._lone and self._writing is None

    def flush(self, timeout_s: float) -> None:
        """Wait until all appends so far are settled and in the store. Unavailable when `timeout_s` passes first."""
        until = self._clock.monotonic() + timeout_s
        if not self._idle.wait(timeout_s):
            raise errors.Unavailable(f"{self.pending} records still wait for the database.")
        while self.behind:
            if self._clock.monotonic() >= until:
                raise errors.Unavailable("Records in the local file still wait for the database.")
            pause(BACKOFF_S)

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse appends, write queued rows for at most `timeout_s`, and stop. Unavailable if rows were left."""
        self._closing = True
        self._give_up_at = self._clock.monotonic() + timeout_s
        self._wake.set()
        self._task.join(timeout_s + MAX_BACKOFF_S)
        self._closed.set()
        if self._fallback is not None:
            self._fallback.close()
        if self.pending:
            raise errors.Unavailable(f"{self.pending} records were not written: the database is down.")

    def _begin_batch(self) -> _Batch:
        batch = self._filling = _Batch()
        self._queue.append(batch)
        # Only the first append of a batch wakes the writer, which empties the queue before it sleeps.
        self._idle.clear()
        self._wake.set()
        return batch

    def _take_batch(self) -> _Batch:
        self._writing = batch = self._queue.popleft()
        if batch is self._filling:
            self._filling = None
        return batch

    def _run(self) -> None:
        others = IdleWait(GATHER_S)
        while self._queue or not self._closing:
            self._wake.wait()
            self._wake.clear()
            while self._queue:
                if not self._closing and not (self._lone and len(self._queue[0].entries) <= LONE_ENTRIES):
                    others.wait()
                batch = self._take_batch()
                self._lone = len(batch.entries) <= LONE_ENTRIES
                if not self._post(batch.entries):
                    return
                self.pending -= len(batch.entries)
                self._writing = None
                batch.settle()
            self._late_since_us = 0
            self._idle.set()

    def _wake_late_waiters(self) -> None:
        closed = False
        while not closed:
            closed = self._closed.wait(until_tick(UNTIMED_WAIT_S))
            batches = list(self._queue)
            if self._writing is not None:
                batches.insert(0, self._writing)
            for batch in batches:
                if batch.watched or closed:
                    batch.stir.set()
                batch.watched = True

    def _post(self, entries: list[Ticket]) -> bool:
        """Write a group, halving it around a faulty entry; False when closing gave up on an unavailable store."""
        self._seq += 1
        try:
            if not self._persist(self._seq, entries):
                return False
        except Exception as error:  # the error belongs to an entry's waiter; the writer continues
            if len(entries) > 1:
                middle = len(entries) // 2
                return self._post(entries[:middle]) and self._post(entries[middle:])
            entries[0].error = error
            self.failed += 1
            log.error("a record was refused by the database: %s", type(error).__name__, exc_info=error)
            return True
        self.posted += len(entries)
        self.max_batch = max(self.max_batch, len(entries))
        return True

    def _persist(self, seq: int, entries: list[Ticket]) -> bool:
        """Commit a group, waiting for the store without a limit, or keep it in the file that replaces an absent store;
        False when closing gave up."""
        delay_s = BACKOFF_S
        groups = gather(entry.rows for entry in entries)
        certain = True  # no earlier attempt may have committed this group
        while True:
            start = self._clock.monotonic()
            try:
                if self._fallback is None or not self._fallback.behind:
                    self._commit(seq, groups, certain)
                    self.commits += 1
                    self.commit_s = self._clock.monotonic() - start
                    return True
            except errors.Unavailable:
                certain = False
                waited_us = round((self._clock.monotonic() - start) * SECOND_US)
                self._late_since_us = self._late_since_us or self._clock.now_us() - waited_us
            if self._keep(seq, [entry.rows for entry in entries]):
                return True
            if self._closing and self._clock.monotonic() >= self._give_up_at:
                return False
            pause(delay_s)
            delay_s = min(delay_s * 2, MAX_BACKOFF_S)

    def _keep(self, seq: int, rows: Sequence[Sequence[Row]]) -> bool:
        """Return whether the fallback has taken a group."""
        if self._fallback is None:
            return False
        try:
            self._fallback.keep(self._writer, seq, self._late_since_us or self._clock.now_us(), rows)
        except errors.Unavailable as error:
            log.error("a record waits for the database: %s", error.message)
            return False
        return True

    def _commit(self, seq: int, groups: list[StatementBatch], certain: bool) -> None:
        """Run one transaction, in one round trip where the store can and nothing has to be read first."""
        marks = marks_of(self._writer, seq, self._clock.now_us(), self._late_since_us)
        if certain and self._database.can_write_together(groups):
            self._database.write_together([*marks, *groups])
        else:
            self._database.write(partial(commit_groups, self._database, marks, groups))


def marks_of(writer: str, seq: int, now_us: int, late_since_us: int) -> list[StatementBatch]:
    """Return the first statements of a transaction; `late_since_us` 0: its rows are not late."""
    marks = [StatementBatch("mark", WRITE_MARK, ((writer, seq, now_us),))]
    if late_since_us:
        marks.append(StatementBatch("late", MARK_LATE, ((writer, late_since_us, now_us),)))
    return marks


def commit_groups(database: Database, marks: Sequence[StatementBatch], groups: Sequence[StatementBatch]) -> bool:
    """Run a transaction inside a write; False when its mark says that it was committed before."""
    if marks and not database.execute(marks[0].sql, marks[0].rows[0]).rowcount:
        return False
    for group in (*marks[1:], *groups):
        changed = database.execute_many(group.sql, group.rows)
        if group.exact and changed != len(group.rows):
            raise group.conflict(changed)
    return True


def gather(entries: Iterable[Sequence[Row]]) -> list[StatementBatch]:
    """Return the rows of all entries, grouped by statement."""
    rows_of: dict[Statement, list[tuple[Any, ...]]] = {}
    for rows in entries:
        for statement, params in rows:
            rows_of.setdefault(statement, []).append(params)
    groups: list[StatementBatch] = []
    for statement, params_list in rows_of.items():
        if statement.sums:
            params_list = _sum(params_list)
        elif statement.ordered:
            params_list.sort()
        if params_list:
            groups.append(StatementBatch(statement.name, statement.sql, params_list, statement.exact))
    return groups


def _sum(params: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    totals: dict[Any, int] = {}
    for idents, amount in params:
        for ident in idents:
            totals[ident] = totals.get(ident, 0) + amount
    return [(totals[ident], ident) for ident in sorted(totals)]


def forget_writers(database: Database, before_us: int) -> int:
    """Delete the marks of journals that wrote nothing since `before_us`; returns how many."""
    return database.change_rows("DELETE FROM journal WHERE at < ?", (before_us,))
