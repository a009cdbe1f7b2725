"""A silent upstream: the caller hears that the gateway lives, and its SDK reads on."""

import json
from collections.abc import Callable

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share

from gateway.configuration.settings import Settings

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def patient(share: Share, upstream: FakeOpenAI) -> LocalGateway:
    """A gateway that breaks silence after 0.15 seconds."""
    environment = {"LLM_OPENAI_API_KEY": "sk-x", "LLM_OPENAI_BASE_URL": upstream.url}
    return share.gateway({"GATEWAY_TIMEOUTS_HEARTBEAT_S": "0.15", **environment})


def lines_of(gateway: LocalGateway) -> list[str]:
    body = {"model": "openai/gpt-4o-mini", "messages": HELLO, "stream": True}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    with httpx.stream("POST", f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=20) as answer:
        return [line for line in answer.iter_lines() if line]


def test_comments_come_while_the_upstream_has_not_even_answered(patient: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("At last.", silence_s=0.6))
    lines = lines_of(patient)
    assert lines.count(": keep-alive") >= 2
    assert lines[-1] == "data: [DONE]"


def test_comments_come_in_the_middle_of_an_answer(patient: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("One two.", piece=4, gap_s=0.35))
    lines = lines_of(patient)
    first_text = next(n for n, line in enumerate(lines) if '"content":"One' in line)
    assert ": keep-alive" in lines[first_text:] and lines[-1] == "data: [DONE]"


def test_the_official_client_reads_on_through_them(patient: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("At last.", silence_s=0.5, gap_s=0.2))
    client = OpenAI(base_url=patient.url, api_key=patient.key, max_retries=0)
    chunks = client.chat.completions.create(model="openai/gpt-4o-mini", messages=HELLO, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "At last."


def test_a_failure_after_a_heartbeat_is_an_error_event(patient: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer(status=500, silence_s=0.4)] * 3)
    lines = lines_of(patient)
    assert ": keep-alive" in lines and "event: error" in lines
    assert "data: [DONE]" not in lines


def ai_lines_of(gateway: LocalGateway) -> list[str]:
    body = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    headers = {"Authorization": f"Bearer {gateway.key}", "ai-language-model-id": "openai/gpt-4o-mini"}
    headers["ai-language-model-streaming"] = "true"
    address = f"{gateway.address}/v1/ai/language-model"
    with httpx.stream("POST", address, json=body, headers=headers, timeout=20) as answer:
        return [line for line in answer.iter_lines() if line]


def test_the_ai_sdk_ignores_comments_and_warnings_still_come_first(patient: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("At last.", silence_s=0.5, gap_s=0.2))
    lines = ai_lines_of(patient)
    parts = [line for line in lines if line != ": keep-alive"]
    assert lines[0] == ": keep-alive" and len(lines) - len(parts) >= 2
    assert parts[0] == 'data: {"type":"stream-start","warnings":[]}' and parts[-1] == "data: [DONE]"
    assert "ping" not in "".join(parts)


def test_a_failure_after_a_heartbeat_is_an_error_part_to_the_ai_sdk(
    patient: LocalGateway, upstream: FakeOpenAI
) -> None:
    upstream.script(*[Answer(status=500, silence_s=0.4)] * 3)
    parts = [json.loads(line[6:]) for line in ai_lines_of(patient) if line != ": keep-alive"]
    assert [part["type"] for part in parts] == ["stream-start", "error", "finish"]
    assert parts[1]["error"]["statusCode"] == 502 and parts[2]["finishReason"] == "error"


def test_the_default_breaks_silence_within_ten_seconds(settings: Callable[..., Settings]) -> None:
    assert settings().timeouts.heartbeat_s < 10


@pytest.mark.parametrize(("silence_s", "named"), [(0.0, True), (0.5, False)])
def test_headers_that_go_out_before_an_answer_name_no_model_of_a_route(
    patient: LocalGateway, upstream: FakeOpenAI, silence_s: float, named: bool
) -> None:
    upstream.script(Answer("At last.", silence_s=silence_s))
    headers = {"Authorization": f"Bearer {patient.key}"}
    body = {"model": "smart", "messages": HELLO, "stream": True}
    with httpx.stream("POST", f"{patient.url}/chat/completions", json=body, headers=headers, timeout=20) as answer:
        told = [name in answer.headers for name in ("x-llmgateway-model", "x-llmgateway-smart-model")]
        assert told == [named, named] and answer.headers["x-llmgateway-route"].startswith("smart;")
        assert '"used_provider":"openai"' in answer.read().decode()


@pytest.mark.parametrize(("silence_s", "named"), [(0.0, "openai"), (0.5, None)])
def test_headers_that_go_out_before_an_answer_name_no_provider(
    patient: LocalGateway, upstream: FakeOpenAI, silence_s: float, named: str | None
) -> None:
    upstream.script(Answer("At last.", silence_s=silence_s))
    body = {"model": "openai/gpt-4o-mini", "messages": HELLO, "stream": True}
    headers = {"Authorization": f"Bearer {patient.key}"}
    with httpx.stream("POST", f"{patient.url}/chat/completions", json=body, headers=headers, timeout=20) as answer:
        assert answer.headers.get("x-llmgateway-provider") == named
        assert '"used_provider":"openai"' in answer.read().decode()
