"""Video jobs through the whole gateway: from creation to playback, exact money, and what becomes of them whatever dies."""

import json
import time
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share, usage_of

from gateway.limits.holds import Holds
from gateway.videos.states import COMPLETED, CREATING, FAILED
from gateway.videos.table import VideoJob

MODEL = "sandbox/sandbox-film"
SOON = "A kettle boils. [[sandbox: silent=0.01]]"
REFUSED = "A kettle boils. [[sandbox: silent=0.01 refusal]]"
LONG = "A kettle boils. [[sandbox: silent=3600]]"
COST = 4 * 10_000_000  # four seconds of 720p with sound


@pytest.fixture
def gateway(share: Share) -> LocalGateway:
    return share.gateway({"GATEWAY_VIDEO_POLL_S": "0.01", "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true"})


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def call(gateway: LocalGateway, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key if key is None else key}"} | more.pop("headers", {})
    if key == "":
        del headers["Authorization"]
    with httpx.Client(trust_env=False, timeout=20) as http:
        return http.request(method, f"{gateway.url}{path}", headers=headers, **more)


def begin(gateway: LocalGateway, prompt: str = SOON, **body: Any) -> dict[str, Any]:
    answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": prompt} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def look(gateway: LocalGateway) -> None:
    """One round of the leading worker, once what was begun is due."""
    time.sleep(0.02)
    gateway.services.engine.videos.poller.run()


def end_of(gateway: LocalGateway, ident: str) -> dict[str, Any]:
    """The job after its end."""
    for _ in range(50):
        look(gateway)
        job = call(gateway, "GET", f"/videos/{ident}").json()
        if job["status"] not in ("queued", "in_progress"):
            return job
    raise AssertionError(f"{ident} does not end")


def row(gateway: LocalGateway, ident: str) -> VideoJob:
    found = gateway.services.engine.videos.jobs.find(ident)
    assert found is not None
    return found


def left_of(gateway: LocalGateway) -> tuple[int, int]:
    """What of the credits is spent, and what is held."""
    sql = "SELECT settled_nusd, leased_nusd FROM budget WHERE id = ?"
    database = gateway.services.store.database
    found = database.read(lambda: database.execute(sql, (f"{gateway.organization_id}:credits",)).fetchone())
    return tuple(found)


def test_the_official_client_makes_polls_downloads_lists_and_deletes_a_video(gateway, sdk):
    begun = sdk.videos.create(model=MODEL, prompt=SOON, seconds="4", size="1280x720")
    assert (begun.status, begun.seconds, begun.size, begun.object) == ("queued", "4", "1280x720", "video")
    end_of(gateway, begun.id)
    video = sdk.videos.poll(begun.id)
    assert (video.status, video.progress, video.prompt) == ("completed", 100, SOON)
    film = sdk.videos.download_content(video.id).read()
    assert film[4:8] == b"ftyp" and len(film) > 10_000
    assert [one.id for one in sdk.videos.list()] == [video.id]
    assert sdk.videos.delete(video.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.videos.retrieve(video.id)


def test_a_video_is_paid_once_when_it_is_there(gateway):
    job = begin(gateway)
    assert left_of(gateway)[1] >= COST and usage_of(gateway) == []
    done = end_of(gateway, job["id"])
    assert done["usage"] == {"cost": 0.04, "cost_details": {"video_output_cost": 0.04, "image_input_cost": 0.0}}
    (record,) = usage_of(gateway)
    assert (record.cost_nusd, record.operation, record.served) == (COST, "videos", "sandbox-film")
    assert record.details == {"units": {"video_ms": 4000}, "nusd": {"video_output": COST}, "price_key": "720p_audio"}
    assert f"video_{record.request_id}" == job["id"]
    assert left_of(gateway) == (COST, 0)


def test_a_silent_video_has_the_price_of_one_without_sound(gateway):
    end_of(gateway, begin(gateway, audio=False)["id"])
    assert [one.cost_nusd for one in usage_of(gateway)] == [4 * 8_000_000]
