"""The rows of video jobs: inserted before a provider is called, and continued by any worker."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, json

from gateway.catalogue.prices import Charge
from gateway.clock import DAY_US
from gateway.errors import Internal
from gateway.neutral.videos import FINAL_STATES
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

# The outcome of a job: its cost, or why there is no video.


class JobOutcome(Struct, frozen=True):
    """Cost and error of a job. `cost_nusd` is the total charge; `code` is "" on success."""

    cost_nusd: int = 0
    video_nusd: int = 0
    image_nusd: int = 0
    code: str = ""
    message: str = ""


DECODER = json.Decoder(JobOutcome)


def priced(charge: Charge) -> JobOutcome:
    return JobOutcome(charge.total, charge.video_output + charge.output, charge.image_input)


# The states of a video job, and the transitions between them.

CREATING = "creating"  # the budgets are reserved, but no provider has accepted the job
QUEUED = "queued"  # a provider has accepted it and not started
IN_PROGRESS = "in_progress"
COMPLETED = "completed"  # the video is ready and charged
# Failed, canceled and expired jobs (the provider's timeout) cost nothing.
FAILED = "failed"
CANCELED = "canceled"
RUNNING = (QUEUED, IN_PROGRESS)


class Moves(dict[tuple[str, str], str]):
    """(state, event) → state. An unlisted transition is a programming error."""

    def __missing__(self, move: tuple[str, str]) -> str:
        raise Internal(f"A video job in the state {move[0]} does not support {move[1]}.")


MOVES = Moves(
    {
        # A provider accepted it.
        (CREATING, "accepted"): QUEUED,
        # Its worker died before the acceptance was recorded.
        (CREATING, "lost"): FAILED,
        # The status reported by the provider, which may put a job back into its queue. After a final one nothing is
        # reserved any more, the usage row is written and the callback is queued.
        **{(state, reported): reported for state in RUNNING for reported in (*RUNNING, *FINAL_STATES)},
    }
)


PREFIX = "video_"
CALLBACK = "evt_"
BATCH_SIZE = 500  # rows that one transaction deletes


class VideoJob(NamedTuple):
    """A row of `video_job`, in the order of its columns. Times are microseconds.

    `model` is the requested model; `seconds` and `size` describe the generated video. `due_at` is the time of the next
    poll, None after the end; `deadline_at` is the timeout. `failures` counts consecutive failed polls. `api_key` is the
    key that requested it, "" for jobs of earlier releases.

    JSON: `wish` is the prompt that the caller sees again, sealed; `task` everything that later steps need (Task),
    sealed; `files` the provider's location of the video, sealed, "" without; `outcome` cost and error, "" before the
    end.
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
        """The id of the request that created the job and of its log, 32 hex digits."""
        return self.id.removeprefix(PREFIX)

    @property
    def has_ended(self) -> bool:
        return self.state in FINAL_STATES


class JobOwner(NamedTuple):
    """The owner of visible jobs: all keys of a project, or only one key of it."""

    project: str
    api_key: str = ""

    def owns(self, job: VideoJob) -> bool:
        return job.project == self.project and self.api_key in ("", job.api_key)


COLUMNS = ", ".join(VideoJob._fields)
INSERT = Statement(
    "video_job_insert", f"INSERT INTO video_job ({COLUMNS}) VALUES ({', '.join('?' * len(VideoJob._fields))})"
)
DELETE_CALLBACK = Statement("video_callback_delete", "DELETE FROM video_callback WHERE id = ?")
DELETE_JOB = Statement("video_job_delete", "DELETE FROM video_job WHERE id = ?")
SELECT = f"SELECT {COLUMNS} FROM video_job"
# Without the prompt, which is long and not needed for polling.
WITHOUT_PROMPT = SELECT.replace(" wish,", " '' AS wish,")
DUE_JOBS = f"""{WITHOUT_PROMPT} JOIN (
    SELECT id AS due, ROW_NUMBER() OVER (PARTITION BY organization ORDER BY due_at) AS place
    FROM video_job WHERE due_at IS NOT NULL AND due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""


class VideoJobs:
    """All jobs of the installation. Every method may raise Unavailable; `change` and `delete` run inside a write."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def change(self, job: VideoJob, **values: Any) -> VideoJob | None:
        """Set columns of a job with unchanged state and `due_at`; None when another worker moved it."""
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
        """Delete a job and its callback, if they exist."""
        for statement, params in delete_rows(ident):
            self.database.execute(statement.sql, params)

    def find(self, ident: str) -> VideoJob | None:
        return self._first(f"{SELECT} WHERE id = ?", (ident,))

    def page(self, owner: JobOwner, after: str, limit: int, newest_first: bool) -> list[VideoJob]:
        """Return up to `limit` jobs of an owner that follow `after` ("": from the start) in the order of their
        creation."""
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
        """Return jobs that are due for a poll, at most `of_one` per organization. Organizations take turns (first the
        oldest job of each, then the second of each), so that none takes all places."""
        return self._all(DUE_JOBS, (now_us, of_one, limit))

    def purge(self, now_us: int, days: int) -> int:
        """Delete some jobs, with their callbacks, that ended more than `days` days ago; return how many."""

        def work() -> int:
            sql = "SELECT id FROM video_job WHERE completed_at IS NOT NULL AND completed_at < ? LIMIT ?"
            rows = self.database.fetch(sql, (now_us - days * DAY_US, BATCH_SIZE))
            for (ident,) in rows:
                self.delete(ident)
            return len(rows)

        return self.database.write(work)

    def _first(self, sql: str, params: Sequence[Any]) -> VideoJob | None:
        return next(iter(self._all(sql, params)), None)

    def _all(self, sql: str, params: Sequence[Any]) -> list[VideoJob]:
        return [VideoJob(*row) for row in self.database.read(partial(self.database.fetch, sql, params))]


def insert_rows(job: VideoJob) -> list[Row]:
    """Return the rows that insert a job."""
    return [(INSERT, job)]


def delete_rows(ident: str) -> list[Row]:
    """Return the rows that delete a job and its callback, if they exist."""
    return [(DELETE_CALLBACK, (CALLBACK + ident,)), (DELETE_JOB, (ident,))]


def is_shown(job: VideoJob) -> bool:
    """Return whether callers may see a job: one that no provider has accepted may still be removed."""
    return job.state != CREATING
