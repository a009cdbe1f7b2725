"""One line per request at its end: the caller, the request, the provider, the cost, and the reason for a failure."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import APIStatusError, OpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.configuration.settings import Settings
from gateway.telemetry.request_line import RequestLines

MODEL = "openai/gpt-4o-mini"
Lines = list[dict[str, Any]]


@pytest.fixture
def gateway(settings: Callable[..., Settings], upstream: FakeOpenAI) -> Iterator[LocalGateway]:
    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream-secret",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",
        "CLIENT_IP_HEADER": "x-forwarded-for",
    }
    with local_gateway(settings, **environment) as running:
        yield running


@pytest.fixture
def lines(gateway: LocalGateway) -> Callable[[], Lines]:
    """Return a function that takes the lines written since its last call."""
    written: list[str] = []
    writer = RequestLines("json", written.append)
    gateway.services.telemetry.requests.observe(writer)

    def take() -> Lines:
        writer.flush()
        found = [json.loads(line) for line in "".join(written).splitlines()]
        written.clear()
        return found

    return take


def send_chat(client: OpenAI, **more: Any) -> Any:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "my private words"}], **more}
    return client.chat.completions.create(**body)


def test_a_request_that_went_well_is_reported_whole(
    gateway: LocalGateway, client: OpenAI, lines: Callable[[], Lines]
) -> None:
    send_chat(client, extra_headers={"x-request-id": "mine-1", "x-forwarded-for": "6.6.6.6, 203.0.113.9"})
    (line,) = lines()
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    assert line["operation"] == "POST /v1/chat/completions" and line["status"] == 200 and line["label"] == "mine-1"
    assert (line["key"], line["project"]) == (caller.key_id, caller.project_id)
    assert (line["model"], line["provider"], line["served"]) == (MODEL, "openai", "openai/gpt-4o-mini")
    assert line["attempts"] == 1 and line["input_tokens"] > 0 and line["output_tokens"] > 0
    assert float(line["cost_usd"]) > 0 and line["duration_ms"] >= line["provider_ms"] >= 0 and "gateway_ms" in line
    assert line["ip"] == "203.0.113.9"
    assert len(line["request_id"]) == 32 and line["at"].endswith("Z") and "code" not in line


def test_a_stream_is_reported_once_when_it_is_over(client: OpenAI, lines: Callable[[], Lines]) -> None:
    stream = send_chat(client, stream=True)
    next(iter(stream))
    for _ in stream:
        pass
    (line,) = lines()
    assert line["status"] == 200 and line["first_token_ms"] > 0 and float(line["cost_usd"]) > 0


def test_refusals_before_any_attempt_are_reported_with_reason_and_remedy(
    gateway: LocalGateway, client: OpenAI, lines: Callable[[], Lines]
) -> None:
    with pytest.raises(APIStatusError):
        send_chat(client.with_options(api_key="llmgtwy_nobody_knows_this_one"))
    with pytest.raises(APIStatusError):
        send_chat(client, model="no-such-model")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(gateway.address + "/nowhere")
    unknown, model, path = lines()
    assert (unknown["status"], unknown["code"]) == (401, "invalid_api_key") and "keys list" in unknown["remedy"]
    assert "key" not in unknown
    assert (model["code"], model["model"]) == ("model_not_found", "no-such-model") and model["key"].startswith("key_")
    assert (path["operation"], path["status"]) == ("unmatched", 404)


def test_a_failure_names_every_attempt(upstream: FakeOpenAI, client: OpenAI, lines: Callable[[], Lines]) -> None:
    upstream.script(Answer(status=401))
    with pytest.raises(APIStatusError):
        send_chat(client)
    (line,) = lines()
    assert line["code"] == "all_providers_failed" and "credential" in line["remedy"]
    assert (line["tried"][0]["provider"], line["tried"][0]["status"]) == ("openai", 401)


def test_an_answer_that_is_given_again_is_reported_too(
    gateway: LocalGateway, client: OpenAI, lines: Callable[[], Lines]
) -> None:
    for _ in range(2):
        send_chat(client, extra_headers={"idempotency-key": "once"})
    first, again = lines()
    assert "replayed" not in first and again["replayed"] is True and "cost_usd" not in again


def test_neither_secrets_nor_messages_are_in_a_line(
    gateway: LocalGateway, upstream: FakeOpenAI, client: OpenAI, lines: Callable[[], Lines]
) -> None:
    send_chat(client)
    upstream.script(*[Answer(status=500)] * 3)
    with pytest.raises(APIStatusError):
        send_chat(client)
    text = json.dumps(lines())
    for secret in (gateway.key, "sk-upstream-secret", "my private words"):
        assert secret not in text


def test_probes_that_went_well_are_left_out(gateway: LocalGateway, lines: Callable[[], Lines]) -> None:
    with urllib.request.urlopen(gateway.address + "/readyz") as answer:
        assert answer.status == 200
    assert lines() == []


def test_the_readable_form_quotes_what_a_caller_chose(gateway: LocalGateway, client: OpenAI) -> None:
    written: list[str] = []
    writer = RequestLines("text", written.append)
    gateway.services.telemetry.requests.observe(writer)
    with pytest.raises(APIStatusError):
        send_chat(client, model="a\nb key=stolen")
    writer.flush()
    (line,) = "".join(written).splitlines()
    assert ' model="a\\nb key=stolen" ' in line and line.count(" key=key_") == 1


def test_nothing_is_gathered_while_the_line_is_off(gateway: LocalGateway) -> None:
    assert gateway.services.telemetry.requests.observers == []
