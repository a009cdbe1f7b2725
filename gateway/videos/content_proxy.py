"""The bytes of a finished video, passed on from its provider as they come: hardly anything of them is kept here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from gateway.errors import GatewayError, NotFound, UpstreamFailed
from gateway.neutral.videos import VideoFile
from gateway.providers.job_calls import JobCalls
from gateway.providers.protocol import UpstreamReply
from gateway.runtime.byte_ranges import NoSuchRange, read_range
from gateway.runtime.large_files import PIECE
from gateway.videos.job_table import VideoJob
from gateway.videos.tasks import KeptFile, Sealed, Targets, Task
from gateway.videos.whole_videos import WholeVideo, WholeVideos

LONGEST_S = 1800.0  # of one transfer
WHOLE_S = 300.0  # until a video is here that comes as a whole
RANGED = ("range", "if-range")
ONE_PART = re.compile(r"bytes=\s*(\d+-\d*|-\d+)\s*", re.IGNORECASE)
# What of an upstream's head is the caller's business.
PASSED = ("content-length", "content-range", "etag", "last-modified")
NONE = "This video has no content any more."


@dataclass(frozen=True, slots=True)
class VideoContent:
    """A status of 200, 206 or 416, headers by lower-case name, and the pieces, which must be closed."""

    status: int
    headers: dict[str, str]
    pieces: Iterator[bytes]


class VideoContents:
    """Opens the content of jobs. Every call asks the provider, which decides how long it keeps a video."""

    def __init__(self, sealed: Sealed, targets: Targets, calls: JobCalls) -> None:
        self._sealed = sealed
        self._targets = targets
        self._calls = calls
        self._whole = WholeVideos()

    def open(self, job: VideoJob, ranged: dict[str, str]) -> VideoContent:
        """The content of a completed job; `ranged` are the caller's Range and If-Range. NotFound where the provider
        has it no more; errors of upstream calls, Unavailable."""
        files = self._sealed.files(job.files)
        if not files:
            raise NotFound(NONE, code="video_content_gone")
        if not ONE_PART.fullmatch(ranged.get("range", "")):
            ranged = {}  # several parts would come as a message of their own form; whoever asks for odd ones gets all
        task = self._sealed.task(job.task)
        kept = files[0]
        if kept.asks:
            load = partial(self._load, job, task)
            # Without its prompt there is a caller of whom nothing is kept, not even for a moment.
            if self._sealed.text(job.wish):
                video = self._whole.open(job.id, load)
            else:
                video = load()
            return _in_hand(video, job.id, ranged)
        target = self._targets.find(job.organization, task)
        file = VideoFile(url=kept.url, file=kept.file, media_type=kept.media_type)
        return _passed(self._calls.open(file, target, ranged, LONGEST_S), kept)

    def _load(self, job: VideoJob, task: Task) -> WholeVideo:
        """Of a provider that sends the bytes along with the state."""
        try:
            status = self._calls.status(task.ident, self._targets.find(job.organization, task), WHOLE_S, whole=True)
        except GatewayError as error:
            if error.upstream_status in (404, 410):
                raise NotFound(NONE, code="video_content_gone") from None
            raise
        file = next((one for one in status.files if one.data is not None), None)
        for other in status.files:
            if other is not file and other.data is not None:
                other.data.close()
        if file is None or file.data is None:
            raise NotFound(NONE, code="video_content_gone")
        return WholeVideo(file.data, file.media_type)


def _passed(reply: UpstreamReply, kept: KeptFile) -> VideoContent:
    headers = {name: value for name in PASSED if (value := reply.headers.get(name))}
    if "content-encoding" in reply.headers:  # it is unpacked here, so its length is another
        headers.pop("content-length", None)
    media = reply.headers.get("content-type", "")
    if media.startswith("video/"):
        headers["content-type"] = media
    else:
        headers["content-type"] = kept.media_type
    headers["accept-ranges"] = "bytes"
    return VideoContent(reply.status, headers, _Pieces(reply))


class _Pieces:
    """The bytes of a reply as they arrive; heartbeats are no bytes. The first are waited for: what fails until then can
    still be an answer of its own."""

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


def _in_hand(video: WholeVideo, name: str, ranged: dict[str, str]) -> VideoContent:
    """What lies here as a whole, or the part of it that is asked for."""
    size = len(video.data)
    tag = f'"{name}"'
    headers = {"content-type": video.media_type, "accept-ranges": "bytes", "etag": tag}
    wanted = ranged.get("range", "")
    if ranged.get("if-range") not in (None, tag):
        wanted = ""
    try:
        part = read_range(wanted, size)
    except NoSuchRange:
        video.give_back()
        return VideoContent(416, {**headers, "content-range": f"bytes */{size}", "content-length": "0"}, iter(()))
    if part is None:
        return VideoContent(200, {**headers, "content-length": str(size)}, _FilePieces(video, 0, size))
    start, end = part
    headers |= {"content-range": f"bytes {start}-{end - 1}/{size}", "content-length": str(end - start)}
    return VideoContent(206, headers, _FilePieces(video, start, end))


class _FilePieces:
    """A part of a video, which is given back with it."""

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
        piece = self._video.data.read(min(PIECE, self._end - self._at), self._at)
        if not piece:
            raise UpstreamFailed("The video ended before its end.")
        self._at += len(piece)
        return piece

    def close(self) -> None:
        if self._open:
            self._open = False
            self._video.give_back()
