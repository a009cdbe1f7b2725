"""The headers of an answer name the model that served wherever the requested name does not, whole and streamed."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.chat_paths import CHAT_PATHS, GEMINI_BODY
from support.gateways import LocalGateway
from support.published_routes import Routes
from support.shared import usage_of
from support.spending import BODIES

SMALL, LARGE = "openai/gpt-4o-mini", "openai/gpt-4o"
AI_SDK = ["/v1/ai/language-model", "/v3/ai/language-model", "/v4/ai/language-model"]


@pytest.fixture(autouse=True)
def routes(gateway: LocalGateway) -> Iterator[Routes]:
    made = Routes(gateway)
    made.publish("one", {"otherwise": SMALL})
    made.publish("list", {"otherwise": [SMALL, LARGE]})
    yield made
    made.clear()


def ask(gateway: LocalGateway, path: str, model: str, stream: bool) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if path in AI_SDK:
        headers |= {"ai-language-model-id": model, "ai-language-model-streaming": str(stream).lower()}
        body: Any = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}]}
    elif path.startswith("/v1beta"):
        body = GEMINI_BODY
        path = path.replace("dynamic/house", model)
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
    else:
        body = {**BODIES[path]("Hello."), "model": model, "stream": stream}
    return httpx.post(gateway.address + path, json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["dynamic/one", "dynamic/list", "smart", "auto"])
@pytest.mark.parametrize("path", [*CHAT_PATHS, *AI_SDK])
def test_they_name_the_model_of_the_usage_row(
    gateway: LocalGateway, upstream: FakeOpenAI, path: str, model: str, stream: bool
) -> None:
    upstream.script(Answer("ok"))
    answer = ask(gateway, path, model, stream)
    assert answer.status_code == 200, answer.text
    (row,) = usage_of(gateway)
    assert answer.headers["x-llmgateway-model"] == f"{row.provider}/{row.served}"
    assert upstream.calls[-1].body["model"] == row.served


def test_a_plain_request_has_no_further_header(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("ok"))
    assert "x-llmgateway-model" not in ask(gateway, "/v1/chat/completions", SMALL, False).headers
