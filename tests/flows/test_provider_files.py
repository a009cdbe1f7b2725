"""Large files in requests: uploaded to the provider once, remembered, found lost, and deleted with the file."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest
from fakes.azure import KEY as AZURE_KEY
from fakes.file_services import (
    FakeAnthropicFiles,
    FakeAzureFiles,
    FakeGoogleFiles,
    FakeMistralFiles,
    FakeOpenAIFiles,
    FakeResponsesFiles,
)
from fakes.mistral import KEY as MISTRAL_KEY
from fakes.openai import Answer
from openai import OpenAI
from support.shared import Share, Tenant, usage_of

from gateway.accounts.organizations import set_policy
from gateway.billing.reconciliation import doctor
from gateway.files import provider_files
from gateway.runtime.threads import Job, pause

LARGE = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n" + bytes(30 << 20)
MIDDLE = LARGE[: 17 << 20]  # as base64 more than Google takes


class Vendor(NamedTuple):
    """A provider with a files API: its name, its fake, its environment and a model that it alone serves."""

    name: str
    fake: type
    environment: dict[str, str]
    model: str


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "openai",
            FakeOpenAIFiles,
            {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "false"},
            "openai/gpt-4o-mini",
        ),
        Vendor(
            "azure",
            FakeAzureFiles,
            {"LLM_AZURE_API_KEY": AZURE_KEY, "LLM_AZURE_USE_RESPONSES_API": "false"},
            "azure/gpt-5.4-mini",
        ),
        Vendor(
            "anthropic", FakeAnthropicFiles, {"LLM_ANTHROPIC_API_KEY": "sk-ant-upstream"}, "anthropic/claude-sonnet-4-5"
        ),
        Vendor(
            "google-ai-studio",
            FakeGoogleFiles,
            {"LLM_GOOGLE_AI_STUDIO_API_KEY": "AIza-upstream"},
            "google-ai-studio/gemini-2.5-flash",
        ),
    )
}


@pytest.fixture
def vendor(request: pytest.FixtureRequest) -> Vendor:
    """OpenAI, unless the test names others."""
    return VENDORS[getattr(request, "param", "openai")]


@pytest.fixture
def upstream(share: Share, vendor: Vendor) -> Any:
    return share.fake(vendor.fake, *(("gpt-5.4-mini",) if vendor.name == "azure" else ()))


@pytest.fixture
def gateway(share: Share, vendor: Vendor, upstream: Any) -> Iterator[Tenant]:
    variable = f"LLM_{vendor.name.upper().replace('-', '_')}_BASE_URL"
    yield share.gateway({**vendor.environment, variable: upstream.url})


@pytest.fixture
def client(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


every_vendor = pytest.mark.parametrize("vendor", VENDORS, indirect=True)


@every_vendor
def test_a_large_file_is_uploaded_once_and_named_in_every_request(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    for _ in range(2):
        assert ask(client, vendor, file) == "Hello."
    assert stream(client, vendor, file) == "Hello."
    assert upstream.desk.uploads == 1 and problems(upstream) == []
    (kept,) = upstream.desk.files.values()
    assert (kept.size, kept.digest) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert all(len(json.dumps(call.body)) < 5000 for call in upstream.calls)
    rows = usage_of(gateway)
    assert len(rows) == 3 and all(row.cost_nusd for row in rows)


@every_vendor
def test_a_file_that_was_deleted_is_deleted_at_its_provider(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    ask(client, vendor, file)
    upstream.desk.failing = 500
    client.files.delete(file)
    end_files(gateway)
    assert len(upstream.desk.files) == len(rows_of(gateway)) == 1
    upstream.desk.failing = 0
    make_due(gateway)
    end_files(gateway)
    assert len(upstream.desk.deleted) == 1 and not upstream.desk.files and not rows_of(gateway)
    with pytest.raises(openai.NotFoundError):
        ask(client, vendor, file)


@every_vendor
@pytest.mark.parametrize("streamed", [False, True])
def test_a_file_that_its_provider_lost_is_uploaded_again_once(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor, streamed: bool
):
    file = store(client)
    ask(client, vendor, file)
    upstream.desk.lose()
    send = stream if streamed else ask
    assert send(client, vendor, file) == "Hello."
    assert (upstream.desk.uploads, len(upstream.desk.files), len(rows_of(gateway))) == (2, 1, 1)
    assert len(usage_of(gateway)) == 2


def test_a_refusal_that_concerns_no_file_uploads_nothing(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    ask(client, vendor, file)
    (ident,) = upstream.desk.files
    upstream.script(
        Answer(status=400, error={"error": {"message": f"{ident} is odd.", "type": "invalid_request_error"}})
    )
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, vendor, file)
    assert upstream.desk.uploads == upstream.desk.shown == 1
    assert file in str(refused.value) and ident not in str(refused.value)


@pytest.fixture
def patient(share: Share, upstream: Any, vendor: Vendor) -> Tenant:
    """A gateway whose streams are silent for a fraction of a second at most."""
    environment = {**vendor.environment, "LLM_OPENAI_BASE_URL": upstream.url, "GATEWAY_TIMEOUTS_HEARTBEAT_S": "0.2"}
    return share.gateway(environment)


def test_a_streaming_caller_gets_heartbeats_while_a_file_is_uploaded(patient: Tenant, upstream: Any, vendor: Vendor):
    client = OpenAI(base_url=patient.url, api_key=patient.key, max_retries=0)
    file = store(client)
    upstream.desk.slow_s = 4.0
    body = {"model": vendor.model, "messages": messages(file), "max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{patient.url}/chat/completions", json=body, headers=signed(patient), timeout=30) as got:
        lines = got.iter_lines()
        first = next(lines)
        sent = len(upstream.calls)  # the file is still on its way
        rest = list(lines)
    assert first.startswith(":") and sent == 0
    assert rest[-2:] == ["data: [DONE]", ""] and any("Hello." in line for line in rest)


def test_a_caller_who_leaves_during_an_upload_pays_nothing(patient: Tenant, upstream: Any, vendor: Vendor):
    client = OpenAI(base_url=patient.url, api_key=patient.key, max_retries=0)
    file = store(client)
    upstream.desk.slow_s = 8.0
    body = {"model": vendor.model, "messages": messages(file), "max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{patient.url}/chat/completions", json=body, headers=signed(patient), timeout=30) as got:
        next(got.iter_lines())
    pause(12.0)
    assert not upstream.calls and sum(row.cost_nusd for row in usage_of(patient)) == 0
    assert doctor(patient.services.store.database) == []


def test_two_requests_at_the_same_time_upload_a_file_once(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    upstream.desk.slow_s = 0.5
    jobs = [Job(ask, client, vendor, file) for _ in range(4)]
    assert [job.result(60) for job in jobs] == ["Hello."] * 4
    assert upstream.desk.uploads == 1


def test_a_file_that_is_deleted_during_its_upload_does_not_remain(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    upstream.desk.slow_s = 1.0
    job = Job(outcome, client, vendor, file)
    while not upstream.desk.uploads:
        pause(0.01)
    client.files.delete(file)
    assert isinstance(job.result(60), openai.NotFoundError)
    end_files(gateway)
    assert not upstream.desk.files and not rows_of(gateway)


def test_an_upload_that_a_dead_worker_left_is_begun_again(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
):
    file = store(client)
    ask(client, vendor, file)
    left = "UPDATE provider_file SET state = 'uploading', remote = '', due_at = 1 WHERE file = ?"
    gateway.services.store.database.change_rows(left, (file,))
    assert ask(client, vendor, file) == "Hello."
    assert upstream.desk.uploads == 2 and [row.state for row in rows_of(gateway)] == ["ready"]


@pytest.mark.parametrize("vendor", ["google-ai-studio"], indirect=True)
def test_a_file_is_uploaded_again_before_it_expires(client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor):
    upstream.desk.reading_s = 0.3
    file = store(client, MIDDLE)
    ask(client, vendor, file)
    (row,) = rows_of(gateway)
    assert row.expires_at is not None and 47 * 3600 < row.expires_at / 1e6 - time.time() <= 48 * 3600
    make_due(gateway)
    ask(client, vendor, file)
    assert upstream.desk.uploads == 2
    make_due(gateway)
    end_files(gateway)
    assert rows_of(gateway) == [] and upstream.desk.deleted == []  # they expire at the provider


@pytest.mark.parametrize("vendor", ["anthropic"], indirect=True)
def test_a_file_below_the_limit_of_the_provider_is_sent_in_the_request(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client, MIDDLE)
    assert ask(client, vendor, file) == "Hello."
    assert upstream.desk.uploads == 0 and "base64" in json.dumps(upstream.calls[-1].body)[:400]


@pytest.mark.parametrize("policy", [{"zeroDataRetention": True}, {"blockPromptLogging": True}])
def test_a_policy_without_retention_forbids_uploads(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor, policy: dict[str, Any]
):
    file = store(client)
    stores = gateway.services.store
    set_policy(stores.database, stores.control, gateway.organization_id, policy, actor="test")
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, vendor, file)
    assert refused.value.status_code == 413 and upstream.desk.uploads == 0


def test_a_file_of_another_project_is_not_found(
    client: OpenAI, share: Share, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    ask(client, vendor, file)
    stranger = share.gateway({**vendor.environment, "LLM_OPENAI_BASE_URL": upstream.url})
    other = OpenAI(base_url=stranger.url, api_key=stranger.key, max_retries=0)
    with pytest.raises(openai.NotFoundError):
        ask(other, vendor, file)
    (ident,) = upstream.desk.files
    calls = len(upstream.calls)
    with pytest.raises(openai.APIStatusError):
        ask(other, vendor, ident)
    assert len(upstream.calls) == calls


def test_a_provider_that_takes_no_upload_is_passed_over_and_reported(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    file = store(client)
    upstream.desk.failing = 500
    failed = outcome(client, vendor, file)
    assert isinstance(failed, openai.InternalServerError) and rows_of(gateway) == []
    upstream.desk.failing = 0
    assert all(row.cost_nusd == 0 for row in usage_of(gateway))


def test_the_official_client_for_messages_names_a_large_file(share: Share):
    vendor = VENDORS["anthropic"]
    upstream = share.fake(vendor.fake)
    gateway = share.gateway({**vendor.environment, "LLM_ANTHROPIC_BASE_URL": upstream.url})
    client = anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)
    file = client.beta.files.upload(file=("large.pdf", LARGE, "application/pdf"))
    source = {"type": "file", "file_id": file.id}
    for _ in range(2):
        answer = client.beta.messages.create(
            model=vendor.model,
            max_tokens=100,
            betas=["files-api-2025-04-14"],
            messages=[{"role": "user", "content": [{"type": "document", "source": source}]}],
        )
        assert answer.content[0].text == "Hello."
    assert upstream.desk.uploads == 1 and problems(upstream) == []


def test_a_response_and_the_next_one_name_a_large_file(share: Share):
    upstream = share.fake(FakeResponsesFiles)
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "true"}
    gateway = share.gateway({**environment, "LLM_OPENAI_BASE_URL": upstream.url})
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    file = store(client)
    part: Any = {"type": "input_file", "file_id": file}
    first = client.responses.create(model="openai/gpt-4o-mini", input=[{"role": "user", "content": [part]}])
    second = client.responses.create(model="openai/gpt-4o-mini", input="And then?", previous_response_id=first.id)
    assert first.output_text == second.output_text == "Hello."
    assert upstream.desk.uploads == 1 and problems(upstream) == []
    begun = client.responses.create(
        model="openai/gpt-4o-mini", input=[{"role": "user", "content": [part]}], background=True
    )
    while begun.status in ("queued", "in_progress"):
        time.sleep(0.05)
        begun = client.responses.retrieve(begun.id)
    assert begun.output_text == "Hello." and upstream.desk.uploads == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_large_document_is_read_where_it_was_uploaded(share: Share, lost: bool):
    upstream = share.fake(FakeMistralFiles)
    gateway = share.gateway({"LLM_MISTRAL_API_KEY": MISTRAL_KEY, "LLM_MISTRAL_BASE_URL": upstream.url})
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    file = store(client)
    for _ in range(2):
        body = {"model": "mistral/mistral-ocr-4-1", "document": {"type": "file", "file_id": file}}
        answer: Any = client.post("/ocr", body=body, cast_to=object)
        assert answer["pages"][0]["markdown"] == "Read."
        if lost:
            upstream.desk.lose()
    assert upstream.desk.uploads == (2 if lost else 1) and len(problems(upstream)) == lost
    (kept,) = upstream.desk.files.values() or [None]
    assert lost or (kept.size, kept.fields["purpose"]) == (len(LARGE), "ocr")
    assert [row.cost_nusd > 0 for row in usage_of(gateway)] == [True, True]


def store(client: OpenAI, data: bytes = LARGE) -> str:
    return client.files.create(file=("large.pdf", data, "application/pdf"), purpose="user_data").id


def ask(client: OpenAI, vendor: Vendor, file: str) -> str:
    answer = client.chat.completions.create(model=vendor.model, messages=messages(file), max_tokens=100)
    return answer.choices[0].message.content or ""


def stream(client: OpenAI, vendor: Vendor, file: str) -> str:
    chunks = client.chat.completions.create(model=vendor.model, messages=messages(file), max_tokens=100, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def signed(gateway: Tenant) -> dict[str, str]:
    return {"authorization": f"Bearer {gateway.key}"}


def outcome(client: OpenAI, vendor: Vendor, file: str) -> Any:
    try:
        return ask(client, vendor, file)
    except openai.APIStatusError as error:
        return error


def messages(file: str) -> Any:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "file", "file": {"file_id": file}}]
    return [{"role": "user", "content": parts}]


def problems(upstream: Any) -> list[str]:
    return [call.problem for call in (*upstream.calls, *upstream.file_calls) if getattr(call, "problem", "")]


def rows_of(gateway: Tenant) -> list[provider_files.ProviderFileRow]:
    database = gateway.services.store.database
    sql = f"{provider_files.SELECT} WHERE organization = ?"
    return [provider_files.ProviderFileRow(*row) for row in database.query_rows(sql, (gateway.organization_id,))]


def make_due(gateway: Tenant) -> None:
    database = gateway.services.store.database
    database.change_rows("UPDATE provider_file SET due_at = 1 WHERE organization = ?", (gateway.organization_id,))


def end_files(gateway: Tenant) -> None:
    """Run the job that ends rows of files at providers."""
    for _ in range(3):
        gateway.services.engine.provider_files.run()
        pause(0.05)
