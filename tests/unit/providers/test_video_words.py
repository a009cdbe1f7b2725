"""States, ratios and errors of video tasks, in the words of each provider's API reference."""

import json
from typing import Any

import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.errors import (
    ContentRefused,
    InvalidRequest,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.neutral.request import Requirements
from gateway.neutral.videos import VideosInput, VideosRequest
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import FACTORIES, Resources
from gateway.runtime.large_files import whole

PROTOCOLS = ("openai", "xai", "bytedance", "dashscope", "minimax", "atlascloud")
RESOURCES = Resources(None, Clock(), lambda secret: secret)  # type: ignore[arg-type]
CODECS = {name: FACTORIES[name](RESOURCES).codecs["videos"] for name in PROTOCOLS}
FILM = "https://cdn.example/film.mp4"


def target(protocol: str, **extra: Any) -> Target:
    mapping = Mapping("acme", "film", "film-1", operations=("videos",), extra=extra)
    return Target(Provider("acme", "Acme", protocol), mapping, Credential("sk-x"), "https://fake.example/v1", {})


def answer(protocol: str, status: str) -> dict[str, Any]:
    """Return the answer to a query for a task with this status."""
    answers: dict[str, dict[str, Any]] = {
        "openai": {"id": "video_1", "status": status},
        "xai": {"status": status, "video": {"url": FILM} if status == "done" else None},
        "bytedance": {"id": "cgt-1", "status": status, "content": {"video_url": FILM}},
        "dashscope": {"output": {"task_id": "1", "task_status": status, "video_url": FILM}},
        "minimax": {"task_id": "1", "status": status, "file_id": "7", "base_resp": {"status_code": 0}},
        "minimax, second version": {"task": {"id": "1", "status": status, "content": {"url": FILM}}},
        "atlascloud": {"data": {"id": "1", "status": status, "outputs": [FILM]}},
    }
    return answers[protocol]


@pytest.mark.parametrize(
    ("protocol", "states"),
    [
        (
            "openai",
            {
                "queued": "queued",
                "in_progress": "in_progress",
                "completed": "completed",
                "failed": "failed",
                # of servers with the same format
                "pending": "queued",
                "processing": "in_progress",
                "succeeded": "completed",
                "cancelled": "canceled",
                "canceled": "canceled",
                "expired": "expired",
            },
        ),
        ("xai", {"pending": "in_progress", "done": "completed", "failed": "failed", "expired": "expired"}),
        (
            "bytedance",
            {
                "queued": "queued",
                "running": "in_progress",
                "succeeded": "completed",
                "failed": "failed",
                "cancelled": "canceled",
                "expired": "expired",
            },
        ),
        (
            "dashscope",
            {
                "PENDING": "queued",
                "RUNNING": "in_progress",
                "SUSPENDED": "in_progress",
                "SUCCEEDED": "completed",
                "FAILED": "failed",
                "CANCELED": "canceled",
                "UNKNOWN": "expired",
            },
        ),
        (
            "minimax",
            {
                "Preparing": "queued",
                "Queueing": "queued",
                "Processing": "in_progress",
                "Success": "completed",
                "Fail": "failed",
            },
        ),
        (
            "minimax, second version",
            {
                "queued": "queued",
                "running": "in_progress",
                "succeeded": "completed",
                "failed": "failed",
                "cancelled": "canceled",
            },
        ),
        (
            "atlascloud",
            {
                "created": "queued",
                "queued": "queued",
                "starting": "in_progress",
                "processing": "in_progress",
                "completed": "completed",
                "succeeded": "completed",
                "failed": "failed",
                "timeout": "expired",
                "canceled": "canceled",
            },
        ),
    ],
)
def test_each_state_of_a_task_is_known(protocol: str, states: dict[str, str]) -> None:
    name = protocol.partition(",")[0]
    found = {
        status: CODECS[name].read_status(json_reply(answer(protocol, status)), target(name)).state for status in states
    }
    assert found == states


def written(protocol: str, size: str, **wish: Any) -> dict[str, Any]:
    """Return the fields of the call that begins a task."""
    request = VideosRequest("film", Requirements(), lambda: VideosInput("A cat.", size=size, **wish))
    body: dict[str, Any] = json.loads(whole(CODECS[protocol].write(request, target(protocol)).body))
    return body | body.get("parameters", {})


SIZES = {
    "16:9": "1280x720",
    "9:16": "720x1280",
    "1:1": "1024x1024",
    "4:3": "1024x768",
    "3:4": "768x1024",
    "21:9": "1680x720",
    "3:2": "1080x720",
    "2:3": "720x1080",
}


@pytest.mark.parametrize(
    ("protocol", "ratios"),
    [
        ("xai", "1:1 16:9 9:16 4:3 3:4 3:2 2:3"),
        ("bytedance", "16:9 4:3 1:1 3:4 9:16 21:9"),
        ("dashscope", "16:9 9:16 1:1 4:3 3:4"),
        ("minimax", "16:9 9:16 1:1 4:3 3:4 21:9"),
        ("atlascloud", "16:9 9:16 1:1 4:3 3:4 21:9 3:2 2:3"),
    ],
)
def test_a_size_has_the_ratio_that_the_provider_offers(protocol: str, ratios: str) -> None:
    for ratio in ratios.split():
        fields = written(protocol, SIZES[ratio])
        assert fields.get("ratio", fields.get("aspect_ratio")) == ratio


def test_atlas_cloud_gets_length_and_resolution_unless_the_entry_lists_other_parameters() -> None:
    fields = written("atlascloud", "1280x720", seconds=8)
    assert (fields["duration"], fields["resolution"]) == (8, "720p") and not {"size", "generate_audio"} & fields.keys()


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (1001, UpstreamTimeout, ""),
        (1002, UpstreamRateLimited, ""),
        (1039, UpstreamRateLimited, ""),
        (1004, UpstreamRefused, "credential"),
        (2049, UpstreamRefused, "credential"),
        (1008, UpstreamRefused, "account"),
        (1026, ContentRefused, ""),
        (1027, ContentRefused, ""),
        (2013, InvalidRequest, ""),
        (1000, UpstreamFailed, ""),
    ],
)
def test_errors_that_minimax_reports_with_status_200_mean_what_they_say(code: int, error: type, message: str) -> None:
    wire = {"base_resp": {"status_code": code, "status_msg": "no"}}
    with pytest.raises(error) as caught:
        CODECS["minimax"].read(json_reply(wire), False)
    assert type(caught.value) is error and message in caught.value.message
