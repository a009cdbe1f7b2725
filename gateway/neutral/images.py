"""A request to make or change images, and its result."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from msgspec import structs

from gateway.neutral.parts import Image
from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage, added
from gateway.runtime.large_files import StoredFile

# The most that one image that is read was seen to count as, and one that is made where its mapping tells no number.
READ_TOKENS = 8192
MADE_TOKENS = 16_384
PARTIAL_TOKENS = 100  # that an image on its way counts as (Image generation guide, "Partial images cost")
LIKELY_READ = 1024
BYTES_A_TOKEN = 4
AUTO = "auto"
SHAPE = re.compile(r"([1-9]\d{0,4})[x:*]([1-9]\d{0,4})")
ENDINGS = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that is read; `media_type` is what its first bytes tell."""

    file: StoredFile
    media_type: str


@dataclass(frozen=True, slots=True)
class ImagesInput:
    """What is to be made. `pictures` are changed or taken as models, `mask` tells where, `markup` lies over the first
    one and shows how; fields of "" and None were not named. `stream`: it is wanted in events, with so many
    `partial_images` on its way where the provider shows them."""

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

    @property
    def marked(self) -> str:
        """What lies over the first image: "mask", "markup" or ""."""
        if self.mask is not None:
            return "mask"
        return "markup" if self.markup is not None else ""

    @property
    def price_key(self) -> str:
        return f"{self.quality or AUTO}/{self.size or AUTO}"


class ImagesRequest(Request, eq=False):
    """`decode` gives an ImagesInput."""

    operation: ClassVar[str] = "images"


class ImageEditsRequest(ImagesRequest, eq=False):
    operation: ClassVar[str] = "image_edits"


@dataclass(slots=True, unsafe_hash=True)
class ImagesResult(WholeResult):
    """`images` in base64, with the prompt that each was really made of where the provider tells it. `blocked`: the
    provider's filter let none pass."""

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
    """Width by height of a ratio ("16:9") or a size ("1536x1024"); 0 for what is neither."""
    found = SHAPE.fullmatch(edges)
    if found:
        return int(found[1]) / int(found[2])
    return 0.0


def nearest_shape(edges: str, offered: Iterable[str]) -> str:
    """Of ratios or sizes the one that is most like `edges`; "" where that tells none."""
    shape = shape_of(edges)
    known = [one for one in offered if shape_of(one)]
    if shape:
        return min(known, key=lambda one: abs(math.log(shape_of(one) / shape)), default="")
    return ""


def units_of(wanted: ImagesInput) -> Units:
    """What it may count as, whether its model is billed by images or by tokens; `output` is what its images on their
    way count as beside the images themselves."""
    size = len(wanted.prompt.encode("utf-8", "replace"))
    read = len(wanted.pictures) + sum(one is not None for one in (wanted.mask, wanted.markup))
    if wanted.stream:
        shown = wanted.partial_images * wanted.n * PARTIAL_TOKENS
    else:
        shown = 0
    most = Usage(input=size, input_image=read * READ_TOKENS, output=shown, images=wanted.n, price_key=wanted.price_key)
    likely = Usage(
        input=-(-size // BYTES_A_TOKEN), input_image=read * LIKELY_READ, images=wanted.n, price_key=wanted.price_key
    )
    return Units(most, likely)


def split(request: ImagesRequest, most: int, most_tokens: int = 0) -> Iterator[ImagesRequest]:
    """Requests for so many images each, all of the same prompt."""
    wanted: ImagesInput = request.content()
    for made in range(0, wanted.n, most):
        part = replace(wanted, n=min(most, wanted.n - made))
        needs = structs.replace(request.requirements, units=units_of(part))
        yield structs.replace(request, requirements=needs, decode=lambda part=part: part, _decoded=None)


def join(results: Sequence[ImagesResult]) -> ImagesResult:
    """One result of those of `split`; its usage is their sum, None where one tells none."""
    first = results[0]
    revised = [text for one in results for text in (*one.revised, *[""] * (len(one.images) - len(one.revised)))]
    reported = [one.usage for one in results if one.usage is not None]
    return ImagesResult(
        tuple(image for one in results for image in one.images),
        tuple(revised) if any(revised) else (),
        first.size,
        first.quality,
        first.background,
        first.output_format,
        blocked=all(one.blocked for one in results),
        usage=added(reported) if len(reported) == len(results) else None,
        model=first.model,
        upstream_id=first.upstream_id,
        service_tier=first.service_tier,
        warnings=tuple(dict.fromkeys(text for one in results for text in one.warnings)),
    )
