"""The official clients of Node (`openai`, `cohere-ai`) for every operation that they have beside chat, over strict
fakes of the vendors: run by `make media` alone."""

import io
import json
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
from fakes.combined import FakeVendors
from fakes.embedding_services import vector_of
from fakes.image_services import PIXEL
from fakes.speech_services import sound_of
from fakes.transcription_services import HEARD, SECONDS
from PIL import Image
from support import npm
from support.gateways import GatewayProcess
from support.media import providers_at

from gateway.providers.sandbox import images, speech

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "media-clients"
PACKAGES = {"openai": "7.57.0", "cohere-ai": "8.1.0"}
RUN_S = 120


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the result of each call."""
    npm.install(CACHE, PACKAGES)
    node, folder = npm.node(CACHE), tmp_path_factory.mktemp("media")
    picture, sound = folder / "a.png", folder / "a.wav"
    picture.write_bytes(images.png(64, 48, "a picture"))
    sound.write_bytes(speech.make("wav", SECONDS))
    with FakeVendors() as upstream:
        environment = providers_at(upstream, {"OPENAI": "/v1", "COHERE": "/v2"})
        gateway = GatewayProcess(folder / "data", **environment, GATEWAY_BOOTSTRAP_CREDITS_USD="100")
        try:
            gateway.start()
            command = [node, HERE / "drive.mjs", CACHE, gateway.address, gateway.key, picture, sound]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_S)
        finally:
            gateway.stop()
        assert done.returncode == 0, done.stderr
        assert upstream.problems == []
    yield json.loads(done.stdout)


def test_texts_are_embedded_in_both_codings(results: dict[str, Any]) -> None:
    assert [item["embedding"] for item in results["embeddings"]["data"]] == [vector_of("one"), vector_of("three")]
    assert results["embeddings_float"]["data"][0]["embedding"] == vector_of("one", 4)
    assert results["embeddings"]["usage"]["prompt_tokens"] == 6


def test_images_are_made_and_changed(results: dict[str, Any]) -> None:
    for name, count in (("images", 2), ("edits", 1), ("edits_of_two", 1)):
        assert [item["b64_json"] for item in results[name]["data"]] == [PIXEL] * count, results[name]
        Image.open(io.BytesIO(b64decode(results[name]["data"][0]["b64_json"]))).load()


def test_images_stream(results: dict[str, Any]) -> None:
    kinds = [event["type"] for event in results["images_stream"]]
    assert kinds == [*["image_generation.partial_image"] * 2, "image_generation.completed"]
    assert [event["type"] for event in results["edits_stream"]] == ["image_edit.partial_image", "image_edit.completed"]
    assert results["images_stream"][-1]["usage"]["output_tokens"] == 1056


def test_texts_are_spoken(results: dict[str, Any]) -> None:
    assert b64decode(results["speech"]) == sound_of("Hello")
    samples, rate = soundfile.read(io.BytesIO(b64decode(results["speech_sandbox"])))
    assert len(samples) / rate == pytest.approx(len("Hello from Node") / 15, abs=0.06)


def test_sounds_are_heard(results: dict[str, Any]) -> None:
    assert results["transcriptions"]["text"] == results["translations"]["text"] == HEARD
    verbose = results["transcriptions_verbose"]
    assert (verbose["duration"], verbose["words"][0]["word"]) == (SECONDS, "Mary")
    assert results["transcriptions_srt"].startswith("1\n00:00:00,000 --> ")
    done = results["transcriptions_stream"][-1]
    assert (done["type"], done["text"]) == ("transcript.text.done", HEARD) and done["usage"]["input_tokens"] == 34


def test_texts_are_judged_and_ranked(results: dict[str, Any]) -> None:
    assert results["moderations"]["results"][0]["flagged"] is True
    ((best,), meta) = results["rerank"]["results"], results["rerank"]["meta"]
    assert (best["index"], best["relevanceScore"], meta["billedUnits"]["searchUnits"]) == (1, 0.12, 2)


def test_videos_are_made_followed_and_loaded(results: dict[str, Any]) -> None:
    video, of_image = results["video"], results["video_of_an_image"]
    assert (video["status"], video["seconds"], video["size"]) == ("queued", "4", "1280x720")
    assert of_image["status"] == "queued"
    assert (results["video_polled"]["status"], results["video_polled"]["progress"]) == ("completed", 100)
    assert b64decode(results["video_bytes"])[4:8] == b"ftyp"
    assert results["videos"] == [video["id"], of_image["id"]]  # page by page
    for name in ("video_edit", "video_remix", "video_afterwards"):
        assert results[name]["error"]["status"] == 404, results[name]
    assert results["video_deleted"] == {"id": video["id"], "object": "video.deleted", "deleted": True}


def test_a_refusal_is_the_clients_own_error(results: dict[str, Any]) -> None:
    error = results["refused"]["error"]
    assert (error["name"], error["status"], error["code"]) == ("BadRequestError", 400, "invalid_parameters")
