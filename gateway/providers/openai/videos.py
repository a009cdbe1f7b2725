"""Videos in OpenAI's format: POST {address}/videos, GET /videos/{id} and /videos/{id}/content.

Source: OpenAI API reference, "Videos". The request is a form; its `input_reference` is the first frame. OpenAI has shut
its models down, but other servers use the format. It has no field for sound.
"""

from typing import Any

from gateway.catalogue.video_shapes import fit
from gateway.dialects import openai as dialect
from gateway.neutral.images import ENDINGS
from gateway.neutral.videos import VideoFile, VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.media_codecs import (
    FormBody,
    JobReader,
    UploadPart,
    ended,
    ident_in,
    milliseconds,
    progress_in,
    refuse,
    segment,
    sound_warning,
    state_in,
)
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Call, Target

PATH = "/videos"
REFERENCE = "input_reference"
STATES: dict[str, VideoState] = {
    "queued": "queued",
    "pending": "queued",
    "in_progress": "in_progress",
    "processing": "in_progress",
    "completed": "completed",
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "canceled",
    "canceled": "canceled",
    "expired": "expired",
}


class OpenAIVideos(JobReader):
    """The codec of videos. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Return the call. NotSupported for references and a last frame; also raises the errors of `fit`."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        refuse(content, target, "last_frame", "reference_images", "reference_videos", "reference_audios")
        fields = [
            ("model", target.mapping.external_id),
            ("prompt", content.prompt),
            ("seconds", str(shape.seconds)),
            ("size", shape.size),
        ]
        frame = content.first_frame
        files = []
        if frame is not None:
            name = f"image.{ENDINGS.get(frame.media_type, 'png')}"
            files.append(UploadPart(REFERENCE, name, frame.media_type, frame.file))
        form = FormBody(fields, files)
        url, headers = address_of(target, PATH, self._tokens)
        headers["content-type"] = form.content_type
        headers["accept"] = "application/json"
        return Call("POST", url, headers, form, warnings=sound_warning(content, target))

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        """Return the job, which may already be running."""
        return VideoTask(ident=ident_in(wire["id"]), model=str(wire.get("model") or ""))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/videos/{id}."""
        return self.asks(target, f"{PATH}/{segment(ident)}")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        state = state_in(STATES, wire["status"])
        if state == "completed":
            files = (VideoFile(file=ident_in(wire["id"])),)
            return VideoStatus(state, 100, files=files, video_ms=milliseconds(wire.get("seconds")))
        if state in ("failed", "expired"):
            error = wire.get("error") or {}
            return ended(state, target, error.get("code"), error.get("message"))
        return VideoStatus(state, progress_in(wire.get("progress")))

    def content(self, file: VideoFile, target: Target) -> Call:
        """GET {address}/videos/{id}/content."""
        call = self.asks(target, f"{PATH}/{segment(file.file)}/content")
        call.headers["accept"] = "*/*"
        return call

    def cancel(self, ident: str, target: Target) -> Call | None:
        """DELETE {address}/videos/{id}."""
        return self.asks(target, f"{PATH}/{segment(ident)}", "DELETE")
