"""An upload on disk is deleted with its request, however that ends, and not when the garbage collector runs."""

from base64 import b64encode
from collections.abc import Iterator
from typing import IO, Any

import gevent
import httpx
import pytest
from fakes.server import FakeServer, send_json
from fakes.transcription_services import FakeTranscriptionServices
from support.gateways import LocalGateway
from support.media import providers_at
from support.shared import Share
from support.uploads import spooled_files

from gateway.providers.sandbox import speech
from gateway.runtime.large_files import StoredFile

LARGE_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2 << 20)
WHISPER = "openai/whisper-1"
LARGE = speech.make("wav", 60.0)  # two megabytes


@pytest.fixture
def upstream(share: Share) -> FakeTranscriptionServices:
    return share.fake(FakeTranscriptionServices)


@pytest.fixture
def gateway(share: Share, upstream: FakeTranscriptionServices) -> LocalGateway:
    return share.gateway(providers_at(upstream, {"OPENAI": "/v1", "MISTRAL": "/v1"}))


@pytest.fixture(autouse=True)
def held_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turn the collector off and keep a reference to each file, as a traceback may: only closing frees the file."""
    held: list[StoredFile] = []
    open_file = StoredFile._open

    def remember(file: StoredFile) -> IO[bytes]:
        held.append(file)
        return open_file(file)

    monkeypatch.setattr(StoredFile, "_open", remember)
    yield
    for stored in held:
        stored.close()


def post(gateway: LocalGateway, model: str, idempotency_key: str = "", **fields: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    with httpx.Client(timeout=20) as http:
        return http.post(
            f"{gateway.url}/audio/transcriptions",
            data={"model": model} | fields,
            files={"file": ("a.wav", LARGE)},
            headers=headers,
        )


def assert_gone(known: set[str]) -> None:
    with gevent.Timeout(60, AssertionError(spooled_files() - known)):
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
    with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.5) as http:
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


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"


BAD_PICTURES = {
    "no picture": b64encode(bytes(2 << 20)).decode(),
    "no base64 at its end": b64encode(LARGE_PICTURE).decode()[:-4] + "!!!!",
}


@pytest.mark.parametrize("bad", list(BAD_PICTURES))
@pytest.mark.parametrize("field", ["images.1.image_url", "mask"])
def test_a_picture_that_came_before_a_bad_one(gateway, bad, field):
    known = spooled_files()
    good = {"image_url": data_url(LARGE_PICTURE)}
    last = {"image_url": f"data:image/png;base64,{BAD_PICTURES[bad]}"}
    sent = {"images": [good], "mask": last} if field == "mask" else {"images": [good, last]}
    with httpx.Client(timeout=20) as http:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        body = {"model": "openai/gpt-image-1", "prompt": "A fox"} | sent
        answer = http.post(f"{gateway.url}/images/edits", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert_gone(known)


class CacheStore(FakeServer):
    """Media by their addresses."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        bodies = {"/sound": LARGE, "/picture": LARGE_PICTURE, "/page": bytes(2 << 20)}
        if environ["PATH_INFO"] not in bodies:
            return send_json(start, 404, {})
        body = bodies[environ["PATH_INFO"]]
        start("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
        return iter([body])


@pytest.mark.parametrize("path", ["/sound", "/page", "/nothing"])
def test_files_loaded_from_an_address_are_deleted(share, upstream, path):
    shelf = share.fake(CacheStore)
    reaching = providers_at(upstream, {"OPENAI": "/v1", "MISTRAL": "/v1"}) | {"GATEWAY_ALLOW_PRIVATE_MEDIA": "true"}
    gateway, known = share.gateway(reaching, name="reaching"), spooled_files()
    with httpx.Client(timeout=20) as http:
        form = {"model": (None, WHISPER), "url": (None, f"{shelf.url}{path}")}
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = http.post(f"{gateway.url}/audio/transcriptions", files=form, headers=headers)
        assert answer.status_code == (200 if path == "/sound" else 400)
        images = [{"image_url": f"{shelf.url}{one}"} for one in ("/picture", path)]
        body = {"model": "openai/gpt-image-1", "prompt": "A fox", "images": images}
        assert http.post(f"{gateway.url}/images/edits", json=body, headers=headers).status_code == 400
    assert_gone(known)
