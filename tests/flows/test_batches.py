"""Batches through the official clients: checked, held, sent, priced line by line, cancelled, expired, continued."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anthropic
import httpx
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.server import serving
from openai import OpenAI
from support.batch_books import settled
from support.shared import Tenant

from gateway import ids
from gateway.accounts.organizations import set_policy
from gateway.batches import batch_runs, project_batches
from gateway.errors import Unavailable
from gateway.limits.budgets import Limits
from gateway.store.intents import Intents
from gateway.store.journal import Statement
from gateway.store.live_workers import LiveWorkers
from gateway.surfaces.management import batch_routes

MODEL = "gpt-4o-mini"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_runs, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(batch_runs, "MAX_WAIT_S", 0.05)
    monkeypatch.setattr(batch_runs, "STEP_S", 0.01)


@pytest.fixture
def messages(gateway: Tenant) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)


def test_a_batch_of_chat_completions_is_sent_and_priced_line_by_line(client: OpenAI, gateway: Tenant):
    batch = begin(client, [chat_line(number) for number in range(20)])
    assert (batch.status, batch.endpoint, batch.completion_window) == ("validating", "/v1/chat/completions", "24h")
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.total, done.request_counts.completed) == ("completed", 20, 20)
    assert done.request_counts.failed == 0 and done.error_file_id is None and done.metadata == {"team": "tea"}
    lines = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in lines] == [f"line-{number}" for number in range(20)]
    assert all(line["response"]["body"]["choices"][0]["message"]["content"] == "Hello." for line in lines)
    rows = usage(gateway)
    assert len(rows) == 20 and sum(cost for _, cost in rows) == round(done.cost_details["cost"] * 1e9)
    assert {request for request, _ in rows} == {line["response"]["request_id"] for line in lines}
    assert client.files.retrieve(done.output_file_id).purpose == "batch_output"
    assert [one.id for one in client.batches.list()] == [batch.id]
    settled(gateway)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/responses", {"model": MODEL, "input": "Hello!"}),
        ("/v1/embeddings", {"model": "sandbox-embed", "input": "Hello!"}),
        ("/v1/moderations", {"model": "sandbox-moderate", "input": "Hello!"}),
    ],
)
def test_every_endpoint_takes_lines(client: OpenAI, gateway: Tenant, endpoint: str, body: dict):
    lines = [{"custom_id": str(number), "method": "POST", "url": endpoint, "body": body} for number in range(3)]
    done = run(gateway, client, begin(client, lines, endpoint).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    for line in client.files.content(done.output_file_id).text.splitlines():
        assert json.loads(line)["response"]["status_code"] == 200
    assert len(usage(gateway)) == 3
    settled(gateway)


def test_a_line_that_is_invalid_fails_the_batch_before_anything_is_sent(
    client: OpenAI, gateway: Tenant, upstream: FakeOpenAI
):
    lines = [
        chat_line(1),
        chat_line(1),
        chat_line(3) | {"url": "/v1/embeddings"},
        chat_line(4, model="no-such-model"),
        chat_line(5, temperature="hot"),
        chat_line(6, stream=True),
        {"custom_id": "x"},
    ]
    failed = run(gateway, client, begin(client, lines).id)
    assert failed.status == "failed" and failed.errors is not None
    found = {error.line: error for error in failed.errors.data}
    assert sorted(found) == [2, 3, 4, 5, 6, 7]
    assert found[4].code == "model_not_found" and found[5].param == "temperature" and found[6].param == "stream"
    assert upstream.calls == [] and usage(gateway) == []
    settled(gateway)


def test_a_batch_that_costs_more_than_a_limit_is_refused_whole_with_the_amount(
    client: OpenAI, gateway: Tenant, upstream: FakeOpenAI
):
    limit_key(gateway, "0.05")
    lines = [chat_line(number, max_tokens=10_000) for number in range(20)]
    failed = run(gateway, client, begin(client, lines).id)
    assert failed.status == "failed" and failed.errors is not None
    assert failed.errors.data[0].code == "key_limit_reached"
    assert "may cost up to 0.12" in failed.errors.data[0].message, failed.errors.data[0].message
    assert upstream.calls == [] and usage(gateway) == []
    settled(gateway)


def test_a_batch_runs_up_to_the_limit_where_its_caller_chose_that(client: OpenAI, gateway: Tenant):
    limit_key(gateway, "0.00003")
    lines = [chat_line(number, max_tokens=10) for number in range(20)]
    batch = begin(client, lines, metadata={"up_to_limit": "true"})
    done = run(gateway, client, batch.id)
    assert done.status == "completed" and 0 < done.request_counts.completed < 20
    assert done.request_counts.completed + done.request_counts.failed == 20
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert {line["response"]["body"]["error"]["code"] for line in errors} == {"key_limit_reached"}
    assert sum(cost for _, cost in usage(gateway)) <= 30_000
    settled(gateway)


def test_an_unused_part_of_a_reservation_is_released(client: OpenAI, gateway: Tenant, monkeypatch):
    limit_key(gateway, "1")
    batch = begin(client, [chat_line(number, max_tokens=1000) for number in range(10)])
    gave: list[int] = []
    holds = gateway.services.engine.batches._holds
    give_back = holds.give_back
    monkeypatch.setattr(holds, "give_back", lambda ident, nusd: (gave.append(nusd), give_back(ident, nusd)))
    monkeypatch.setattr(batch_runs, "RENEW_S", 0.0)
    done = run(gateway, client, batch.id)
    assert done.status == "completed"
    assert sum(gave) <= round((done.cost_details["bound"] - done.cost_details["cost"]) * 1e9)
    settled(gateway)


def test_a_line_is_retried_when_a_provider_fails_for_a_while(client: OpenAI, gateway: Tenant, upstream: FakeOpenAI):
    upstream.script(*[Answer(status=500)] * 6, *[Answer("Hello.")] * 4)
    done = run(gateway, client, begin(client, [chat_line(number) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len([cost for _, cost in usage(gateway) if cost]) == 3
    settled(gateway)


def test_a_cancelled_batch_bills_what_ran(client: OpenAI, gateway: Tenant):
    with no_worker(gateway):
        batch = begin(client, [chat_line(number) for number in range(4)])
        assert client.batches.cancel(batch.id).status == "cancelling"
    done = run(gateway, client, batch.id)
    assert done.status == "cancelled" and usage(gateway) == []
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)
    settled(gateway)


def test_an_expired_batch_names_the_lines_that_were_not_sent(client: OpenAI, gateway: Tenant):
    database = gateway.services.store.database
    sql = "UPDATE batch_job SET deadline_at = 1, state = 'in_progress', total = 4 WHERE id = ?"
    with no_worker(gateway):
        batch = begin(client, [chat_line(number) for number in range(4)])
        database.write(lambda: database.execute(sql, (batch.id,)))
    done = run(gateway, client, batch.id)
    assert done.status == "expired"
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert [line["error"]["code"] for line in errors] == ["batch_expired"] * 4
    settled(gateway)


def test_a_worker_that_loses_a_batch_leaves_the_rest_to_another_one(client: OpenAI, gateway: Tenant, monkeypatch):
    batch = begin(client, [chat_line(number) for number in range(30)])
    sent: list[int] = []
    port = gateway.services.engine.batches.port
    send = port.send

    def count(job, task, line, sending):
        sent.append(line.number)
        if len(sent) == 10:  # the worker ends here, as if it were killed
            monkeypatch.setattr(batch_runs.BatchRun, "_may_send", lambda self: False)
            monkeypatch.setattr(batch_runs.BatchClaim, "release", lambda self: None)
            monkeypatch.setattr(batch_runs.BatchRun, "_finish", lambda self, state: None)
        return send(job, task, line, sending)

    with monkeypatch.context() as killed:
        monkeypatch = killed
        killed.setattr(port, "send", count)
        gateway.services.engine.batches.run()
        deadline = time.monotonic() + 30
        while len(sent) < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 30)
    assert len(usage(gateway)) == 30
    settled(gateway)


def test_messages_are_batched_in_the_form_of_anthropic(messages: anthropic.Anthropic, client: OpenAI, gateway: Tenant):
    requests = [
        {
            "custom_id": f"message-{number}",
            "params": {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello!"}]},
        }
        for number in range(5)
    ]
    batch = messages.messages.batches.create(requests=requests)
    assert batch.processing_status == "in_progress" and batch.request_counts.processing == 5
    with pytest.raises(anthropic.AnthropicError):
        messages.messages.batches.results(batch.id)
    run(gateway, client, batch.id, lambda: messages.messages.batches.retrieve(batch.id).processing_status == "ended")
    ended = messages.messages.batches.retrieve(batch.id)
    assert ended.request_counts.succeeded == 5 and ended.results_url
    results = list(messages.messages.batches.results(batch.id))
    assert [one.custom_id for one in results] == [f"message-{number}" for number in range(5)]
    assert all(one.result.message.content[0].text == "Hello." for one in results)
    assert [one.id for one in messages.messages.batches.list()] == [batch.id] and list(client.batches.list()) == []
    assert messages.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        messages.messages.batches.retrieve(batch.id)
    assert len(usage(gateway)) == 5
    settled(gateway)


def test_an_invalid_message_of_a_batch_is_named_at_once(messages: anthropic.Anthropic, gateway: Tenant):
    good = {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello!"}]}
    requests = [{"custom_id": "a", "params": good}, {"custom_id": "b", "params": good | {"max_tokens": 0}}]
    with pytest.raises(anthropic.BadRequestError, match=r"requests\.1"):
        messages.messages.batches.create(requests=requests)
    settled(gateway)


def test_a_batch_without_its_input_ends_and_holds_nothing(client: OpenAI, gateway: Tenant):
    services = gateway.services
    with no_worker(gateway):
        batch = begin(client, [chat_line(number) for number in range(4)])
        services.engine.files.release(services.engine.batches.rows.find(batch.id).input)
    lost = run(gateway, client, batch.id)
    assert lost.status == "failed" and lost.errors.data[0].code == "batch_input_lost"
    settled(gateway)


def test_a_batch_with_unreadable_input_ends_with_its_window(client: OpenAI, gateway: Tenant):
    services = gateway.services
    files = services.engine.files
    with no_worker(gateway):
        batch = begin(client, [chat_line(1)])
        job = services.engine.batches.rows.find(batch.id)
        files._contents.delete([files.find_kept(job.input).content])
        sql = "UPDATE batch_job SET deadline_at = 1, state = 'in_progress', total = 1 WHERE id = ?"
        services.store.database.write(lambda: services.store.database.execute(sql, (batch.id,)))
    lost = run(gateway, client, batch.id)
    assert lost.status == "failed" and lost.errors.data[0].code == "batch_input_lost"
    settled(gateway)


def test_the_reservation_of_a_dead_workers_batch_is_released(
    messages: anthropic.Anthropic, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    """Its worker died after the batch was checked and held, and before it was inserted."""
    batches = gateway.services.engine.batches

    def die(*_args: object) -> None:
        raise Unavailable("The worker is dead.")

    with monkeypatch.context() as killed:
        killed.setattr(batches, "_insert", die)
        killed.setattr(project_batches, "release_batch", lambda *_args: None)
        killed.setattr(batches._files, "release", lambda _ident: None)
        with pytest.raises(anthropic.InternalServerError):
            messages.messages.batches.create(requests=[message("a")])
    database = gateway.services.store.database
    held = "SELECT id FROM hold WHERE organization = ?"
    assert len(database.query_rows(held, (gateway.organization_id,))) == 1
    kept = "SELECT expires_at FROM stored_file WHERE organization = ?"
    assert database.query_rows(kept, (gateway.organization_id,))[0][0] > database.now_us()
    batches.purge()
    assert len(database.query_rows(held, (gateway.organization_id,))) == 1  # it may be inserted in a moment
    monkeypatch.setattr(project_batches, "LOST_AFTER_US", -1)
    batches.purge()
    settled(gateway)


def test_messages_of_a_batch_need_room_among_the_files(
    messages: anthropic.Anthropic, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway.services.engine.files, "_total_bytes", 10)
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        messages.messages.batches.create(requests=[message("a")])
    database = gateway.services.store.database
    kept = "SELECT COUNT(*) FROM stored_file WHERE organization = ?"
    assert database.query_row(kept, (gateway.organization_id,))[0] == 0
    settled(gateway)


def test_messages_of_a_batch_may_name_more_files_than_one_request(
    messages: anthropic.Anthropic, client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    note = client.files.create(file=("note.txt", b"Tea. " * 60_000), purpose="user_data")
    part = {"type": "document", "source": {"type": "file", "file_id": note.id}}
    monkeypatch.setattr(gateway.services.background.bodies, "_max_each", 2 << 20)
    requests = [message(str(number), part) for number in range(5)]
    batch = messages.messages.batches.create(requests=requests)
    assert batch.request_counts.processing == 5
    run(gateway, client, batch.id, lambda: messages.messages.batches.retrieve(batch.id).processing_status == "ended")
    assert messages.messages.batches.retrieve(batch.id).request_counts.succeeded == 5
    settled(gateway)


def test_a_batch_stores_nothing_under_zero_data_retention(client: OpenAI, gateway: Tenant, upstream: FakeOpenAI):
    store = gateway.services.store
    policy = {"zeroDataRetention": True}
    with no_worker(gateway):
        batch = begin(client, [chat_line(1)])
        input_file = batch.input_file_id
        set_policy(store.database, store.control, gateway.organization_id, policy, actor="test")
    with pytest.raises(openai.BadRequestError, match="zero data retention"):
        client.batches.create(input_file_id=input_file, endpoint="/v1/chat/completions", completion_window="24h")
    failed = run(gateway, client, batch.id)
    assert failed.status == "failed" and failed.errors.data[0].code == "zdr_storage_conflict"
    assert upstream.calls == []
    settled(gateway)


def test_a_line_that_two_workers_record_is_billed_once(client: OpenAI, gateway: Tenant):
    lines = gateway.services.engine.batches._parts.lines
    journal = gateway.services.store.journal
    with no_worker(gateway):
        batch = begin(client, [chat_line(1)])
        journal.append(lines.row(batch.id, 1, ids.new_hex(), 200, b"{}", 5)).wait(10)
        mark = Statement("test_mark", "UPDATE batch_job SET cost_nusd = 77 WHERE id = ?")
        with pytest.raises(Unavailable):
            journal.append((mark, (batch.id,)), lines.row(batch.id, 1, ids.new_hex(), 200, b"{}", 5)).wait(10)
        assert gateway.services.engine.batches.rows.find(batch.id).cost_nusd == 0


def test_a_webhook_tells_of_the_end_of_a_batch(client: OpenAI, gateway: Tenant):
    received: list[tuple[str, dict]] = []

    def receive(environ, start):
        body = json.loads(environ["wsgi.input"].read())
        received.append((environ["HTTP_WEBHOOK_ID"], body))
        start("200 OK", [])
        return [b""]

    with serving(receive) as address:
        batch = begin(client, [chat_line(1)], extra={"callback_url": f"{address}/batches", "callback_secret": "s" * 32})
        run(gateway, client, batch.id)
        gateway.services.engine.batches.deliveries.run()
        deadline = time.monotonic() + 30
        while not received and time.monotonic() < deadline:
            time.sleep(0.02)
    ident, event = received[0]
    assert (ident, event["type"], event["data"]["id"]) == (f"evt_{batch.id}", "batch.completed", batch.id)
    assert event["data"]["request_counts"]["completed"] == 1


@contextmanager
def no_worker(gateway: Tenant) -> Iterator[None]:
    """Let no worker run batches in this context."""
    batches = gateway.services.engine.batches
    port, batches.port = batches.port, None
    try:
        yield
    finally:
        batches.port = port


def test_a_batch_of_a_killed_worker_of_the_node_continues_at_once(
    client: OpenAI, gateway: Tenant, upstream: FakeOpenAI
):
    """A claim of another worker rests until it ends, unless that worker is known to be dead."""
    services = gateway.services
    batches, database = services.engine.batches, services.store.database
    directory = services.billing.settlements.intents.directory
    other = Intents(directory, "node")
    batch = begin(client, [chat_line(number) for number in range(3)])
    claim = batches.rows.find(batch.id)
    name = LiveWorkers(directory, other.owner).name
    until = database.now_us() + 3600 * 10**6
    sql = "UPDATE batch_job SET due_at = ?, claimed_until = ?, claimed_by = ? WHERE id = ?"
    database.write(lambda: database.execute(sql, (until, until, name, claim.id)))
    for _ in range(3):
        batches.run()
    assert batches.rows.find(batch.id).due_at == until and upstream.calls == []
    other.close()  # its process ended
    began = time.monotonic()
    while client.batches.retrieve(batch.id).status != "completed" and time.monotonic() < began + 10:
        batches.run()
        time.sleep(0.02)
    assert time.monotonic() < began + 10
    sent = [call for call in upstream.calls if call.path == "/v1/chat/completions"]
    assert len(usage(gateway)) == 3 and len(sent) == 3
    settled(gateway)


def test_a_claim_of_an_earlier_version_is_not_ended_by_what_stands_beside_it(client: OpenAI, gateway: Tenant):
    """During an upgrade, a worker that knows no names of workers may have continued the batch of a dead one."""
    services = gateway.services
    batches, database = services.engine.batches, services.store.database
    directory = services.billing.settlements.intents.directory
    dead = Intents(directory, "node")
    name = LiveWorkers(directory, dead.owner).name
    dead.close()
    batch = begin(client, [chat_line(1)])
    until = database.now_us() + 3600 * 10**6
    sql = "UPDATE batch_job SET due_at = ?, claimed_until = ?, claimed_by = ? WHERE id = ?"
    database.write(lambda: database.execute(sql, (until, until - 1, name, batch.id)))
    for _ in range(3):
        batches.run()
    assert batches.rows.find(batch.id).due_at == until


@pytest.mark.parametrize("is_back", [True, False])
def test_a_batch_continues_soon_after_an_outage_of_the_store(
    client: OpenAI, gateway: Tenant, upstream: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, is_back: bool
):
    """The claim of its worker ends when the run ends, or as soon as the store is back, and not after 30 seconds."""
    services = gateway.services
    batches = services.engine.batches
    with no_worker(gateway):
        batch = begin(client, [chat_line(1)])
    refused: list[int] = []
    checked, change = batch_runs.check_lines, batches.rows.change

    def change_later(job, **values):
        if job.id == batch.id and len(refused) == 1:
            refused.append(2)
            raise Unavailable("The store is down.")
        return change(job, **values)

    def check_later(*given):
        if not refused and given[1].id == batch.id:
            refused.append(1)
            if not is_back:
                monkeypatch.setattr(batches.rows, "change", change_later)
            raise Unavailable("The store is down.")
        return checked(*given)

    monkeypatch.setattr(batch_runs, "check_lines", check_later)
    began = time.monotonic()
    done = run(gateway, client, batch.id)
    assert done.status == "completed" and len(refused) == 1 + (not is_back)
    assert time.monotonic() - began < (batch_runs.TROUBLE_WAIT_S if is_back else 2) + 5
    assert len(usage(gateway)) == 1 and not batches._left
    settled(gateway)


def test_a_late_renewal_changes_nothing_of_a_batch_that_has_ended(client: OpenAI, gateway: Tenant):
    batches = gateway.services.engine.batches
    done = run(gateway, client, begin(client, [chat_line(1)]).id)
    ended = batches.rows.find(done.id)
    claim = batch_runs.BatchClaim(batches.rows, ended, gateway.services.clock)
    assert not claim.move(done=0)  # its sums were read before the end
    assert batches.rows.find(done.id) == ended


def message(custom_id: str, *parts: dict) -> dict:
    content = [{"type": "text", "text": "Hello!"}, *parts]
    params = {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": content}]}
    return {"custom_id": custom_id, "params": params}


def chat_line(number: int, **body) -> dict:
    wire = {"model": MODEL, "messages": [{"role": "user", "content": f"Hello {number}!"}], "max_tokens": 50}
    return {
        "custom_id": f"line-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {**wire, **body},
    }


def begin(client: OpenAI, lines: list[dict], endpoint: str = "/v1/chat/completions", metadata=None, extra=None):
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,
        completion_window="24h",
        metadata=metadata or {"team": "tea"},
        extra_body=extra,
    )


def run(gateway: Tenant, client: OpenAI, ident: str, has_ended=None):
    """Run the recurring job until a batch has ended."""
    database = gateway.services.store.database
    sql = "UPDATE batch_job SET due_at = 1 WHERE id = ? AND due_at IS NOT NULL"
    database.write(lambda: database.execute(sql, (ident,)))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        gateway.services.engine.batches.run()
        if has_ended is not None:
            if has_ended():
                return None
        else:
            batch = client.batches.retrieve(ident)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
        time.sleep(0.02)
    raise AssertionError(client.batches.retrieve(ident) if has_ended is None else ident)


def usage(gateway: Tenant) -> list[tuple[str, int]]:
    """Return request and cost of the usage rows of the organization."""
    database = gateway.services.store.database
    gateway.services.store.journal.flush(10)
    owner = bytes.fromhex(gateway.organization_id.rpartition("_")[2])
    sql = "SELECT request, cost_nusd FROM usage WHERE organization = ?"
    return [(bytes(row[0]).hex(), row[1]) for row in database.query_rows(sql, (owner,))]


def limit_key(gateway: Tenant, usd: str) -> None:
    """Set the spending limit of the organization's key."""
    own = gateway.services.accounts.authentication.caller(gateway.key)
    limits = Limits(total_nusd=round(float(usd) * 1e9))
    gateway.services.billing.budgets.set_limits("key", own.key_id, limits)


def test_management_lists_shows_and_cancels_the_batches_of_a_project(client: OpenAI, gateway: Tenant):
    with no_worker(gateway):
        batch = begin(client, [chat_line(1)])
        check_management(client, gateway, batch)


def test_management_lists_the_batches_of_both_kinds_in_the_order_of_their_creation(
    messages: anthropic.Anthropic, client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    batches = gateway.services.engine.batches
    monkeypatch.setattr(batches.rows, "due", lambda *about: [])
    made = []
    for name in ("one", "two"):
        made.append(begin(client, [chat_line(1)]).id)
        made.append(messages.messages.batches.create(requests=[message(name)]).id)
    newest = made[::-1]
    assert [job.id for job in batches.of_project(gateway.project_id, "", 10)] == newest
    assert [batches.of_project(gateway.project_id, after, 1)[0].id for after in ("", *newest[:3])] == newest
    monkeypatch.setattr(batch_routes, "MAX_LISTED", 3)
    first = list_batches(gateway)
    assert [one["id"] for one in first["batches"]] == newest[:3]
    rest = list_batches(gateway, f"?cursor={first['next']}")
    assert [one["id"] for one in rest["batches"]] == newest[3:] and rest["next"] is None


def list_batches(gateway: Tenant, query: str = "") -> dict:
    services = gateway.services
    user = services.accounts.authentication.caller(gateway.key).user_id
    headers = {"Authorization": f"Bearer {services.management.sessions.open(user).token}"}
    address = f"{gateway.address}/projects/{gateway.project_id}/batches{query}"
    return httpx.get(address, headers=headers, timeout=60).json()


def check_management(client: OpenAI, gateway: Tenant, batch) -> None:
    project = f"/projects/{gateway.project_id}/batches"
    services = gateway.services
    user = services.accounts.authentication.caller(gateway.key).user_id
    headers = {"Authorization": f"Bearer {services.management.sessions.open(user).token}"}
    with httpx.Client(base_url=gateway.address, headers=headers, timeout=60) as http:
        listed = http.get(project).json()
        assert [(one["id"], one["status"]) for one in listed["batches"]] == [(batch.id, "validating")]
        assert http.get(f"{project}/batch_unknown").status_code == 404
        assert http.post(f"{project}/{batch.id}/cancel").json()["batch"]["status"] == "cancelling"
        assert http.get(f"{project}/{batch.id}").json()["batch"]["status"] == "cancelling"
