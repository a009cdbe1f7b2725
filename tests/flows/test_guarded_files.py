"""Guardrails and stored files: the text of a file is read wherever a request may name it, however large it is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fakes.file_services import FakeOpenAIFiles
from openai import OpenAI
from support.shared import Share, Tenant

from gateway.accounts import guardrail_changes
from gateway.guardrails.rule_sets import GuardrailRule

MODEL = "openai/gpt-4o-mini"
CARD = "4929 1234 5678 9015"
EMAIL = "anna.meyer@mail.test"
FILLING = b"Nothing is said in this line of the file.\n" * 310_000  # with its base64 above what is always in the body


@pytest.fixture
def upstream(share: Share) -> FakeOpenAIFiles:
    return share.fake(FakeOpenAIFiles)


@pytest.fixture
def gateway(share: Share, upstream: FakeOpenAIFiles) -> Iterator[Tenant]:
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "false"}
    yield share.gateway({**environment, "LLM_OPENAI_BASE_URL": upstream.url})


@pytest.fixture
def client(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.fixture(autouse=True)
def rules(gateway: Tenant) -> None:
    """The organization masks addresses and blocks cards; other content may pass."""
    stores = (gateway.services.store.database, gateway.services.store.control)
    place = (gateway.organization_id, "organization", gateway.organization_id)
    for name, action, detector in (("Mask", "mask", "email"), ("No cards", "block", "payment_card")):
        rule = GuardrailRule("", name, action, (detector,), unread="pass")  # type: ignore[arg-type]
        guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")


def test_a_value_in_a_large_text_file_is_masked(client: OpenAI, upstream: FakeOpenAIFiles):
    file = store(client, FILLING + EMAIL.encode())
    assert ask(client, file)
    (sent,) = base64_of(upstream.calls[-1].body)
    assert sent.startswith(FILLING[:100]) and EMAIL.encode() not in sent and b"EMAIL_" in sent[-60:]
    assert upstream.desk.uploads == 0


def test_a_large_text_file_with_a_blocked_value_is_refused(client: OpenAI, upstream: FakeOpenAIFiles):
    file = store(client, FILLING + CARD.encode())
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, file)
    assert refused.value.code == "guardrail_blocked" and not upstream.calls and upstream.desk.uploads == 0


def test_a_text_file_that_is_too_large_to_be_read_is_refused(client: OpenAI, upstream: FakeOpenAIFiles):
    file = store(client, FILLING * 2 + CARD.encode())
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, file)
    assert refused.value.status_code == 413 and "guardrails" in str(refused.value)
    assert not upstream.calls and upstream.desk.uploads == 0


def test_a_large_file_that_no_rule_reads_is_uploaded(client: OpenAI, upstream: FakeOpenAIFiles):
    file = client.files.create(
        file=("large.pdf", b"%PDF-1.4\n" + bytes(40 << 20), "application/pdf"), purpose="user_data"
    )
    assert ask(client, file.id) and upstream.desk.uploads == 1


def store(client: OpenAI, data: bytes) -> str:
    return client.files.create(file=("notes.txt", data, "text/plain"), purpose="user_data").id


def ask(client: OpenAI, file: str) -> str:
    parts: Any = [{"type": "text", "text": "What is this?"}, {"type": "file", "file": {"file_id": file}}]
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}], max_tokens=100)
    return answer.choices[0].message.content or ""


def base64_of(body: Any) -> list[bytes]:
    """Return the contents of the files in a request."""
    found = [part for message in body["messages"] for part in message["content"] if "file" in part]
    assert found, json.dumps(body)[:500]
    return [base64.b64decode(part["file"]["file_data"].partition("base64,")[2]) for part in found]
