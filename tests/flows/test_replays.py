"""Logged requests of every API are sent to another model from the console, or opened in its playground as a chat."""

import html
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
import requests
from support.gateways import LocalGateway

from gateway.accounts.members import list_members

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SIGNED = {"type": "thinking", "thinking": "Look it up.", "signature": "c2lnbmVk"}
MESSAGES = {
    "model": "sandbox-echo",
    "max_tokens": 500,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "weather", "description": "The weather of a city.", "input_schema": WEATHER}],
    "messages": [
        {"role": "user", "content": "How is the weather in Bern?"},
        {
            "role": "assistant",
            "content": [SIGNED, {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny"}]},
    ],
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "What is it?"}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}]}
    ],
    "generationConfig": {"maxOutputTokens": 300, "temperature": 0.5},
}
AI_SDK = {
    "prompt": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "How are you?"}]},
    ],
    "maxOutputTokens": 300,
}
RESPONSES = {
    "model": "sandbox-echo",
    "instructions": "Be brief.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "How are you?"}]}],
    "tools": [{"type": "function", "name": "weather", "parameters": WEATHER}],
    "text": {"format": {"type": "json_schema", "name": "mood", "schema": WEATHER, "strict": True}},
}
AI_SDK_HEADERS = {"ai-language-model-id": "sandbox-echo", "ai-language-model-streaming": "true"}
# A request, and the model to which it is sent again.
EVERY = {
    "chat": ("/v1/chat/completions", {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hi"}]}, {}),
    "messages": ("/v1/messages", MESSAGES, {}),
    "responses": ("/v1/responses", RESPONSES, {}),
    "gemini": ("/v1beta/models/sandbox-echo:generateContent", GEMINI, {}),
    "gemini-stream": ("/v1beta/models/sandbox-echo:streamGenerateContent?alt=sse", GEMINI, {}),
    "ai-sdk": ("/v3/ai/language-model", AI_SDK, AI_SDK_HEADERS),
    "cohere": ("/v2/chat", {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hi"}]}, {}),
    "completions": ("/v1/completions", {"model": "sandbox-echo", "prompt": "Once upon"}, {}),
    "embeddings": ("/v1/embeddings", {"model": "sandbox-embed", "input": ["one", "two"]}, {}),
    "gemini-embed": ("/v1beta/models/sandbox-embed:embedContent", {"content": {"parts": [{"text": "one"}]}}, {}),
    "rerank": ("/v1/rerank", {"model": "sandbox-rerank", "query": "one", "documents": ["one", "two"]}, {}),
    "moderation": ("/v1/moderations", {"model": "sandbox-moderate", "input": "Hello"}, {}),
    "image": ("/v1/images/generations", {"model": "sandbox-image", "prompt": "A boat", "background": "opaque"}, {}),
    "speech": ("/v1/audio/speech", {"model": "sandbox-speak", "input": "Hello", "voice": "alloy"}, {}),
    "ocr": (
        "/v1/ocr",
        {"model": "sandbox-read", "document": {"type": "image_url", "image_url": f"data:image/png;base64,{PICTURE}"}},
        {},
    ),
}
END_USER = "user-of-acme-17"
HI = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hi"}]}
# Requests that name a person or a session.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**HI, "user": END_USER, "metadata": {"session_id": "s-1", "feature": "help"}}),
    "messages": ("/v1/messages", {**MESSAGES, "metadata": {"user_id": END_USER}}),
    "responses": ("/v1/responses", {**RESPONSES, "safety_identifier": END_USER, "metadata": {"feature": "help"}}),
    "embeddings": ("/v1/embeddings", {"model": "sandbox-embed", "input": "one", "user": END_USER}),
}
CHATS = ("messages", "responses", "gemini", "gemini-stream", "ai-sdk", "cohere")


class Owner:
    """The owner of a gateway that retains payloads, with a browser's session."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        member = list_members(gateway.services.store.database, gateway.organization_id)[0]
        token = gateway.services.management.sessions.open(member.user_id).token
        self.web = requests.Session()
        self.web.cookies.set("llmgateway.session_token", token)
        self.web.headers["Origin"] = gateway.address
        bearer = {"Authorization": f"Bearer {token}"}
        path = f"{gateway.address}/projects/{gateway.project_id}"
        assert requests.patch(path, json={"retention": "retain"}, headers=bearer, timeout=60).status_code == 200

    def call(self, path: str, body: Any, headers: dict[str, str], **more: Any) -> requests.Response:
        bearer = {"Authorization": f"Bearer {self.gateway.key}"}
        sent = {"json": body} if body is not None else {}
        return requests.post(self.gateway.address + path, headers={**bearer, **headers}, timeout=60, **sent, **more)

    def send(self, name: str) -> str:
        """Send one of EVERY and return its id."""
        answer = self.call(*EVERY[name])
        assert answer.status_code == 200, answer.text
        assert answer.content
        return answer.headers["x-request-id"]

    def open(self, path: str) -> str:
        answer = self.web.get(f"{self.gateway.address}/console{path}", timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    def body_of(self, ident: str, model: str) -> dict[str, Any]:
        """Return what the script of the page sends."""
        page = self.open(f"/logs/{ident}/replay?model={model}")
        csrf = re.search('data-csrf="([^"]+)"', page)
        assert csrf, page
        path = f"{self.gateway.address}/console/logs/{ident}/replay/body"
        answer = self.web.post(path, data={"csrf": csrf[1], "model": model}, timeout=60)
        assert answer.status_code == 200, answer.text
        read: dict[str, Any] = answer.json()
        return read

    def seed_of(self, ident: str) -> tuple[dict[str, Any], str]:
        """Return the chat that the playground opens for a request, and its note."""
        page = self.open(f"/playground?request={ident}")
        seed = re.search('<textarea id="seed" hidden>(.*?)</textarea>', page, re.DOTALL)
        note = re.search('<p class="hint">(.*?)</p>', page)
        assert seed
        return json.loads(html.unescape(seed[1]) or "{}"), note[1] if note else ""


@pytest.fixture
def owner(sandbox_gateway: LocalGateway) -> Owner:
    return Owner(sandbox_gateway)


@pytest.mark.parametrize("name", EVERY)
def test_a_request_of_every_api_is_sent_to_another_model(owner: Owner, name: str) -> None:
    ident = owner.send(name)
    model = EVERY[name][1].get("model", "sandbox-embed" if "embed" in name else "sandbox-echo")
    assert "Replay elsewhere" in owner.open(f"/logs/{ident}")
    page = owner.open(f"/logs/{ident}/replay?model={model}")
    assert "At most" in page and 'id="replay"' in page
    made = owner.body_of(ident, model)
    if name == "image":
        assert made["body"]["background"] == "opaque"
    answer = owner.call(made["path"], made["body"], made["headers"])
    assert answer.status_code == 200, answer.text
    assert "event-stream" not in answer.headers["content-type"]
    compared = owner.open(f"/logs/compare?request={ident}&request={answer.headers['x-request-id']}")
    assert compared.count(model) > 1


@pytest.mark.parametrize("name", ("gemini", "ai-sdk", "embeddings"))
def test_another_model_is_named_where_its_api_expects_it(owner: Owner, name: str) -> None:
    ident = owner.send(name)
    other = "sandbox-embed" if name == "embeddings" else "sandbox-tools"
    made = owner.body_of(ident, other)
    answer = owner.call(made["path"], made["body"], made["headers"])
    assert answer.status_code == 200, answer.text
    assert other in owner.open(f"/logs/{answer.headers['x-request-id']}")


def test_a_request_whose_upload_is_not_stored_is_refused_with_the_reason(owner: Owner) -> None:
    wav = b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + bytes((16, 0, 0, 0, 1, 0, 1, 0))
    wav += (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little") + bytes((2, 0, 16, 0))
    wav += b"data" + (16000).to_bytes(4, "little") + bytes(16000)
    files = {"file": ("a.wav", wav), "model": (None, "sandbox-transcribe")}
    sent = owner.call("/v1/audio/transcriptions", None, {}, files=files)
    assert sent.status_code == 200, sent.text
    page = owner.open(f"/logs/{sent.headers['x-request-id']}/replay?model=sandbox-transcribe")
    assert "files that were uploaded with this request are not stored" in page
    assert 'id="replay"' not in page


def test_a_reference_to_an_answer_that_is_gone_is_refused_before_sending(owner: Owner) -> None:
    first = owner.call("/v1/responses", {**RESPONSES, "store": True}, {})
    kept = first.json()["id"]
    second = owner.call("/v1/responses", {"model": "sandbox-echo", "input": "And?", "previous_response_id": kept}, {})
    assert second.status_code == 200, second.text
    ident = second.headers["x-request-id"]
    assert 'id="replay"' in owner.open(f"/logs/{ident}/replay?model=sandbox-echo")
    chat, _ = owner.seed_of(ident)
    assert [one["role"] for one in chat["messages"]][-3:] == ["user", "assistant", "user"]
    bearer = {"Authorization": f"Bearer {owner.gateway.key}"}
    gone = requests.delete(f"{owner.gateway.url}/responses/{kept}", headers=bearer, timeout=60)
    assert gone.status_code == 200
    page = owner.open(f"/logs/{ident}/replay?model=sandbox-echo")
    assert 'id="replay"' not in page and kept in page
    chat, note = owner.seed_of(ident)
    assert chat == {} and kept in note


def test_signed_reasoning_is_named_before_another_vendor_gets_the_request(owner: Owner) -> None:
    page = owner.open(f"/logs/{owner.send('messages')}/replay?model=sandbox-echo")
    assert "Earlier turns contain signed or encrypted reasoning (anthropic)" in page


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_of_every_api_opens_in_the_playground_and_can_be_sent(owner: Owner, name: str) -> None:
    chat, _ = owner.seed_of(owner.send(name))
    assert chat["model"] == "sandbox-echo"
    answer = owner.call("/v1/chat/completions", chat, {})
    assert answer.status_code == 200, answer.text


def test_tools_reasoning_media_and_formats_stay_when_a_chat_is_converted(owner: Owner) -> None:
    chat, _ = owner.seed_of(owner.send("messages"))
    system, asked, called, result = chat["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert asked == {"role": "user", "content": "How is the weather in Bern?"}
    assert called["tool_calls"] == [
        {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bern"}'}}
    ]
    assert called["reasoning"] == "Look it up."
    assert called["reasoning_details"][0]["signature"] == "c2lnbmVk"
    assert result == {"role": "tool", "tool_call_id": "toolu_1", "content": "Sunny"}
    assert chat["tools"][0]["function"]["parameters"] == WEATHER and chat["max_tokens"] == 500

    chat, _ = owner.seed_of(owner.send("gemini"))
    assert chat["messages"][1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PICTURE}"
    assert chat["max_tokens"] == 300 and chat["temperature"] == 0.5

    chat, _ = owner.seed_of(owner.send("responses"))
    assert chat["response_format"]["json_schema"]["schema"] == WEATHER


def test_a_request_that_is_no_chat_opens_with_its_model_alone(owner: Owner) -> None:
    chat, note = owner.seed_of(owner.send("embeddings"))
    assert chat == {} and "not a chat" in note


def test_prompts_of_different_apis_are_compared_by_their_content(owner: Owner) -> None:
    shared = "Say which city is meant."
    same: dict[str, tuple[str, Any, dict[str, str]]] = {
        "messages": (
            "/v1/messages",
            {"model": "sandbox-echo", "max_tokens": 50, "messages": [{"role": "user", "content": shared}]},
            {},
        ),
        "gemini": (
            "/v1beta/models/sandbox-echo:generateContent",
            {"contents": [{"parts": [{"text": shared}]}], "generationConfig": {"maxOutputTokens": 50}},
            {},
        ),
    }
    first, second = (owner.call(*asked).headers["x-request-id"] for asked in same.values())
    page = owner.open(f"/logs/compare?request={first}&request={second}")
    assert "Both prompts are the same." in page and "All parameters are the same." in page
    assert "different APIs" in page
    other = owner.call("/v1/responses", {"model": "sandbox-echo", "input": "Something else."}, {})
    page = owner.open(f"/logs/compare?request={first}&request={other.headers['x-request-id']}")
    assert "The second prompt leaves the first one at message 1 (user)" in page


@pytest.mark.parametrize("model", ["a\nb", "../../v1/files", "a?b#c"])
@pytest.mark.parametrize("name", ["gemini", "ai-sdk", "chat"])
def test_a_model_that_an_address_invents_is_refused_as_unknown(owner: Owner, name: str, model: str) -> None:
    ident = owner.send(name)
    page = owner.open(f"/logs/{ident}/replay?model={quote(model)}")
    assert "There is no model" in page and 'id="replay"' not in page


def test_a_model_in_the_path_is_encoded_for_the_browser(owner: Owner) -> None:
    ident = owner.send("gemini")
    page = owner.open(f"/logs/{ident}/replay?model=sandbox-echo")
    csrf = page.partition('data-csrf="')[2].partition('"')[0]
    path = f"{owner.gateway.address}/console/logs/{ident}/replay/body"
    made = owner.web.post(path, data={"csrf": csrf, "model": "sandbox/a?b#c é"}, timeout=60).json()
    assert made["path"] == "/v1beta/models/sandbox/a%3Fb%23c%20%C3%A9:generateContent"


@pytest.mark.parametrize("name", NAMED)
def test_a_request_that_is_sent_again_is_not_counted_for_the_end_user_of_the_first(owner: Owner, name: str) -> None:
    path, body = NAMED[name]
    first = owner.call(path, body, {})
    assert first.status_code == 200, first.text
    ident = first.headers["x-request-id"]
    assert END_USER in owner.open(f"/logs/{ident}")
    made = owner.body_of(ident, EVERY[name][1]["model"])
    again = owner.call(made["path"], made["body"], made["headers"])
    assert again.status_code == 200, again.text
    shown = owner.open(f"/logs/{again.headers['x-request-id']}")
    assert END_USER not in shown and "s-1" not in shown
    if name == "chat":
        assert not {"user", "metadata"} & owner.seed_of(ident)[0].keys()


def test_the_highest_cost_of_several_prompts_is_that_of_all(owner: Owner) -> None:
    bounds = []
    for prompt in ("Once upon", ["Once upon"] * 8):
        body = {"model": "sandbox-echo", "prompt": prompt, "max_tokens": 100}
        ident = owner.call("/v1/completions", body, {}).headers["x-request-id"]
        page = owner.open(f"/logs/{ident}/replay?model=sandbox-echo")
        found = re.search(r'At most</dt><dd><span title="\$([0-9.]+)"', page)
        assert found, page
        bounds.append(round(float(found[1]) * 1e9))
    assert bounds[1] == 8 * bounds[0] > 0
