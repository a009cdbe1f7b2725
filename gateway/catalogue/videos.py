"""What a mapping makes of a wish for a video: length, size and sound, and so what it costs at most. Pure.

A mapping without `video_durations` or `video_sizes` makes whatever length or size is asked for; one that tells neither
`video_audio` nor `video_without_audio` makes both. In `extra`: `last_frame` (it takes one), `reference_images`,
`reference_videos`, `reference_audios` (the most of each), `reference_seconds` (the only length of a video of those),
`needs_image` (it makes no video of a prompt alone).
"""

from dataclasses import dataclass

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import dearest
from gateway.errors import NotSupported
from gateway.money import MILLION
from gateway.neutral.usage import Usage
from gateway.neutral.videos import SECOND_MS, USUAL_SECONDS, USUAL_SIZE, VideosInput, edges_of

REFERENCES = ("reference_images", "reference_videos", "reference_audios")
LAST_FRAME = "last_frame"
NEEDS_IMAGE = "needs_image"
REFERENCE_SECONDS = "reference_seconds"
# Providers that bill tokens count width x height x frames / 1024 (ByteDance, "Video generation: pricing"), of sizes a
# little beside the nominal one, and of the videos that are read too: up to 15 seconds in all.
FRAMES = 24
PIXELS_A_TOKEN = 1024
ROOM_PERCENT = 110
MOST_READ_SECONDS = 15
CODES = {"size": "size", "seconds": "seconds", "audio": "audio"}  # ends of error codes, by the field that is wrong
NAMED_EDGES = {2160: "4k", 1440: "2k"}


@dataclass(frozen=True, slots=True)
class VideoShape:
    """What one video is made as. Every field is certain: what the caller did not name was chosen."""

    seconds: int
    width: int
    height: int
    audio: bool

    @property
    def resolution(self) -> str:
        """The name of the shorter edge: "480p", "720p", "1080p", "4k" …"""
        edge = min(self.width, self.height)
        return NAMED_EDGES.get(edge, f"{edge}p")

    @property
    def size(self) -> str:
        return f"{self.width}x{self.height}"

    @property
    def price_key(self) -> str:
        return f"{self.resolution}_{'audio' if self.audio else 'video'}"


def fit(wanted: VideosInput, mapping: Mapping) -> VideoShape:
    """What `mapping` would make. NotSupported for what it does not: another mapping may, else the caller is told."""
    _check_inputs(wanted, mapping)
    width, height = edges_of(_size(wanted, mapping))
    return VideoShape(_seconds(wanted, mapping), width, height, _audio(wanted, mapping))


def most_usage(wanted: VideosInput, mapping: Mapping) -> Usage:
    """The most that the video counts as at `mapping`: its length and images, and tokens where those are billed. It is
    kept with the job, for `finished_usage`. NotSupported as `fit`."""
    shape = fit(wanted, mapping)
    tokens = 0
    if bills_tokens(mapping):
        seconds = shape.seconds + (MOST_READ_SECONDS if wanted.reference_videos else 0)
        pixels = shape.width * shape.height * FRAMES * seconds
        tokens = -(-pixels * ROOM_PERCENT // (100 * PIXELS_A_TOKEN))
    return Usage(
        video_ms=shape.seconds * SECOND_MS,
        output=tokens,
        input_image=len(wanted.pictures),
        price_key=shape.price_key,
    )


def most_cost(wanted: VideosInput, mapping: Mapping, at_us: int) -> int:
    """The most that the video costs at `mapping` when it is asked for at `at_us`, in nano-dollars at list price: what
    `cost_of` makes of the usage of the finished job is never more. NotSupported as `fit`."""
    used = most_usage(wanted, mapping)
    rates = dearest(mapping, at_us, units=used)
    into = used.input_total * rates.input
    out = used.output_total * rates.output
    return rates.fixed - (-into // MILLION) - (-out // MILLION)


def bills_tokens(mapping: Mapping) -> bool:
    """Whether its videos are priced by tokens, not by seconds."""
    return any(prices.base.per_video_token or prices.base.completion for prices in mapping.prices)


def _check_inputs(wanted: VideosInput, mapping: Mapping) -> None:
    if wanted.pictures and not mapping.vision:
        raise _unsupported(mapping, "reads no images", "image")
    if wanted.last_frame is not None and not mapping.extra.get(LAST_FRAME):
        raise _unsupported(mapping, "takes no last frame", "last_frame")
    for name in REFERENCES:
        given = len(getattr(wanted, name))
        most = mapping.extra.get(name, 0)
        if given > most:
            if most:
                what = f"takes up to {most} {name.replace('_', ' ')}"
            else:
                what = f"takes no {name.replace('_', ' ')}"
            raise _unsupported(mapping, what, name)
    if mapping.extra.get(NEEDS_IMAGE) and not wanted.pictures:
        raise _unsupported(mapping, "makes videos of an image only", "image")


def _seconds(wanted: VideosInput, mapping: Mapping) -> int:
    offered = mapping.video_durations
    if mapping.extra.get(REFERENCE_SECONDS) and any(getattr(wanted, name) for name in REFERENCES):
        offered = (mapping.extra[REFERENCE_SECONDS],)
    if not wanted.seconds:
        return min(offered, key=lambda one: (abs(one - USUAL_SECONDS), one), default=USUAL_SECONDS)
    if offered and wanted.seconds not in offered:
        lengths = ", ".join(map(str, offered))
        raise _unsupported(mapping, f"makes no video of {wanted.seconds} seconds; it makes {lengths}", "seconds")
    return wanted.seconds


def _size(wanted: VideosInput, mapping: Mapping) -> str:
    offered = mapping.video_sizes
    if not wanted.size:
        if USUAL_SIZE in offered or not offered:
            return USUAL_SIZE
        return offered[0]
    if offered and wanted.size not in offered:
        what = f"makes no video of {wanted.size[:32]}; it makes {', '.join(offered)}"
        raise _unsupported(mapping, what, "size")
    return wanted.size


def _audio(wanted: VideosInput, mapping: Mapping) -> bool:
    anything = mapping.video_audio == mapping.video_without_audio
    if wanted.audio is None:
        return anything or mapping.video_audio
    if not anything and wanted.audio != mapping.video_audio:
        raise _unsupported(mapping, f"makes no video with{'' if wanted.audio else 'out'} sound", "audio")
    return wanted.audio


def _unsupported(mapping: Mapping, what: str, param: str) -> NotSupported:
    return NotSupported(f"{mapping.key} {what}.", param=param, code=f"unsupported_{CODES.get(param, 'input')}")
