"""The rows of batches and of the results of their lines."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, json

from gateway.billing.batch_reservation import AUTO
from gateway.callers.vault import Vault
from gateway.jobs.job_rows import CALLBACK_TABLE, JobRows, JobTransitions
from gateway.metering.payload_table import pack_off_loop, unpack_off_loop
from gateway.store.database import Database
from gateway.store.journal import Row, Statement
from gateway.store.live_workers import LiveWorkers

PREFIX = "batch"
MESSAGES_PREFIX = "msgbatch"
RUN_PREFIX = "batchrun"  # of logged requests that a person sends to another model in the console
TABLE = "batch_job"
PAGE_ROWS = 200

DIRECT = "direct"  # the lines of a batch are sent as requests, at the list price

# The states of a batch, with the names of OpenAI's API.
VALIDATING = "validating"  # its lines are checked; nothing is reserved
IN_PROGRESS = "in_progress"
FINALIZING = "finalizing"  # every line has its result; the files are written
COMPLETED = "completed"
FAILED = "failed"  # a line is invalid, or a limit has no room for the batch; no line was sent
EXPIRED = "expired"
CANCELING = "cancelling"
CANCELED = "cancelled"
ENDED = frozenset((COMPLETED, FAILED, EXPIRED, CANCELED))

TRANSITIONS = JobTransitions(
    "batch",
    {
        (VALIDATING, "valid"): IN_PROGRESS,
        (VALIDATING, "invalid"): FAILED,
        (VALIDATING, "cancel"): CANCELING,
        (VALIDATING, "expire"): EXPIRED,
        (IN_PROGRESS, "done"): FINALIZING,
        (IN_PROGRESS, "cancel"): CANCELING,
        (IN_PROGRESS, "expire"): EXPIRED,
        (FINALIZING, "written"): COMPLETED,
        (CANCELING, "written"): CANCELED,
    },
)


class BatchTask(Struct, frozen=True, kw_only=True):
    """The options of a batch; encrypted. `up_to_limit`: nothing is held for the whole batch, and its lines run until
    a limit refuses them. `sending` is AUTO (to batch APIs of providers where there is one), NATIVE (to these alone) or
    DIRECT (as requests). `one_file`: all results are in one file, which is read through the batch alone. `lifetime_s`
    is that of its files, None: the default."""

    dialect: str = "openai"
    input_file: str = ""
    window: str = "24h"
    metadata: dict[str, str] | None = None
    lifetime_s: int | None = None
    up_to_limit: bool = False
    sending: str = AUTO
    one_file: bool = False
    callback_url: str = ""
    callback_secret: str = ""
    base_url: str = ""
    address: str = ""
    headers: dict[str, str] = {}


class BatchError(Struct, frozen=True):
    """Why a batch failed: the number of a line, from 1, or None for the whole batch."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchOutcome(Struct, frozen=True):
    """The end of a batch: its files, or its errors. `expired` and `canceled` lines were not sent."""

    output_file: str = ""
    error_file: str = ""
    errors: tuple[BatchError, ...] = ()
    expired: int = 0
    canceled: int = 0
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class BatchJob(NamedTuple):
    """A row of `batch_job`, in the order of its columns. Times are microseconds.

    `total` lines have `done` results, of which `failed` are errors. `bound_nusd` was held for all lines, `cost_nusd` is
    their cost so far. `claimed_by` is the worker that has it until `claimed_until`, while that is `due_at`. `input` is
    the kept file of the lines. `task` is a sealed BatchTask, `outcome` a BatchOutcome
    as JSON, "" before the end.
    """

    id: str
    organization: str
    project: str
    state: str
    endpoint: str
    created_at: int
    started_at: int | None
    canceled_at: int | None
    completed_at: int | None
    due_at: int | None
    deadline_at: int
    total: int
    done: int
    failed: int
    bound_nusd: int
    cost_nusd: int
    input: str
    task: str
    outcome: str
    api_key: str
    claimed_by: str = ""
    claimed_until: int = 0

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def ended(self) -> BatchOutcome:
        return OUTCOME.decode(self.outcome) if self.outcome else BatchOutcome()


TASK = json.Decoder(BatchTask)
OUTCOME = json.Decoder(BatchOutcome)


class BatchRows(JobRows[BatchJob]):
    """All batches of the installation."""

    def __init__(self, database: Database, vault: Vault, workers: LiveWorkers) -> None:
        super().__init__(database, BatchJob, TABLE, CALLBACK_TABLE)
        self._vault = vault
        self._workers = workers

    def claim(self, job: BatchJob, until_us: int, **values: Any) -> BatchJob | None:
        """Let this worker have a batch, and set columns, as `change` does."""
        return self.change(job, due_at=until_us, claimed_by=self._workers.name, claimed_until=until_us, **values)

    def end_dead_claims(self, now_us: int) -> None:
        """Let batches be continued that dead workers of this node have. Unavailable."""
        # Workers of earlier versions leave `claimed_until` as it was, so their claims are not read.
        sql = f"SELECT id, claimed_by, due_at FROM {TABLE} WHERE due_at > ? AND claimed_until = due_at"
        for ident, worker, due_at in self.database.query_rows(sql, (now_us,)):
            if self._workers.is_dead(worker):
                free = f"UPDATE {TABLE} SET due_at = ? WHERE id = ? AND due_at = ? AND claimed_by = ?"
                self.database.write(partial(self.database.execute, free, (now_us, ident, due_at, worker)))

    def seal(self, task: BatchTask) -> str:
        return self._vault.seal(json.encode(task).decode())

    def task_of(self, job: BatchJob) -> BatchTask:
        return TASK.decode(self._vault.open(job.task))


class LineRow(NamedTuple):
    """A row of `batch_line`: the result of a line, with its packed answer and HTTP status. `request` is the id of its
    request."""

    batch: str
    number: int
    request: str
    status: int
    cost_nusd: int
    answer: bytes


class LineSums(NamedTuple):
    """Counts of the results of a batch, and their cost."""

    done: int
    failed: int
    cost_nusd: int


LINE_COLUMNS = ", ".join(LineRow._fields)
# A line has one result: should two workers have sent it, the first one counts, and the entry of the second one with its
# usage row is refused.
INSERT_LINE = Statement(
    "batch_line_insert",
    f"INSERT INTO batch_line ({LINE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (batch, number) DO NOTHING",
    exact=True,
)
FIRST_ERROR = 400


class LineRows:
    """The results of lines. Methods that read or write may raise Unavailable."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self.database = database
        self._vault = vault

    def row(self, batch: str, number: int, request: str, status: int, answer: bytes, cost_nusd: int) -> Row:
        """Return the journal row of a result."""
        packed = pack_off_loop(self._vault, answer)
        return INSERT_LINE, LineRow(batch, number, request, status, cost_nusd, packed)

    def insert(self, row: Row) -> None:
        """Write a result that costs nothing."""
        statement, params = row
        self.database.write(partial(self.database.execute, statement.sql, params))

    def open(self, line: LineRow) -> bytes:
        """Return the answer of a result."""
        return unpack_off_loop(self._vault, bytes(line.answer))

    def numbers(self, batch: str) -> set[int]:
        """Return the numbers of the lines with results."""
        return {row[0] for row in self._fetch("SELECT number FROM batch_line WHERE batch = ?", (batch,))}

    def sums(self, batch: str) -> LineSums:
        sql = (
            f"SELECT COUNT(*), COALESCE(SUM(CASE WHEN status >= {FIRST_ERROR} THEN 1 ELSE 0 END), 0), "
            "COALESCE(SUM(cost_nusd), 0) FROM batch_line WHERE batch = ?"
        )
        return LineSums(*map(int, self._fetch(sql, (batch,))[0]))

    def failed(self, batch: str, after: int, limit: int) -> list[LineRow]:
        """Return up to `limit` results that are errors, of lines after the number `after`."""
        sql = (
            f"SELECT {LINE_COLUMNS} FROM batch_line WHERE batch = ? AND number > ? AND status >= {FIRST_ERROR} "
            "ORDER BY number LIMIT ?"
        )
        return [LineRow(*row) for row in self._fetch(sql, (batch, after, limit))]

    def walk(self, batch: str) -> Iterator[LineRow]:
        """Yield the results in the order of the lines."""
        last = -1
        while True:
            sql = (
                f"SELECT {LINE_COLUMNS} FROM batch_line WHERE batch = ? AND number > ? "
                f"ORDER BY number LIMIT {PAGE_ROWS}"
            )
            page = [LineRow(*row) for row in self._fetch(sql, (batch, last))]
            if not page:
                return
            yield from page
            last = page[-1].number

    def delete(self, batch: str) -> int:
        """Delete some results of a batch; return how many."""
        sql = (
            "DELETE FROM batch_line WHERE batch = ? AND number IN "
            f"(SELECT number FROM batch_line WHERE batch = ? ORDER BY number LIMIT {PAGE_ROWS})"
        )
        return self.database.write(lambda: int(self.database.execute(sql, (batch, batch)).rowcount))

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self.database.report(partial(self.database.fetch, sql, params))
