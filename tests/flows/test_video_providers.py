"""Videos through the whole gateway at strict fakes of their providers: begun, followed, paid, played."""

import base64
from pathlib import Path

import pytest
from fakes.video_services import FILM, KEY, TOKENS, FakeVideoServices
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.videos import call, end_of, left_of, look

from gateway.neutral.videos import VideoStatus
from gateway.providers.sandbox.images import png

PIXEL = "data:image/png;base64," + base64.b64encode(png(2, 2, "pixel")).decode()
# Entries that operators add for models with prices that the product does not know.
FILMS = """
[[mappings]]
model = "wan3.0-video"
external_id = "wan3.0-video"
operations = ["videos"]
protocol = "dashscope"
streaming = false
prices = { per_second = { 720p = "0.06" } }
"""
ATLAS = FILMS.replace("wan3.0-video", "atlas-film").replace("dashscope", "atlascloud")
HAILUO = FILMS.replace("wan3.0-video", "hailuo-2.3").replace("dashscope", "minimax") + 'extra = { video_form = "v1" }\n'
MODEL = """
[[models]]
id = "NAME"
name = "NAME"
family = "acme"
released = "2026-01-01"
output_modalities = ["video"]
"""
MODELS = "".join(MODEL.replace("NAME", name) for name in ("wan3.0-video", "atlas-film", "hailuo-2.3"))
# The cost of four seconds of 1280x720, or of the usage that the fake reports.
COSTS = {
    "google-vertex/veo-3.1-generate-001": 1_600_000_000,
    "xai/grok-imagine-video": 280_000_000,
    "bytedance/seedance-1-5-pro": TOKENS * 2_400,
    "bytedance/seedance-2-5": TOKENS * 10_700,
    "xai/grok-imagine-video-1.5-lite": 120_000_000,
    "minimax/minimax-h3": 320_000_000,
    "alibaba/wan3.0-video": 240_000_000,
    "atlascloud/atlas-film": 240_000_000,
}


@pytest.fixture
def services(share: Share) -> FakeVideoServices:
    return share.fake(FakeVideoServices)


@pytest.fixture
def gateway(share: Share, services: FakeVideoServices) -> LocalGateway:
    def environment(folder: Path) -> dict[str, str]:
        catalogue = folder / "catalogue"
        for place, text in (
            ("providers/alibaba.toml", FILMS),
            ("providers/atlascloud.toml", ATLAS),
            ("providers/minimax.toml", HAILUO),
            ("models/films.toml", MODELS),
        ):
            (catalogue / place).parent.mkdir(parents=True, exist_ok=True)
            (catalogue / place).write_text(text)
        bases = {"GOOGLE_VERTEX": "/vertex", "XAI": "/xai/v1", "BYTEDANCE": "/ark/api/v3", "MINIMAX": "/minimax/v1"}
        bases |= {"ALIBABA": "/qwen/compatible-mode/v1", "ATLASCLOUD": "/atlas/api/v1"}
        environment_of_services = {"GATEWAY_CATALOGUE_PATH": str(catalogue), "GATEWAY_VIDEO_POLL_S": "3600"}
        environment_of_services |= {"LLM_GOOGLE_VERTEX_PROJECT": "p", "LLM_GOOGLE_VERTEX_REGION": "us-central1"}
        environment_of_services |= {"LLM_GOOGLE_VERTEX_TOKEN_TYPE": "oauth"}
        for name, base in bases.items():
            environment_of_services |= {f"LLM_{name}_API_KEY": KEY, f"LLM_{name}_BASE_URL": services.address + base}
        return environment_of_services

    running = share.gateway(environment)
    running.app.background.stop()
    return running


def begin(gateway: LocalGateway, model: str, **body: object) -> dict:
    answer = call(gateway, "POST", "/videos", json={"model": model, "prompt": "A kettle boils."} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("model", list(COSTS))
def test_a_video_is_made_paid_and_played_at_its_provider(gateway, services, model):
    done = end_of(gateway, begin(gateway, model, seconds=4)["id"])
    assert (done["status"], done["error"]) == ("completed", None)
    assert [one.cost_nusd for one in usage_of(gateway)] == [COSTS[model]]
    assert done["usage"]["cost_details"] == {"video_output_cost": COSTS[model] / 1e9, "image_input_cost": 0.0}
    assert left_of(gateway) == (COSTS[model], 0)
    answer = call(gateway, "GET", f"/videos/{done['id']}/content")
    assert (answer.status_code, answer.content) == (200, FILM)
    assert answer.headers["content-type"] == "video/mp4"


def test_a_video_whose_address_is_requested_separately_is_played(gateway, services):
    done = end_of(gateway, begin(gateway, "minimax/hailuo-2.3", seconds=6, size="1366x768")["id"])
    assert done["status"] == "completed"
    path = f"/videos/{done['id']}/content"
    assert call(gateway, "GET", path, headers={"Range": "bytes=4-7"}).content == FILM
    lookup, download = services.calls[-2:]
    assert (lookup.path, lookup.part) == ("/minimax/v1/files/retrieve", "")
    assert (download.path, download.part) == ("/films/1.mp4", "bytes=4-7")


def test_a_large_inline_video_is_only_on_disk_and_fetched_once(gateway, services):
    services.inline = FILM[:16] + bytes(range(256)) * 2000
    done = end_of(gateway, begin(gateway, "google-vertex/veo-3.1-generate-001", seconds=4)["id"])
    path, calls_before = f"/videos/{done['id']}/content", len(services.calls)
    whole = call(gateway, "GET", path)
    assert whole.content == services.inline and whole.headers["content-type"] == "video/mp4"
    part = call(gateway, "GET", path, headers={"Range": "bytes=70000-70009", "If-Range": whole.headers["etag"]})
    assert (part.status_code, part.content) == (206, services.inline[70000:70010])
    stale = call(gateway, "GET", path, headers={"Range": "bytes=70000-70009", "If-Range": '"another"'})
    assert (stale.status_code, stale.content) == (200, services.inline)
    assert call(gateway, "GET", path, headers={"Range": f"bytes={len(services.inline)}-"}).status_code == 416
    assert len(services.calls) == calls_before + 1


def test_a_video_that_its_provider_has_forgotten_is_gone(gateway, services):
    done = end_of(gateway, begin(gateway, "google-vertex/veo-3.1-generate-001", seconds=4)["id"])
    services.tasks.clear()
    answer = call(gateway, "GET", f"/videos/{done['id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "video_content_gone")


@pytest.mark.parametrize("model", list(COSTS))
def test_a_video_that_a_filter_withheld_costs_nothing_and_shows_no_key(gateway, services, model):
    services.ending = "refused"
    done = end_of(gateway, begin(gateway, model, seconds=4)["id"])
    assert (done["status"], done["error"]["code"], done["usage"]["cost"]) == ("failed", "content_filter", 0)
    assert KEY not in done["error"]["message"]
    assert left_of(gateway) == (0, 0)


def test_an_image_is_the_first_frame_and_is_paid(gateway, services):
    done = end_of(gateway, begin(gateway, "xai/grok-imagine-video", seconds=4, image=PIXEL)["id"])
    assert done["usage"]["cost_details"] == {"video_output_cost": 0.28, "image_input_cost": 0.002}
    assert services.calls[0].body["image"]["url"] == PIXEL


def test_videos_that_no_provider_generates_are_refused_by_name_without_a_call(gateway, services):
    for wish, param in (
        ({"seconds": 5}, "seconds"),
        ({"size": "848x480"}, "size"),
        ({"reference_videos": ["https://a.example/b.mp4"]}, "reference_videos"),
    ):
        body = {"model": "google-vertex/veo-3.1-generate-001", "prompt": "A kettle boils."} | wish
        answer = call(gateway, "POST", "/videos", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert services.calls == [] and left_of(gateway) == (0, 0)


def test_a_left_out_preference_is_named(gateway, services):
    body = {"model": "atlascloud/atlas-film", "prompt": "A kettle boils.", "audio": False}
    answer = call(gateway, "POST", "/videos", json=body)
    assert answer.status_code == 200 and "audio" in answer.headers["x-llmgateway-warnings"]


@pytest.mark.parametrize("model", ["bytedance/seedance-1-5-pro", "alibaba/wan3.0-video"])
def test_a_job_that_waits_is_canceled_at_its_provider(gateway, services, model):
    job = begin(gateway, model, seconds=4)
    assert call(gateway, "DELETE", f"/videos/{job['id']}").status_code == 200
    (task,) = services.tasks.values()
    assert task.canceled and left_of(gateway) == (0, 0)


def test_malformed_answers_are_polled_again_and_never_a_500(gateway, services):
    services.script((200, b"<html>"), (200, {"id": 7}), (502, b"bad gateway"))
    answer = call(gateway, "POST", "/videos", json={"model": "bytedance/seedance-1-5-pro", "prompt": "A kettle boils."})
    assert answer.status_code == 502, answer.text
    assert left_of(gateway) == (0, 0)
    services._script.clear()
    job = begin(gateway, "bytedance/seedance-1-5-pro", seconds=4)
    services.script((200, b"<html>"), (200, {"status": None}), (500, {"error": {"message": f"No, {KEY}"}}))
    for _ in range(3):
        look(gateway)
        video = call(gateway, "GET", f"/videos/{job['id']}").json()
        assert video["status"] == "queued" and KEY not in str(video)
    assert end_of(gateway, job["id"])["status"] == "completed"


def test_a_provider_may_put_a_video_back_into_its_queue(gateway, monkeypatch):
    ident = begin(gateway, "google-vertex/veo-3.1-generate-001")["id"]
    seen = []
    for reported in ("queued", "in_progress", "in_progress", "queued"):
        status = VideoStatus(reported, progress=20)
        monkeypatch.setattr(gateway.services.engine.videos.calls, "status", lambda task, target, status=status: status)
        look(gateway)
        seen.append(call(gateway, "GET", f"/videos/{ident}").json()["status"])
    assert seen == ["queued", "in_progress", "in_progress", "queued"]
    monkeypatch.undo()
    assert end_of(gateway, ident)["status"] == "completed"
