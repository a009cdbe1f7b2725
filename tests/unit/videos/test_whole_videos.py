"""Videos in one piece: loaded once for concurrent callers, kept while they are read, within a byte limit."""

import gevent
import pytest

from gateway.errors import UpstreamFailed
from gateway.runtime.large_files import StoredFile
from gateway.videos import content_proxy
from gateway.videos.content_proxy import WholeVideo, WholeVideos

FILM = b"film" * 100


def film() -> WholeVideo:
    return WholeVideo(StoredFile.of(FILM), "video/mp4")


def test_concurrent_callers_share_one_video() -> None:
    videos, loads = WholeVideos(), []

    def load() -> WholeVideo:
        loads.append(1)
        gevent.sleep(0.01)
        return film()

    asked = [gevent.spawn(videos.open, "a", load) for _ in range(3)]
    found = [one.get() for one in asked] + [videos.open("a", load)]
    assert len(loads) == 1 and all(one is found[0] for one in found)


def test_a_failed_load_is_repeated_for_the_next_caller() -> None:
    videos = WholeVideos()

    def fail() -> WholeVideo:
        raise UpstreamFailed("Not now.")

    for _ in range(2):
        with pytest.raises(UpstreamFailed):
            videos.open("a", fail)
    assert videos.open("a", film).data.read_all() == FILM


def test_the_oldest_makes_room_and_goes_with_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_proxy, "MAX_BYTES", 2 * len(FILM))
    videos = WholeVideos()
    first = videos.open("a", film)
    for ident in ("b", "c"):
        videos.open(ident, film).release()
    assert first.data.read_all() == FILM
    first.release()
    assert first.data.read_all() == b""
    assert videos.open("b", pytest.fail).data.read_all() == FILM
    assert videos.open("a", film) is not first
