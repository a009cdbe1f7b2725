"""The batch APIs of providers in tests: each vendor with its fake, and batches that are begun and run to their end."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

import pytest
from fakes.anthropic import Answer as MessageAnswer
from fakes.google import Answer as GoogleAnswer
from fakes.message_batches import FakeAnthropicBatches, FakeGoogleBatches
from fakes.mistral import KEY as MISTRAL_KEY
from fakes.mistral import Answer as MistralAnswer
from fakes.openai import Answer
from fakes.openai_batches import FakeAzureBatches, FakeMistralBatches, FakeOpenAIBatches
from openai import OpenAI
from support.shared import Tenant

from gateway.batches import batch_runs, native_parts, native_results, native_sending
from gateway.metering.usage_table import UsageRecord


class Vendor(NamedTuple):
    """A provider with a batch API: its fake, its environment, a model that it alone serves, and an answer of its
    form."""

    name: str
    fake: type
    environment: dict[str, str]
    model: str
    answer: Any


VENDORS = {
    "openai": Vendor(
        "openai",
        FakeOpenAIBatches,
        {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "false"},
        "openai/gpt-4o-mini",
        Answer,
    ),
    "anthropic": Vendor(
        "anthropic",
        FakeAnthropicBatches,
        {"LLM_ANTHROPIC_API_KEY": "sk-ant-upstream"},
        "anthropic/claude-sonnet-4-5",
        MessageAnswer,
    ),
    "google-ai-studio": Vendor(
        "google-ai-studio",
        FakeGoogleBatches,
        {"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream"},
        "google-ai-studio/gemini-2.5-flash",
        GoogleAnswer,
    ),
    "mistral": Vendor(
        "mistral",
        FakeMistralBatches,
        {"LLM_MISTRAL_API_KEY": MISTRAL_KEY},
        "mistral/mistral-small-latest",
        MistralAnswer,
    ),
    "azure": Vendor(
        "azure",
        FakeAzureBatches,
        {
            "LLM_AZURE_API_KEY": "azure-test-key",
            "LLM_AZURE_BATCH_DEPLOYMENT": "{model}-batch",
            "LLM_AZURE_USE_RESPONSES_API": "false",
        },
        "azure/gpt-4o-mini",
        Answer,
    ),
}


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let polls and repetitions wait for some hundredths of a second."""
    monkeypatch.setattr(batch_runs, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(batch_runs, "MAX_WAIT_S", 0.05)
    monkeypatch.setattr(batch_runs, "STEP_S", 0.01)
    monkeypatch.setattr(batch_runs, "TROUBLE_WAIT_S", 0.05)
    monkeypatch.setattr(native_results, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(native_results, "MAX_POLL_S", 0.05)
    monkeypatch.setattr(native_parts, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(native_parts, "MAX_TROUBLE_S", 0.1)
    monkeypatch.setattr(native_sending, "SETTLED_S", 0.1)
    monkeypatch.setattr(native_sending, "MAX_TROUBLE_S", 0.1)


def is_creation(call: Any) -> bool:
    """Return whether a call created a batch."""
    path = getattr(call, "path", "")
    body = getattr(call, "body", None)
    if isinstance(body, dict) and ("input_files" in body or "input_file_id" in body or "batch" in body):
        return True
    return path.endswith("/messages/batches") and isinstance(body, dict) and "requests" in body


def assert_half_price(gateway: Tenant, row: UsageRecord) -> None:
    """Check that a row has the price of a batch to the nano-dollar: half of the list price of each of its parts."""
    catalogue = gateway.services.routing.catalogue.current()
    mapping = next(one for one in catalogue.models[row.served].mappings if one.provider == row.provider)
    rates = mapping.prices[-1].base if mapping.steady is None else mapping.steady
    assert json.loads(row.extra or "{}").get("tier") == "batch"
    half = [
        (row.input * (rates.prompt or 0) + 10**6) // (2 * 10**6),
        (row.output * (rates.completion or 0) + 10**6) // (2 * 10**6),
    ]
    assert (row.input_nusd, row.output_nusd) == tuple(half), (row, rates)
    assert row.cost_nusd == sum(half) and row.cost_nusd > 0


def chat_line(number: int, vendor: Vendor, **body: Any) -> dict:
    wire = {"model": vendor.model, "messages": [{"role": "user", "content": f"Hello {number}!"}], "max_tokens": 50}
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": {**wire, **body}}


def begin(client: OpenAI, lines: list[dict], endpoint: Any = "/v1/chat/completions", sending: str = "", **more: Any):
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    headers = {"x-llmgateway-batch": sending} if sending else {}
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", extra_headers=headers, **more
    )


def begin_held(gateway: Tenant, client: OpenAI, upstream: Any, lines: list[dict], **more: Any) -> Any:
    """Begin a batch that its provider has and holds back."""
    upstream.desk.held = True
    batch = begin(client, lines, **more)
    run(gateway, client, batch.id, lambda: bool(upstream.desk.batches))
    return batch


def output(client: OpenAI, batch: Any) -> list[dict]:
    return [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]


def run(gateway: Tenant, client: OpenAI | None, ident: str, until: Any = None) -> Any:
    """Run the recurring job until a batch has ended, or until a condition holds."""
    database = gateway.services.store.database
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        gateway.services.engine.batches.run()
        if until is not None:
            if until():
                return None
        elif client is not None:
            batch = client.batches.retrieve(ident)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
        time.sleep(0.02)
    parts = database.query_rows("SELECT * FROM provider_batch WHERE batch = ? ORDER BY id DESC LIMIT 3", (ident,))
    raise AssertionError(parts, gateway.services.engine.batches.rows.find(ident))
