"""Image models on chat completions, with the official SDK: images in the message, money and rules as on /v1/images."""

import base64
from typing import Any

import openai
import pytest
from fakes.image_services import PIXEL, FakeImageServices
from openai import OpenAI
from support.media import providers_at, row_of, sdk_of
from support.shared import Share, Tenant, usage_of

from gateway.accounts.rules import add_rule
from gateway.providers.sandbox.images import png

PNG = png(64, 48, "a picture")
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
SANDBOX = "sandbox/sandbox-image"
# Model → nano-dollars of one image: tokens of text in and image out, or the image's own price.
COSTS = {
    "openai/gpt-image-1": 9 * 5_000 + 1056 * 40_000,
    "xai/grok-imagine-image": 20_000_000,
    "alibaba/qwen-image-2.0": 35_000_000,
    "google-vertex/imagen-4.0-fast-generate-001": 20_000_000,
}
OPENAI, XAI, QWEN, IMAGEN = COSTS
FOX = [{"role": "user", "content": "A red fox"}]
TEXT = {"type": "text", "text": "A red fox"}
SOUND = {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}
DOCUMENT = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PIXEL}", "filename": "a.pdf"}}
SHAPE = {"type": "json_schema", "json_schema": {"name": "fox", "schema": {"type": "object"}}}


@pytest.fixture
def upstream(share: Share) -> FakeImageServices:
    return share.fake(FakeImageServices)


@pytest.fixture
def gateway(share: Share, upstream: FakeImageServices) -> Tenant:
    paths = {"OPENAI": "/v1", "XAI": "/xai/v1", "ALIBABA": "/qwen/compatible-mode/v1", "GOOGLE_VERTEX": "/vertex/v1"}
    # The fake that names images by address is on this machine.
    more = {"GATEWAY_ALLOW_PRIVATE_MEDIA": "true", "LLM_GOOGLE_CLOUD_PROJECT": "acme"}
    return share.gateway(providers_at(upstream, paths) | more)


@pytest.fixture
def sdk(gateway: Tenant) -> OpenAI:
    return sdk_of(gateway)


def ask(sdk: OpenAI, model: str = OPENAI, messages: Any = FOX, **fields: Any) -> Any:
    """Return the completion; fields that the SDK does not know are sent as `extra_body`."""
    known = {name: fields.pop(name) for name in ("n", "temperature", "tools", "response_format") if name in fields}
    return sdk.chat.completions.create(model=model, messages=messages, extra_body=fields, **known)


def ask_with(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def images_of(answer: Any) -> list[list[Any]]:
    return [choice.message.images for choice in answer.choices]


@pytest.mark.parametrize("model", COSTS)
def test_an_image_model_answers_with_images_and_is_billed_as_on_its_own_path(gateway, sdk, model):
    answer = ask(sdk, model)
    assert images_of(answer) == [[SHOWN]]
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", None, "stop")
    assert answer.id.startswith("chatcmpl-") and (answer.object, answer.model) == ("chat.completion", model)
    row = row_of(gateway, answer.metadata["log_id"])
    assert (row.operation, row.cost_nusd, row.details["units"]["images"]) == ("images", COSTS[model], 1)
    assert answer.usage.cost * 10**9 == pytest.approx(COSTS[model])


def test_the_usage_names_the_tokens_of_the_images(sdk):
    usage = ask(sdk).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (9, 1056, 1065)
    assert usage.completion_tokens_details.image_tokens == 1056


@pytest.mark.parametrize("model", [OPENAI, XAI, QWEN])
def test_images_of_the_last_user_message_are_edited(gateway, sdk, upstream, model):
    text, picture = {"type": "text", "text": "Make it blue"}, {"type": "image_url", "image_url": {"url": DATA_URL}}
    answer = ask(sdk, model, ask_with(text, picture))
    assert images_of(answer) == [[SHOWN]]
    call = upstream.calls[-1]
    assert call.files.get("image") == PNG or base64.b64encode(PNG).decode() in str(call.body)
    assert row_of(gateway, answer.metadata["log_id"]).operation == "image_edits"


def test_an_image_at_an_address_is_loaded(sdk, upstream):
    address = f"{upstream.address}/album/1.png"
    ask(sdk, OPENAI, ask_with({"type": "text", "text": "Bluer"}, {"type": "image_url", "image_url": {"url": address}}))
    assert base64.b64encode(upstream.calls[-1].files["image"]).decode() == PIXEL


def test_only_the_last_user_message_is_the_prompt_and_a_warning_says_so(sdk, upstream):
    talk = [
        {"role": "system", "content": "You draw."},
        {"role": "user", "content": "A red fox"},
        {"role": "assistant", "content": "Here it is."},
        {"role": "user", "content": [{"type": "text", "text": "Now a hare,"}, {"type": "text", "text": "asleep"}]},
    ]
    answer = ask(sdk, OPENAI, talk)
    assert upstream.calls[-1].body["prompt"] == "Now a hare,\nasleep"
    assert answer.metadata["warnings"] == [
        f"messages: only the last user message was read, because {OPENAI} makes images from one prompt."
    ]


def test_the_image_config_reaches_the_provider(sdk, upstream):
    ask(sdk, OPENAI, image_config={"image_size": "1024x1536", "image_quality": "high", "n": 2})
    expected = {"model": "gpt-image-1", "prompt": "A red fox", "size": "1024x1536", "quality": "high", "n": 2}
    assert upstream.calls[-1].body == expected
    ask(sdk, QWEN, image_config={"aspect_ratio": "16:9", "seed": 7})
    assert upstream.calls[-1].body["parameters"] == {"n": 1, "watermark": False, "size": "2688*1536", "seed": 7}


def test_calls_of_one_request_have_different_seeds(sdk, upstream):
    before = len(upstream.calls)
    ask(sdk, QWEN, image_config={"n": 7, "seed": 7})
    assert sorted(call.body["parameters"]["seed"] for call in upstream.calls[before:]) == [7, 13]


def test_options_that_an_image_model_lacks_are_left_out_with_a_warning(sdk):
    config = {"aspect_ratio": "7:1", "image_size": "8K", "seed": 7}
    answer = ask(sdk, XAI, image_config=config, reasoning_effort="high", web_search_options={})
    assert images_of(answer) == [[SHOWN]]
    left_out = {text.split()[0] for text in answer.metadata["warnings"]}
    assert left_out == {"aspect_ratio", "size", "seed", "reasoning_effort"}


def test_n_is_the_number_of_choices_and_image_config_n_that_of_images_in_each(gateway, sdk, upstream):
    answer = ask(sdk, OPENAI, n=2, image_config={"n": 3})
    assert upstream.calls[-1].body["n"] == 6
    assert images_of(answer) == [[SHOWN] * 3] * 2 and [choice.index for choice in answer.choices] == [0, 1]
    assert row_of(gateway, answer.metadata["log_id"]).cost_nusd == 9 * 5_000 + 6 * 1056 * 40_000


def stream_of(sdk: OpenAI, model: str, messages: Any = FOX, **fields: Any) -> list[Any]:
    return list(sdk.chat.completions.create(model=model, messages=messages, stream=True, extra_body=fields))


@pytest.mark.parametrize("model", COSTS)
def test_a_stream_has_the_images_then_the_usage(gateway, sdk, model):
    chunks = stream_of(sdk, model)
    first, finish, last = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.images) == ("assistant", [{"index": 0, **SHOWN}])
    assert finish.choices[0].finish_reason == "stop" and {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.model for chunk in chunks} == {model}
    row = row_of(gateway, last.metadata["log_id"])
    assert (row.operation, row.cost_nusd) == ("images", COSTS[model])
    assert last.usage.cost * 10**9 == pytest.approx(COSTS[model])


def test_a_stream_of_several_choices_has_each_image_at_its_index(sdk):
    chunks = stream_of(sdk, XAI, n=2, image_config={"n": 2})
    indexes = [choice.index for chunk in chunks for choice in chunk.choices if getattr(choice.delta, "images", None)]
    assert indexes == [0, 0, 1, 1]
    assert [c.index for chunk in chunks for c in chunk.choices if c.finish_reason] == [0, 1]


def test_the_sdks_stream_helper_collects_the_images(sdk):
    with sdk.chat.completions.stream(model=XAI, messages=FOX, extra_body={"image_config": {"n": 2}}) as stream:
        answer = stream.get_final_completion()
    assert [image["image_url"] for image in answer.choices[0].message.images] == [SHOWN["image_url"]] * 2


def test_a_model_that_streams_is_asked_for_a_stream_without_previews(sdk, upstream):
    stream_of(sdk, OPENAI)
    assert upstream.calls[-1].body["stream"] is True and "partial_images" not in upstream.calls[-1].body


@pytest.mark.parametrize("stream", [False, True])
def test_images_that_the_filter_rejected_are_described_in_the_answer(sdk, upstream, monkeypatch, stream):
    monkeypatch.setattr(upstream, "blocked", True)
    text = "The provider's content filter rejected all images."
    if stream:
        chunks = stream_of(sdk, IMAGEN)
        assert chunks[0].choices[0].delta.content == text
        assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == ["content_filter"]
        assert chunks[-1].usage.cost == 0
    else:
        answer = ask(sdk, IMAGEN)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (text, "content_filter")
        assert answer.usage.cost == 0


@pytest.mark.parametrize(
    ("messages", "fields", "param", "code"),
    [
        ([{"role": "system", "content": "Draw."}], {}, "messages", "invalid_parameters"),
        ([{"role": "user", "content": " "}], {}, "messages.0.content", "invalid_parameters"),
        (FOX, {"n": 11}, "n", "invalid_parameters"),
        (FOX, {"image_config": {"n": 11}}, "image_config.n", "invalid_parameters"),
        (FOX, {"image_config": {"n": "many"}}, "image_config.n", "invalid_parameters"),
        (FOX, {"image_config": {"image_size": "9" * 65}}, "image_config.image_size", "invalid_parameters"),
        (FOX, {"image_config": {"image_quality": 7}}, "image_config.image_quality", "invalid_parameters"),
        (FOX, {"image_config": {"aspect_ratio": "9" * 65}}, "image_config.aspect_ratio", "invalid_parameters"),
        ([{"role": "user", "content": "x" * 100_001}], {}, "messages", "invalid_parameters"),
        (FOX, {"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "model_not_supported"),
        (FOX, {"tools": [{"type": "web_search"}]}, "tools", "model_not_supported"),
        (FOX, {"response_format": {"type": "json_object"}}, "response_format", "model_not_supported"),
        (FOX, {"response_format": SHAPE}, "response_format", "model_not_supported"),
        (ask_with(TEXT, SOUND), {}, "messages", "model_not_supported"),
        (ask_with(TEXT, DOCUMENT), {}, "messages", "model_not_supported"),
        (FOX, {"model": IMAGEN}, "model", "model_not_supported"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chats_that_cannot_request_images_are_refused_and_cost_nothing(
    gateway, sdk, upstream, messages, fields, param, code, stream
):
    fields = {"model": OPENAI} | fields
    if fields["model"] == IMAGEN:  # it does not edit
        messages = ask_with({"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": DATA_URL}})
    before = len(upstream.calls)
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(messages=messages, stream=stream, **{"extra_body": fields}, model=fields["model"])
    assert (caught.value.param, caught.value.code) == (param, code)
    assert f"'{param}'" in caught.value.message or code != "invalid_parameters"
    assert len(upstream.calls) == before and not usage_of(gateway)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png;base64,%%", "invalid_parameters"),
        ("data:image/gif;base64,R0lGODlhAQABAAAAACw=", "unsupported_media"),
        ("http://127.0.0.1:1/a.png", "media_not_loaded"),
    ],
)
def test_an_image_that_cannot_be_edited_is_named(sdk, url, code):
    parts = ({"type": "text", "text": "Bluer"}, {"type": "image_url", "image_url": {"url": url}})
    with pytest.raises(openai.BadRequestError) as caught:
        ask(sdk, OPENAI, ask_with(*parts))
    assert (caught.value.param, caught.value.code) == ("messages.0.content.1.image_url.url", code)


def test_a_model_of_another_operation_is_refused_as_before(sdk):
    with pytest.raises(
        openai.BadRequestError, match=r"does not serve chat; it serves embeddings \(/v1/embeddings\)"
    ) as caught:
        ask(sdk, "openai/text-embedding-3-small")
    assert caught.value.code == "model_not_supported"


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_that_fails_is_an_error_and_free(gateway, sdk, upstream, stream):
    upstream.script(500, 500, 500, 500)
    with pytest.raises(openai.InternalServerError):
        sdk.chat.completions.create(model=OPENAI, messages=FOX, stream=stream)
    assert sum(row.cost_nusd for row in usage_of(gateway)) == 0


def test_another_model_of_the_list_makes_the_images_when_the_first_fails(sdk, upstream):
    upstream.script(500)
    answer = ask(sdk, OPENAI, models=[XAI])
    assert (answer.model, images_of(answer)) == (XAI, [[SHOWN]])


def test_an_organization_without_credits_gets_402_before_any_call(gateway, upstream):
    poor = OpenAI(base_url=gateway.url, api_key=gateway.add_organization("poor", 1_000), max_retries=0)
    before = len(upstream.calls)
    with pytest.raises(openai.APIStatusError) as caught:
        ask(poor)
    assert (caught.value.status_code, caught.value.code) == (402, "insufficient_credits")
    assert len(upstream.calls) == before


def test_a_rule_against_the_model_holds_here_as_well(gateway, sdk, upstream):
    services = gateway.services
    stores = (services.store.database, services.store.control)
    add_rule(*stores, "organization", gateway.organization_id, "deny_models", {"models": ["gpt-image-1"]}, actor="test")
    with pytest.raises(openai.PermissionDeniedError) as caught:
        ask(sdk)
    assert caught.value.code == "model_not_allowed" and not upstream.calls


def test_the_routing_plan_is_explained_before_and_after_the_request(gateway, sdk):
    body = {"model": "gpt-image-1", "messages": FOX}
    plan = sdk.post("/route/explain", body=body, cast_to=dict[str, Any])
    assert (plan["selectedProvider"], plan["availableProviders"]) == ("openai", ["openai"])
    past = sdk.get(f"/route/explain/{ask(sdk).metadata['log_id']}", cast_to=dict[str, Any])
    assert [(one["provider"], one["status_code"]) for one in past["attempts"]] == [("openai", 200)]


def test_the_same_idempotency_key_gets_the_same_images_once(gateway, sdk, upstream):
    before = len(upstream.calls)
    header = {"Idempotency-Key": "fox-1"}
    first = sdk.chat.completions.create(model=OPENAI, messages=FOX, extra_headers=header)
    again = sdk.chat.completions.create(model=OPENAI, messages=FOX, extra_headers=header)
    assert (again.id, images_of(again)) == (first.id, images_of(first)) and len(upstream.calls) == before + 1
