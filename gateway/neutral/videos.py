"""A request for a video, the task that a provider makes of it, and the states that the task goes through.

A provider takes minutes: its first answer is a `VideoTask`, whose `ident` alone is needed to ask for a `VideoStatus`
later, from any process. What a job's row has to keep of it all is plain text and counts.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gateway.errors import InvalidRequest
from gateway.neutral.images import SHAPE, Picture
from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage, read_count
from gateway.runtime.large_files import StoredFile

VideoState = Literal["queued", "in_progress", "completed", "failed", "canceled", "expired"]
FINAL_STATES = frozenset(("completed", "failed", "canceled", "expired"))
USUAL_SECONDS = 4
USUAL_SIZE = "1280x720"
REFUSED = "content_filter"  # the error code of what a provider's filter let not pass
# What may be asked for where no mapping is known yet: more than any provider counts for one video.
MOST_SECONDS = 60
MOST_TOKENS_A_SECOND = 250_000
SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class VideosInput:
    """What is to be filmed. `seconds` 0, `size` "" (else width x height in pixels) and `audio` None were not named:
    the mapping chooses. Either frames or references are given, never both; images are in hand, `reference_videos` and
    `reference_audios` are https URLs that the provider loads itself."""

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
        """All images that are read."""
        frames = tuple(one for one in (self.first_frame, self.last_frame) if one is not None)
        return (*frames, *self.reference_images)


class VideosRequest(Request, eq=False):
    """`decode` gives a VideosInput."""

    operation: ClassVar[str] = "videos"


@dataclass(frozen=True, slots=True)
class VideoFile:
    """Where a finished video is: exactly one of the three is set.

    `url`: anybody may load it, without a credential, for a time (so it is a secret itself: it may be signed).
    `file`: plain text that `JobCodec.content` makes the call of, which needs the provider's key. `data`: the provider
    sent the bytes along with the state; whoever reads the status keeps or closes it.
    """

    url: str = ""
    file: str = ""
    data: StoredFile | None = None
    media_type: str = "video/mp4"


@dataclass(frozen=True, slots=True)
class VideoStatus:
    """How far a task is. `progress` is 0..100, and 0 where the provider tells none.

    `error_code` and `error_message` are set for "failed" and "expired", and shown to callers: scrubbed and capped;
    `error_code` is REFUSED where a filter of the provider let the prompt, the images or the video not pass. `files` are
    set for "completed". `video_ms` and `tokens` are what the provider counted, None where it does not say.
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
    """What a provider accepted. `ident` is all that later calls need beside the target. `status`: what it told at once,
    None where it has to be asked."""

    ident: str
    status: VideoStatus | None = None


def edges_of(size: str) -> tuple[int, int]:
    """Width and height of "1280x720". InvalidRequest."""
    found = SHAPE.fullmatch(size)
    if found is None:
        raise InvalidRequest(f"{size[:32]!r} is not a size: width x height in pixels.", param="size")
    return int(found[1]), int(found[2])


def units_of(wanted: VideosInput) -> Units:
    """What it may count as where no mapping is known yet; `gateway/catalogue/videos.py` knows it exactly for one."""
    seconds = wanted.seconds or USUAL_SECONDS
    likely = Usage(video_ms=seconds * SECOND_MS, input_image=len(wanted.pictures))
    longest = max(wanted.seconds, MOST_SECONDS)
    most = Usage(video_ms=longest * SECOND_MS, output=longest * MOST_TOKENS_A_SECOND, input_image=len(wanted.pictures))
    return Units(most, likely)


def finished_usage(reserved: Usage, status: VideoStatus) -> Usage:
    """What a completed task counts as, of what was `reserved` for it (`most_usage`): as much as the provider counted,
    and never more; all of it where the provider counts nothing, or zero."""
    made = min(read_count(status.video_ms) or reserved.video_ms, reserved.video_ms)
    tokens = min(read_count(status.tokens) or reserved.output, reserved.output)
    return Usage(
        video_ms=made,
        output=tokens,
        input_image=reserved.input_image,
        basis="estimated" if reserved.output and not read_count(status.tokens) else "provider",
        price_key=reserved.price_key,
    )
