"""Images that a chat model makes, in every dialect and back to the model in the next turn."""

import json
from typing import Any

import httpx
import pytest
from fakes.google import Answer, FakeGoogle
from fakes.image_services import PIXEL
from fakes.openai import Answer as Failure
from fakes.openai import FakeOpenAI
from support.media import row_of
from support.shared import Share, Tenant

MODEL = "google-ai-studio/gemini-3-pro-image"
TEXT_MODEL = "openai/gpt-3.5-turbo"
AI_SDK = {"ai-language-model-id": MODEL}
URL = f"data:image/png;base64,{PIXEL}"
INLINE = {"mimeType": "image/png", "data": PIXEL}
FOX, BLUER = "A red fox", "Bluer"
ASK = {"role": "user", "content": FOX}
AI_ASK = {"role": "user", "content": [{"type": "text", "text": FOX}]}
GEMINI_ASK = {"role": "user", "parts": [{"text": FOX}]}
# Path → the body of a first turn, and that of a second turn after an answer with an image.
BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": (
        {"model": MODEL, "messages": [ASK]},
        {
            "messages": [
                ASK,
                {
                    "role": "assistant",
                    "content": "Here.",
                    "images": [{"type": "image_url", "image_url": {"url": URL}}],
                },
                {"role": "user", "content": BLUER},
            ]
        },
    ),
    "/v1/responses": (
        {"model": MODEL, "input": FOX},
        {"input": [ASK, {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXEL}, ASK]},
    ),
    "/v4/ai/language-model": (
        {"prompt": [AI_ASK]},
        {
            "prompt": [
                AI_ASK,
                {
                    "role": "assistant",
                    "content": [{"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": PIXEL}}],
                },
                AI_ASK,
            ]
        },
    ),
    f"/v1beta/models/{MODEL}:generateContent": (
        {"contents": [GEMINI_ASK]},
        {"contents": [GEMINI_ASK, {"role": "model", "parts": [{"inlineData": INLINE}]}, GEMINI_ASK]},
    ),
}


def chat_image(body: dict[str, Any]) -> str:
    return body["choices"][0]["message"]["images"][0]["image_url"]["url"]


def responses_image(body: dict[str, Any]) -> str:
    (item,) = (item for item in body["output"] if item["type"] == "image_generation_call")
    return item["result"]


def ai_sdk_image(body: dict[str, Any]) -> str:
    (part,) = (part for part in body["content"] if part["type"] == "file")
    return part["data"]["data"]


def gemini_image(body: dict[str, Any]) -> str:
    (part,) = (part for part in body["candidates"][0]["content"]["parts"] if "inlineData" in part)
    return part["inlineData"]["data"]


# Path → how a complete answer shows the image.
SHOWN = {
    "/v1/chat/completions": chat_image,
    "/v1/responses": responses_image,
    "/v4/ai/language-model": ai_sdk_image,
    f"/v1beta/models/{MODEL}:generateContent": gemini_image,
}
DETAILS = {
    "candidatesTokenCount": 1130,
    "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1120}, {"modality": "TEXT", "tokenCount": 10}],
}


@pytest.fixture
def google(share: Share) -> FakeGoogle:
    return share.fake(FakeGoogle)


@pytest.fixture
def gateway(share: Share, upstream: FakeOpenAI, upstream_environment: dict[str, str], google: FakeGoogle) -> Tenant:
    keys = {"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream", "LLM_GOOGLE_AI_STUDIO_BASE_URL": google.url}
    for provider in ("ALIBABA", "TOGETHER_AI"):
        keys |= {f"LLM_{provider}_API_KEY": "sk-upstream", f"LLM_{provider}_BASE_URL": upstream.url}
    return share.gateway(upstream_environment | keys)


def send(gateway: Tenant, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}", **AI_SDK, **headers}
    answer = httpx.post(gateway.address + path, json=body, headers=headers, timeout=20)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("path", BODIES)
def test_an_image_of_a_chat_model_is_part_of_the_answer(gateway: Tenant, google: FakeGoogle, path: str) -> None:
    google.script(Answer("Here it is.", images=(PIXEL,), details=DETAILS))
    body = send(gateway, path, BODIES[path][0]).json()
    assert SHOWN[path](body).removeprefix("data:image/png;base64,") == PIXEL


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_has_the_image_once(gateway: Tenant, google: FakeGoogle, path: str) -> None:
    google.script(Answer("Here it is.", images=(PIXEL,), details=DETAILS))
    streamed = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    body = BODIES[path][0] | ({} if "v1beta" in path else {"stream": True})
    text = send(gateway, streamed, body, **{"ai-language-model-streaming": "true"}).text
    items = 3 if path == "/v1/responses" else 1  # the item, its end, and the whole response at the end
    assert 1 <= text.count(PIXEL) <= items


@pytest.mark.parametrize("path", BODIES)
def test_an_image_of_an_earlier_turn_goes_back_to_the_model(gateway: Tenant, google: FakeGoogle, path: str) -> None:
    first, second = BODIES[path]
    send(gateway, path, first | second)
    assert PIXEL in json.dumps(google.calls[-1].body["contents"])


def test_messages_show_an_image_as_markdown_and_bill_it(gateway: Tenant, google: FakeGoogle) -> None:
    google.script(Answer("Here it is.", images=(PIXEL,), prompt=9, details=DETAILS))
    body = send(gateway, "/v1/messages", {"model": MODEL, "max_tokens": 100, "messages": [ASK]}).json()
    assert f"![image]({URL})" in "".join(block["text"] for block in body["content"])
    assert row_of(gateway, body["metadata"]["log_id"]).cost_nusd == 9 * 2_000 + 10 * 12_000 + 1120 * 120_000


def test_a_vendor_without_images_of_the_assistant_gets_them_in_a_message_of_the_user(
    gateway: Tenant, upstream: FakeOpenAI
) -> None:
    first, second = BODIES["/v1/chat/completions"]
    send(gateway, "/v1/chat/completions", first | second | {"model": "openai/gpt-4o-mini"})
    asked, said, *rest = upstream.calls[-1].body["messages"]
    assert (asked["content"], said) == (FOX, {"role": "assistant", "content": "Here."})
    assert all(message["role"] == "user" for message in rest) and json.dumps(rest).count(PIXEL) == 1


@pytest.mark.parametrize("path", BODIES)
def test_a_model_of_text_alone_gets_the_conversation_without_images_of_earlier_answers(
    gateway: Tenant, upstream: FakeOpenAI, path: str
) -> None:
    first, second = BODIES[path]
    body = first | second | ({"model": TEXT_MODEL} if "model" in first else {})
    answer = send(gateway, path.replace(MODEL, TEXT_MODEL), body, **{"ai-language-model-id": TEXT_MODEL})
    assert PIXEL not in json.dumps(upstream.calls[-1].body)
    warning = f"images of earlier answers were left out: {TEXT_MODEL} reads no images."
    assert warning in answer.headers["x-llmgateway-warnings"]


def test_a_provider_that_reads_images_serves_a_conversation_with_earlier_ones_first(
    gateway: Tenant, upstream: FakeOpenAI
) -> None:
    first, second = BODIES["/v1/chat/completions"]
    body = first | second | {"model": "qwen3.8-flash", "routing": "price"}
    for _ in range(5):
        answer = send(gateway, "/v1/chat/completions", body)
        assert answer.json()["metadata"]["used_provider"] == "alibaba" and PIXEL in json.dumps(upstream.calls[-1].body)
    upstream.script(Failure(status=500))
    answer = send(gateway, "/v1/chat/completions", body)
    assert answer.json()["metadata"]["used_provider"] == "together-ai"
    assert "were left out" in answer.headers["x-llmgateway-warnings"]


def test_an_image_of_the_user_is_never_left_out(gateway: Tenant) -> None:
    first, second = BODIES["/v1/chat/completions"]
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}
    body = first | {"model": TEXT_MODEL, "messages": [*second["messages"], shown]}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    answer = httpx.post(f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=20)
    assert answer.status_code == 400 and "vision (`messages`)" in answer.json()["error"]["message"]
