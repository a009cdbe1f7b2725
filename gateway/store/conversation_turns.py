"""Turns of conversations: each row holds what is new in it and names the turn before; large pieces are stored once an
organization and counted by the turns that hold them.

A turn past its end is not found any more, yet stays while later turns need it; it goes with the last of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.clock import SECOND_US
from gateway.store.database import Database

DIGEST_BYTES = 16
ROW_BYTES = 256  # what a row takes beside its payload, roughly
AT_ONCE = 500  # digests in one statement
# A transaction of the sweep removes so many turns, a round has so many of them.
SWEEP_ROWS = 100
SWEEP_BATCHES = 100


class StoredTurn(NamedTuple):
    """A turn to be stored. `digests` are those of its pieces, each once; `raw_bytes` the size of what it says."""

    ident: str
    organization: str
    scope: str
    previous: str
    digests: tuple[bytes, ...]
    body: bytes
    raw_bytes: int


class Link(NamedTuple):
    """A stored turn without its payload. `chain_bytes` is what all turns up to it say."""

    ident: str
    organization: str
    scope: str
    turns: int
    chain_bytes: int


class PreviousGone(Exception):
    """The turn before is not there any more."""


class PiecesGone(Exception):
    """Pieces that were there have gone: they must be given."""


class NoRoom(Exception):
    """The organization holds as much as it may."""


class Turns:
    """Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def total(self, organization: str) -> int:
        """The bytes that the organization's turns take."""
        return self._database.read(lambda: self._total(organization))

    def known(self, organization: str, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these pieces are there."""
        return {digest for digest, _ in self._select("stored_piece", "uses", organization, digests)}

    def add(self, turn: StoredTurn, pieces: Mapping[bytes, bytes], life_s: float, most_bytes: int) -> None:
        """Store a turn; `pieces` are the values of those that are not there yet. PreviousGone, PiecesGone or NoRoom,
        and nothing is stored."""
        self._database.write(lambda: self._add(turn, pieces, life_s, most_bytes))

    def find(self, ident: str) -> Link | None:
        """The turn, unless it is past its end."""
        sql = (
            "SELECT id, organization, scope, turns, chain_bytes FROM stored_response "
            f"WHERE id = ? AND expires_at > {self._database.moment_sql()}"
        )
        row = self._database.read(lambda: self._database.execute(sql, (ident,)).fetchone())
        if row:
            return Link(*row)
        return None

    def chain(self, ident: str, most: int) -> list[tuple[str, bytes]]:
        """(id, body) of a turn and of those before it, the oldest first; at most the last `most` of them."""
        sql = (
            "WITH RECURSIVE chain (id, previous, place) AS ("
            "SELECT id, previous, 1 FROM stored_response WHERE id = ? UNION ALL "
            "SELECT turn.id, turn.previous, chain.place + 1 FROM stored_response turn "
            "JOIN chain ON turn.id = chain.previous WHERE chain.place < ?) "
            "SELECT turn.id, turn.body FROM chain JOIN stored_response turn ON turn.id = chain.id "
            "ORDER BY chain.place DESC"
        )
        rows = self._database.report(lambda: self._database.execute(sql, (ident, most)).fetchall())
        return [(name, bytes(body)) for name, body in rows]

    def values(self, organization: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The pieces of these digests."""
        return dict(self._select("stored_value", "value", organization, digests))

    def end(self, ident: str) -> None:
        """Forget a turn now; what it says stays while later turns need it."""

        def work() -> None:
            self._database.execute("UPDATE stored_response SET expires_at = 0 WHERE id = ?", (ident,))
            self._remove(ident, SWEEP_ROWS)

        self._database.write(work)

    def sweep(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Remove turns that are past their end and that no later one needs; how many. In small transactions, while
        `go_on` says so."""
        gone = 0
        for _ in range(SWEEP_BATCHES):
            count = self._database.write(self._sweep)
            gone += count
            if not count or not go_on():
                break
        return gone

    def _total(self, organization: str) -> int:
        sql = "SELECT bytes FROM stored_total WHERE organization = ?"
        row = self._database.execute(sql, (organization,)).fetchone()
        if row:
            return row[0]
        return 0

    def _select(
        self, table: str, column: str, organization: str, digests: Sequence[bytes]
    ) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for first in range(0, len(digests), AT_ONCE):
            some = digests[first : first + AT_ONCE]
            sql = (
                f"SELECT digest, {column} FROM {table} WHERE organization = ? "
                f"AND digest IN ({', '.join('?' * len(some))})"
            )
            rows = self._database.report(partial(self._fetch, sql, (organization, *some)))
            found += [(bytes(digest), bytes(value) if column == "value" else b"") for digest, value in rows]
        return found

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, params).fetchall()

    def _add(self, turn: StoredTurn, pieces: Mapping[bytes, bytes], life_s: float, most_bytes: int) -> None:
        turns, chain_bytes = self._follow(turn.previous)
        size = len(turn.body) + ROW_BYTES
        # In one order, so that two transactions with the same pieces do not wait for each other.
        added = sum(self._hold(turn.organization, digest, pieces) for digest in sorted(turn.digests))
        if self._count(turn.organization, size + added) > most_bytes > 0:
            raise NoRoom
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
        """Count one more turn that needs the one before; how many turns and bytes that one ends."""
        if not previous:
            return 0, 0
        sql = "UPDATE stored_response SET children = children + 1 WHERE id = ?"
        if not self._database.execute(sql, (previous,)).rowcount:
            raise PreviousGone
        sql = "SELECT turns, chain_bytes FROM stored_response WHERE id = ?"
        return self._database.execute(sql, (previous,)).fetchone()

    def _hold(self, organization: str, digest: bytes, pieces: Mapping[bytes, bytes]) -> int:
        """Count one more use of a piece, stored if it is new; the bytes that this adds."""
        run = self._database.execute
        sql = "UPDATE stored_piece SET uses = uses + 1 WHERE organization = ? AND digest = ?"
        if run(sql, (organization, digest)).rowcount:
            return 0
        value = pieces.get(digest)
        if value is None:
            raise PiecesGone
        # Two that bring the same new piece: the second one waits for the first and counts.
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
        gone = 0
        for (ident,) in self._database.execute(sql).fetchall():
            gone += self._remove(ident, SWEEP_ROWS - gone)
        return gone

    def _remove(self, ident: str, most: int) -> int:
        """Remove a turn past its end that no other needs, and likewise those before it; how many went."""
        find = (
            "SELECT organization, previous, size, pieces FROM stored_response "
            f"WHERE id = ? AND children = 0 AND expires_at <= {self._database.moment_sql()}"
        )
        gone = 0
        while ident and gone < most:
            row = self._database.execute(find, (ident,)).fetchone()
            if (
                row is None
                or not self._database.execute(
                    "DELETE FROM stored_response WHERE id = ? AND children = 0", (ident,)
                ).rowcount
            ):
                break
            organization, previous, size, pieces = row
            freed = size + self._release(organization, bytes(pieces))
            self._count(organization, -freed)
            self._database.execute("UPDATE stored_response SET children = children - 1 WHERE id = ?", (previous,))
            ident = previous
            gone = gone + 1
        return gone

    def _release(self, organization: str, pieces: bytes) -> int:
        """Count one use less of each piece; those without any go. The bytes that this frees."""
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
    """Digests that were joined, one by one."""
    return (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
