"""The representation of a job in responses, lists and callbacks."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.clock import SECOND_US
from gateway.money import usd_number
from gateway.neutral.videos import FINAL_STATES
from gateway.videos.job_table import COMPLETED, CREATING, DECODER, QUEUED, RUNNING, VideoJob
from gateway.videos.links import Links
from gateway.videos.tasks import SealedColumns

LINK = "/v1/videos/logs/{}/content?token={}"
State = Annotated[str, Meta(extra_json_schema={"enum": [*RUNNING, *sorted(FINAL_STATES)]})]


class VideoErrorAnswer(Struct):
    code: str
    message: str


class VideoContentAnswer(Struct):
    url: str
    mime_type: str | None
    type: Literal["video"] = "video"


class VideoCostsAnswer(Struct):
    video_output_cost: float
    image_input_cost: float


class VideoUsageAnswer(Struct):
    cost: float
    cost_details: VideoCostsAnswer


class VideoAnswer(Struct, kw_only=True):
    """OpenAI's video object, with `usage` once the job ended and `content` once there is a video. Times are seconds
    since 1970."""

    id: str
    object: Literal["video"] = "video"
    model: str
    status: State
    progress: int
    created_at: int
    completed_at: int | None
    expires_at: int | None
    error: VideoErrorAnswer | None = None
    prompt: str
    seconds: str
    size: str
    remixed_from_video_id: str | None = None
    usage: VideoUsageAnswer | UnsetType = UNSET
    content: list[VideoContentAnswer] | UnsetType = UNSET


class Presenter:
    """Returns jobs as answers. `base_url` is the gateway's URL as the caller sees it."""

    def __init__(self, sealed: SealedColumns, links: Links) -> None:
        self._sealed = sealed
        self._links = links

    def show(self, job: VideoJob, base_url: str) -> VideoAnswer:
        """Return the answer for a job."""
        shown = VideoAnswer(
            id=job.id,
            model=job.model,
            status=QUEUED if job.state == CREATING else job.state,
            progress=job.progress,
            created_at=job.created_at // SECOND_US,
            completed_at=_seconds(job.completed_at if job.state == COMPLETED else None),
            expires_at=_seconds(job.expires_at),
            prompt=self._sealed.text(job.wish),
            seconds=str(job.seconds),
            size=job.size,
        )
        if job.outcome:
            self._add_outcome(shown, job, base_url)
        return shown

    def link(self, log_id: str, base_url: str) -> str:
        """Return the URL that opens the content of a log without a key."""
        return base_url + LINK.format(log_id, self._links.sign(log_id))

    def _add_outcome(self, shown: VideoAnswer, job: VideoJob, base_url: str) -> None:
        outcome = DECODER.decode(job.outcome)
        costs = VideoCostsAnswer(usd_number(outcome.video_nusd), usd_number(outcome.image_nusd))
        shown.usage = VideoUsageAnswer(usd_number(outcome.cost_nusd), costs)
        if outcome.code:
            shown.error = VideoErrorAnswer(outcome.code, outcome.message)
        if job.state == COMPLETED:
            files = self._sealed.files(job.files)
            url = self.link(job.request_id, base_url)
            shown.content = [VideoContentAnswer(url, files[0].media_type if files else None)]


def _seconds(at_us: int | None) -> int | None:
    if at_us is None:
        return None
    return at_us // SECOND_US
