"""Videos of Atlas Cloud: POST {address}/model/generateVideo, GET {address}/model/prediction/{id}.

Wire facts: Atlas Cloud's documentation, "Video models", "Predictions". The models come from many vendors and accept
different fields: a mapping lists the fields of its model in `supported_parameters` (`duration`, `resolution`,
`aspect_ratio`, `size`, `generate_audio`). In its `extra`, `image_field` and `last_image_field` name the fields of the
first and last frame, and `images_field` the field of reference images.
"""

from typing import Any

from gateway.catalogue.video_shapes import VideoShape, fit
from gateway.errors import NotSupported
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.failures import Explanation, classify, scrub
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    JobReader,
    completed,
    data_url,
    ended,
    ident_in,
    ratio_of,
    refuse,
    segment,
    sound_warning,
    state_in,
)
from gateway.providers.protocol import Call, Target

NAME = "atlascloud"
RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4", "21:9", "3:2", "2:3")
DEFAULT_PARAMETERS = ("duration", "resolution", "aspect_ratio")
IMAGE = "image_field"
LAST_IMAGE = "last_image_field"
IMAGES = "images_field"
SOUND = "generate_audio"
STATES: dict[str, VideoState] = {
    "created": "queued",
    "queued": "queued",
    "starting": "in_progress",
    "processing": "in_progress",
    "completed": "completed",
    "succeeded": "completed",
    "failed": "failed",
    "timeout": "expired",
    "canceled": "canceled",
}


class AtlasCloudVideos(JobReader):
    """Codec of Atlas Cloud's video tasks."""

    dialect = NAME

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported as in `fit`, and for images that the mapping has no field for."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        refuse(content, target, "reference_videos", "reference_audios")
        files = Base64Files()
        accepted = target.mapping.supported_parameters or DEFAULT_PARAMETERS
        body: dict[str, Any] = {"model": target.mapping.external_id, "prompt": content.prompt}
        body |= {name: value for name, value in _fields(shape).items() if name in accepted}
        body |= _images(content, target, files)
        warnings = () if SOUND in accepted else sound_warning(content, target)
        return self.posts(target, "/model/generateVideo", files.encode(body), warnings)

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        return VideoTask(ident=ident_in(_data(wire)["id"]))

    def status(self, ident: str, target: Target) -> Call:
        """GET {address}/model/prediction/{id}."""
        return self.asks(target, f"/model/prediction/{segment(ident)}")

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        data = _data(wire)
        state = state_in(STATES, data["status"])
        if state == "completed":
            withheld = True in (data.get("has_nsfw_contents") or [])
            outputs = data.get("outputs") or [""]
            if withheld and not outputs[0]:
                return ended("failed", target, refused=True)
            return completed(outputs[0])
        if state in ("failed", "expired"):
            return ended(state, target, message=data.get("error") or wire.get("message"))
        return VideoStatus(state)


def _fields(shape: VideoShape) -> dict[str, Any]:
    return {
        "duration": shape.seconds,
        "resolution": shape.resolution,
        "aspect_ratio": ratio_of(shape, RATIOS),
        "size": f"{shape.width}*{shape.height}",
        SOUND: shape.audio,
    }


def _images(content: VideosInput, target: Target, files: Base64Files) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    extra = target.mapping.extra
    frames = ((content.first_frame, extra.get(IMAGE, "image")), (content.last_frame, extra.get(LAST_IMAGE, "")))
    for picture, name in frames:
        if picture is not None and name:
            fields[name] = data_url(picture, files)
        elif picture is not None:
            refuse(content, target, "last_frame")
    if content.reference_images:
        if not (name := extra.get(IMAGES)):
            message = f"{target.mapping.key} does not support reference images."
            raise NotSupported(message, param="reference_images", code="unsupported_input")
        fields[name] = [data_url(picture, files) for picture in content.reference_images]
    return fields


def _data(wire: dict[str, Any]) -> dict[str, Any]:
    """Return `data` of a response. Raises the error for the status in `code` if the response has no data."""
    data = wire.get("data")
    code = wire.get("code")
    if not isinstance(data, dict) and type(code) is int and 400 <= code < 600:
        raise classify(code, Explanation(scrub(str(wire.get("message") or "")), shaped=True), None)
    if not isinstance(data, dict):
        raise TypeError("not an object")
    return data
