"""An upload that lies on the disk is gone with its request, however that ends, and not when the collector comes by."""

import gc
from base64 import b64encode
from collections.abc import Iterator

import gevent
import httpx
import pytest
from fakes.hearers import FakeHearers
from support.gateways import LocalGateway
from support.media import providers_at
from support.shared import Share
from support.uploads import spooled_files

from gateway.providers.sandbox import sounds

LARGE_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2 << 20)
WHISPER = "openai/whisper-1"
LARGE = sounds.make("wav", 60.0, "long")  # two megabytes


@pytest.fixture
def upstream(share: Share) -> FakeHearers:
    return share.fake(FakeHearers)


@pytest.fixture
def gateway(share: Share, upstream: FakeHearers) -> LocalGateway:
    return share.gateway(providers_at(upstream, {"OPENAI": "/v1", "MISTRAL": "/v1"}))


@pytest.fixture(autouse=True)
def collector_off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def post(gateway: LocalGateway, model: str, idempotency_key: str = "", **fields: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    with httpx.Client(trust_env=False, timeout=20) as http:
        return http.post(
            f"{gateway.url}/audio/transcriptions",
            data={"model": model} | fields,
            files={"file": ("a.wav", LARGE)},
            headers=headers,
        )


def assert_gone(known: set[str]) -> None:
    with gevent.Timeout(5, AssertionError(spooled_files() - known)):
        while spooled_files() - known:
            gevent.sleep(0.01)


@pytest.mark.parametrize("script", [[], [500], [500, 500], [400], [401], [429, 200]])
@pytest.mark.parametrize("streamed", ["false", "true"])
def test_whatever_the_provider_says(gateway, upstream, script, streamed):
    known = spooled_files()
    for status in script:
        upstream.script(status)
    post(gateway, WHISPER, stream=streamed)
    upstream.script()
    assert_gone(known)


def test_a_provider_that_is_not_there(share):
    nobody = {"LLM_OPENAI_API_KEY": "k", "LLM_OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    known = spooled_files()
    assert post(share.gateway(nobody, name="nobody"), WHISPER).status_code >= 500
    assert_gone(known)


def test_a_caller_who_hangs_up(gateway, upstream, monkeypatch):
    known = spooled_files()
    monkeypatch.setattr(upstream, "next_answer", lambda usual: gevent.sleep(2) or usual)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(trust_env=False, timeout=0.5) as http:
        files = {"file": ("a.wav", LARGE)}
        headers = {"Authorization": f"Bearer {gateway.key}"}
        http.post(f"{gateway.url}/audio/transcriptions", data={"model": WHISPER}, files=files, headers=headers)
    assert_gone(known)


def test_a_request_under_a_key_and_its_replay(gateway, upstream):
    known = spooled_files()
    first, again = (post(gateway, WHISPER, idempotency_key="upload-1") for _ in range(2))
    assert first.text == again.text and again.headers["idempotent-replayed"] == "true"
    assert_gone(known)


def test_a_refusal_before_any_call(gateway):
    known = spooled_files()
    assert post(gateway, "openai/no-such-model").status_code == 400
    assert post(gateway, WHISPER, temperature="hot").status_code == 400
    assert_gone(known)


def test_a_picture_that_came_before_a_bad_one(gateway):
    known = spooled_files()
    good, bad = (f"data:image/png;base64,{b64encode(one).decode()}" for one in (LARGE_PICTURE, b"<html></html>"))
    body = {"model": "openai/gpt-image-1", "prompt": "A fox", "images": [{"image_url": one} for one in (good, bad)]}
    with httpx.Client(trust_env=False, timeout=20) as http:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = http.post(f"{gateway.url}/images/edits", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "images.1.image_url")
    assert_gone(known)
