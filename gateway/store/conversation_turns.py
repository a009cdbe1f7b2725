"""Turns of conversations: each row holds the new content of a turn and refers to the previous turn.

Large pieces are stored once per organization and counted by the turns that use them. An expired turn is no longer found
but stays while later turns need it; it is removed with the last of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from gateway.clock import SECOND_US
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database

DIGEST_BYTES = 16
ROW_BYTES = 256  # approximate size of a row besides its payload
DIGESTS_PER_STATEMENT = 500
# Turns that a transaction of the sweep removes, and transactions of a round.
SWEEP_ROWS = 100
SWEEP_BATCHES = 100


class StoredTurn(NamedTuple):
    """A turn to store. `digests` are the distinct digests of its pieces; `raw_bytes` is the size of its content."""

    ident: str
    organization: str
    scope: str
    previous: str
    digests: tuple[bytes, ...]
    body: bytes
    raw_bytes: int


class Link(NamedTuple):
    """A stored turn without its payload. `chain_bytes` is the content size of all turns up to this one."""

    ident: str
    organization: str
    scope: str
    turns: int
    chain_bytes: int


class PreviousGone(Exception):
    """The previous turn no longer exists."""


class PiecesGone(Exception):
    """Pieces that existed have been removed meanwhile and must be sent again."""


class StorageFull(Exception):
    """The organization has used up its storage."""


class Turns:
    """Stores and reads turns. Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def total(self, organization: str) -> int:
        """Return the bytes that the organization's turns use."""
        return self._database.read(partial(self._total, organization))

    def known(self, organization: str, digests: Sequence[bytes]) -> set[bytes]:
        """Return the digests of stored pieces."""
        return {digest for digest, _ in self._select("stored_piece", "uses", organization, digests)}

    def add(self, turn: StoredTurn, pieces: Mapping[bytes, bytes], life_s: float, max_bytes: int) -> None:
        """Store a turn; `pieces` are the values that are not stored yet. PreviousGone, PiecesGone or NoRoom, when
        nothing is stored."""
        self._database.write(partial(self._add, turn, pieces, life_s, max_bytes))

    def find(self, ident: str) -> Link | None:
        """Return the turn unless it has expired."""
        sql = (
            "SELECT id, organization, scope, turns, chain_bytes FROM stored_response "
            f"WHERE id = ? AND expires_at > {self._database.moment_sql()}"
        )
        row = self._database.query_row(sql, (ident,))
        if row:
            return Link(*row)
        return None

    def own_bytes(self, ident: str) -> int:
        """Return the content size of one turn."""
        sql = (
            "SELECT turn.chain_bytes - coalesce(before.chain_bytes, 0) FROM stored_response turn "
            "LEFT JOIN stored_response before ON before.id = turn.previous WHERE turn.id = ?"
        )
        row = self._database.query_row(sql, (ident,))
        if row:
            return max(0, int(row[0]))
        return 0

    def chain(self, ident: str, maximum: int) -> list[tuple[str, bytes]]:
        """Return (id, body) of a turn and the turns before it, oldest first; at most the last `maximum`."""
        sql = (
            "WITH RECURSIVE chain (id, previous, place) AS ("
            "SELECT id, previous, 1 FROM stored_response WHERE id = ? UNION ALL "
            "SELECT turn.id, turn.previous, chain.place + 1 FROM stored_response turn "
            "JOIN chain ON turn.id = chain.previous WHERE chain.place < ?) "
            "SELECT turn.id, turn.body FROM chain JOIN stored_response turn ON turn.id = chain.id "
            "ORDER BY chain.place DESC"
        )
        rows = self._database.report(partial(self._database.fetch, sql, (ident, maximum)))
        return [(name, bytes(body)) for name, body in rows]

    def values(self, organization: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored pieces by digest."""
        return dict(self._select("stored_value", "value", organization, digests))

    def end(self, ident: str) -> None:
        """Expire a turn now; its content stays while later turns need it."""

        def work() -> None:
            self._database.execute("UPDATE stored_response SET expires_at = 0 WHERE id = ?", (ident,))
            self._remove(ident, SWEEP_ROWS)

        self._database.write(work)

    def sweep(self, should_continue: ShouldContinue = always) -> int:
        """Remove expired turns that no later turn needs and return how many, in small transactions while
        `should_continue()`."""
        removed = 0
        for _ in range(SWEEP_BATCHES):
            count = self._database.write(self._sweep)
            removed += count
            if not count or not should_continue():
                break
        return removed

    def _total(self, organization: str) -> int:
        sql = "SELECT bytes FROM stored_total WHERE organization = ?"
        row = self._database.execute(sql, (organization,)).fetchone()
        if row:
            total: int = row[0]
            return total
        return 0

    def _select(
        self, table: str, column: str, organization: str, digests: Sequence[bytes]
    ) -> list[tuple[bytes, bytes]]:
        matches: list[tuple[bytes, bytes]] = []
        for first in range(0, len(digests), DIGESTS_PER_STATEMENT):
            some = digests[first : first + DIGESTS_PER_STATEMENT]
            sql = (
                f"SELECT digest, {column} FROM {table} WHERE organization = ? "
                f"AND digest IN ({', '.join('?' * len(some))})"
            )
            rows = self._database.report(partial(self._database.fetch, sql, (organization, *some)))
            matches += [(bytes(digest), bytes(value) if column == "value" else b"") for digest, value in rows]
        return matches

    def _add(self, turn: StoredTurn, pieces: Mapping[bytes, bytes], life_s: float, max_bytes: int) -> None:
        turns, chain_bytes = self._follow(turn.previous)
        size = len(turn.body) + ROW_BYTES
        # Sorted, so that two transactions with the same pieces cannot deadlock.
        added = sum(self._hold(turn.organization, digest, pieces) for digest in sorted(turn.digests))
        if self._count(turn.organization, size + added) > max_bytes > 0:
            raise StorageFull
        self._database.execute(
            "INSERT INTO stored_response "
            "(id, organization, scope, previous, turns, chain_bytes, size, children, pieces, body, expires_at) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, {self._database.moment_sql()} + {round(life_s * SECOND_US)})",
            (
                turn.ident,
                turn.organization,
                turn.scope,
                turn.previous,
                turns + 1,
                chain_bytes + turn.raw_bytes,
                size,
                b"".join(turn.digests),
                turn.body,
            ),
        )

    def _follow(self, previous: str) -> tuple[int, int]:
        """Count one more child of the previous turn; returns its number of turns and bytes up to it."""
        if not previous:
            return 0, 0
        sql = "UPDATE stored_response SET children = children + 1 WHERE id = ?"
        if not self._database.execute(sql, (previous,)).rowcount:
            raise PreviousGone
        sql = "SELECT turns, chain_bytes FROM stored_response WHERE id = ?"
        row: tuple[int, int] = self._database.execute(sql, (previous,)).fetchone()
        return row

    def _hold(self, organization: str, digest: bytes, pieces: Mapping[bytes, bytes]) -> int:
        """Count one more use of a piece and store it if it is new; returns the bytes that this adds."""
        run = self._database.execute
        sql = "UPDATE stored_piece SET uses = uses + 1 WHERE organization = ? AND digest = ?"
        if run(sql, (organization, digest)).rowcount:
            return 0
        value = pieces.get(digest)
        if value is None:
            raise PiecesGone
        # When two transactions add the same piece, the second waits for the first and then counts one more use.
        sql = (
            "INSERT INTO stored_piece (organization, digest, uses, size) VALUES (?, ?, 1, ?) "
            "ON CONFLICT (organization, digest) DO UPDATE SET uses = stored_piece.uses + 1"
        )
        run(sql, (organization, digest, len(value)))
        sql = "INSERT INTO stored_value (organization, digest, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if run(sql, (organization, digest, value)).rowcount:
            return len(value)
        return 0

    def _count(self, organization: str, change: int) -> int:
        sql = (
            "INSERT INTO stored_total (organization, bytes) VALUES (?, ?) "
            "ON CONFLICT (organization) DO UPDATE SET bytes = stored_total.bytes + excluded.bytes"
        )
        self._database.execute(sql, (organization, change))
        return self._total(organization)

    def _sweep(self) -> int:
        sql = (
            "SELECT id FROM stored_response WHERE children = 0 "
            f"AND expires_at <= {self._database.moment_sql()} LIMIT {SWEEP_ROWS}"
        )
        removed = 0
        for (ident,) in self._database.execute(sql).fetchall():
            removed += self._remove(ident, SWEEP_ROWS - removed)
        return removed

    def _remove(self, ident: str, maximum: int) -> int:
        """Remove an expired turn without children, then its predecessors likewise; returns how many."""
        find = (
            "SELECT organization, previous, size, pieces FROM stored_response "
            f"WHERE id = ? AND children = 0 AND expires_at <= {self._database.moment_sql()}"
        )
        delete = "DELETE FROM stored_response WHERE id = ? AND children = 0"
        removed = 0
        while ident and removed < maximum:
            row = self._database.execute(find, (ident,)).fetchone()
            if row is None or not self._database.execute(delete, (ident,)).rowcount:
                break
            organization, previous, size, pieces = row
            freed = size + self._release(organization, bytes(pieces))
            self._count(organization, -freed)
            self._database.execute("UPDATE stored_response SET children = children - 1 WHERE id = ?", (previous,))
            ident = previous
            removed += 1
        return removed

    def _release(self, organization: str, pieces: bytes) -> int:
        """Count one use less of each piece and delete unused ones; returns the bytes that this frees."""
        run = self._database.execute
        freed = 0
        for digest in sorted(cut(pieces)):
            place = (organization, digest)
            run("UPDATE stored_piece SET uses = uses - 1 WHERE organization = ? AND digest = ?", place)
            sql = "SELECT size FROM stored_piece WHERE organization = ? AND digest = ? AND uses <= 0"
            unused = run(sql, place).fetchone()
            if unused is not None:
                run("DELETE FROM stored_piece WHERE organization = ? AND digest = ?", place)
                run("DELETE FROM stored_value WHERE organization = ? AND digest = ?", place)
                freed += unused[0]
        return freed


def cut(digests: bytes) -> Iterable[bytes]:
    """Split joined digests."""
    return (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
