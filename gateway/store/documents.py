"""Opaque values with an expiry, by kind and key, for state that must outlive a process but is not a record."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gateway.clock import SECOND_US, Clock
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

SWEEP_ROWS = 500
# Bound of the batches of one sweep; the next sweep continues.
SWEEP_BATCHES = 200


class Documents:
    """Stores documents. Lifetimes are seconds on the store's clock; an expired document counts as absent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the value, or None when there is none."""
        now = self._database.moment_sql()
        sql = f"SELECT value FROM document WHERE kind = ? AND key = ? AND expires_at > {now}"
        row = self._database.query_row(sql, (kind, key))
        if row:
            return bytes(row[0])
        return None

    def entries(self, kind: str, maximum: int = 1_000) -> list[tuple[str, bytes]]:
        """Return key and value of the documents of a kind, ordered by key."""
        now = self._database.moment_sql()
        sql = f"SELECT key, value FROM document WHERE kind = ? AND expires_at > {now} ORDER BY key LIMIT ?"
        return [(key, bytes(value)) for key, value in self._database.query_rows(sql, (kind, maximum))]

    def measure(self, kind: str) -> tuple[int, int]:
        """Return the number of documents of a kind and their total bytes; reads one index entry for each of them."""
        now = self._database.moment_sql()
        sql = f"SELECT count(*), coalesce(sum(length(value)), 0) FROM document WHERE kind = ? AND expires_at > {now}"
        count, size = self._database.query_row(sql, (kind,))
        return int(count), int(size)

    def keys(self, kind: str, before: str, maximum: int = 1_000) -> list[str]:
        """Return the first keys of a kind that sort before `before`, in order."""
        now = self._database.moment_sql()
        sql = f"SELECT key FROM document WHERE kind = ? AND key < ? AND expires_at > {now} ORDER BY key LIMIT ?"
        return [key for (key,) in self._database.query_rows(sql, (kind, before, maximum))]

    def present(self, kind: str, keys: Sequence[str]) -> set[str]:
        """Return those of `keys` that have a document."""
        now = self._database.moment_sql()
        places = ", ".join("?" * len(keys))
        sql = f"SELECT key FROM document WHERE kind = ? AND key IN ({places}) AND expires_at > {now}"
        return {key for (key,) in self._database.query_rows(sql, (kind, *keys))}

    def put_if_absent(self, kind: str, key: str, value: bytes, ttl_s: float) -> bool:
        """Store unless a live document exists; returns whether this call stored it. Atomic among all workers."""
        sql = (
            f"{self._insert(ttl_s)} DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at "
            f"WHERE document.expires_at <= {self._database.moment_sql()}"
        )
        return self._change(sql, (kind, key, value))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float) -> None:
        """Store a document, replacing an existing one."""
        sql = f"{self._insert(ttl_s)} DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
        self._change(sql, (kind, key, value))

    def replace(self, kind: str, key: str, value: bytes, by: bytes, ttl_s: float) -> bool:
        """Store `by` if the document is still `value`; returns whether it was. Atomic among all workers."""
        end = f"{self._database.moment_sql()} + {round(ttl_s * SECOND_US)}"
        sql = f"UPDATE document SET value = ?, expires_at = {end} WHERE kind = ? AND key = ? AND value = ?"
        return self._change(sql, (by, kind, key, value))

    def delete(self, kind: str, key: str) -> bool:
        """Delete a document; returns whether there was one, live or expired."""
        return self._change("DELETE FROM document WHERE kind = ? AND key = ?", (kind, key))

    def sweep(self, bounds: Mapping[str, int], should_continue: ShouldContinue = always) -> int:
        """Delete expired documents and, by kind, the earliest to expire above `bounds`; returns how many.

        Works in small transactions while `should_continue()`, so that other writers do not wait long.
        """
        # The condition is repeated in the DELETE: a document may be renewed after the subquery selected it.
        deleted = self._repeat(
            "WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?", (), None, should_continue, "expires_at <= {now}"
        )
        for kind, bound in bounds.items():
            excess = self._count(kind) - bound
            if excess > 0:
                deleted += self._repeat("WHERE kind = ? ORDER BY expires_at LIMIT ?", (kind,), excess, should_continue)
        return deleted

    def _insert(self, ttl_s: float) -> str:
        end = f"{self._database.moment_sql()} + {round(ttl_s * SECOND_US)}"
        return f"INSERT INTO document (kind, key, value, expires_at) VALUES (?, ?, ?, {end}) ON CONFLICT (kind, key)"

    def _change(self, sql: str, params: tuple[Any, ...]) -> bool:
        return self._database.change_rows(sql, params) > 0

    def _count(self, kind: str) -> int:
        sql = "SELECT count(*) FROM document WHERE kind = ?"
        count: int = self._database.report(partial(self._database.fetch, sql, (kind,)))[0][0]
        return count

    def _repeat(
        self,
        where: str,
        params: tuple[Any, ...],
        maximum: int | None,
        should_continue: ShouldContinue,
        still: str = "1 = 1",
    ) -> int:
        deleted = 0
        for _ in range(SWEEP_BATCHES):
            size = SWEEP_ROWS if maximum is None else min(SWEEP_ROWS, maximum - deleted)
            now = self._database.moment_sql()
            count = self._delete(where.format(now=now), still.format(now=now), (*params, size))
            deleted += count
            if count < SWEEP_ROWS or not should_continue():
                break
        return deleted

    def _delete(self, where: str, still: str, params: tuple[Any, ...]) -> int:
        sql = f"DELETE FROM document WHERE (kind, key) IN (SELECT kind, key FROM document {where}) AND {still}"
        return self._database.change_rows(sql, params)


class DocumentRows:
    """Journal rows that write and delete documents in the journal's group commits, without further transactions."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        # SQLite has the clock of this process; a server's clock is read when the row is written.
        self._local = database.kind == "sqlite"
        end = "?" if self._local else f"{database.moment_sql()} + ?"
        self._put = Statement(
            "document_put",
            f"INSERT INTO document (kind, key, value, owner, expires_at) VALUES (?, ?, ?, ?, {end}) ON CONFLICT (kind, "
            "key) DO UPDATE SET value = excluded.value, owner = excluded.owner, expires_at = excluded.expires_at",
            ordered=True,
        )
        self._delete = Statement("document_delete", "DELETE FROM document WHERE kind = ? AND key = ?", ordered=True)

    def put(self, kind: str, key: str, value: bytes, ttl_s: float, owner: str | None = None) -> Row:
        """Return the row that stores a document, replacing an existing one; `owner` is its organization."""
        begin = self._clock.now_us() if self._local else 0
        return self._put, (kind, key, value, owner, begin + round(ttl_s * SECOND_US))

    def delete(self, kind: str, key: str) -> Row:
        return self._delete, (kind, key)
