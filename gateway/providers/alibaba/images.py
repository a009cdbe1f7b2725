"""Images of Alibaba's Qwen-Image and Wan: POST {address}/services/aigc/multimodal-generation/generation.

Wire facts: Model Studio's references of Qwen-Image, Qwen-Image editing and Wan text-to-image. The request is a message
with images and a text; the response has choices with one image URL each. URLs are valid for a day, so the images are
fetched at once. The mapping lists the size of each aspect ratio (`ratio_sizes` in `extra`), and the number of images
that one call makes (`max_n`).
"""

import dataclasses
from typing import Any

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import ImagesInput, ImagesRequest, ImagesResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.image_codecs import (
    ImageChoices,
    WholeImages,
    data_url,
    fit_preferences,
    load_images,
    refuse_marks,
)
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_fetching import Fetcher
from gateway.providers.openai.address import endpoint_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec

NAME = "dashscope"
PATH = "/services/aigc/multimodal-generation/generation"
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
        endpoint = endpoint_of(target, PATH, False)
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
