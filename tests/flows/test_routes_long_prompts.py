"""A prompt that is too long for the first model of a route goes to the next one, also where only the provider knows."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.chat_paths import CHAT_PATHS
from support.gateways import LocalGateway
from support.mcp_visitor import Visitor
from support.published_routes import Routes, post
from support.spending import BODIES

LIMIT = "This model's maximum context length is 8192 tokens."
CODED = {"message": LIMIT, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
REFUSED = Answer(status=400, error={"error": CODED})
PAGE = "A page of the manual, which nobody reads twice. " * 4_500  # surely more than 8,192 tokens
AI_SDK = ["/v1/ai/language-model", "/v3/ai/language-model", "/v4/ai/language-model"]
SMALL, LARGE = "openai/gpt-4", "openai/gpt-4o"


@pytest.fixture(autouse=True)
def routes(gateway: LocalGateway) -> Iterator[Routes]:
    made = Routes(gateway)
    made.publish("house", {"otherwise": [SMALL, LARGE]})
    yield made
    made.clear()


def send(gateway: LocalGateway, path: str, text: str, stream: bool) -> Any:
    if path in AI_SDK:
        headers = {"ai-language-model-id": "dynamic/house", "ai-language-model-streaming": str(stream).lower()}
        return post(
            gateway, path, {"prompt": [{"role": "user", "content": [{"type": "text", "text": text}]}]}, **headers
        )
    if path.startswith("/v1beta"):
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
        return post(gateway, path, {"contents": [{"role": "user", "parts": [{"text": text}]}]})
    return post(gateway, path, {**BODIES[path](text), "model": "dynamic/house", **({"stream": True} if stream else {})})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [*CHAT_PATHS, *AI_SDK])
def test_the_next_model_answers(gateway: LocalGateway, upstream: FakeOpenAI, path: str, stream: bool) -> None:
    upstream.script(Answer("Raining"))
    answer = send(gateway, path, PAGE, stream)
    assert answer.status_code == 200 and "Raining" in answer.text, answer.text
    assert [call.body["model"] for call in upstream.calls] == ["gpt-4o"]
    upstream.calls.clear()
    upstream.script(REFUSED, Answer("Raining"))
    answer = send(gateway, path, "Hello.", stream)
    assert answer.status_code == 200 and "Raining" in answer.text, answer.text
    assert [call.body["model"] for call in upstream.calls] == ["gpt-4", "gpt-4o"]


def test_the_next_model_answers_a_tool_of_agents(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(REFUSED, Answer("Raining"))
    called = Visitor(gateway).call("chat", model="dynamic/house", messages=[{"role": "user", "content": "Hello."}])
    assert "Raining" in str(called), called
