"""Images of Alibaba's Qwen-Image and Wan: POST {address}/services/aigc/multimodal-generation/generation.

Facts: Model Studio's references of Qwen-Image, Qwen-Image editing and Wan text-to-image: a message with images and a
text in, choices with an image URL each out. URLs are valid for a day, so the images are fetched at once. The mapping
lists the size of each aspect ratio (`ratio_sizes` in `extra`), and how many images one call makes (`max_n`).
"""

import dataclasses
from typing import Any

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import AUTO, ImagesInput, ImagesRequest, ImagesResult, shape_of
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, ODD, SHAPE_ERRORS, read_object
from gateway.providers.base64_files import Base64Files
from gateway.providers.image_codecs import (
    SHOWN,
    ImageChoices,
    WholeImages,
    data_url,
    fit_preferences,
    load_images,
    refuse_marks,
)
from gateway.providers.media_fetching import Fetcher
from gateway.providers.openai.address import way_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec

NAME = "dashscope"
PATH = "/services/aigc/multimodal-generation/generation"
COMPATIBLE = "/compatible-mode/v1"
OWN = "/api/v1"
RATIO_SIZES = "ratio_sizes"
MOST_READ = 3  # images that one call takes
LEFT_OUT = ("quality", "background", "output_format", "moderation", "style", "input_fidelity")


class AlibabaImages(WrittenCodec, WholeImages):
    """`fetcher` loads the images of an answer. One object serves both operations."""

    dialect = NAME

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """The call. NotSupported for a mask, and for more images than it reads or makes at once."""
        asked: ImagesInput = request.content()
        _check(asked, target)
        warnings: list[str] = []
        wanted = _fit(asked, target, warnings)
        files = Base64Files()
        parts: list[dict[str, str]] = [{"image": data_url(one, files)} for one in wanted.pictures]
        parts.append({"text": wanted.prompt})
        parameters: dict[str, Any] = {"n": wanted.n, "watermark": False}
        if size := _size_of(wanted, target):
            parameters["size"] = size
        body = {
            "model": target.mapping.external_id,
            "input": {"messages": [{"role": "user", "content": parts}]},
            "parameters": parameters,
        }
        # An operator's base URL is that of the provider's other format, which lies beside this one's.
        if target.address.endswith(COMPATIBLE):
            target = dataclasses.replace(target, address=target.address.removesuffix(COMPATIBLE) + OWN)
        way = way_of(target, PATH, False)
        reader = _ImageReader(self._fetcher, wanted.price_key)
        return Call("POST", way.url, way.headers, files.encode(body), False, tuple(warnings), way=way, reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """As of a request that named no size; a call brings its own reader."""
        return _ImageReader(self._fetcher, "").read(reply, relayed)


class _ImageReader(WholeImages):
    def __init__(self, fetcher: Fetcher, key: str) -> None:
        self._fetcher = fetcher
        self._key = key

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            parts = [part for one in wire["output"]["choices"] for part in one["message"]["content"]]
            urls = [part["image"] for part in parts if part.get("image")]
            reported = wire.get("usage") or {}
            count = read_count(reported.get("image_count")) or len(urls)
            if "width" in reported and "height" in reported:
                edges = f"{reported['width']}x{reported['height']}"
            else:
                edges = ""
            ident = str(wire.get("request_id") or "")
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        if not urls:
            raise UpstreamFailed(EMPTY, upstream_status=200)
        used = Usage(images=count, price_key=self._key)
        return ImagesResult(load_images(self._fetcher, urls), size=edges, usage=used, upstream_id=ident)


def _check(wanted: ImagesInput, target: Target) -> None:
    key = target.mapping.key
    most = target.mapping.max_n or 1
    refuse_marks(wanted, target)
    if len(wanted.pictures) > MOST_READ:
        raise NotSupported(f"{key} reads up to {MOST_READ} images.", param="images", code="unsupported_input")
    if wanted.n > most:
        raise NotSupported(f"{key} makes up to {most} images a request.", param="n", code="unsupported_n")


def _fit(asked: ImagesInput, target: Target, warnings: list[str]) -> ImagesInput:
    """The input without what the model does not take: sizes are in pixels, ratios those of the mapping."""
    ratios = tuple(target.mapping.extra.get(RATIO_SIZES) or ())
    lost = LEFT_OUT if ratios else (*LEFT_OUT, "aspect_ratio")
    wanted = fit_preferences(asked, target, ImageChoices(aspect_ratio=ratios, lost=lost), warnings)
    if wanted.size not in ("", AUTO) and not shape_of(wanted.size):
        warnings.append(f"size {wanted.size[:SHOWN]} was left out: {target.mapping.key} takes a width and a height.")
        wanted = dataclasses.replace(wanted, size="")
    return wanted


def _size_of(wanted: ImagesInput, target: Target) -> str:
    """Its words for a size: width*height; "" for the usual."""
    if wanted.aspect_ratio:
        size: str = target.mapping.extra[RATIO_SIZES][wanted.aspect_ratio]
        return size
    width, _, height = wanted.size.partition("x")
    if width.isdecimal() and height.isdecimal():
        return f"{width}*{height}"
    return ""
