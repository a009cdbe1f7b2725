"""How statuses of a provider are read as the state of a video and its job."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.replies import json_reply

from gateway.errors import NotFound, UpstreamFailed
from gateway.neutral.videos import VideoFile, VideoStatus
from gateway.providers.job_calls import JobCalls
from gateway.providers.protocol import Call, Credential

TARGET = SimpleNamespace(credential=Credential("k"), address="https://vendor.example", trusted=False)
TEMPORARY = (408, 425, 429)  # timeout, too early, too many requests (RFC 9110, 8470 and 6585)
UNAUTHORIZED = (401, 403)


class Studio:
    """A provider, its codec and its transport: everything is answered with `status`."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.codecs = {"videos": self}

    def carrier(self, target: object) -> tuple[Any, Any]:
        return self, self

    def send(self, call: Call, target: object, deadline: float) -> Any:
        reply = json_reply({}, 200 if call.url == "status" else self.status_code)
        return SimpleNamespace(wait=lambda: reply)

    def open(self, method: str, url: str, headers: object, **more: object) -> Any:
        return json_reply({}, self.status_code)

    def status(self, ident: str, target: object) -> Call:
        return Call("GET", "status", {}, b"")

    def read_status(self, reply: object, target: object, whole: bool) -> VideoStatus:
        return VideoStatus("in_progress")

    def cancel(self, ident: str, target: object) -> Call:
        return Call("DELETE", "job", {}, b"")

    def failure(self, reply: Any, target: object) -> UpstreamFailed:
        return UpstreamFailed("failed")


def calls_to(status: int) -> JobCalls:
    studio = Studio(status)
    return JobCalls(studio, studio)  # type: ignore[arg-type]


def test_only_a_refusal_of_the_cancellation_means_that_a_job_cannot_be_canceled() -> None:
    for status in (400, 404, 405, 409, 410, 422):
        assert calls_to(status).cancel("job-1", TARGET) is False, status
    for status in (*TEMPORARY, *UNAUTHORIZED, 500):
        with pytest.raises(UpstreamFailed) as caught:
            calls_to(status).cancel("job-1", TARGET)
        assert caught.value.upstream_status == status
    assert calls_to(200).cancel("job-1", TARGET) is True


def test_a_video_is_gone_when_its_url_is_refused_for_good() -> None:
    film = VideoFile(url="https://cdn.example/film.mp4")
    for status in (403, 404, 410):  # signed URLs that have expired are answered with 403
        with pytest.raises(NotFound):
            calls_to(status).open(film, TARGET, {}, 1.0)
    for status in (*TEMPORARY, 500, 503):
        with pytest.raises(UpstreamFailed):
            calls_to(status).open(film, TARGET, {}, 1.0)
