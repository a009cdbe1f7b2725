"""The content of a finished video, streamed from its provider; almost nothing is stored here."""

import re
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from gateway.errors import GatewayError, NotFound, UpstreamFailed
from gateway.neutral.videos import VideoFile
from gateway.providers.job_calls import JobCalls
from gateway.providers.protocol import UpstreamReply
from gateway.runtime.byte_ranges import NoSuchRange, read_range
from gateway.runtime.large_files import PIECE_BYTES, StoredFile
from gateway.runtime.threads import Job, later
from gateway.videos.job_table import VideoJob
from gateway.videos.tasks import KeptFile, SealedColumns, Targets, Task

# Videos that their provider sends only in one piece, inside its status response. They are cached on this worker's
# disk for some minutes, because players request one range after another.

VIDEO_CACHE_S = 300.0
MAX_BYTES = 512 << 20  # total of all cached videos, unless a single one is larger


class WholeVideo:
    """A video on disk with a reference count: every holder releases it once, and the last release deletes it."""

    def __init__(self, data: StoredFile, media_type: str) -> None:
        self.data = data
        self.media_type = media_type
        self._holders = 1

    def hold(self) -> "WholeVideo":
        self._holders += 1
        return self

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.data.close()


class WholeVideos:
    """The cached videos of a worker, by the ids of their jobs."""

    def __init__(self) -> None:
        self._kept: dict[str, WholeVideo] = {}
        self._coming: dict[str, Job[GatewayError | None]] = {}

    def open(self, ident: str, load: Callable[[], WholeVideo]) -> WholeVideo:
        """Return a video, which the caller must release. Concurrent callers share one call of `load`, and its
        errors."""
        while ident not in self._kept:
            coming = self._coming.get(ident)
            if coming is None:
                coming = self._coming[ident] = Job(self._load, ident, load)
            error = coming.result()
            if error is not None:
                raise error
        return self._kept[ident].hold()

    def _load(self, ident: str, load: Callable[[], WholeVideo]) -> GatewayError | None:
        """Load and keep a video; return an error as a value, because an exception that leaves its greenlet is
        printed."""
        try:
            self._keep(ident, load())
        except GatewayError as error:
            return error
        finally:
            del self._coming[ident]
        return None

    def _keep(self, ident: str, video: WholeVideo) -> None:
        room = MAX_BYTES - len(video.data)
        for other in list(self._kept):  # the oldest first
            if sum(len(kept.data) for kept in self._kept.values()) <= room:
                break
            self._drop(other)
        self._kept[ident] = video
        later(VIDEO_CACHE_S, self._drop, ident)

    def _drop(self, ident: str) -> None:
        video = self._kept.pop(ident, None)
        if video is not None:
            video.release()


MAX_TRANSFER_S = 1800.0
WHOLE_VIDEO_TIMEOUT_S = 300.0  # timeout for loading a video that the provider sends in one response
RANGED = ("range", "if-range")
ONE_PART = re.compile(r"bytes=\s*(\d+-\d*|-\d+)\s*", re.IGNORECASE | re.ASCII)
# The upstream's response headers that are passed on.
PASSED = ("content-length", "content-range", "etag", "last-modified")
NO_CONTENT = "The content of this video is no longer available."


class VideoContent(Struct, frozen=True):
    """A response: status 200, 206 or 416, headers by lower-case name, and the pieces, which must be closed."""

    status: int
    headers: dict[str, str]
    pieces: Iterator[bytes]


class VideoContents:
    """Opens the content of jobs. Every call goes to the provider, which decides how long it keeps a video."""

    def __init__(self, sealed: SealedColumns, targets: Targets, calls: JobCalls) -> None:
        self._sealed = sealed
        self._targets = targets
        self._calls = calls
        self._whole = WholeVideos()

    def open(self, job: VideoJob, ranged: dict[str, str]) -> VideoContent:
        """Return the content of a completed job; `ranged` contains the caller's Range and If-Range headers. NotFound
        when the provider has deleted it; errors of upstream calls, Unavailable."""
        files = self._sealed.files(job.files)
        if not files:
            raise NotFound(NO_CONTENT, code="video_content_gone")
        if not ONE_PART.fullmatch(ranged.get("range", "")):
            # Several ranges would need a multipart response (RFC 9110, 14.6); the full content is sent instead.
            ranged = {}
        task = self._sealed.task(job.task)
        kept = files[0]
        if kept.asks:
            load = partial(self._load, job, task)
            # Jobs without a stored prompt belong to callers with zero retention: nothing is cached for them.
            video = self._whole.open(job.id, load) if self._sealed.text(job.wish) else load()
            return _stored_content(video, job.id, ranged)
        target = self._targets.find(job.organization, task)
        file = VideoFile(url=kept.url, file=kept.file, media_type=kept.media_type)
        return _streamed_content(self._calls.open(file, target, ranged, MAX_TRANSFER_S), kept)

    def _load(self, job: VideoJob, task: Task) -> WholeVideo:
        """Load the video from a provider that includes its bytes in the status response."""
        try:
            status = self._calls.status(
                task.ident, self._targets.find(job.organization, task), WHOLE_VIDEO_TIMEOUT_S, whole=True
            )
        except GatewayError as error:
            if error.upstream_status in (404, 410):
                raise NotFound(NO_CONTENT, code="video_content_gone") from None
            raise
        file = next((candidate for candidate in status.files if candidate.data is not None), None)
        for other in status.files:
            if other is not file and other.data is not None:
                other.data.close()
        if file is None or file.data is None:
            raise NotFound(NO_CONTENT, code="video_content_gone")
        return WholeVideo(file.data, file.media_type)


def _streamed_content(reply: UpstreamReply, kept: KeptFile) -> VideoContent:
    headers = {name: value for name in PASSED if (value := reply.headers.get(name))}
    if "content-encoding" in reply.headers:  # the gateway decodes the body, so its length differs
        headers.pop("content-length", None)
    media = reply.headers.get("content-type", "")
    if media.startswith("video/"):
        headers["content-type"] = media
    else:
        headers["content-type"] = kept.media_type
    headers["accept-ranges"] = "bytes"
    return VideoContent(reply.status, headers, _Pieces(reply))


class _Pieces:
    """The bytes of a reply as they arrive, without heartbeats. The first bytes are awaited in the constructor, so that
    an earlier failure can still become an error response."""

    def __init__(self, reply: UpstreamReply) -> None:
        self._reply = reply
        self._chunks = filter(None, reply.chunks())
        try:
            self._first = next(self._chunks, b"")
        except BaseException:
            reply.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = self._first
        self._first = b""
        return piece or next(self._chunks)

    def close(self) -> None:
        self._reply.close()


def _stored_content(video: WholeVideo, name: str, ranged: dict[str, str]) -> VideoContent:
    """Return a stored video, or the requested range of it."""
    size = len(video.data)
    tag = f'"{name}"'
    headers = {"content-type": video.media_type, "accept-ranges": "bytes", "etag": tag}
    range_header = ranged.get("range", "")
    if ranged.get("if-range") not in (None, tag):
        range_header = ""
    try:
        part = read_range(range_header, size)
    except NoSuchRange:
        video.release()
        return VideoContent(416, {**headers, "content-range": f"bytes */{size}", "content-length": "0"}, iter(()))
    if part is None:
        return VideoContent(200, {**headers, "content-length": str(size)}, _FilePieces(video, 0, size))
    start, end = part
    headers |= {"content-range": f"bytes {start}-{end - 1}/{size}", "content-length": str(end - start)}
    return VideoContent(206, headers, _FilePieces(video, start, end))


class _FilePieces:
    """A range of a stored video; closing it releases the video."""

    def __init__(self, video: WholeVideo, start: int, end: int) -> None:
        self._video = video
        self._at = start
        self._end = end
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._at >= self._end:
            raise StopIteration
        piece = self._video.data.read(min(PIECE_BYTES, self._end - self._at), self._at)
        if not piece:
            raise UpstreamFailed("The video is shorter than the provider announced.")
        self._at += len(piece)
        return piece

    def close(self) -> None:
        if self._open:
            self._open = False
            self._video.release()
