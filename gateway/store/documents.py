"""Opaque values with a life span, by kind and key, for what must outlive a process but is no record."""

from collections.abc import Callable, Mapping

from gateway.clock import SECOND_US, Clock
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

SWEEP_ROWS = 500
# A sweep ends after so many batches; the next one goes on.
SWEEP_BATCHES = 200


class Documents:
    """Life spans are seconds on the store's clock; a document past its end counts as absent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, kind: str, key: str) -> bytes | None:
        """The value, or None when there is none."""
        found = self._database.read(lambda: self._fetch(kind, key))
        if found:
            return bytes(found[0])
        return None

    def entries(self, kind: str, most: int = 1_000) -> list[tuple[str, bytes]]:
        """Key and value of those of a kind, in the order of their keys."""
        now = self._database.moment_sql()
        sql = f"SELECT key, value FROM document WHERE kind = ? AND expires_at > {now} ORDER BY key LIMIT ?"
        found = self._database.read(lambda: self._database.execute(sql, (kind, most)).fetchall())
        return [(key, bytes(value)) for key, value in found]

    def measure(self, kind: str) -> tuple[int, int]:
        """How many there are of a kind, and their bytes together; reads an entry of the index for each of that kind."""
        now = self._database.moment_sql()
        sql = f"SELECT count(*), coalesce(sum(length(value)), 0) FROM document WHERE kind = ? AND expires_at > {now}"
        count, size = self._database.read(lambda: self._database.execute(sql, (kind,)).fetchone())
        return int(count), int(size)

    def keys(self, kind: str, before: str, most: int = 1_000) -> list[str]:
        """The keys of a kind that sort before `before`, the first ones first."""
        now = self._database.moment_sql()
        sql = f"SELECT key FROM document WHERE kind = ? AND key < ? AND expires_at > {now} ORDER BY key LIMIT ?"
        return [
            key for (key,) in self._database.read(lambda: self._database.execute(sql, (kind, before, most)).fetchall())
        ]

    def put_if_absent(self, kind: str, key: str, value: bytes, ttl_s: float) -> bool:
        """Store unless a live document is there; whether this call stored it. Safe against every other worker."""
        sql = (
            f"{self._insert(ttl_s)} DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at "
            f"WHERE document.expires_at <= {self._database.moment_sql()}"
        )
        return self._change(sql, (kind, key, value))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float) -> None:
        """Store, in place of what was there."""
        sql = f"{self._insert(ttl_s)} DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
        self._change(sql, (kind, key, value))

    def delete(self, kind: str, key: str) -> bool:
        """Whether there was one, live or not."""
        return self._change("DELETE FROM document WHERE kind = ? AND key = ?", (kind, key))

    def sweep(self, bounds: Mapping[str, int], go_on: Callable[[], bool] = lambda: True) -> int:
        """Delete what expired and, by kind, the soonest to expire above `bounds` documents; how many went.

        Small transactions, so that no other writer waits long, while `go_on` says so.
        """
        # Asked twice: a document may be stored anew between the two, which the second question notices.
        gone = self._repeat(
            "WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?", (), None, go_on, "expires_at <= {now}"
        )
        for kind, bound in bounds.items():
            excess = self._count(kind) - bound
            if excess > 0:
                gone += self._repeat("WHERE kind = ? ORDER BY expires_at LIMIT ?", (kind,), excess, go_on)
        return gone

    def _fetch(self, kind: str, key: str) -> tuple | None:
        now = self._database.moment_sql()
        sql = f"SELECT value FROM document WHERE kind = ? AND key = ? AND expires_at > {now}"
        return self._database.execute(sql, (kind, key)).fetchone()

    def _insert(self, ttl_s: float) -> str:
        end = f"{self._database.moment_sql()} + {round(ttl_s * SECOND_US)}"
        return f"INSERT INTO document (kind, key, value, expires_at) VALUES (?, ?, ?, {end}) ON CONFLICT (kind, key)"

    def _change(self, sql: str, params: tuple) -> bool:
        return self._database.write(lambda: self._database.execute(sql, params).rowcount) > 0

    def _count(self, kind: str) -> int:
        sql = "SELECT count(*) FROM document WHERE kind = ?"
        return self._database.report(lambda: self._database.execute(sql, (kind,)).fetchone()[0])

    def _repeat(
        self, where: str, params: tuple, most: int | None, go_on: Callable[[], bool], still: str = "1 = 1"
    ) -> int:
        gone = 0
        for _ in range(SWEEP_BATCHES):
            if most is None:
                size = SWEEP_ROWS
            else:
                size = min(SWEEP_ROWS, most - gone)
            now = self._database.moment_sql()
            count = self._delete(where.format(now=now), still.format(now=now), (*params, size))
            gone += count
            if count < SWEEP_ROWS or not go_on():
                break
        return gone

    def _delete(self, where: str, still: str, params: tuple) -> int:
        sql = f"DELETE FROM document WHERE (kind, key) IN (SELECT kind, key FROM document {where}) AND {still}"
        return self._database.write(lambda: self._database.execute(sql, params).rowcount)


class DocumentRows:
    """Documents written and removed through the journal, in its group commits: no transaction of their own."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        # SQLite's clock is the process's; a server's own is asked where the row is written.
        self._local = database.kind == "sqlite"
        if self._local:
            end = "?"
        else:
            end = f"{database.moment_sql()} + ?"
        self._put = Statement(
            "document_put",
            f"INSERT INTO document (kind, key, value, expires_at) VALUES (?, ?, ?, {end}) "
            "ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at",
            ordered=True,
        )
        self._delete = Statement("document_delete", "DELETE FROM document WHERE kind = ? AND key = ?", ordered=True)

    def put(self, kind: str, key: str, value: bytes, ttl_s: float) -> Row:
        """The row that stores a document, in place of what was there."""
        if self._local:
            begin = self._clock.now_us()
        else:
            begin = 0
        return self._put, (kind, key, value, begin + round(ttl_s * SECOND_US))

    def delete(self, kind: str, key: str) -> Row:
        return self._delete, (kind, key)
