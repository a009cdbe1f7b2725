"""The table of retained payloads: how they are stored, read and deleted, separately from usage rows."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from heapq import merge
from typing import Any

from gateway.callers.vault import Vault
from gateway.errors import Unavailable
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import compute_if, pause
from gateway.runtime.zstd import zstd
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

# The quota of an organization's retained payloads: the oldest are deleted when they take too much space.

QUOTA_STEP_ROWS = 200
PAUSE_S = 0.02
SIZE = "length(sent) + length(answer) + coalesce(length(raw), 0)"
MEASURE = f"SELECT organization, project, sum({SIZE}) FROM request_log GROUP BY organization, project"
OLDEST = f"SELECT at, request, {SIZE} FROM request_log WHERE project = ? ORDER BY at LIMIT {QUOTA_STEP_ROWS}"
DELETE_PAYLOAD = "DELETE FROM request_log WHERE request = ?"


class PayloadQuota:
    """Keeps each organization within `max_bytes` (0: unlimited), measured as stored in the database."""

    def __init__(self, database: Database, max_bytes: int) -> None:
        self._database = database
        self._max_bytes = max_bytes

    def keep(self, should_continue: ShouldContinue = always) -> int:
        """Delete the oldest payloads of organizations above their quota, in small steps; return how many. Usage rows
        and fees stay. Safe to repeat. Unavailable: the next round continues."""
        if not self._max_bytes:
            return 0
        projects: dict[bytes, list[bytes]] = {}
        stored_bytes: dict[bytes, int] = {}
        for organization, project, size in self._database.report(partial(self._fetch, MEASURE)):
            owner = bytes(organization)
            projects.setdefault(owner, []).append(bytes(project))
            stored_bytes[owner] = stored_bytes.get(owner, 0) + int(size)
        deleted = 0
        for owner, size in stored_bytes.items():
            deleted += self._shrink(projects[owner], size - self._max_bytes, should_continue)
        return deleted

    def _shrink(self, projects: list[bytes], excess: int, should_continue: ShouldContinue) -> int:
        """Delete the oldest payloads of these projects until they take `excess` bytes less; return how many."""
        deleted = 0
        while excess > 0 and should_continue():
            requests, freed = self._choose(projects, excess)
            if not requests:
                break
            self._database.write(partial(self._delete, requests))
            deleted = deleted + len(requests)
            excess = excess - freed
            pause(PAUSE_S)
        return deleted

    def _choose(self, projects: list[bytes], excess: int) -> tuple[list[bytes], int]:
        """Return the oldest requests that free `excess` bytes, at most one step of them, and their bytes."""

        def read() -> list[list[tuple[Any, ...]]]:
            return [self._fetch(OLDEST, project) for project in projects]

        requests: list[bytes] = []
        freed = 0
        for _, request, size in merge(*self._database.read(read), key=lambda row: row[0]):
            if freed >= excess or len(requests) >= QUOTA_STEP_ROWS:
                break
            requests.append(bytes(request))
            freed += int(size)
        return requests, freed

    def _delete(self, requests: list[bytes]) -> None:
        for request in requests:
            self._database.execute(DELETE_PAYLOAD, (request,))

    def _fetch(self, sql: str, *values: bytes) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()


# Flags of a row; the last three say which part of the payload was shortened.
STREAMED = 1
SENT_CUT = 2
ANSWER_CUT = 4
RAW_CUT = 8
LEVEL = 3
LARGE = 1 << 15  # bytes that are packed in a thread
PURGE_ROWS = 500
# A purge ends after this many batches; the next one continues.
PURGE_BATCHES = 1000
PURGE_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class RetainedRequest:
    """The columns of `request_log` except the payload, in their order. Ids are the 16 bytes after their prefix.

    `asked` is the model as the caller wrote it, `served` "provider/model" ("" = no provider answered), `status` the
    response status (499: the caller disconnected earlier). `sent_bytes` and `answer_bytes` are the sizes on the wire,
    independent of how much was stored.
    """

    request: bytes
    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes
    at: int
    expires_at: int
    operation: str
    path: str
    asked: str
    served: str
    status: int
    flags: int
    sent_bytes: int
    answer_bytes: int

    @property
    def request_id(self) -> str:
        """The id as 32 hex digits."""
        return self.request.hex()


@dataclass(frozen=True, slots=True)
class PayloadRow(RetainedRequest):
    """A complete row of `request_log`; `sent`, `answer` and `raw` (x-debug) are packed."""

    sent: bytes
    answer: bytes
    raw: bytes | None

    @property
    def size(self) -> int:
        """Bytes of the packed payload."""
        return len(self.sent) + len(self.answer) + len(self.raw or b"")


@dataclass(frozen=True, slots=True)
class LogInfo(RetainedRequest):
    """A retained request without its payload. Costs and tokens are sums over the attempts. The fields from usage rows
    (`finish` to `storage_nusd`) are empty if there are none, or if only payloads were requested."""

    finish: str = ""
    error: str = ""
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: int = 0
    cost_nusd: int = 0
    storage_nusd: int = 0


COLUMNS = tuple(column.name for column in fields(PayloadRow))
SELECTED_COLUMNS = ", ".join(column.name for column in fields(RetainedRequest))
STORE = Statement(
    "request_log",
    f"INSERT INTO request_log ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (request) DO NOTHING",
)
USED_BYTES = (
    "SELECT request, finish, error, input + cache_read + cache_write, output, duration_ms, cost_nusd, storage_nusd "
    "FROM usage WHERE request IN ({marks}) ORDER BY request, attempt, kind"
)


def pack(vault: Vault, data: bytes) -> bytes:
    """Compress data (Zstandard, RFC 8878), then encrypt it."""
    return vault.seal_bytes(zstd.compress(data, LEVEL))


def unpack(vault: Vault, packed: bytes) -> bytes:
    """Reverse `pack`. Unavailable when the encryption key has changed or the data is damaged."""
    try:
        return zstd.decompress(vault.open_bytes(packed))
    except zstd.ZstdError:
        raise Unavailable("A stored payload is damaged.") from None


def pack_off_loop(vault: Vault, data: bytes) -> bytes:
    """Pack data, in a thread if it is large."""
    return compute_if(len(data) > LARGE, pack, vault, data)


def unpack_off_loop(vault: Vault, packed: bytes) -> bytes:
    """Unpack data, in a thread if it is large. Unavailable."""
    return compute_if(len(packed) > LARGE, unpack, vault, packed)


def write_row(row: PayloadRow) -> Row:
    """The journal row of a payload."""
    return STORE, tuple(getattr(row, name) for name in COLUMNS)


def find_log(database: Database, request_id: str) -> LogInfo | None:
    """Return the log of a request by its id (32 hex digits), None if there is none or it has expired."""
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return None
    sql = f"SELECT {SELECTED_COLUMNS} FROM request_log WHERE request = ? AND expires_at > {database.moment_sql()}"

    def read() -> list[LogInfo]:
        return _with_usage(database, [_read_info(row) for row in database.execute(sql, (request,)).fetchall()])

    logs = database.read(read)
    if logs:
        return logs[0]
    return None


def payloads_of(database: Database, requests: list[bytes]) -> dict[bytes, LogInfo]:
    """Return the retained records of these requests by id, without fields from usage rows; inside a read."""
    if not requests:
        return {}
    marks = ", ".join("?" * len(requests))
    now = database.moment_sql()
    sql = f"SELECT {SELECTED_COLUMNS} FROM request_log WHERE request IN ({marks}) AND expires_at > {now}"
    records = map(_read_info, database.execute(sql, requests).fetchall())
    return {info.request: info for info in records}


def newest_logs(database: Database, projects: Sequence[bytes], since_us: int, most: int) -> list[LogInfo]:
    """Return the retained requests of projects since a time, the newest first, without fields from usage rows."""
    if not projects:
        return []
    marks = ", ".join("?" * len(projects))
    sql = (
        f"SELECT {SELECTED_COLUMNS} FROM request_log WHERE project IN ({marks}) AND at >= ? "
        f"AND expires_at > {database.moment_sql()} ORDER BY at DESC LIMIT ?"
    )
    rows = database.report(lambda: database.execute(sql, (*projects, since_us, most)).fetchall())
    return [_read_info(tuple(row)) for row in rows]


def read_packed(database: Database, request: bytes) -> tuple[bytes, bytes, bytes | None] | None:
    """Return the packed request, answer and raw exchanges of a log; None if it was deleted."""
    sql = "SELECT sent, answer, raw FROM request_log WHERE request = ?"
    row = database.report(lambda: database.execute(sql, (request,)).fetchone())
    if row is None:
        return None
    raw = None if row[2] is None else bytes(row[2])
    return bytes(row[0]), bytes(row[1]), raw


def delete_log(database: Database, request: bytes) -> bool:
    """Delete a payload within an open transaction; return whether there was one. The usage rows stay."""
    return database.execute("DELETE FROM request_log WHERE request = ?", (request,)).rowcount > 0


def purge(database: Database, should_continue: ShouldContinue = always) -> int:
    """Delete expired payloads; return how many.

    Small transactions with pauses, so that no other writer waits long; the payloads are not read. Stops when
    `should_continue` returns False. Safe to repeat and to run in several workers at once.
    """
    sql = (
        "DELETE FROM request_log WHERE request IN (SELECT request FROM request_log "
        f"WHERE expires_at <= {database.moment_sql()} ORDER BY expires_at LIMIT {PURGE_ROWS})"
    )
    deleted = 0
    for _ in range(PURGE_BATCHES):
        count = database.write(lambda: database.execute(sql).rowcount)
        deleted += count
        if count < PURGE_ROWS or not should_continue():
            break
        pause(PURGE_PAUSE_S)
    return deleted


def _read_info(row: tuple[Any, ...]) -> LogInfo:
    """Return a row of SELECTED_COLUMNS as a record; the drivers return bytes or memoryview."""
    cells: list[Any] = [bytes(cell) if isinstance(cell, memoryview) else cell for cell in row]
    return LogInfo(*cells)


def _with_usage(database: Database, logs: Sequence[LogInfo]) -> list[LogInfo]:
    """Return the logs with the fields from their usage rows."""
    if not logs:
        return []
    used: dict[bytes, LogInfo] = {log.request: log for log in logs}
    sql = USED_BYTES.format(marks=", ".join("?" * len(logs)))
    for request, *facts in database.execute(sql, [log.request for log in logs]).fetchall():
        known = used[bytes(request)]
        finish, error, tokens_in, tokens_out, duration_ms, cost, storage = facts
        used[known.request] = replace(
            known,
            finish=finish,
            error=error or "",
            attempts=known.attempts + 1,
            input_tokens=known.input_tokens + tokens_in,
            output_tokens=known.output_tokens + tokens_out,
            duration_ms=known.duration_ms + duration_ms,
            cost_nusd=known.cost_nusd + cost,
            storage_nusd=known.storage_nusd + (storage or 0),
        )
    return list(used.values())
