"""Attempts that are counted, so that guessing passwords and codes is slow; shared by all workers through the store."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from gateway.callers.tokens import hash_token
from gateway.clock import SECOND_US
from gateway.errors import RateLimited
from gateway.store.database import Database
from gateway.transport.addresses import network_of, wide_network_of

# Room in tables of pending entries that everyone shares, such as device codes: each network has a share, and the
# oldest unclaimed entries are removed first.

TABLE_SHARES = 20  # of a table; a network has one of them
BATCHES = 100  # of a full table; one of them is removed at once


class PendingTable(Struct, frozen=True):
    """A table with a column `network`. `unclaimed` is the SQL condition of entries that may give way, `age` the column
    that orders them."""

    name: str
    key: str
    age: str
    unclaimed: str


def network_hash(peer: str, hash_key: bytes) -> str:
    """Return the network of a client address as it is stored: the table holds no addresses."""
    return hash_token(f"network\n{wide_network_of(peer)}", hash_key)


def make_room(database: Database, table: PendingTable, network: str, maximum: int) -> bool:
    """Make room for one more entry of a network, within a transaction; return whether there is room now.

    A network that has used its share loses its oldest unclaimed entries. Of a full table those are removed that have
    the most newer entries of the same network, so that a flood from many networks removes its own entries first.
    """
    name, key, age = table.name, table.key, table.age
    share = max(1, maximum // TABLE_SHARES)
    own = f"SELECT {key} FROM {name} WHERE network = ? AND {table.unclaimed}"
    count = database.execute(f"SELECT COUNT(*) FROM ({own}) AS own", (network,)).fetchone()[0]
    if count >= share:
        oldest = f"DELETE FROM {name} WHERE {key} IN ({own} ORDER BY {age} LIMIT ?)"
        database.execute(oldest, (network, count - share + 1))
    if database.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] < maximum:
        return True
    ranked = (
        f"SELECT {key}, {age}, ROW_NUMBER() OVER (PARTITION BY network ORDER BY {age} DESC) AS newer "
        f"FROM {name} WHERE {table.unclaimed}"
    )
    chosen = f"SELECT {key} FROM ({ranked}) AS ranked ORDER BY newer DESC, {age} LIMIT ?"
    sql = f"DELETE FROM {name} WHERE {key} IN ({chosen})"
    return database.execute(sql, (max(1, maximum // BATCHES),)).rowcount > 0


COUNT_ATTEMPT = """INSERT INTO attempt (subject, count, ends_at) VALUES (?, 1, ?) ON CONFLICT (subject) DO UPDATE SET
count = CASE WHEN attempt.ends_at <= ? THEN 1 ELSE attempt.count + 1 END,
ends_at = CASE WHEN attempt.ends_at <= ? THEN excluded.ends_at ELSE attempt.ends_at END
RETURNING count, ends_at"""


class ThrottleGate(Struct, frozen=True):
    """At most `maximum` attempts of `subject` at `action` in a window of `span_s` seconds from the first one. An IPv6
    address counts by its network. `refusal` is the error message for further attempts, "" for the default message."""

    action: str
    subject: str
    maximum: int
    span_s: int
    refusal: str = ""
    code: str = "too_many_attempts"


class Throttle:
    """Counters by keyed hash: the store holds neither addresses nor names of who tried."""

    def __init__(self, database: Database, hash_key: bytes) -> None:
        self._database = database
        self._hash_key = hash_key

    def take(self, *gates: ThrottleGate) -> None:
        """Count one attempt at each of the gates. RateLimited (with the seconds to wait) when one of them is full.

        The count itself decides, so that no burst of attempts slips through; a full gate is only read.
        """
        now = self._database.now_us()
        for gate in gates:
            count, ends_at = self._database.read(partial(self._read, gate))
            if count >= gate.maximum and ends_at > now:
                raise _full(gate, ends_at - now)
        counts = self._database.write(partial(self._count, gates, now))
        for counted, (count, ends_at) in zip(gates, counts, strict=True):
            if count > counted.maximum:
                raise _full(counted, ends_at - now)

    def forgive(self, *gates: ThrottleGate) -> None:
        """Undo the count of `take` after a successful attempt."""
        sql = "UPDATE attempt SET count = count - 1 WHERE subject = ? AND count > 0"
        self._database.write(lambda: [self._database.execute(sql, (self._name(gate),)) for gate in gates])

    def _count(self, gates: Sequence[ThrottleGate], now: int) -> list[tuple[int, int]]:
        """Count and end of the window of each gate, this attempt included; windows that are over are forgotten."""
        self._database.execute("DELETE FROM attempt WHERE ends_at <= ?", (now,))
        rows = [(self._name(gate), now + gate.span_s * SECOND_US, now, now) for gate in gates]
        return [self._database.execute(COUNT_ATTEMPT, row).fetchone() for row in rows]

    def _read(self, gate: ThrottleGate) -> tuple[int, int]:
        sql = "SELECT count, ends_at FROM attempt WHERE subject = ?"
        return self._database.execute(sql, (self._name(gate),)).fetchone() or (0, 0)

    def _name(self, gate: ThrottleGate) -> str:
        return hash_token(f"{gate.action}\n{network_of(gate.subject)}", self._hash_key)


def _full(gate: ThrottleGate, wait_us: int) -> RateLimited:
    return RateLimited(
        gate.refusal or f"Too many attempts ({gate.action}); wait and try again.",
        code=gate.code,
        retry_after=wait_us / SECOND_US,
    )
