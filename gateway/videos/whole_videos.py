"""Videos that their provider sends only as a whole, with its word on the state. They lie on the disk of this worker for
a moment, since players ask for one part after the other."""

from collections.abc import Callable

from gateway.errors import GatewayError
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import Job, later

KEPT_S, MOST_BYTES = 300.0, 512 << 20  # MOST_BYTES of all that are kept, unless one alone is larger


class WholeVideo:
    """A video on the disk. Whoever holds it gives it back, once; it goes with the last."""

    def __init__(self, data: StoredFile, media_type: str) -> None:
        self.data = data
        self.media_type = media_type
        self._holders = 1

    def hold(self) -> "WholeVideo":
        self._holders += 1
        return self

    def give_back(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.data.close()


class WholeVideos:
    """Those of a worker, by the ids of their jobs."""

    def __init__(self) -> None:
        self._kept: dict[str, WholeVideo] = {}
        self._coming: dict[str, Job[GatewayError | None]] = {}

    def open(self, ident: str, load: Callable[[], WholeVideo]) -> WholeVideo:
        """The video, to be given back; what `load` brings, which is called once for all who ask meanwhile. Its
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
        """An error as a value: one that left its greenlet would be printed."""
        try:
            self._keep(ident, load())
        except GatewayError as error:
            return error
        finally:
            del self._coming[ident]
        return None

    def _keep(self, ident: str, video: WholeVideo) -> None:
        room = MOST_BYTES - len(video.data)
        for other in list(self._kept):  # the oldest first
            if sum(len(one.data) for one in self._kept.values()) <= room:
                break
            self._drop(other)
        self._kept[ident] = video
        later(KEPT_S, self._drop, ident)

    def _drop(self, ident: str) -> None:
        video = self._kept.pop(ident, None)
        if video is not None:
            video.give_back()
