"""The rows of video jobs: written before a provider is asked, read by whoever goes on with them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.clock import DAY_US
from gateway.store.database import Database
from gateway.videos.job_states import CREATING, ENDS

PREFIX = "video_"
CALLBACK = "evt_"
AT_ONCE = 500  # rows that one transaction removes


class VideoJob(NamedTuple):
    """A row of `video_job`, in the order of its columns. Times are microseconds.

    `model` is what the caller asked for; `seconds` and `size` what is made. `due_at`: when it is to be looked at next,
    None once it has ended. `deadline_at`: when it is given up. `failures`: questions in a row without an answer.
    `api_key`: the key that requested it, "" for jobs of earlier releases.
    JSON: `wish` what a caller sees again, sealed; `task` all that goes on needs (Task), sealed; `files` where the
    provider has the video, sealed, "" without; `outcome` cost and error, "" before the end.
    """

    id: str
    organization: str
    project: str
    state: str
    progress: int
    model: str
    seconds: int
    size: str
    created_at: int
    completed_at: int | None
    expires_at: int | None
    due_at: int | None
    deadline_at: int
    failures: int
    wish: str
    task: str
    files: str
    outcome: str
    api_key: str

    @property
    def request_id(self) -> str:
        """Of the request that asked for it, 32 hex digits: the id of its log."""
        return self.id.removeprefix(PREFIX)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS


class JobOwner(NamedTuple):
    """Who may see jobs: all keys of a project, or one key of it alone."""

    project: str
    api_key: str = ""

    def owns(self, job: VideoJob) -> bool:
        return job.project == self.project and self.api_key in ("", job.api_key)


COLUMNS = ", ".join(VideoJob._fields)
INSERT = f"INSERT INTO video_job ({COLUMNS}) VALUES ({', '.join('?' * len(VideoJob._fields))})"
SELECT = f"SELECT {COLUMNS} FROM video_job"
# Without what the caller asked for: it is long, and nothing that goes on needs it.
UNWISHED = SELECT.replace(" wish,", " '' AS wish,")
DUE = f"""{UNWISHED} JOIN (
    SELECT id AS due, ROW_NUMBER() OVER (PARTITION BY organization ORDER BY due_at) AS place
    FROM video_job WHERE due_at IS NOT NULL AND due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""


class VideoJobs:
    """All jobs of the installation. Every method may raise Unavailable; `insert`, `change` and `delete` are for use
    inside a write."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def insert(self, job: VideoJob) -> None:
        self.database.execute(INSERT, job)

    def change(self, job: VideoJob, **values: Any) -> VideoJob | None:
        """Set columns of a job that is still as `job` has it (its state, and when it is due); None when somebody else
        moved it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE video_job SET {columns} WHERE id = ? AND state = ?"
        params = [*values.values(), job.id, job.state]
        if job.due_at is not None:
            sql = f"{sql} AND due_at = ?"
            params = [*params, job.due_at]
        changed: int = self.database.execute(sql, params).rowcount
        if changed:
            return job._replace(**values)
        return None

    def delete(self, ident: str) -> None:
        """Remove a job and its callback, if there are any."""
        self.database.execute("DELETE FROM video_callback WHERE id = ?", (CALLBACK + ident,))
        self.database.execute("DELETE FROM video_job WHERE id = ?", (ident,))

    def find(self, ident: str) -> VideoJob | None:
        return self._first(f"{SELECT} WHERE id = ?", (ident,))

    def page(self, owner: JobOwner, after: str, limit: int, newest_first: bool) -> list[VideoJob]:
        """So many jobs of an owner that follow `after` ("": from the start) in the order of their making."""
        if newest_first:
            order, sign = ("DESC", "<")
        else:
            order, sign = ("ASC", ">")
        conditions = "project = ? AND state <> ? "
        params = [owner.project, CREATING]
        if owner.api_key:
            conditions = f"{conditions}AND api_key = ? "
            params = [*params, owner.api_key]
        if after:
            conditions = f"{conditions}AND id {sign} ? "
            params = [*params, after]
        return self._all(f"{SELECT} WHERE {conditions}ORDER BY id {order} LIMIT ?", (*params, limit))

    def due(self, now_us: int, of_one: int, limit: int) -> list[VideoJob]:
        """Jobs that are to be looked at, at most `of_one` of an organization: of each organization the one that waits
        longest, then of each the second, so that none takes all places."""
        return self._all(DUE, (now_us, of_one, limit))

    def purge(self, now_us: int, days: int) -> int:
        """Remove some jobs, with their callbacks, that ended so many days ago; how many."""

        def work() -> int:
            sql = "SELECT id FROM video_job WHERE completed_at IS NOT NULL AND completed_at < ? LIMIT ?"
            rows = self.database.fetch(sql, (now_us - days * DAY_US, AT_ONCE))
            for (ident,) in rows:
                self.delete(ident)
            return len(rows)

        return self.database.write(work)

    def _first(self, sql: str, params: Sequence[Any]) -> VideoJob | None:
        return next(iter(self._all(sql, params)), None)

    def _all(self, sql: str, params: Sequence[Any]) -> list[VideoJob]:
        return [VideoJob(*row) for row in self.database.read(lambda: self.database.fetch(sql, params))]


def is_shown(job: VideoJob) -> bool:
    """Whether a caller may see it: one that no provider has yet may still come to nothing."""
    return job.state != CREATING
