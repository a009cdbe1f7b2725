"""The representation of a job in responses, lists and callbacks."""

from typing import Any

from gateway.clock import SECOND_US
from gateway.money import usd_number
from gateway.videos.job_states import COMPLETED, CREATING, QUEUED
from gateway.videos.job_table import VideoJob
from gateway.videos.links import Links
from gateway.videos.outcomes import DECODER
from gateway.videos.tasks import Sealed

LINK = "/v1/videos/logs/{}/content?token={}"


class Presenter:
    """Writes jobs as JSON objects. `base_url` is the gateway's URL as the caller sees it."""

    def __init__(self, sealed: Sealed, links: Links) -> None:
        self._sealed = sealed
        self._links = links

    def show(self, job: VideoJob, base_url: str) -> dict[str, Any]:
        """Return the fields of OpenAI's video object, plus `error`, `content` and `usage` once they exist."""
        shown: dict[str, Any] = {
            "id": job.id,
            "object": "video",
            "model": job.model,
            "status": QUEUED if job.state == CREATING else job.state,
            "progress": job.progress,
            "created_at": job.created_at // SECOND_US,
            "completed_at": _seconds(job.completed_at if job.state == COMPLETED else None),
            "expires_at": _seconds(job.expires_at),
            "error": None,
            "prompt": self._sealed.text(job.wish),
            "seconds": str(job.seconds),
            "size": job.size,
            "remixed_from_video_id": None,
        }
        if job.outcome:
            shown |= self._show_outcome(job, base_url)
        return shown

    def link(self, log_id: str, base_url: str) -> str:
        """Return the URL that opens the content of a log without a key."""
        return base_url + LINK.format(log_id, self._links.sign(log_id))

    def _show_outcome(self, job: VideoJob, base_url: str) -> dict[str, Any]:
        outcome = DECODER.decode(job.outcome)
        parts = {"video_output_cost": outcome.video_nusd, "image_input_cost": outcome.image_nusd}
        costs = {name: usd_number(nusd) for name, nusd in parts.items()}
        shown: dict[str, Any] = {"usage": {"cost": usd_number(outcome.cost_nusd), "cost_details": costs}}
        if outcome.code:
            shown["error"] = {"code": outcome.code, "message": outcome.message}
        if job.state == COMPLETED:
            files = self._sealed.files(job.files)
            url = self.link(job.request_id, base_url)
            media = files[0].media_type if files else None
            shown["content"] = [{"type": "video", "url": url, "mime_type": media}]
        return shown


def _seconds(at_us: int | None) -> int | None:
    if at_us is None:
        return None
    return at_us // SECOND_US
