"""Functions for all image codecs: preferences fitted to a model, complete answers as a stream, images fetched by URL,
and checks of masks."""

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.events import Batch, Failed, Finished, ImageMade, Started
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.neutral.images import AUTO, ENDINGS, ImagesInput, ImagesResult, Picture, shape_of
from gateway.neutral.parts import Image, Media
from gateway.providers import offload
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_fetching import MAX_BYTES, Fetcher
from gateway.providers.protocol import Target, UpstreamReply
from gateway.runtime.threads import Job, compute

FETCH_TIMEOUT_S = 60.0
PREFERENCES = (
    "size",
    "quality",
    "aspect_ratio",
    "background",
    "output_format",
    "moderation",
    "style",
    "input_fidelity",
)
STEP = re.compile(r"\dK")  # a size that names the longer edge
SHOWN = 32  # characters of a value that a warning repeats


class ImageChoices(Struct, frozen=True):
    """The values that a model accepts for size, ratio and quality; () where every value is passed on. `fields` are the
    preferences that the format has a field for, `seed` whether it has one for a seed, and `steps` whether the
    sizes 1K, 2K and 4K exist."""

    fields: tuple[str, ...]
    size: tuple[str, ...] = ()
    aspect_ratio: tuple[str, ...] = ()
    quality: tuple[str, ...] = ()
    seed: bool = False
    steps: bool = False


def fit_preferences(content: ImagesInput, target: Target, choices: ImageChoices, warnings: list[str]) -> ImagesInput:
    """Return the input without the preferences that the model cannot fulfil, and add a line to `warnings` for each.

    Later steps must use the result: prices depend on the quality and size that were sent.
    """
    dropped: dict[str, Any] = {}
    for name in PREFERENCES:
        value: str = getattr(content, name)
        reason = _reason_against(name, value, target, choices) if value else ""
        if reason:
            dropped[name] = ""
            if value != AUTO:
                warnings.append(reason)
    if content.seed is not None and not choices.seed:
        dropped["seed"] = None
        warnings.append(_unsupported("seed", target))
    if dropped:
        return replace(content, **dropped)
    return content


def _reason_against(name: str, value: str, target: Target, choices: ImageChoices) -> str:
    """Return why a preference is left out; "" where it is sent."""
    offered: tuple[str, ...] = getattr(choices, name, ())
    if name not in choices.fields:
        return _unsupported(name, target)
    if offered and value not in offered:
        return f"{name} {value[:SHOWN]} was left out: {target.mapping.key} takes {', '.join(offered)}."
    if name == "size" and value != AUTO and not shape_of(value) and not (choices.steps and STEP.fullmatch(value)):
        return f"size {value[:SHOWN]} was left out: it is not a width and height."
    return ""


def _unsupported(name: str, target: Target) -> str:
    return f"{name} is not supported by {target.mapping.key} and was left out."


def refuse_marks(content: ImagesInput, target: Target) -> None:
    """Raise NotSupported for a mask or markup, for a model that accepts neither."""
    if content.marked:
        what = f"{target.mapping.key} does not support {content.marked}."
        raise NotSupported(what, param=content.marked, code="unsupported_input")


class WholeImages(ABC):
    """A codec or reader of a provider that returns all images at once."""

    @abstractmethod
    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """Return all images. UpstreamFailed."""

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield all images at the end of the stream."""
        try:
            result: ImagesResult = offload.read(self, reply, relayed)
        except GatewayError as error:
            yield [Failed(error)]
            return
        yield [Started(result.model, result.upstream_id), *_made(result)]
        yield [Finished("content_filter" if result.blocked else "stop", result.usage)]


def _made(result: ImagesResult) -> Iterator[ImageMade]:
    for image in result.images:
        yield ImageMade(
            image.media,
            edges=result.size,
            quality=result.quality,
            background=result.background,
            output_format=result.output_format,
        )


def data_url(picture: Picture, files: Base64Files) -> str:
    """Return the data URL of an image in a JSON body; `files` encodes the image while it sends the body."""
    return f"data:{picture.media_type};base64,{files.hold(picture.file)}"


def load_images(fetcher: Fetcher, urls: Sequence[str]) -> tuple[Image, ...]:
    """Return the images that an answer refers to by URL, fetched concurrently through the SSRF guard.
    UpstreamFailed."""
    jobs = [Job(_load, fetcher, url) for url in urls]
    try:
        return tuple(job.result(FETCH_TIMEOUT_S) for job in jobs)
    except TimeoutError:
        raise UpstreamFailed("The images at the provider's URLs could not be loaded in time.") from None
    finally:
        for job in jobs:
            job.stop()


def _load(fetcher: Fetcher, url: str) -> Image:
    try:
        answer = fetcher.fetch(url, MAX_BYTES, timeout_s=FETCH_TIMEOUT_S, headers={})
    except GatewayError as error:
        raise UpstreamFailed(f"An image at the provider's URL could not be loaded ({error.code}).") from None
    kind = type_of(answer.body[:HEAD_BYTES])
    if answer.status != 200 or kind not in ENDINGS:
        raise UpstreamFailed("The provider's URL did not lead to an image.", upstream_status=200)
    return Image(Media(media_type=kind, data=compute(b64encode, answer.body).decode()))
