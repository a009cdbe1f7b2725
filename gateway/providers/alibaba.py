"""Alibaba's DashScope format, for images and videos, which Model Studio does not serve in OpenAI's format.

Images of Qwen-Image and Wan: POST {address}/services/aigc/multimodal-generation/generation.

Wire facts: Model Studio's references of Qwen-Image, Qwen-Image editing and Wan text-to-image. The request is a message
with images and a text; the response has choices with one image URL each. URLs are valid for a day, so the images are
fetched at once. The mapping lists the size of each aspect ratio (`ratio_sizes` in `extra`), and the number of images
that one call makes (`max_n`).
"""

import dataclasses
from typing import Any

from gateway.catalogue.video_shapes import VideoShape, fit
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import ImagesInput, ImagesRequest, ImagesResult
from gateway.neutral.usage import Usage, read_count
from gateway.neutral.videos import VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    ImageChoices,
    JobReader,
    WholeImages,
    completed,
    data_url,
    ended,
    fit_preferences,
    ident_in,
    load_images,
    milliseconds,
    ratio_of,
    refuse,
    refuse_marks,
    segment,
    sound_warning,
    state_in,
)
from gateway.providers.media_fetching import Fetcher
from gateway.providers.openai.address import endpoint_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec

NAME = "dashscope"
IMAGE_PATH = "/services/aigc/multimodal-generation/generation"
COMPATIBLE = "/compatible-mode/v1"
NATIVE_PATH = "/api/v1"
RATIO_SIZES = "ratio_sizes"
MAX_INPUT_IMAGES = 3


class AlibabaImages(WrittenCodec, WholeImages):
    """Codec of image generation and editing. `fetcher` loads the images of a response."""

    dialect = NAME

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """Build the call. NotSupported for a mask, and for more images than one call reads or makes."""
        content: ImagesInput = request.content()
        _check(content, target)
        warnings: list[str] = []
        fitted = _fit(content, target, warnings)
        files = Base64Files()
        parts: list[dict[str, str]] = [{"image": data_url(picture, files)} for picture in fitted.pictures]
        parts.append({"text": fitted.prompt})
        parameters: dict[str, Any] = {"n": fitted.n, "watermark": False}
        if size := _size_of(fitted, target):
            parameters["size"] = size
        if fitted.seed is not None:
            parameters["seed"] = fitted.seed
        body = {
            "model": target.mapping.external_id,
            "input": {"messages": [{"role": "user", "content": parts}]},
            "parameters": parameters,
        }
        # An operator's base URL is the address of the OpenAI-compatible format; this format has another path there.
        if target.address.endswith(COMPATIBLE):
            target = dataclasses.replace(target, address=target.address.removesuffix(COMPATIBLE) + NATIVE_PATH)
        endpoint = endpoint_of(target, IMAGE_PATH, False)
        reader = _ImageReader(self._fetcher, fitted.price_key)
        return Call(
            "POST",
            endpoint.url,
            endpoint.headers,
            files.encode(body),
            False,
            tuple(warnings),
            endpoint=endpoint,
            reader=reader,
        )

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """Read the response to a request without a size; every call has its own reader for the others."""
        return _ImageReader(self._fetcher, "").read(reply, relayed)


class _ImageReader(WholeImages):
    def __init__(self, fetcher: Fetcher, key: str) -> None:
        self._fetcher = fetcher
        self._key = key

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            parts = [part for choice in wire["output"]["choices"] for part in choice["message"]["content"]]
            urls = [part["image"] for part in parts if part.get("image")]
            reported = wire.get("usage") or {}
            count = read_count(reported.get("image_count")) or len(urls)
            size = ""
            if "width" in reported and "height" in reported:
                size = f"{reported['width']}x{reported['height']}"
            ident = str(wire.get("request_id") or "")
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        if not urls:
            raise UpstreamFailed(EMPTY, upstream_status=200)
        used = Usage(images=count, price_key=self._key)
        return ImagesResult(load_images(self._fetcher, urls), size=size, usage=used, upstream_id=ident)


def _check(content: ImagesInput, target: Target) -> None:
    key = target.mapping.key
    limit = target.mapping.max_n or 1
    refuse_marks(content, target)
    if len(content.pictures) > MAX_INPUT_IMAGES:
        raise NotSupported(f"{key} reads up to {MAX_INPUT_IMAGES} images.", param="images", code="unsupported_input")
    if content.n > limit:
        raise NotSupported(f"{key} makes up to {limit} images per request.", param="n", code="unsupported_n")


def _fit(content: ImagesInput, target: Target, warnings: list[str]) -> ImagesInput:
    """Return the input without unsupported preferences: sizes must be in pixels, and ratios in the mapping."""
    ratios = tuple(target.mapping.extra.get(RATIO_SIZES) or ())
    fields = ("size", "aspect_ratio") if ratios else ("size",)
    return fit_preferences(content, target, ImageChoices(fields, aspect_ratio=ratios, seed=True), warnings)


def _size_of(content: ImagesInput, target: Target) -> str:
    """Return the size as width*height, or "" for the default."""
    if content.aspect_ratio:
        size: str = target.mapping.extra[RATIO_SIZES][content.aspect_ratio]
        return size
    width, _, height = content.size.partition("x")
    if content.size.isascii() and width.isdigit() and height.isdigit():
        return f"{width}*{height}"
    return ""


# Videos of Alibaba's Wan: POST {address}/services/aigc/video-generation/video-synthesis, GET {address}/tasks/{id}.
#
# Wire facts: Model Studio's references of Wan 2.7 and 3.0, and of the older models ("legacy"); the package
# `@ai-sdk/alibaba`. Models accept a list of images, and a size as resolution and ratio; models with `video_form =
# "size"` in `extra` accept one image, and a size in pixels. Only models that can make videos with and without sound
# have the field `audio`. Tasks and videos are kept for 24 hours, after which a task is UNKNOWN.

VIDEO_PATH = "/services/aigc/video-generation/video-synthesis"
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
        call = self.posts(_native_address(target), VIDEO_PATH, files.encode(body), sound_warning(content, target))
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
