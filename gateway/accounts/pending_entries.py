"""Room in tables of pending entries that everyone shares, such as device codes: each network has a share, and the
oldest unclaimed entries are removed first."""

from msgspec import Struct

from gateway.accounts.tokens import hash_token
from gateway.store.database import Database
from gateway.transport.addresses import wide_network_of

SHARES = 20  # of a table; a network has one of them
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
    share = max(1, maximum // SHARES)
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
