"""Resolution of video requests for a mapping: length, size and audio, and the resulting maximum cost. Pure functions.

A mapping without `video_durations` or `video_sizes` supports any length or size; one with neither `video_audio` nor
`video_without_audio` supports both. Keys in `extra`: `last_frame` (supported), `reference_images`, `reference_videos`,
`reference_audios` (the maximum of each), `reference_seconds` (the only length of a video with references),
`needs_image` (a prompt without image is not supported).
"""

from msgspec import Struct

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import highest_rates
from gateway.errors import NotSupported
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.neutral.videos import DEFAULT_SECONDS, DEFAULT_SIZE, SECOND_MS, VideosInput, edges_of

REFERENCES = ("reference_images", "reference_videos", "reference_audios")
LAST_FRAME = "last_frame"
NEEDS_IMAGE = "needs_image"
REFERENCE_SECONDS = "reference_seconds"
# Providers that bill tokens count width x height x frames / 1024 (ByteDance, "Video generation: pricing"). Actual
# sizes differ slightly from nominal ones, and input videos of up to 15 seconds in total count too.
FRAMES = 24
PIXELS_PER_TOKEN = 1024
ROOM_PERCENT = 110
MAX_INPUT_SECONDS = 15
CODES = {"size": "size", "seconds": "seconds", "audio": "audio"}  # suffixes of error codes by field
NAMED_EDGES = {2160: "4k", 1440: "2k"}


class VideoShape(Struct, frozen=True):
    """The properties of one video. Every field is set: values that the caller did not give have their defaults."""

    seconds: int
    width: int
    height: int
    audio: bool

    @property
    def resolution(self) -> str:
        """Return the name of the shorter edge: "480p", "720p", "1080p", "4k" …"""
        edge = min(self.width, self.height)
        return NAMED_EDGES.get(edge, f"{edge}p")

    @property
    def size(self) -> str:
        return f"{self.width}x{self.height}"

    @property
    def price_key(self) -> str:
        return f"{self.resolution}_{'audio' if self.audio else 'video'}"


def fit(request: VideosInput, mapping: Mapping) -> VideoShape:
    """Return the video that `mapping` would make. Raise NotSupported if it cannot; another mapping may support it."""
    _check_inputs(request, mapping)
    width, height = edges_of(_size(request, mapping))
    return VideoShape(_seconds(request, mapping), width, height, _audio(request, mapping))


def max_usage(request: VideosInput, mapping: Mapping) -> Usage:
    """Return the maximum usage of the video at `mapping`: length and images, and tokens if they are billed.

    It is stored with the job for `finished_usage`. Raise NotSupported as `fit`.
    """
    shape = fit(request, mapping)
    tokens = 0
    if bills_tokens(mapping):
        seconds = shape.seconds + (MAX_INPUT_SECONDS if request.reference_videos else 0)
        pixels = shape.width * shape.height * FRAMES * seconds
        tokens = -(-pixels * ROOM_PERCENT // (100 * PIXELS_PER_TOKEN))
    return Usage(
        video_ms=shape.seconds * SECOND_MS,
        output=tokens,
        input_image=len(request.pictures),
        price_key=shape.price_key,
    )


def max_cost(request: VideosInput, mapping: Mapping, at_us: int) -> int:
    """Return the maximum cost of the video at `mapping` when requested at `at_us`, in nano-dollars at list price.

    `cost_of` never gives more for the usage of the finished job. Raise NotSupported as `fit`.
    """
    used = max_usage(request, mapping)
    rates = highest_rates(mapping, at_us, units=used)
    into = used.input_total * rates.input
    out = used.output_total * rates.output
    return rates.fixed - (-into // MILLION) - (-out // MILLION)


def bills_tokens(mapping: Mapping) -> bool:
    """Return whether its videos are priced by tokens instead of seconds."""
    return any(prices.base.per_video_token or prices.base.completion for prices in mapping.prices)


def _check_inputs(request: VideosInput, mapping: Mapping) -> None:
    if request.pictures and not mapping.vision:
        raise _unsupported(mapping, "does not accept images", "image")
    if request.last_frame is not None and not mapping.extra.get(LAST_FRAME):
        raise _unsupported(mapping, "does not support a last frame", "last_frame")
    for name in REFERENCES:
        count = len(getattr(request, name))
        maximum = mapping.extra.get(name, 0)
        if count > maximum:
            if maximum:
                reason = f"accepts up to {maximum} {name.replace('_', ' ')}"
            else:
                reason = f"does not accept {name.replace('_', ' ')}"
            raise _unsupported(mapping, reason, name)
    if mapping.extra.get(NEEDS_IMAGE) and not request.pictures:
        raise _unsupported(mapping, "requires an image", "image")


def _seconds(request: VideosInput, mapping: Mapping) -> int:
    offered = mapping.video_durations
    if mapping.extra.get(REFERENCE_SECONDS) and any(getattr(request, name) for name in REFERENCES):
        offered = (mapping.extra[REFERENCE_SECONDS],)
    if not request.seconds:
        return min(offered, key=_distance_from_usual, default=DEFAULT_SECONDS)
    if offered and request.seconds not in offered:
        lengths = ", ".join(map(str, offered))
        raise _unsupported(mapping, f"does not support {request.seconds} seconds; it supports {lengths}", "seconds")
    return request.seconds


def _distance_from_usual(seconds: int) -> tuple[int, int]:
    return abs(seconds - DEFAULT_SECONDS), seconds


def _size(request: VideosInput, mapping: Mapping) -> str:
    offered = mapping.video_sizes
    if not request.size:
        if DEFAULT_SIZE in offered or not offered:
            return DEFAULT_SIZE
        return offered[0]
    if offered and request.size not in offered:
        reason = f"does not support the size {request.size[:32]}; it supports {', '.join(offered)}"
        raise _unsupported(mapping, reason, "size")
    return request.size


def _audio(request: VideosInput, mapping: Mapping) -> bool:
    anything = mapping.video_audio == mapping.video_without_audio
    if request.audio is None:
        return anything or mapping.video_audio
    if not anything and request.audio != mapping.video_audio:
        raise _unsupported(mapping, f"does not support video with{'' if request.audio else 'out'} audio", "audio")
    return request.audio


def _unsupported(mapping: Mapping, reason: str, param: str) -> NotSupported:
    word = CODES.get(param, "input")
    return NotSupported(f"{mapping.key} {reason}.", param=param, code=f"unsupported_{word}")
