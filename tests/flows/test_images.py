"""Images through the whole gateway, with the official SDK: every vendor, exact money, bad files by name."""

import base64
from typing import Any

import httpx
import openai
import pytest
from fakes.image_services import PIXEL, FakeImageServices
from openai import OpenAI
from openai.types import ImageGenCompletedEvent
from support.gateways import LocalGateway
from support.media import providers_at, row_of, sdk_of
from support.shared import Share, usage_of

from gateway.providers.sandbox.images import png

PNG = png(64, 48, "a picture")
SANDBOX = "sandbox/sandbox-image"
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
# Model → nano-dollars of one image: tokens of text in and image out, or the image's own price.
COSTS = {
    "openai/gpt-image-1": 9 * 5_000 + 1056 * 40_000,
    "openai/gpt-image-1.5": 9 * 5_000 + 1056 * 32_000,
    "google-ai-studio/gemini-3-pro-image": 7 * 2_000 + 1290 * 120_000,
    "xai/grok-imagine-image": 20_000_000,
    "bytedance/seedream-4-0": 30_000_000,
    "alibaba/qwen-image-2.0": 35_000_000,
    "google-vertex/imagen-4.0-fast-generate-001": 20_000_000,
}
OPENAI, _, GOOGLE, XAI, ARK, QWEN, IMAGEN = COSTS


@pytest.fixture
def upstream(share: Share) -> FakeImageServices:
    return share.fake(FakeImageServices)


@pytest.fixture
def gateway(share: Share, upstream: FakeImageServices) -> LocalGateway:
    paths = {"OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "XAI": "/xai/v1", "BYTEDANCE": "/ark/v3"}
    paths |= {"ALIBABA": "/qwen/compatible-mode/v1", "GOOGLE_VERTEX": "/vertex/v1"}
    # The fake that names images by address is on this machine.
    more = {"GATEWAY_ALLOW_PRIVATE_MEDIA": "true", "LLM_GOOGLE_CLOUD_PROJECT": "acme"}
    return share.gateway(providers_at(upstream, paths) | more)


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return sdk_of(gateway)


def post(gateway: LocalGateway, path: str = "/images/generations", **body: Any) -> httpx.Response:
    with httpx.Client(timeout=20) as http:
        request = {"model": OPENAI, "prompt": "A red fox"} | body
        return http.post(f"{gateway.url}{path}", json=request, headers={"Authorization": f"Bearer {gateway.key}"})


@pytest.mark.parametrize("model", COSTS)
def test_every_vendor_draws_and_is_billed_to_the_nano_dollar(gateway, sdk, model):
    answer = sdk.images.generate(model=model, prompt="A red fox")
    assert [item.b64_json for item in answer.data] == [PIXEL]
    row = row_of(gateway, answer.metadata["log_id"])
    assert (row.cost_nusd, row.operation, row.details["units"]["images"]) == (COSTS[model], "images", 1)
    assert answer.usage.cost * 10**9 == pytest.approx(COSTS[model])


@pytest.mark.parametrize("model", [OPENAI, GOOGLE, XAI, ARK, QWEN])
def test_every_vendor_changes_pictures(gateway, sdk, upstream, model):
    answer = sdk.images.edit(model=model, prompt="Make it blue", image=("x.txt", PNG))
    assert [item.b64_json for item in answer.data] == [PIXEL]
    call = upstream.calls[-1]
    assert call.files.get("image") == PNG or base64.b64encode(PNG).decode() in str(call.body)
    json_answer = post(gateway, "/images/edits", model=model, images=[{"image_url": DATA_URL}])
    assert json_answer.status_code == 200, json_answer.text


def test_several_pictures_reach_vendors_that_take_json(gateway, upstream):
    for model, field, count in ((XAI, "images", 3), (ARK, "image", 4)):
        images = [{"image_url": DATA_URL}] * count
        assert post(gateway, "/images/edits", model=model, images=images).status_code == 200
        assert len(upstream.calls[-1].body[field]) == count
    refused = post(gateway, "/images/edits", model=XAI, images=[{"image_url": DATA_URL}] * 4).json()["error"]
    assert (refused["param"], refused["code"]) == ("images", "unsupported_input")


def test_several_pictures_and_a_mask_go_to_models_that_accept_them(gateway, sdk, upstream):
    sdk.images.edit(
        model=OPENAI,
        prompt="Join them",
        image=[("a.png", PNG), ("b.png", PNG)],
        mask=("m.png", PNG),
        output_compression=80,
    )
    assert set(upstream.calls[-1].files) == {"image[]", "mask"}
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.images.edit(model=GOOGLE, prompt="x", image=("a.png", PNG), mask=("m.png", PNG))
    assert (caught.value.param, caught.value.code) == ("mask", "unsupported_input")


def test_a_markup_lies_over_the_picture_and_is_not_counted_as_one(sdk, upstream):
    sdk.images.edit(model=OPENAI, prompt="As drawn", image=("a.png", PNG), markup=("m.png", PNG))
    assert set(upstream.calls[-1].files) == {"image", "markup"}
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.images.edit(model=GOOGLE, prompt="x", image=("a.png", PNG), markup=("m.png", PNG))
    assert (caught.value.param, caught.value.code) == ("markup", "unsupported_input")


def test_size_quality_and_number_are_passed_on_and_priced(gateway, upstream):
    post(gateway, quality="standard")
    assert upstream.calls[-1].body["quality"] == "medium"
    answer = post(gateway, size="1024x1536", quality="hd", n=2).json()
    assert upstream.calls[-1].body | {"prompt": ""} == {
        "model": "gpt-image-1",
        "prompt": "",
        "size": "1024x1536",
        "quality": "high",
        "n": 2,
    }
    row = row_of(gateway, answer["metadata"]["log_id"])
    assert row.details["price_key"] == "high/1024x1536" and len(answer["data"]) == 2
    assert post(gateway, model=GOOGLE, size="1536x1024").status_code == 200
    assert upstream.calls[-1].body["generationConfig"]["imageConfig"] == {"aspectRatio": "3:2"}


def test_images_without_reported_usage_are_billed_by_quality_and_size(gateway, upstream, monkeypatch):
    monkeypatch.setattr(upstream, "silent", True)
    answer = post(gateway, model=GOOGLE).json()
    row = row_of(gateway, answer["metadata"]["log_id"])
    assert row.cost_nusd > 0 and row.details["units"]["images"] == 1


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, {"input_tokens": 9}])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_image_is_never_free_whatever_usage_is_reported(gateway, upstream, monkeypatch, usage, streamed):
    monkeypatch.setattr(upstream, "usage", usage or None)
    monkeypatch.setattr(upstream, "silent", not usage)
    answer = post(gateway, size="1024x1024", quality="medium", stream=streamed)
    assert PIXEL in answer.text
    row = row_of(gateway, answer.headers["x-request-id"])
    prompt = usage.get("input_tokens") or 3
    assert (row.usage_basis, row.cost_nusd) == ("estimated", prompt * 5_000 + 1056 * 40_000)


def test_images_that_never_came_are_not_billed(gateway, upstream, monkeypatch):
    monkeypatch.setattr(upstream, "silent", True)
    monkeypatch.setattr(upstream, "most_made", 1)
    answer = post(gateway, size="1024x1024", quality="medium", n=10).json()
    row = row_of(gateway, answer["metadata"]["log_id"])
    assert len(answer["data"]) == row.details["units"]["images"] == 1
    assert (row.usage_basis, row.cost_nusd) == ("estimated", 3 * 5_000 + 1056 * 40_000)


def test_auto_is_the_configured_model_and_the_sandbox_without_a_key(gateway, share: Share):
    assert post(gateway, model="auto").json()["model"] == GOOGLE
    alone = share.gateway({}, name="alone")
    answer = post(alone, model="auto").json()
    assert answer["model"] == SANDBOX and base64.b64decode(answer["data"][0]["b64_json"]).startswith(b"\x89PNG")


def test_a_request_with_stream_gets_events(sdk):
    events = list(sdk.images.generate(model=SANDBOX, prompt="A fox", stream=True, size="64x64"))
    assert [event.type for event in events] == ["image_generation.completed"]
    assert events[0].usage.total_tokens > 0 and events[0].b64_json


@pytest.mark.parametrize("partial_images", [0, 2])
def test_images_on_their_way_are_shown_as_the_vendor_shows_them(gateway, sdk, partial_images):
    stream = sdk.images.generate(model=OPENAI, prompt="A fox", stream=True, partial_images=partial_images)
    events = list(stream)
    kinds = ["image_generation.partial_image"] * partial_images + ["image_generation.completed"]
    assert [event.type for event in events] == kinds
    assert [event.partial_image_index for event in events[:-1]] == list(range(partial_images))
    assert all(event.b64_json == PIXEL and event.quality == "medium" for event in events)
    usage = events[-1].usage
    assert (usage.input_tokens, usage.output_tokens) == (9, 1056)
    row = row_of(gateway, stream.response.headers["x-request-id"])
    assert row.cost_nusd == COSTS[OPENAI]


def test_pictures_that_are_changed_stream_too(sdk):
    stream = sdk.images.edit(model=OPENAI, prompt="x", image=("a.png", PNG), stream=True, partial_images=1)
    assert [event.type for event in stream] == ["image_edit.partial_image", "image_edit.completed"]


@pytest.mark.parametrize(("model", "n"), [(OPENAI, 2), (XAI, 2), (QWEN, 2), (GOOGLE, 1)])
def test_a_vendor_that_does_not_stream_gives_the_completed_events_alone(sdk, upstream, model, n):
    events = list(sdk.images.generate(model=model, prompt="A fox", n=n, stream=True, partial_images=3))
    assert [event.type for event in events] == ["image_generation.completed"] * n
    for event in events:
        ImageGenCompletedEvent.model_validate(event.model_dump())
    assert "stream" not in upstream.calls[-1].body


def test_a_failure_before_the_first_event_is_a_plain_error_response(sdk, upstream):
    upstream.script(500)
    with pytest.raises(openai.InternalServerError):
        sdk.images.generate(model=OPENAI, prompt="A fox", stream=True)


def test_ratios_sizes_and_numbers_reach_alibaba_in_its_words(gateway, upstream):
    answer = post(gateway, model=QWEN, aspect_ratio="16:9", n=3, quality="high").json()
    assert upstream.calls[-1].body["parameters"] == {"n": 3, "watermark": False, "size": "2688*1536"}
    assert len(answer["data"]) == 3 and "quality" in answer["metadata"]["warnings"][0]
    post(gateway, model=QWEN, size="1024x1536")
    assert upstream.calls[-1].body["parameters"]["size"] == "1024*1536"
    before = len(upstream.calls)
    assert len(post(gateway, model=QWEN, n=7).json()["data"]) == 7
    assert sorted(call.body["parameters"]["n"] for call in upstream.calls[before:]) == [1, 6]


def test_several_images_of_a_model_that_makes_one_in_a_call_come_in_several(gateway, sdk, upstream):
    answer = sdk.images.generate(model=GOOGLE, prompt="A red fox", n=3)
    assert len(answer.data) == len(upstream.calls) == 3 and all(row.b64_json == PIXEL for row in answer.data)
    row = row_of(gateway, answer.metadata["log_id"])
    assert (row.cost_nusd, answer.usage.cost) == (3 * COSTS[GOOGLE], 3 * COSTS[GOOGLE] / 1e9)
    edited = sdk.images.edit(model=GOOGLE, prompt="Bluer", image=("a.png", PNG), n=2)
    assert len(edited.data) == 2 and len(upstream.calls) == 5


def test_one_of_several_images_that_fails_is_a_failure_of_all_and_the_others_are_paid(gateway, upstream):
    upstream.script(200, 500)
    answer = post(gateway, model=GOOGLE, n=2)
    assert answer.status_code == 502
    assert sum(row.cost_nusd for row in usage_of(gateway)) in (0, COSTS[GOOGLE])  # the calls are made at once


def test_a_ratio_is_honoured_in_each_vendors_words(gateway, upstream):
    post(gateway, aspect_ratio="16:9", size="1024x1024")
    assert upstream.calls[-1].body["size"] == "1536x1024" and "aspect_ratio" not in upstream.calls[-1].body
    post(gateway, model=GOOGLE, aspect_ratio="21:9")
    assert upstream.calls[-1].body["generationConfig"]["imageConfig"] == {"aspectRatio": "21:9"}
    post(gateway, model=IMAGEN, size="1536x1024", n=4)
    assert upstream.calls[-1].body["parameters"] == {"sampleCount": 4, "aspectRatio": "4:3"}
    post(gateway, model=XAI, aspect_ratio="3:2")
    assert upstream.calls[-1].body["aspect_ratio"] == "3:2"
    before = len(upstream.calls)
    assert len(post(gateway, model=IMAGEN, n=5).json()["data"]) == 5
    assert sorted(call.body["parameters"]["sampleCount"] for call in upstream.calls[before:]) == [1, 4]


@pytest.mark.parametrize("ratio", ["1:1", "16:9", "4:3", "5:4", "4:5"])
def test_every_documented_ratio_reaches_google(gateway, upstream, ratio):
    answer = post(gateway, model=GOOGLE, aspect_ratio=ratio)
    assert answer.status_code == 200 and "warnings" not in answer.json()["metadata"]
    assert upstream.calls[-1].body["generationConfig"]["imageConfig"] == {"aspectRatio": ratio}


LACKING = [
    (OPENAI, {"size": "100x100", "quality": "max"}),
    (GOOGLE, {"aspect_ratio": "7:3", "size": "huge", "quality": "high", "style": "vivid"}),
    (IMAGEN, {"aspect_ratio": "5:4", "size": "4K", "quality": "low"}),
    (XAI, {"aspect_ratio": "5:4", "size": "1024x1024", "quality": "high"}),
    (ARK, {"aspect_ratio": "5:4", "quality": "low"}),
    (QWEN, {"aspect_ratio": "5:4", "size": "big", "quality": "high"}),
]
CHANGED = [("/images/edits", *one) for one in LACKING if one[0] != IMAGEN]


@pytest.mark.parametrize(("path", "model", "wishes"), [("/images/generations", *one) for one in LACKING] + CHANGED)
def test_unsupported_preferences_are_left_out_with_a_warning(gateway, upstream, path, model, wishes):
    image_fields = {"images": [{"image_url": DATA_URL}]} if path == "/images/edits" else {}
    answer = post(gateway, path, model=model, **image_fields, **wishes)
    assert answer.status_code == 200, answer.text
    warnings = answer.json()["metadata"]["warnings"]
    expected = set(wishes) - ({"style"} if path == "/images/edits" and model == OPENAI else set())
    assert {text.split()[0] for text in warnings} == expected
    assert warnings[0].split()[0] in answer.headers["x-llmgateway-warnings"]
    row = row_of(gateway, answer.json()["metadata"]["log_id"])
    assert row.details["price_key"].startswith(("auto/", "medium/"))


def test_a_stream_of_images_names_what_was_left_out(gateway):
    answer = post(gateway, model=IMAGEN, aspect_ratio="5:4", stream=True)
    assert answer.status_code == 200 and "image_generation.completed" in answer.text


def test_a_filtered_image_is_an_empty_response(gateway, upstream, monkeypatch):
    monkeypatch.setattr(upstream, "blocked", True)
    answer = post(gateway, model=GOOGLE)
    assert (answer.status_code, answer.json()["data"]) == (200, [])


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": ""}, "prompt", "invalid_parameters"),
        ({"n": 11}, "n", "invalid_parameters"),
        ({"quality": "best"}, "quality", "invalid_parameters"),
        ({"model": "openai/gpt-5.6-luna"}, "model", "model_not_supported"),
        ({"images": []}, "images", "invalid_parameters"),
        ({"images": [{"image_url": "ftp://x"}]}, "images.0.image_url", "invalid_parameters"),
        ({"images": [{"image_url": "data:image/png;base64,%%"}]}, "images.0.image_url", "invalid_parameters"),
        ({"images": [{"image_url": "data:image/png;base64,aGk="}]}, "images.0.image_url", "unsupported_media"),
        ({"images": [{"image_url": "http://127.0.0.1:1/a.png"}]}, "images.0.image_url", "media_not_loaded"),
    ],
)
def test_each_invalid_input_is_named_and_reaches_no_provider(gateway, upstream, body, param, code):
    before = len(upstream.calls)
    answer = post(gateway, "/images/edits" if "images" in body else "/images/generations", **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code), error
    assert error["param"] == param or code == "model_not_supported"
    assert len(upstream.calls) == before


@pytest.mark.parametrize(("file", "code"), [(b"", "empty_file"), (b"<svg/>", "unsupported_media")])
def test_a_file_that_is_no_picture_is_refused(sdk, file, code):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.images.edit(model=OPENAI, prompt="x", image=("a.png", file))
    assert (caught.value.param, caught.value.code) == ("image", code)


@pytest.mark.parametrize("number", ["²", "9" * 5_000])
def test_an_invalid_number_in_a_form_is_named(gateway: LocalGateway, number: str) -> None:
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        form = {"model": OPENAI, "prompt": "x", "n": number}
        answer = http.post(f"{gateway.url}/images/edits", data=form, files={"image": ("a.png", PNG)})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


@pytest.mark.parametrize("size", ["²x³", "1024x²"])
def test_an_invalid_size_is_not_an_internal_error(gateway: LocalGateway, size: str) -> None:
    assert post(gateway, model=GOOGLE, size=size).status_code in (200, 400)


def call_tool(gateway: LocalGateway, name: str, **arguments: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Authorization": f"Bearer {gateway.key}", "Accept": "application/json, text/event-stream"}
    with httpx.Client(timeout=20, headers=headers) as http:
        return http.post(f"{gateway.url.removesuffix('/v1')}/mcp", json=message).json()["result"]


def test_the_tools_accept_every_ratio_and_report_dropped_options(gateway, upstream):
    result = call_tool(gateway, "generate-alt-image", prompt="A boat", aspect_ratio="5:4")
    assert [block["type"] for block in result["content"]] == ["image"]
    assert upstream.calls[-1].body["generationConfig"]["imageConfig"] == {"aspectRatio": "5:4"}
    result = call_tool(gateway, "generate-image", prompt="A boat", model=XAI, size="1024x1024")
    assert [block["type"] for block in result["content"]] == ["image", "text"]
    assert result["content"][1]["text"].startswith("Note: size is not supported by xai/")


@pytest.mark.parametrize(("ratio", "edges"), [("1:1", (1024, 1024)), ("5:4", (1152, 912)), ("16:9", (1360, 768))])
def test_the_sandbox_draws_in_the_ratio_that_is_named(gateway, ratio, edges):
    answer = post(gateway, model=SANDBOX, aspect_ratio=ratio).json()
    assert answer["size"] == f"{edges[0]}x{edges[1]}" and "warnings" not in answer["metadata"]
