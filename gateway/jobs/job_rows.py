"""The rows of jobs: their states, and how workers find, claim, change and delete them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from gateway.callers.authentication import Caller
from gateway.clock import DAY_US
from gateway.errors import Internal
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

EVENT_PREFIX = "evt_"
CALLBACK_TABLE = "job_callback"  # of all kinds but videos, which have one of their own
BATCH_SIZE = 500  # rows that one transaction deletes


class JobTransitions(dict[tuple[str, str], str]):
    """(state, event) → state of a `kind` of job. An unlisted transition is a programming error."""

    def __init__(self, kind: str, transitions: dict[tuple[str, str], str]) -> None:
        super().__init__(transitions)
        self._kind = kind

    def __missing__(self, transition: tuple[str, str]) -> str:
        raise Internal(f"A {self._kind} in the state {transition[0]} does not support {transition[1]}.")


class OwnedRow(Protocol):
    """A row that belongs to a key of a project."""

    @property
    def project(self) -> str: ...
    @property
    def api_key(self) -> str: ...


class JobRow(OwnedRow, Protocol):
    """The columns that the rows of every kind have, a named tuple in the order of its columns. Times are microseconds;
    `due_at` is when a worker continues the job, None after its end."""

    @property
    def id(self) -> str: ...
    @property
    def organization(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def due_at(self) -> int | None: ...


class JobOwner(NamedTuple):
    """The owner of visible jobs and files: all keys of a project, or only one key of it."""

    project: str
    api_key: str = ""

    def owns(self, row: OwnedRow) -> bool:
        return row.project == self.project and self.api_key in ("", row.api_key)


def owner_of(caller: Caller) -> JobOwner:
    """Return the owner of the jobs that a caller may see: the project, or for a customer's key that key alone."""
    return JobOwner(caller.project_id, "" if caller.key_kind == "user" else caller.key_id)


def lock_organization(database: Database, organization: str) -> None:
    """Let other writes that call this for the same organization wait until the end of this one."""
    if database.kind == "postgresql":  # SQLite has one writer
        database.execute("SELECT 1 FROM organization WHERE id = ? FOR NO KEY UPDATE", (organization,)).fetchone()


J = TypeVar("J", bound=JobRow)


class JobRows(Generic[J]):
    """All jobs of one kind. Every method may raise Unavailable; `change` and `delete` run inside a write.

    `table` is that of the jobs, `callbacks` that of their callbacks. `hidden` is the state of jobs that lists leave
    out, because they may still be removed; `unread` are columns that are long and not needed to continue a job.
    """

    def __init__(
        self,
        database: Database,
        row: type[J],
        table: str,
        callbacks: str,
        hidden: str = "",
        unread: Iterable[str] = (),
    ) -> None:
        self.database = database
        self._row = row
        self._table = table
        self._hidden = hidden
        columns: tuple[str, ...] = cast(Any, row)._fields
        listed = ", ".join(columns)
        self._select = f"SELECT {listed} FROM {table}"
        short = ", ".join(f"'' AS {name}" if name in unread else name for name in columns)
        self._select_short = f"SELECT {short} FROM {table}"
        self._due = f"""SELECT {short} FROM {table} JOIN (
    SELECT id AS due, ROW_NUMBER() OVER (PARTITION BY organization ORDER BY due_at) AS place
    FROM {table} WHERE due_at IS NOT NULL AND due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""
        self._insert = Statement(
            f"{table}_insert", f"INSERT INTO {table} ({listed}) VALUES ({', '.join('?' * len(columns))})"
        )
        self._delete_callback = Statement(f"{callbacks}_delete", f"DELETE FROM {callbacks} WHERE id = ?")
        self._delete_job = Statement(f"{table}_delete", f"DELETE FROM {table} WHERE id = ?")

    def insert_rows(self, job: J) -> list[Row]:
        """Return the rows that insert a job."""
        return [(self._insert, cast(tuple[Any, ...], job))]

    def delete_rows(self, ident: str) -> list[Row]:
        """Return the rows that delete a job and its callback, if they exist."""
        return [(self._delete_callback, (EVENT_PREFIX + ident,)), (self._delete_job, (ident,))]

    def count_unended(self, organization: str) -> int:
        """Return how many jobs of an organization have not ended; inside a write. Until its end, the next write that
        counts them waits here: two jobs that are begun at the same time would not count each other."""
        lock_organization(self.database, organization)
        sql = f"SELECT COUNT(*) FROM {self._table} WHERE organization = ? AND due_at IS NOT NULL"
        return int(self.database.execute(sql, (organization,)).fetchone()[0])

    def change(self, job: J, **values: Any) -> J | None:
        """Set columns of a job with unchanged state and `due_at`; None when another worker changed it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {self._table} SET {columns} WHERE id = ? AND state = ?"
        params = [*values.values(), job.id, job.state]
        if job.due_at is not None:
            sql = f"{sql} AND due_at = ?"
            params = [*params, job.due_at]
        changed: int = self.database.execute(sql, params).rowcount
        if changed:
            moved: J = cast(Any, job)._replace(**values)
            return moved
        return None

    def delete(self, ident: str) -> None:
        """Delete a job and its callback, if they exist."""
        for statement, params in self.delete_rows(ident):
            self.database.execute(statement.sql, params)

    def find(self, ident: str) -> J | None:
        return next(iter(self._all(f"{self._select} WHERE id = ?", (ident,))), None)

    def page(self, owner: JobOwner, after: str, limit: int, newest_first: bool, short: bool = False) -> list[J]:
        """Return up to `limit` jobs of an owner that follow `after` ("": from the start) in the order of their
        creation; `short`: without the long columns."""
        if newest_first:
            order, sign = ("DESC", "<")
        else:
            order, sign = ("ASC", ">")
        conditions = "project = ? AND state <> ? "
        params = [owner.project, self._hidden]
        if owner.api_key:
            conditions = f"{conditions}AND api_key = ? "
            params = [*params, owner.api_key]
        if after:
            conditions = f"{conditions}AND id {sign} ? "
            params = [*params, after]
        select = self._select_short if short else self._select
        return self._all(f"{select} WHERE {conditions}ORDER BY id {order} LIMIT ?", (*params, limit))

    def due(self, now_us: int, of_one: int, limit: int) -> list[J]:
        """Return jobs that are due, at most `of_one` per organization. Organizations take turns (first the oldest job
        of each, then the second of each), so that none takes all places."""
        return self._all(self._due, (now_us, of_one, limit))

    def purge(self, now_us: int, days: int) -> int:
        """Delete some jobs, with their callbacks, that ended more than `days` days ago; return how many."""

        def work() -> int:
            sql = f"SELECT id FROM {self._table} WHERE completed_at IS NOT NULL AND completed_at < ? LIMIT ?"
            rows = self.database.fetch(sql, (now_us - days * DAY_US, BATCH_SIZE))
            for (ident,) in rows:
                self.delete(ident)
            return len(rows)

        return self.database.write(work)

    def _all(self, sql: str, params: Sequence[Any]) -> list[J]:
        return [self._row(*row) for row in self.database.read(partial(self.database.fetch, sql, params))]
