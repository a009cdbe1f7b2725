"""Videos of Alibaba's Wan: POST {address}/services/aigc/video-generation/video-synthesis, GET {address}/tasks/{id}.

Wire facts: Model Studio's references of Wan 2.7 and 3.0, and of the older models ("legacy"); the package
`@ai-sdk/alibaba`. Models accept a list of images, and a size as resolution and ratio; models with `video_form = "size"`
in `extra` accept one image, and a size in pixels. Only models that can make videos with and without sound have the
field `audio`. Tasks and videos are kept for 24 hours, after which a task is UNKNOWN.
"""

import dataclasses
from typing import Any

from gateway.catalogue.video_shapes import VideoShape, fit
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.alibaba.images import COMPATIBLE, NAME, NATIVE_PATH
from gateway.providers.image_codecs import data_url
from gateway.providers.inline_files import Base64Files
from gateway.providers.protocol import Call, Target
from gateway.providers.video_codecs import (
    JobReader,
    completed,
    ended,
    ident_in,
    milliseconds,
    ratio_of,
    refuse,
    segment,
    sound_warning,
    state_in,
)

PATH = "/services/aigc/video-generation/video-synthesis"
ASYNC = "x-dashscope-async"
RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4")
FORM_KEY = "video_form"
SIZE = "size"
STATES: dict[str, VideoState] = {
    "pending": "queued",
    "running": "in_progress",
    "suspended": "in_progress",
    "succeeded": "completed",
    "failed": "failed",
    "canceled": "canceled",
    "unknown": "expired",
}


class AlibabaVideos(JobReader):
    """Codec of Wan's video tasks."""

    dialect = NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported as in `fit`, and for inputs that the older form lacks."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        files = Base64Files()
        if target.mapping.extra.get(FORM_KEY) == SIZE:
            inputs, parameters = _older_form(content, shape, target, files)
        else:
            inputs, parameters = _newer_form(content, shape, files)
        parameters |= {"duration": shape.seconds, "watermark": False}
        if target.mapping.video_audio and target.mapping.video_without_audio:
            parameters["audio"] = shape.audio
        body = {"model": target.mapping.external_id, "input": inputs, "parameters": parameters}
        call = self.posts(_native_address(target), PATH, files.encode(body), sound_warning(content, target))
        call.headers[ASYNC] = "enable"
        return call

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        return VideoTask(ident=ident_in(wire["output"]["task_id"]), upstream_id=str(wire.get("request_id") or ""))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/tasks/{task_id}."""
        return self.asks(_native_address(target), f"/tasks/{segment(ident)}")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        output = wire["output"]
        state = state_in(STATES, output["task_status"])
        if state == "completed":
            usage = wire.get("usage") or {}
            seconds = usage.get("output_video_duration") or usage.get("duration") or usage.get("video_duration")
            return completed(output.get("video_url"), milliseconds(seconds))
        if state in ("failed", "expired"):
            return ended(state, target, output.get("code"), output.get("message"))
        return VideoStatus(state)

    def cancel(self, ident: str, target: Target) -> Call | None:
        """POST {address}/tasks/{task_id}/cancel, which the provider accepts for pending tasks."""
        return self.asks(_native_address(target), f"/tasks/{segment(ident)}/cancel", "POST")


def _native_address(target: Target) -> Target:
    """Return the target with the path of this format; an operator's base URL has that of the OpenAI-compatible one."""
    if not target.address.endswith(COMPATIBLE):
        return target
    return dataclasses.replace(target, address=target.address.removesuffix(COMPATIBLE) + NATIVE_PATH)


def _newer_form(content: VideosInput, shape: VideoShape, files: Base64Files) -> tuple[dict[str, Any], dict[str, Any]]:
    frames = (("first_frame", content.first_frame), ("last_frame", content.last_frame))
    media = [{"type": role, "url": data_url(frame, files)} for role, frame in frames if frame is not None]
    media += [{"type": "reference_image", "url": data_url(picture, files)} for picture in content.reference_images]
    media += [{"type": "reference_video", "url": url} for url in content.reference_videos]
    media += [{"type": "reference_audio", "url": url} for url in content.reference_audios]
    inputs: dict[str, Any] = {"prompt": content.prompt}
    if media:
        inputs["media"] = media
    parameters: dict[str, Any] = {"resolution": shape.resolution.upper()}
    if content.size or content.first_frame is None:
        parameters["ratio"] = ratio_of(shape, RATIOS)
    return inputs, parameters


def _older_form(
    content: VideosInput, shape: VideoShape, target: Target, files: Base64Files
) -> tuple[dict[str, Any], dict[str, Any]]:
    refuse(content, target, "last_frame", "reference_images", "reference_videos", "reference_audios")
    if content.first_frame is None:
        return {"prompt": content.prompt}, {"size": f"{shape.width}*{shape.height}"}
    inputs = {"prompt": content.prompt, "img_url": data_url(content.first_frame, files)}
    return inputs, {"resolution": shape.resolution.upper()}
