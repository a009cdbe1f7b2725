"""A plain answer that takes long begins with blanks, for proxies that close a silent connection."""

import gzip
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import GatewayProcess

HELLO = [{"role": "user", "content": "Hello"}]
MODEL = "openai/gpt-4o-mini"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": HELLO},
    "/v1/messages": {"model": MODEL, "max_tokens": 20, "messages": HELLO},
    "/v1/responses": {"model": MODEL, "input": "Hello"},
}


@pytest.fixture
def patient(process: Callable[..., GatewayProcess], upstream: FakeOpenAI) -> GatewayProcess:
    """A gateway that sends a blank every 0.15 seconds."""
    environment = {"LLM_OPENAI_API_KEY": "sk-x", "LLM_OPENAI_BASE_URL": upstream.url}
    return process(GATEWAY_SERVER_EARLY_BLANK_S="0.15", **environment)


def send(gateway: GatewayProcess, path: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer."""
    host, _, port = gateway.address.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps({**BODIES[path], **more}), headers)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_blanks_come_before_a_late_answer_and_not_before_one_in_time(
    patient: GatewayProcess, upstream: FakeOpenAI
) -> None:
    for path in BODIES:
        upstream.script(Answer("At last.", silence_s=0.6))
        status, headers, body = send(patient, path)
        assert status == 200 and headers["content-type"] == "application/json" and headers["x-request-id"]
        assert headers["transfer-encoding"] == "chunked" and body.startswith(b"  ")
        assert "At last." in json.dumps(json.loads(body))
    status, headers, body = send(patient, "/v1/chat/completions")
    assert status == 200 and body.startswith(b"{") and int(headers["content-length"]) == len(body)
    assert "x-llmgateway-cost" in headers


def test_a_late_error_is_the_usual_body_with_status_200(patient: GatewayProcess, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer(status=500, silence_s=0.4)] * 3)
    status, _, body = send(patient, "/v1/chat/completions")
    assert status == 200 and body.startswith(b" ")
    assert json.loads(body)["error"]["code"]
    assert send(patient, "/v1/chat/completions", max_tokens=-1)[0] == 400


def test_the_connection_carries_the_next_request_and_streams_have_no_blanks(
    patient: GatewayProcess, upstream: FakeOpenAI
) -> None:
    client = OpenAI(base_url=f"{patient.address}/v1", api_key=patient.key, max_retries=0)
    for _ in range(2):
        upstream.script(Answer("At last.", silence_s=0.4))
        answer = client.chat.completions.create(model=MODEL, messages=HELLO)
        assert answer.choices[0].message.content == "At last."
    upstream.script(Answer("At last.", silence_s=0.4))
    chunks = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "At last."


@pytest.mark.parametrize("header", ["Content-Encoding", "Expect"])
def test_requests_that_flask_dispatches_have_blanks_too(
    header: str, patient: GatewayProcess, upstream: FakeOpenAI
) -> None:
    body = json.dumps(BODIES["/v1/chat/completions"]).encode()
    headers = {"Authorization": f"Bearer {patient.key}", "Content-Type": "application/json"}
    headers[header] = "gzip" if header == "Content-Encoding" else "100-continue"
    for script in (Answer("At last.", silence_s=0.6), *[Answer(status=500, silence_s=0.4)] * 3):
        upstream.script(script)
    for expected in (b"At last.", b'"error"'):
        host, _, port = patient.address.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        sent = gzip.compress(body) if header == "Content-Encoding" else body
        connection.request("POST", "/v1/chat/completions", sent, headers)
        answer = connection.getresponse()
        read = answer.read()
        connection.close()
        assert answer.status == 200 and read.startswith(b"  ") and expected in read
