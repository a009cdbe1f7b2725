"""Videos of Alibaba's Wan: POST {address}/services/aigc/video-generation/video-synthesis, GET {address}/tasks/{id}.

Facts: Model Studio's references of Wan 2.7 and 3.0, and of the older ones ("legacy"); the package `@ai-sdk/alibaba`.
Models take images in a list and their size as a step and a ratio; those with `video_form = "size"` in `extra` take one
image and a size in pixels. `audio` is a field of models that can make both sound and silence. Tasks and videos stay for
24 hours, after which a task is UNKNOWN.
"""

import dataclasses
from typing import Any

from gateway.catalogue.videos import VideoShape, fit
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.alibaba.images import COMPATIBLE, NAME, OWN
from gateway.providers.base64_files import Base64Files
from gateway.providers.image_codecs import data_url
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
FORM = "video_form"
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
    """One object serves all requests."""

    dialect = NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """The call. NotSupported as `fit`, and for what the older form has no place for."""
        wanted: VideosInput = request.content()
        shape = fit(wanted, target.mapping)
        files = Base64Files()
        if target.mapping.extra.get(FORM) == SIZE:
            whole = _older
        else:
            whole = _usual
        given, parameters = whole(wanted, shape, target, files)
        parameters |= {"duration": shape.seconds, "watermark": False}
        if target.mapping.video_audio and target.mapping.video_without_audio:
            parameters["audio"] = shape.audio
        body = {"model": target.mapping.external_id, "input": given, "parameters": parameters}
        call = self.posts(_own(target), PATH, files.encode(body), sound_warning(wanted, target))
        call.headers[ASYNC] = "enable"
        return call

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        return VideoTask(ident=ident_in(wire["output"]["task_id"]), upstream_id=str(wire.get("request_id") or ""))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/tasks/{task_id}."""
        return self.asks(_own(target), f"/tasks/{segment(ident)}")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        output = wire["output"]
        state = state_in(STATES, output["task_status"])
        if state == "completed":
            usage = wire.get("usage") or {}
            made = usage.get("output_video_duration") or usage.get("duration") or usage.get("video_duration")
            return completed(output.get("video_url"), milliseconds(made))
        if state in ("failed", "expired"):
            return ended(state, target, output.get("code"), output.get("message"))
        return VideoStatus(state)

    def cancel(self, ident: str, target: Target) -> Call | None:
        """POST {address}/tasks/{task_id}/cancel: of a task that waits."""
        return self.asks(_own(target), f"/tasks/{segment(ident)}/cancel", "POST")


def _own(target: Target) -> Target:
    """An operator's base URL is that of the provider's other format, which lies beside this one's."""
    if not target.address.endswith(COMPATIBLE):
        return target
    return dataclasses.replace(target, address=target.address.removesuffix(COMPATIBLE) + OWN)


def _usual(
    wanted: VideosInput, shape: VideoShape, target: Target, files: Base64Files
) -> tuple[dict[str, Any], dict[str, Any]]:
    frames = (("first_frame", wanted.first_frame), ("last_frame", wanted.last_frame))
    media = [{"type": role, "url": data_url(one, files)} for role, one in frames if one is not None]
    media += [{"type": "reference_image", "url": data_url(one, files)} for one in wanted.reference_images]
    media += [{"type": "reference_video", "url": url} for url in wanted.reference_videos]
    media += [{"type": "reference_audio", "url": url} for url in wanted.reference_audios]
    given: dict[str, Any] = {"prompt": wanted.prompt} | ({"media": media} if media else {})
    parameters: dict[str, Any] = {"resolution": shape.resolution.upper()}
    if wanted.size or wanted.first_frame is None:
        parameters["ratio"] = ratio_of(shape, RATIOS)
    return given, parameters


def _older(
    wanted: VideosInput, shape: VideoShape, target: Target, files: Base64Files
) -> tuple[dict[str, Any], dict[str, Any]]:
    refuse(wanted, target, "last_frame", "reference_images", "reference_videos", "reference_audios")
    if wanted.first_frame is None:
        return {"prompt": wanted.prompt}, {"size": f"{shape.width}*{shape.height}"}
    given = {"prompt": wanted.prompt, "img_url": data_url(wanted.first_frame, files)}
    return given, {"resolution": shape.resolution.upper()}
