"""Sessions with signatures of past thought that another account made, as after a change of the provider's key."""

import base64

import httpx
import pytest
from fakes.google import FakeGoogle
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share

MODEL = "google-ai-studio/gemini-3-flash-preview"
FOREIGN = base64.b64encode(b"made by another account").decode()
CALL = {"functionCall": {"name": "look", "args": {}}}
ANSWERED = {"functionResponse": {"name": "look", "response": {"output": "A cat."}}}
LOOK = {"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object", "properties": {}}}]}


@pytest.fixture
def google(share: Share) -> FakeGoogle:
    return share.fake(FakeGoogle)


@pytest.fixture
def gateway(share: Share, google: FakeGoogle) -> LocalGateway:
    return share.gateway({"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-up", "LLM_GOOGLE_AI_STUDIO_BASE_URL": google.url})


@pytest.mark.parametrize("streamed", [False, True])
def test_a_session_of_the_format_goes_on(gateway: LocalGateway, google: FakeGoogle, streamed: bool) -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Hm.", "thought": True, "thoughtSignature": FOREIGN}]},
        {"role": "model", "parts": [{"text": "Let me see.", "thoughtSignature": FOREIGN}]},
        {"role": "model", "parts": [CALL | {"thoughtSignature": FOREIGN}]},
        {"role": "user", "parts": [ANSWERED]},
    ]
    method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    answer = httpx.post(
        f"{gateway.address}/v1beta/models/{MODEL}:{method}",
        json={"contents": contents, "tools": [LOOK]},
        headers={"x-goog-api-key": gateway.key},
    )
    assert answer.status_code == 200, answer.text
    assert "cannot read it" in answer.headers["x-llmgateway-warnings"]
    assert [call.status for call in google.calls] == [400, 200]
    sent = google.calls[1].body["contents"]
    assert [list(part) for content in sent for part in content["parts"]][1] == ["text"]
    assert FOREIGN not in str(sent) and "Hm." not in str(sent) and "Let me see." in str(sent)


def test_a_session_of_another_format_goes_on(gateway: LocalGateway, google: FakeGoogle) -> None:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    call["extra_content"] = {"google": {"thought_signature": FOREIGN}}
    talk = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "A cat."},
    ]
    tools = [{"type": "function", "function": {"name": "look"}}]
    answer = client.chat.completions.create(model=MODEL, messages=talk, tools=tools)
    assert answer.choices[0].message.content == "Hello."
    assert any("cannot read it" in warning for warning in answer.metadata["warnings"])
    assert [call.status for call in google.calls] == [400, 200]
