"""Usage records as rows: how they are written through the journal and found again by request id."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from gateway.metering.models import BASES, BYOK, SETTLEMENT
from gateway.store.database import Database
from gateway.store.journal import Row, Statement


class UsageRecord(NamedTuple):
    """A row of `usage`, in the order of its columns; see models.py for what they mean."""

    at: int
    posted_at: int
    cost_nusd: int
    input_nusd: int
    output_nusd: int
    cached_nusd: int
    cache_write_nusd: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int
    duration_ms: int
    ttft_ms: int
    attempt: int
    kind: int
    status: int
    mode: int
    basis: int
    flags: int
    request: bytes
    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes
    operation: str
    provider: str
    asked: str
    served: str
    source: str
    finish: str
    price_version: str
    error: str | None = None
    label: str | None = None
    extra: str | None = None
    storage_nusd: int | None = None
    discount_ppm: int | None = None
    discount_nusd: int | None = None

    @property
    def request_id(self) -> str:
        """32 hex digits."""
        return self.request.hex()

    @property
    def usage_basis(self) -> str:
        return BASES[self.basis]

    @property
    def byok(self) -> bool:
        return self.mode == BYOK

    @property
    def details(self) -> dict:
        """The rare counts and components, {} when there are none."""
        if self.extra:
            return orjson.loads(self.extra)
        return {}


COLUMNS = ", ".join(UsageRecord._fields)


def _insert(name: str, columns: tuple[str, ...]) -> Statement:
    """A second row of the same attempt refuses its whole entry, spends included: nothing is ever counted twice."""
    sql = f"INSERT INTO usage ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    return Statement(name, f"{sql} ON CONFLICT (request, attempt, kind) DO NOTHING", exact=True)


RECORD = _insert("usage", UsageRecord._fields)
# Of the last columns most rows have nothing; leaving them out makes writing a row a third cheaper.
PLAIN_COLUMNS = UsageRecord._fields[: -len(UsageRecord._field_defaults)]
PLAIN = _insert("plain usage", PLAIN_COLUMNS)
PLAIN_LENGTH = len(PLAIN_COLUMNS)
NOTHING_MORE = (None,) * len(UsageRecord._field_defaults)

# Which teams' limits a row counted against, besides those of its key and member.
TEAM = Statement("team_usage", "INSERT INTO team_usage (request, attempt, kind, team) VALUES (?, ?, ?, ?)")


def write_row(record: UsageRecord) -> Row:
    """The journal row of a record."""
    if record[PLAIN_LENGTH:] == NOTHING_MORE:
        return PLAIN, record[:PLAIN_LENGTH]
    # A plain tuple: SQLite's driver reads those, and no others, without asking each value for.
    return RECORD, record[:]


def write_teams(request: bytes, attempt: int, team_ids: Iterable[str]) -> list[Row]:
    """The journal rows, to follow a settlement's that cost something, that tell whose budgets paid too."""
    return [(TEAM, (request, attempt, SETTLEMENT, raw_id(team))) for team in team_ids]


def find(database: Database, request_id: str) -> list[UsageRecord]:
    """The records of a request by its id (32 hex digits), in the order of attempts; [] when it is unknown."""
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return []
    sql = f"SELECT {COLUMNS} FROM usage WHERE request = ? ORDER BY attempt, kind"
    rows = database.read(lambda: database.execute(sql, (request,)).fetchall())
    return [record_of_row(row) for row in rows]


def known(database: Database, keys: list[tuple[bytes, int]]) -> set[tuple[bytes, int]]:
    """Which attempts (request, number) have their settlement row; inside a read or write."""
    if not keys:
        return set()
    requests = list({request for request, _ in keys})
    sql = f"SELECT request, attempt FROM usage WHERE kind = ? AND request IN ({', '.join('?' * len(requests))})"
    found = database.execute(sql, (SETTLEMENT, *requests)).fetchall()
    return {(bytes(request), attempt) for request, attempt in found}


@functools.lru_cache(maxsize=16_384)
def raw_id(ident: str) -> bytes:
    """The 16 bytes of a prefixed id (key_0199…), b"" of an empty one."""
    return bytes.fromhex(ident.rpartition("_")[2])


def record_of_row(row: tuple) -> UsageRecord:
    """The record of a row of COLUMNS, as either driver gives it."""
    values: list[Any] = [bytes(value) if isinstance(value, memoryview) else value for value in row]
    return UsageRecord(*values)
