"""Videos of ByteDance's Seedance: POST and GET {address}/contents/generations/tasks.

Wire facts: BytePlus ModelArk, "Create a video generation task", "Retrieve", "Cancel or delete"; the package
`@ai-sdk/bytedance`. Videos are billed by tokens. Only models that make sound have the field `generate_audio`. A video
of an image has the image's ratio unless the caller requests a size. Videos are kept for 24 hours. A task can be
canceled while it is queued.
"""

from typing import Any

from gateway.catalogue.video_shapes import fit
from gateway.neutral.usage import read_count
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    JobReader,
    completed,
    content_parts,
    ended,
    ident_in,
    milliseconds,
    ratio_of,
    segment,
    sound_warning,
    state_in,
)
from gateway.providers.protocol import Call, Target

NAME = "bytedance"
PATH = "/contents/generations/tasks"
RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9")
ADAPTIVE = "adaptive"
STATES: dict[str, VideoState] = {
    "queued": "queued",
    "running": "in_progress",
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "canceled",
    "expired": "expired",
}


class ByteDanceVideos(JobReader):
    """Codec of Seedance's video tasks."""

    dialect = NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported as in `fit`."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        files = Base64Files()
        ratio = ratio_of(shape, RATIOS)
        if content.first_frame is not None and not content.size:
            ratio = ADAPTIVE
        body: dict[str, Any] = {
            "model": target.mapping.external_id,
            "content": content_parts(content, files),
            "resolution": shape.resolution,
            "ratio": ratio,
            "duration": shape.seconds,
            "watermark": False,
        }
        if target.mapping.video_audio:
            body["generate_audio"] = shape.audio
        return self.posts(target, PATH, files.encode(body), sound_warning(content, target))

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        return VideoTask(ident=ident_in(wire["id"]))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/contents/generations/tasks/{id}."""
        return self.asks(target, f"{PATH}/{segment(ident)}")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        state = state_in(STATES, wire["status"])
        if state == "completed":
            usage = wire.get("usage") or {}
            tokens = read_count(usage.get("completion_tokens")) or None
            return completed((wire.get("content") or {}).get("video_url"), milliseconds(wire.get("duration")), tokens)
        if state in ("failed", "expired"):
            error = wire.get("error") or {}
            return ended(state, target, error.get("code"), error.get("message"))
        return VideoStatus(state)

    def cancel(self, ident: str, target: Target) -> Call | None:
        """DELETE {address}/contents/generations/tasks/{id}."""
        return self.asks(target, f"{PATH}/{segment(ident)}", "DELETE")
