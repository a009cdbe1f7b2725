"""Requests to generate or edit images, and their result."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from msgspec import Struct, structs
from msgspec.structs import replace

from gateway.neutral.parts import Image
from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage, added
from gateway.runtime.large_files import StoredFile

# The highest observed token counts: for one input image, and for one generated image of a mapping without a figure.
READ_TOKENS = 8192
MADE_TOKENS = 16_384
PARTIAL_TOKENS = 100  # for each preliminary image (OpenAI's image generation guide, "Partial images cost")
LIKELY_READ = 1024
BYTES_PER_TOKEN = 4
AUTO = "auto"
SHAPE = re.compile(r"([1-9]\d{0,4})[x:*]([1-9]\d{0,4})", re.ASCII)
ENDINGS = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}


class Picture(Struct, frozen=True):
    """An input image; `media_type` is detected from its first bytes."""

    file: StoredFile
    media_type: str


class ImagesInput(Struct, frozen=True):
    """An image request.

    `pictures` are edited or used as references, `mask` marks the area to change, and `markup` is drawn over the first
    picture to show the change. Fields with "" or None were not given. `stream`: the caller requests events, with this
    number of `partial_images` if the provider sends any.
    """

    prompt: str
    n: int = 1
    size: str = ""
    quality: str = ""
    aspect_ratio: str = ""
    background: str = ""
    output_format: str = ""
    output_compression: int | None = None
    moderation: str = ""
    style: str = ""
    input_fidelity: str = ""
    pictures: tuple[Picture, ...] = ()
    mask: Picture | None = None
    stream: bool = False
    partial_images: int = 0
    markup: Picture | None = None
    seed: int | None = None

    @property
    def marked(self) -> str:
        """Return which overlay the first picture has: "mask", "markup" or ""."""
        if self.mask is not None:
            return "mask"
        return "markup" if self.markup is not None else ""

    @property
    def price_key(self) -> str:
        return f"{self.quality or AUTO}/{self.size or AUTO}"


class ImagesRequest(Request, eq=False):
    """An images request. `decode` returns an ImagesInput."""

    operation: ClassVar[str] = "images"


class ImageEditsRequest(ImagesRequest, eq=False):
    operation: ClassVar[str] = "image_edits"


@dataclass(slots=True, unsafe_hash=True)
class ImagesResult(WholeResult):
    """The generated images in base64.

    `revised` holds the prompts that were actually used, if the provider reports them. `blocked`: the provider's filter
    rejected all images.
    """

    images: tuple[Image, ...]
    revised: tuple[str, ...] = ()
    size: str = ""
    quality: str = ""
    background: str = ""
    output_format: str = ""
    blocked: bool = False

    @property
    def finish(self) -> str:
        if self.blocked:
            return "content_filter"
        return "stop"


def shape_of(edges: str) -> float:
    """Return width divided by height of a ratio ("16:9") or a size ("1536x1024"); 0 for other texts."""
    match = SHAPE.fullmatch(edges)
    if match:
        return int(match[1]) / int(match[2])
    return 0.0


def nearest_shape(edges: str, offered: Iterable[str]) -> str:
    """Return the offered ratio or size with the shape closest to `edges`; "" if `edges` has no shape."""
    shape = shape_of(edges)
    if not shape:
        return ""

    def distance(candidate: str) -> float:
        return abs(math.log(shape_of(candidate) / shape))

    return min(filter(shape_of, offered), key=distance, default="")


def units_of(content: ImagesInput) -> Units:
    """Return the billable units of a request, for models billed by image and by token.

    `output` counts the preliminary images.
    """
    size = len(content.prompt.encode("utf-8", "replace"))
    read = len(content.pictures) + sum(overlay is not None for overlay in (content.mask, content.markup))
    shown = content.partial_images * content.n * PARTIAL_TOKENS if content.stream else 0
    maximum = Usage(
        input=size,
        input_image=read * READ_TOKENS,
        output=shown,
        images=content.n,
        price_key=content.price_key,
        images_read=read,
    )
    likely = Usage(
        input=-(-size // BYTES_PER_TOKEN),
        input_image=read * LIKELY_READ,
        images=content.n,
        price_key=content.price_key,
        images_read=read,
    )
    return Units(maximum, likely)


def split(request: ImagesRequest, maximum: int, most_tokens: int = 0) -> Iterator[ImagesRequest]:
    """Yield requests for at most `maximum` images each, all with the same prompt. Each has another seed, since equal
    calls would give equal images."""
    content: ImagesInput = request.content()
    for done in range(0, content.n, maximum):
        seed = None if content.seed is None else content.seed + done
        part = replace(content, n=min(maximum, content.n - done), seed=seed)
        requirements = structs.replace(request.requirements, units=units_of(part))
        yield structs.replace(request, requirements=requirements, decode=partial(_same, part), _decoded=None)


def _same(images: ImagesInput) -> ImagesInput:
    return images


def join(results: Sequence[ImagesResult]) -> ImagesResult:
    """Merge the results of `split` into one; its usage is their sum, or None if any is missing."""
    first = results[0]
    revised = [
        text for result in results for text in (*result.revised, *[""] * (len(result.images) - len(result.revised)))
    ]
    reported = [result.usage for result in results if result.usage is not None]
    return ImagesResult(
        tuple(image for result in results for image in result.images),
        tuple(revised) if any(revised) else (),
        first.size,
        first.quality,
        first.background,
        first.output_format,
        blocked=all(result.blocked for result in results),
        usage=added(reported) if len(reported) == len(results) else None,
        model=first.model,
        upstream_id=first.upstream_id,
        service_tier=first.service_tier,
        warnings=tuple(dict.fromkeys(text for result in results for text in result.warnings)),
    )
