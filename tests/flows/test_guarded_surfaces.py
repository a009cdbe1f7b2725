"""Guardrails on surfaces besides chat completions: sockets, responses in the background, batches, and other SDKs."""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import anthropic
import google.genai as genai
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Tenant

from gateway.accounts import guardrail_changes
from gateway.batches import batch_runs
from gateway.guardrails.rule_sets import GuardrailRule

MODEL = "openai/gpt-4o-mini"
CARD = "4929 1234 5678 9015"
EMAIL = "anna.meyer@mail.test"
SIZES = (1, 3, 1000)  # characters of the pieces of a stream


@pytest.fixture(autouse=True)
def rules(gateway: LocalGateway) -> Iterator[None]:
    """The organization masks addresses and blocks cards."""
    stores = (gateway.services.store.database, gateway.services.store.control)
    place = (gateway.organization_id, "organization", gateway.organization_id)
    added = [
        guardrail_changes.add_guardrail(
            *stores,
            *place,
            GuardrailRule("", name, action, (detector,)),
            active=True,
            actor="operator",  # type: ignore[arg-type]
        ).id
        for name, action, detector in (("Mask", "mask", "email"), ("No cards", "block", "payment_card"))
    ]
    yield
    for ident in added:
        guardrail_changes.remove_guardrail(*stores, place[0], ident, actor="operator")


class Echo:
    """Answers of the provider that repeat the placeholder of EMAIL."""

    def __init__(self, client: OpenAI, upstream: FakeOpenAI) -> None:
        self.upstream = upstream
        upstream.script(Answer("ok"))
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": EMAIL}])
        sent = json.dumps(upstream.calls[-1].body)
        start = sent.index("EMAIL_")
        self.placeholder = sent[start : start + 16]

    def script(self, piece: int = 1000) -> None:
        self.upstream.script(Answer(f"I wrote to {self.placeholder}, twice: {self.placeholder}.", piece=piece))

    def check(self, text: str) -> None:
        """Check that the caller has the values, and the provider has none."""
        assert text == f"I wrote to {EMAIL}, twice: {EMAIL}."
        assert EMAIL not in "".join(json.dumps(call.body) for call in self.upstream.calls)


@pytest.fixture
def echo(client: OpenAI, upstream: FakeOpenAI, rules: None) -> Echo:
    return Echo(client, upstream)


@pytest.mark.parametrize("piece", SIZES)
def test_turns_of_a_responses_socket(gateway: LocalGateway, echo: Echo, piece: int) -> None:
    with OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0).responses.connect() as connection:
        echo.script(piece)
        connection.response.create(model=MODEL, input=f"Write to {EMAIL}.")
        text = ""
        while (event := connection.recv()).type != "response.completed":
            assert event.type not in ("error", "response.failed"), event
            text += event.delta if event.type == "response.output_text.delta" else ""
        echo.check(text)
        echo.check(event.response.output[0].content[0].text)
        before = len(echo.upstream.calls)
        connection.response.create(model=MODEL, input=f"Pay with {CARD}.")
        while (event := connection.recv()).type not in ("error", "response.failed"):
            assert event.type != "response.completed"
        assert "guardrail_blocked" in event.to_json() and len(echo.upstream.calls) == before


def test_response_in_the_background(client: OpenAI, echo: Echo) -> None:
    echo.script()
    begun = client.responses.create(model=MODEL, input=f"Write to {EMAIL}.", background=True)
    blocked = client.responses.create(model=MODEL, input=f"Pay with {CARD}.", background=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = [client.responses.retrieve(one.id) for one in (begun, blocked)]
        if all(one.status in ("completed", "failed") for one in done):
            break
        time.sleep(0.02)
    assert [one.status for one in done] == ["completed", "failed"]
    echo.check(done[0].output_text)
    assert CARD not in "".join(json.dumps(call.body) for call in echo.upstream.calls)


def test_lines_of_a_batch(client: OpenAI, gateway: Tenant, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_runs, "FIRST_WAIT_S", 0.01)
    echo.script()
    done = run_batch(client, gateway, f"Write to {EMAIL}.", "Hello!")
    assert (done.status, done.request_counts.completed) == ("completed", 2), done
    lines = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines}
    echo.check(next(text for text in texts.values() if "I wrote" in text))
    before = len(echo.upstream.calls)
    failed = run_batch(client, gateway, "Hello!", f"Pay with {CARD}.")
    assert (failed.status, failed.errors.data[0].code, failed.errors.data[0].line) == ("failed", "guardrail_blocked", 2)
    assert len(echo.upstream.calls) == before  # a line that is refused fails the batch before any is sent


def run_batch(client: OpenAI, gateway: Tenant, *texts: str) -> Any:
    """Return a batch with a line for each text, when it has ended."""
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 50}}
        for number, text in enumerate(texts)
    ]  # fmt: skip
    data = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    database = gateway.services.store.database
    due = "UPDATE batch_job SET due_at = 1 WHERE id = ? AND due_at IS NOT NULL"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and batch.status not in ("completed", "failed", "expired"):
        database.write(partial(database.execute, due, (batch.id,)))
        gateway.services.engine.batches.run()
        batch = client.batches.retrieve(batch.id)
        time.sleep(0.02)
    return batch


@pytest.mark.parametrize("piece", SIZES)
def test_google_sdk(gateway: LocalGateway, echo: Echo, piece: int) -> None:
    options = genai.types.HttpOptions(base_url=gateway.address)
    client = genai.Client(api_key=gateway.key, http_options=options)
    echo.script(piece)
    echo.check(client.models.generate_content(model=MODEL, contents=f"Write to {EMAIL}.").text)
    echo.script(piece)
    chunks = client.models.generate_content_stream(model=MODEL, contents=f"Write to {EMAIL}.")
    echo.check("".join(chunk.text or "" for chunk in chunks))


@pytest.mark.parametrize("piece", SIZES)
def test_anthropic_sdk(gateway: LocalGateway, echo: Echo, piece: int) -> None:
    client = anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0)
    messages: Any = [{"role": "user", "content": f"Write to {EMAIL}."}]
    echo.script(piece)
    with client.messages.stream(model=MODEL, max_tokens=100, messages=messages) as stream:
        echo.check("".join(stream.text_stream))
    with pytest.raises(anthropic.BadRequestError) as refused:
        messages = [{"role": "user", "content": f"Pay with {CARD}."}]
        client.messages.create(model=MODEL, max_tokens=100, messages=messages)
    assert "No cards" in str(refused.value)


@pytest.mark.parametrize("piece", SIZES)
def test_stream_in_cohere_s_dialect(gateway: LocalGateway, echo: Echo, piece: int) -> None:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": f"Write to {EMAIL}."}]}
    echo.script(piece)
    headers = {"Authorization": f"Bearer {gateway.key}"}
    answer = httpx.post(f"{gateway.address}/v2/chat", json=body, headers=headers, timeout=60)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    echo.check("".join(one["delta"]["message"]["content"]["text"] for one in events if one["type"] == "content-delta"))
