"""A finished video in a page of a real Chromium: by its signed link alone, from another origin, sought by parts."""

import json
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
import requests
from support.chromium import MARKS, PATIENCE_S, Chromium
from support.gateways import GatewayProcess

pytestmark = MARKS

PLAY = """(() => {
  window.film = document.createElement("video");
  film.events = [];
  for (const name of ["loadedmetadata", "playing", "seeked", "error"])
    film.addEventListener(name, () => film.events.push(name));
  film.muted = true;
  film.crossOrigin = "anonymous";
  film.src = %s;
  document.body.append(film);
  film.play();
})()"""


@pytest.fixture
def browser() -> Iterator[Chromium]:
    chromium = Chromium()
    yield chromium
    chromium.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path / "data", GATEWAY_VIDEO_POLL_S="0.2")
    yield process.start()
    process.discard()


def test_a_video_is_played_and_sought_by_its_link(gateway: GatewayProcess, browser: Chromium) -> None:
    body = {"model": "sandbox/sandbox-film", "prompt": "A kettle boils. [[sandbox: takes=0.1]]"}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    job = requests.post(f"{gateway.address}/v1/videos", json=body, headers=headers).json()
    with gevent.Timeout(PATIENCE_S, AssertionError("the video was never there")):
        while job["status"] in ("queued", "in_progress"):
            gevent.sleep(0.1)
            job = requests.get(f"{gateway.address}/v1/videos/{job['id']}", headers=headers).json()
    browser.run(PLAY % json.dumps(job["content"][0]["url"]))
    browser.wait_for("film.events.includes('playing') && film.currentTime > 0.2")
    assert browser.run("[film.videoWidth, film.videoHeight, Math.round(film.duration)]") == [640, 360, 4]
    browser.run("film.currentTime = 3")
    browser.wait_for("film.events.includes('seeked') && film.currentTime > 3")
    assert browser.run("film.events.includes('error') || film.error") in (False, None)
    # A page of another origin may read the pixels only if the answer allows it.
    context = "Object.assign(document.createElement('canvas').getContext('2d'), {})"
    browser.run(f"window.drawn = {context}; drawn.drawImage(film, 0, 0)")
    assert browser.run("drawn.getImageData(9, 9, 1, 1).data.length") == 4
