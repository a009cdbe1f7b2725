"""Requests for videos, the provider's task for a request, and the states of the task.

A provider takes minutes: its first response is a `VideoTask`, whose `ident` is enough to poll for a `VideoStatus`
later, from any process. The row of a job stores only plain text and counts.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.neutral.images import SHAPE, Picture
from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage, read_count
from gateway.runtime.large_files import StoredFile

VideoState = Literal["queued", "in_progress", "completed", "failed", "canceled", "expired"]
FINAL_STATES = frozenset(get_args(VideoState)) - {"queued", "in_progress"}
DEFAULT_SECONDS = 4
DEFAULT_SIZE = "1280x720"
CONTENT_FILTER = "content_filter"  # error code if a provider's filter rejected the request or the video
# Limits that apply before a mapping is chosen: more than any provider counts for one video.
MAX_SECONDS = 60
MAX_TOKENS_PER_SECOND = 250_000
SECOND_MS = 1_000


class VideosInput(Struct, frozen=True):
    """A video request.

    `seconds` 0, `size` "" (else width x height in pixels) and `audio` None were not given: the mapping has defaults.
    Frames and references are never both given; images are loaded, `reference_videos` and `reference_audios` are https
    URLs that the provider loads itself.
    """

    prompt: str
    seconds: int = 0
    size: str = ""
    audio: bool | None = None
    first_frame: Picture | None = None
    last_frame: Picture | None = None
    reference_images: tuple[Picture, ...] = ()
    reference_videos: tuple[str, ...] = ()
    reference_audios: tuple[str, ...] = ()

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Return all input images."""
        frames = tuple(frame for frame in (self.first_frame, self.last_frame) if frame is not None)
        return (*frames, *self.reference_images)


class VideosRequest(Request, eq=False):
    """A videos request. `decode` returns a VideosInput."""

    operation: ClassVar[str] = "videos"


class VideoFile(Struct, frozen=True):
    """The location of a finished video: exactly one of the three is set.

    `url` can be loaded without a credential for a limited time, so it is a secret itself (it may be signed). `file` is
    plain text from which `JobCodec.content` builds the call, which needs the provider's key. `data` was sent with the
    status; the reader of the status must keep or close it.
    """

    url: str = ""
    file: str = ""
    data: StoredFile | None = None
    media_type: str = "video/mp4"


class VideoStatus(Struct, frozen=True):
    """The progress of a task. `progress` is 0 to 100, and 0 if the provider reports none.

    `error_code` and `error_message` are set for "failed" and "expired" and shown to callers: scrubbed and capped.
    `error_code` is CONTENT_FILTER if a filter of the provider rejected the prompt, the images or the video. `files` are
    set for "completed". `video_ms` and `tokens` are the provider's counts, None if not reported.
    """

    state: VideoState
    progress: int = 0
    error_code: str = ""
    error_message: str = ""
    files: tuple[VideoFile, ...] = ()
    video_ms: int | None = None
    tokens: int | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


@dataclass(slots=True, unsafe_hash=True, kw_only=True)
class VideoTask(WholeResult):
    """A task that a provider accepted.

    `ident` is all that later calls need besides the target. `status` is the initial status, or None if it must be
    polled.
    """

    ident: str
    status: VideoStatus | None = None


def edges_of(size: str) -> tuple[int, int]:
    """Return width and height of "1280x720". Raise InvalidRequest for other texts."""
    match = SHAPE.fullmatch(size)
    if match is None:
        raise InvalidRequest(f"{size[:32]!r} is not a valid size; use width x height in pixels.", param="size")
    return int(match[1]), int(match[2])


def units_of(content: VideosInput) -> Units:
    """Return the billable units before a mapping is known; `gateway/catalogue/video_shapes.py` computes those of a
    mapping exactly.
    """
    seconds = content.seconds or DEFAULT_SECONDS
    likely = Usage(video_ms=seconds * SECOND_MS, input_image=len(content.pictures))
    longest = max(content.seconds, MAX_SECONDS)
    maximum = Usage(
        video_ms=longest * SECOND_MS, output=longest * MAX_TOKENS_PER_SECOND, input_image=len(content.pictures)
    )
    return Units(maximum, likely)


def finished_usage(reserved: Usage, status: VideoStatus) -> Usage:
    """Return the usage of a completed task, of which `reserved` was reserved (`max_usage`).

    The provider's counts apply up to the reserved amounts; without counts, or with zero, the reserved amounts apply.
    """
    made = min(read_count(status.video_ms) or reserved.video_ms, reserved.video_ms)
    tokens = min(read_count(status.tokens) or reserved.output, reserved.output)
    return Usage(
        video_ms=made,
        output=tokens,
        input_image=reserved.input_image,
        basis="estimated" if reserved.output and not read_count(status.tokens) else "provider",
        price_key=reserved.price_key,
    )
