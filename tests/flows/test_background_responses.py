"""Background responses through the official client: made without a connection, streamed again from any event."""

from __future__ import annotations

import json
import time
from functools import partial

import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.shared import Tenant
from support.spending import until

from gateway import ids
from gateway.accounts import keys
from gateway.jobs import response_jobs
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import pause

MODEL = "gpt-4o-mini"
TEXT = "One two three four five six seven eight nine ten eleven twelve."


def test_a_background_response_is_made_without_a_connection_and_stored(client: OpenAI, gateway: Tenant):
    begun = client.responses.create(model=MODEL, input="Hello!", background=True)
    assert (begun.status, begun.background, begun.output) == ("queued", True, [])
    done = wait_for(client, begun.id)
    assert (done.status, done.output_text, done.background) == ("completed", "Hello.", True)
    assert done.usage is not None and len(rows(gateway)) == 1
    following = client.responses.create(model=MODEL, input="And then?", previous_response_id=begun.id)
    assert following.output_text == "Hello."
    assert client.responses.cancel(begun.id).status == "completed"
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_a_reader_that_comes_back_ten_times_gets_the_same_events_in_their_order(client: OpenAI, upstream: FakeOpenAI):
    upstream.script(Answer(TEXT, gap_s=0.05, piece=4))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    seen = []
    after = None
    for _ in range(10):
        with client.responses.retrieve(
            begun.id, stream=True, **({} if after is None else {"starting_after": after})
        ) as events:
            for number, event in enumerate(events):
                seen.append(event)
                after = event.sequence_number
                if number == 1:
                    break
    seen += list(client.responses.retrieve(begun.id, stream=True, starting_after=after))
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    again = list(client.responses.retrieve(begun.id, stream=True))
    assert [event.to_dict() for event in again] == [event.to_dict() for event in seen]
    assert seen[0].type == "response.created" and seen[-1].type == "response.completed"
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert text == TEXT == client.responses.retrieve(begun.id).output_text


def test_a_background_response_can_be_streamed_by_its_creation(client: OpenAI):
    events = list(client.responses.create(model=MODEL, input="Hello!", background=True, stream=True))
    assert events[-1].type == "response.completed" and events[-1].response.background is True


def test_a_cancelled_background_response_ends_its_call_and_bills_what_ran(
    client: OpenAI, upstream: FakeOpenAI, gateway: Tenant
):
    upstream.script(Answer(TEXT * 50, gap_s=0.1, piece=4))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    with client.responses.retrieve(begun.id, stream=True) as events:
        next(iter(events))
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    deadline = time.monotonic() + 30
    while (gateway.services.is_busy() or not rows(gateway)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(rows(gateway)) == 1


def test_a_failure_is_the_end_of_the_response_and_of_its_stream(client: OpenAI, upstream: FakeOpenAI):
    upstream.script(*[Answer(status=400)] * 5)
    begun = client.responses.create(model=MODEL, input="Hello!", background=True)
    failed = wait_for(client, begun.id)
    assert failed.status == "failed" and failed.error is not None
    events = list(client.responses.retrieve(begun.id, stream=True))
    assert [event.type for event in events] == ["response.failed"]


def test_an_immediate_error_is_the_answer_of_the_creation(client: OpenAI, gateway: Tenant):
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="no-such-model", input="Hello!", background=True)
    with pytest.raises(openai.BadRequestError, match="store"):
        client.responses.create(model=MODEL, input="Hello!", background=True, store=False)
    assert rows(gateway) == []


def test_a_response_that_is_deleted_while_its_end_is_stored_stays_deleted(
    client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch
):
    services = gateway.services
    keep = services.engine.responses.keep
    deleted: list[str] = []

    def delete_first(caller, stored, previous):
        ident = stored.response["id"]
        client.responses.delete(ident)
        keep(caller, stored, previous)
        deleted.append(ident)

    monkeypatch.setattr(services.engine.responses, "keep", delete_first)
    begun = client.responses.create(model=MODEL, input="Hello!", background=True)
    deadline = time.monotonic() + 30
    while (services.is_busy() or not deleted) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert deleted == [begun.id]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_after_a_crash_a_begun_response_fails_and_a_queued_one_is_made(client: OpenAI, gateway: Tenant):
    jobs = gateway.services.engine.response_jobs
    done = wait_for(client, client.responses.create(model=MODEL, input="Hello!", background=True).id)
    job = jobs.rows.find(done.id)
    assert job is not None
    wire = {"model": MODEL, "input": "Hello!", "background": True, "stream": True}
    request = jobs._vault.seal(json.dumps({"body": wire, "headers": {}, "peer": "", "base_url": ""}))
    begun = {state: f"resp_{ids.new_hex()}" for state in ("queued", "in_progress")}
    for state, ident in begun.items():
        lost = job._replace(id=ident, state=state, due_at=1, completed_at=None, request=request)
        for statement, values in jobs.rows.insert_rows(lost):
            jobs._database.write(partial(jobs._database.execute, statement.sql, values))
    jobs.recover()
    assert wait_for(client, begun["queued"]).output_text == "Hello."
    failed = wait_for(client, begun["in_progress"])
    assert failed.status == "failed" and failed.error.code == "server_error"


def test_a_response_that_another_worker_makes_waits_for_memory(
    client: OpenAI, gateway: Tenant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    jobs = gateway.services.engine.response_jobs
    done = wait_for(client, client.responses.create(model=MODEL, input="Hello!", background=True).id)
    job = jobs.rows.find(done.id)
    assert job is not None
    wire = {"model": MODEL, "input": "Hello!", "background": True, "stream": True}
    request = jobs._vault.seal(json.dumps({"body": wire, "headers": {}, "peer": "", "base_url": ""}))
    ident = f"resp_{ids.new_hex()}"
    lost = job._replace(id=ident, state="queued", due_at=1, completed_at=None, request=request)
    for statement, values in jobs.rows.insert_rows(lost):
        jobs._database.write(partial(jobs._database.execute, statement.sql, values))
    held = gateway.services.background.bodies.held
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_memory", ByteBudget(100, 100))
        jobs.recover()
        pause(0.1)
    assert client.responses.retrieve(ident).status == "queued" and "waits until this worker has memory" in caplog.text
    jobs._database.change_rows("UPDATE response_job SET due_at = 1 WHERE id = ?", (ident,))
    jobs.recover()
    assert wait_for(client, ident).output_text == "Hello."
    assert until(lambda: gateway.services.background.bodies.held == held)


def test_a_key_of_the_project_sees_the_responses_of_a_customer_as_little_while_they_run_as_later(
    client: OpenAI, gateway: Tenant, upstream: FakeOpenAI
):
    services = gateway.services
    owner = services.accounts.authentication.caller(gateway.key)
    stores = services.store.database, services.store.control, services.store.secrets.hash_keys
    draft = partial(keys.Draft, owner.project_id, owner.member_id)
    token = keys.create(*stores, draft("customer", "customer"), actor="test").token
    customer = OpenAI(base_url=gateway.url, api_key=token, max_retries=0)
    colleague = OpenAI(
        base_url=gateway.url, api_key=keys.create(*stores, draft("laptop"), actor="test").token, max_retries=0
    )
    upstream.script(*[Answer(TEXT, gap_s=0.1, piece=4)] * 2)
    theirs = customer.responses.create(model=MODEL, input="Count!", background=True)
    mine = client.responses.create(model=MODEL, input="Count!", background=True)
    for ident, stranger in ((theirs.id, client), (mine.id, customer)):
        for refused in (stranger.responses.retrieve, stranger.responses.cancel, stranger.responses.delete):
            with pytest.raises(openai.NotFoundError):
                refused(ident)
    assert colleague.responses.retrieve(mine.id).id == mine.id
    assert wait_for(customer, theirs.id).output_text == wait_for(colleague, mine.id).output_text == TEXT
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(theirs.id)


@pytest.mark.parametrize("ends", ["deleted", "expired"])
def test_events_are_deleted_a_few_at_a_time(client: OpenAI, gateway: Tenant, monkeypatch, ends: str):
    database = gateway.services.store.database
    jobs = gateway.services.engine.response_jobs
    done = wait_for(client, client.responses.create(model=MODEL, input="Hello!", background=True).id)
    for number in range(1000, 1007):
        database.change_rows(
            "INSERT INTO response_event (job, first, following, frames) VALUES (?, ?, ?, ?)",
            (done.id, number, number + 1, b""),
        )
    monkeypatch.setattr(response_jobs, "DELETED_EVENTS", 3)
    change_rows = database.change_rows
    deleted: list[int] = []

    def count(sql, params):
        deleted.append(change_rows(sql, params))
        return deleted[-1]

    monkeypatch.setattr(database, "change_rows", count)
    if ends == "deleted":
        jobs.delete(done.id)
    else:
        change_rows("UPDATE response_job SET completed_at = 1 WHERE id = ?", (done.id,))
        jobs.purge()
    assert max(deleted) == 3 and sum(deleted) >= 8
    assert database.query_rows("SELECT first FROM response_event WHERE job = ?", (done.id,)) == []
    assert jobs.rows.find(done.id) is None


def wait_for(client: OpenAI, ident: str):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        response = client.responses.retrieve(ident)
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.02)
    raise AssertionError(response)


def rows(gateway: Tenant) -> list:
    gateway.services.store.journal.flush(10)
    owner = bytes.fromhex(gateway.organization_id.rpartition("_")[2])
    sql = "SELECT request, cost_nusd FROM usage WHERE organization = ?"
    return gateway.services.store.database.query_rows(sql, (owner,))
