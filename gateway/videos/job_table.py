"""The rows of video jobs: inserted before a provider is called, and continued by any worker."""

from typing import NamedTuple

from msgspec import Struct, json

from gateway.catalogue.prices import Charge
from gateway.jobs.job_rows import JobRows, JobTransitions
from gateway.neutral.videos import FINAL_STATES
from gateway.store.database import Database

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


TRANSITIONS = JobTransitions(
    "video job",
    {
        # A provider accepted it.
        (CREATING, "accepted"): QUEUED,
        # Its worker died before the acceptance was recorded.
        (CREATING, "lost"): FAILED,
        # The status reported by the provider, which may put a job back into its queue. After a final one nothing is
        # reserved any more, the usage row is written and the callback is queued.
        **{(state, reported): reported for state in RUNNING for reported in (*RUNNING, *FINAL_STATES)},
    },
)


PREFIX = "video_"
TABLE = "video_job"
CALLBACK_TABLE = "video_callback"


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


class VideoJobs(JobRows[VideoJob]):
    """All video jobs of the installation."""

    def __init__(self, database: Database) -> None:
        # The prompt is long and not needed for polling.
        super().__init__(database, VideoJob, TABLE, CALLBACK_TABLE, hidden=CREATING, unread=("wish",))


def is_shown(job: VideoJob) -> bool:
    """Return whether callers may see a job: one that no provider has accepted may still be removed."""
    return job.state != CREATING
