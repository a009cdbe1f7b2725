"""Videos of xAI's Grok Imagine: POST {address}/videos/generations, GET {address}/videos/{request_id}.

Wire facts: REST API reference, "Video generation"; the packages `@ai-sdk/xai` and `xai-sdk`. While a task is running,
the status of the response is 202, sometimes without a body. Every video has sound. Without `aspect_ratio`, a video of
an image has the image's ratio. A video that moderation withheld is "done" with `respect_moderation` false.
"""

from typing import Any

from gateway.catalogue.video_shapes import fit
from gateway.errors import UpstreamFailed
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    JobReader,
    completed,
    data_url,
    ended,
    ident_in,
    milliseconds,
    progress_in,
    ratio_of,
    read_apart,
    refuse,
    segment,
    sound_warning,
    state_in,
)
from gateway.providers.protocol import Call, Target, UpstreamReply

NAME = "xai"
RATIOS = ("1:1", "16:9", "9:16", "4:3", "3:4", "3:2", "2:3")
STATES: dict[str, VideoState] = {
    "pending": "in_progress",
    "done": "completed",
    "failed": "failed",
    "expired": "expired",
}
WITHHELD = "The provider's moderation withheld the video."
ACCEPTED = 202


class XaiVideos(JobReader):
    """Codec of Grok Imagine's video tasks."""

    dialect = NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported for a last frame, reference videos and reference audios, and as in `fit`."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        refuse(content, target, "last_frame", "reference_videos", "reference_audios")
        files = Base64Files()
        body: dict[str, Any] = {
            "model": target.mapping.external_id,
            "prompt": content.prompt,
            "duration": shape.seconds,
            "resolution": shape.resolution,
        }
        if content.size or content.first_frame is None:
            body["aspect_ratio"] = ratio_of(shape, RATIOS)
        if content.first_frame is not None:
            body["image"] = {"url": data_url(content.first_frame, files)}
        if content.reference_images:
            body["reference_images"] = [{"url": data_url(picture, files)} for picture in content.reference_images]
        return self.posts(target, "/videos/generations", files.encode(body), sound_warning(content, target))

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        return VideoTask(ident=ident_in(wire["request_id"]))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/videos/{request_id}."""
        return self.asks(target, f"/videos/{segment(ident)}")

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        if reply.status != ACCEPTED:
            return super().read_status(reply, target)
        try:
            return VideoStatus("in_progress", progress_in(read_apart(reply).get("progress")))
        except UpstreamFailed:
            return VideoStatus("in_progress")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        video = wire.get("video") or {}
        status = wire.get("status") or ("done" if video.get("url") else "")
        state = state_in(STATES, status)
        if state == "completed":
            if video.get("respect_moderation") is False:
                return ended("failed", target, message=WITHHELD, refused=True)
            return completed(video.get("url"), milliseconds(video.get("duration")))
        if state == "in_progress":
            return VideoStatus(state, progress_in(wire.get("progress")))
        error = wire.get("error") or {}
        if not isinstance(error, dict):
            return ended(state, target, wire.get("code"), error)
        return ended(state, target, error.get("code"), error.get("message"))
