"""Usage records as rows: how they are written through the journal, and read by request id."""

import functools
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import orjson

from gateway.clock import SECOND_US
from gateway.metering.models import BASES, BYOK, SETTLEMENT
from gateway.store.database import Database
from gateway.store.journal import Row, Statement


class UsageRecord(NamedTuple):
    """A row of `usage`, in the order of its columns; models.py describes them. `teams`, which only the reconciliation
    reads, is written beside it."""

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
    decision: bytes | None = None
    error: str | None = None
    label: str | None = None
    extra: str | None = None
    storage_nusd: int | None = None
    discount_ppm: int | None = None
    discount_nusd: int | None = None
    session: str | None = None
    tags: str | None = None

    @property
    def request_id(self) -> str:
        """The id as 32 hex digits."""
        return self.request.hex()

    @property
    def usage_basis(self) -> str:
        return BASES[self.basis]

    @property
    def byok(self) -> bool:
        return self.mode == BYOK

    @property
    def details(self) -> dict[str, Any]:
        """The rare counts and cost components, {} if there are none."""
        if self.extra:
            decoded: dict[str, Any] = orjson.loads(self.extra)
            return decoded
        return {}


COLUMNS = ", ".join(UsageRecord._fields)


def _insert(name: str, columns: tuple[str, ...]) -> Statement:
    """Return a statement that rejects the whole entry, spending included, if the attempt has a row: nothing is counted
    twice."""
    sql = f"INSERT INTO usage ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    return Statement(name, f"{sql} ON CONFLICT (request, attempt, kind) DO NOTHING", exact=True)


RECORD = _insert("usage", (*UsageRecord._fields, "teams"))
# Most rows have no value in the columns after `decision`; leaving them out makes writing a row a third cheaper.
PLAIN_LENGTH = UsageRecord._fields.index("decision") + 1
PLAIN_COLUMNS = UsageRecord._fields[:PLAIN_LENGTH]
INSERT_PLAIN = _insert("plain usage", PLAIN_COLUMNS)
NOTHING_MORE = (None,) * (len(UsageRecord._fields) - PLAIN_LENGTH)

# The sessions and runs with limits that a row counts against, in addition to its key, its member and its teams.
GROUP = Statement("group_usage", "INSERT INTO group_usage (request, attempt, kind, team) VALUES (?, ?, ?, ?)")
TEAM_BYTES = 16


def write_row(record: UsageRecord, teams: bytes | None = None) -> Row:
    """Return the journal row of a record, and of the teams that pay its cost."""
    if teams is None and record[PLAIN_LENGTH:] == NOTHING_MORE:
        return INSERT_PLAIN, record[:PLAIN_LENGTH]
    # A plain tuple: SQLite's driver reads tuples directly, but other sequences through a slower protocol.
    return RECORD, (*record, teams)


def write_groups(request: bytes, attempt: int, ids: Iterable[str]) -> list[Row]:
    """Return the journal rows for the sessions and runs that a settlement with a cost is charged to; they follow its
    usage row."""
    return [(GROUP, (request, attempt, SETTLEMENT, raw_id(ident))) for ident in ids]


def split_teams(teams: bytes) -> list[bytes]:
    """Return the raw ids of the teams in the column `teams`."""
    return [teams[place : place + TEAM_BYTES] for place in range(0, len(teams), TEAM_BYTES)]


def find(database: Database, request_id: str) -> list[UsageRecord]:
    """Return the records of a request by its id (32 hex digits), in the order of attempts; [] if it is unknown."""
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return []
    sql = f"SELECT {COLUMNS} FROM usage WHERE request = ? ORDER BY attempt, kind"
    rows = database.read(partial(database.fetch, sql, (request,)))
    return [record_of_row(row) for row in rows]


def known(database: Database, keys: list[tuple[bytes, int]]) -> set[tuple[bytes, int]]:
    """Return the attempts (request, number) that have their settlement row; inside a read or write."""
    if not keys:
        return set()
    requests = list({request for request, _ in keys})
    sql = f"SELECT request, attempt FROM usage WHERE kind = ? AND request IN ({', '.join('?' * len(requests))})"
    rows = database.execute(sql, (SETTLEMENT, *requests)).fetchall()
    return {(bytes(request), attempt) for request, attempt in rows}


@functools.lru_cache(maxsize=16_384)
def raw_id(ident: str) -> bytes:
    """Return the 16 bytes of a prefixed id (key_0199…); b"" for an empty one."""
    return bytes.fromhex(ident.rpartition("_")[2])


def record_of_row(row: tuple[Any, ...]) -> UsageRecord:
    """Return a row of COLUMNS as a record; the drivers return bytes or memoryview."""
    values: list[Any] = [bytes(value) if isinstance(value, memoryview) else value for value in row]
    return UsageRecord(*values)


# Usage of the last seconds over all workers, from the usage rows.

RECENT_COLUMNS = {"project": "project", "key": "api_key"}


def count(database: Database, scope: str, subject: str, seconds: int) -> tuple[int, int]:
    """Return the requests and tokens of a project or key that were recorded within the last `seconds`."""
    column = RECENT_COLUMNS[scope]
    since = database.now_us() - seconds * SECOND_US
    sql = (
        "SELECT COUNT(DISTINCT request), COALESCE(SUM(input + cache_read + cache_write + output), 0) FROM usage "
        f"WHERE posted_at >= ? AND {column} = ?"
    )
    row = database.report(lambda: database.execute(sql, (since, raw_id(subject))).fetchone())
    return int(row[0]), int(row[1])
