"""Videos that their provider sends only in one piece, inside its status response. They are cached on this worker's disk
for some minutes, because players request one range after another."""

from collections.abc import Callable

from gateway.errors import GatewayError
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import Job, later

CACHE_S = 300.0
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
        later(CACHE_S, self._drop, ident)

    def _drop(self, ident: str) -> None:
        video = self._kept.pop(ident, None)
        if video is not None:
            video.release()
