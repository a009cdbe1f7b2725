"""Callbacks (webhooks) that wait for delivery, and the results of their attempts."""

from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, json

from gateway.store.database import Database
from gateway.videos.job_table import CALLBACK as PREFIX

PENDING = "pending"
RETRYING = "retrying"
DELIVERED = "delivered"
FAILED = "failed"


class DeliveryAttempt(Struct, frozen=True):
    """A delivery attempt: its time, the HTTP status of the response (0: none), and why it failed."""

    at: int
    status: int
    problem: str


class Callback(NamedTuple):
    """A row of `video_callback`, in the order of its columns. `due_at` None: no further attempts; `attempts` is
    JSON."""

    id: str
    job: str
    state: str
    due_at: int | None
    attempts: str

    @property
    def tried(self) -> list[DeliveryAttempt]:
        return json.decode(self.attempts, type=list[DeliveryAttempt])


COLUMNS = ", ".join(Callback._fields)
DUE_CALLBACKS = f"""SELECT project, {COLUMNS} FROM video_callback JOIN (
    SELECT sent.id AS due, project, ROW_NUMBER() OVER (PARTITION BY project ORDER BY sent.due_at) AS place
    FROM video_callback AS sent LEFT JOIN video_job ON video_job.id = job
    WHERE sent.due_at IS NOT NULL AND sent.due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""


class Callbacks:
    """The table of callbacks. Every method may raise Unavailable; `begin` and `change` run inside a write."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def begin(self, job_id: str, now_us: int) -> None:
        """Insert the callback of an ended job; a job has one callback."""
        sql = f"INSERT INTO video_callback ({COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        self.database.execute(sql, (PREFIX + job_id, job_id, PENDING, now_us, "[]"))

    def of(self, job_id: str) -> Callback | None:
        """Return the callback of a job; None without one."""
        rows = self._fetch(f"SELECT {COLUMNS} FROM video_callback WHERE id = ?", (PREFIX + job_id,))
        if rows:
            return Callback(*rows[0])
        return None

    def due(self, now_us: int, of_one: int, limit: int) -> list[tuple[str, Callback]]:
        """Return due callbacks with their projects ("": the job was deleted), at most `of_one` per project. Projects
        take turns: first the oldest callback of each, then the second of each."""
        return [(row[0] or "", Callback(*row[1:])) for row in self._fetch(DUE_CALLBACKS, (now_us, of_one, limit))]

    def change(self, callback: Callback, **values: Any) -> Callback | None:
        """Set columns of a callback with an unchanged `due_at`; None when another worker has claimed it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE video_callback SET {columns} WHERE id = ? AND due_at = ?"
        changed = self.database.execute(sql, (*values.values(), callback.id, callback.due_at)).rowcount
        if changed:
            return callback._replace(**values)
        return None

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self.database.read(partial(self.database.fetch, sql, params))
