"""Background responses in the background mode of their provider: read on after every break, and billed once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fakes.background_responses import FakeBackgroundResponses
from fakes.responses import Answer, said
from openai import OpenAI
from support.shared import Share, Tenant, usage_of
from support.spending import until

from gateway.accounts.organizations import set_policy
from gateway.billing.reconciliation import doctor
from gateway.jobs import response_jobs, sent_responses
from gateway.jobs.response_jobs import ResponseJobs
from gateway.providers import background_calls
from gateway.runtime.threads import pause

MODEL = "openai/gpt-5-mini"
TEXT = "One two three four five six seven eight nine ten eleven twelve."
SLOW: dict[str, Any] = {"gap_s": 0.05, "piece": 4}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_calls, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(background_calls, "MAX_WAIT_S", 0.1)


@pytest.fixture
def upstream(share: Share) -> FakeBackgroundResponses:
    return share.fake(FakeBackgroundResponses)


@pytest.fixture
def gateway(share: Share, upstream: FakeBackgroundResponses) -> Iterator[Tenant]:
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "true"}
    yield share.gateway({**environment, "LLM_OPENAI_BASE_URL": upstream.url})


@pytest.fixture
def client(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def test_a_response_is_made_in_the_background_mode_and_billed_once_with_its_usage(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses
):
    upstream.script(Answer(said(TEXT), prompt=100, completion=40, **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    events = list(client.responses.retrieve(begun.id, stream=True))
    done = wait_for(client, begun.id)
    assert (done.status, done.output_text, done.background) == ("completed", TEXT, True), (
        done.error,
        [c.problem for c in upstream.calls],
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    (call,) = upstream.calls
    assert (call.body["background"], call.body["store"]) == (True, True) and not call.problem
    (row,) = settled(gateway)
    assert (row.input, row.output, row.basis) == (100, 40, 0) and row.cost_nusd > 0
    assert until(lambda: len(upstream.deleted) == 1)


def test_the_events_are_those_of_a_response_that_the_gateway_makes_itself(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    shown = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr(background_calls.BackgroundCalls, "api_of", lambda calls, target: None)
        upstream.script(Answer(said(TEXT), **SLOW))
        begun = client.responses.create(model=MODEL, input="Count!", background=True)
        shown.append([shape(event.to_dict()) for event in client.responses.retrieve(begun.id, stream=True)])
        assert wait_for(client, begun.id).output_text == TEXT
    assert shown[0] == shown[1] and len(upstream.kept) + len(upstream.deleted) == 1


def test_a_broken_stream_is_read_on_from_its_last_event(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses
):
    upstream.break_after = 4
    upstream.script(Answer(said(TEXT), **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    events = list(client.responses.retrieve(begun.id, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == TEXT and len(upstream.calls) == 1 and upstream.streams[:2] == [3, 7]
    assert len(settled(gateway)) == 1


def test_after_a_kill_another_worker_continues_without_sending_again(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    upstream.script(Answer(said(TEXT), prompt=100, completion=40, **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    jobs = gateway.services.engine.response_jobs
    die(jobs, begun.id, monkeypatch)
    jobs.recover()
    events = list(client.responses.retrieve(begun.id, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == TEXT == wait_for(client, begun.id).output_text
    assert len(upstream.calls) == 1
    rows = settled(gateway)
    assert [(row.input, row.output) for row in rows] == [(100, 40)]


def test_a_response_that_was_billed_before_a_kill_is_not_billed_again(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    upstream.script(Answer(said(TEXT), prompt=100, completion=40))
    jobs = gateway.services.engine.response_jobs

    class Killed(BaseException):
        pass

    def end(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ResponseJobs, "_end", end)
        begun = client.responses.create(model=MODEL, input="Count!", background=True)
        assert until(lambda: len(usage_of(gateway)) == 1 and begun.id not in jobs.running)
    make_due(gateway, begun.id)
    jobs.recover()
    assert wait_for(client, begun.id).output_text == TEXT
    assert len(settled(gateway)) == len(upstream.calls) == 1


def test_a_response_that_its_provider_forgot_fails_and_is_billed_like_an_interrupted_one(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    upstream.script(Answer(said(TEXT), **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    jobs = gateway.services.engine.response_jobs
    die(jobs, begun.id, monkeypatch)
    upstream.kept.clear()
    jobs.recover()
    failed = wait_for(client, begun.id)
    assert failed.status == "failed" and failed.error is not None and failed.error.code == "server_error"
    (row,) = settled(gateway)
    assert row.finish == "interrupted" and row.cost_nusd > 0


def test_a_provider_that_fails_for_long_loses_nothing(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    upstream.script(Answer(said(TEXT), prompt=100, completion=40, **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    jobs = gateway.services.engine.response_jobs
    die(jobs, begun.id, monkeypatch)
    upstream.failing = 500
    for _ in range(3):
        make_due(gateway, begun.id)
        jobs.recover()
        assert client.responses.retrieve(begun.id).status == "in_progress"
    upstream.failing = 0
    make_due(gateway, begun.id)
    jobs.recover()
    assert wait_for(client, begun.id).output_text == TEXT
    assert len(upstream.calls) == 1 and [row.output for row in settled(gateway)] == [40]


def test_a_provider_that_fails_during_the_stream_is_asked_again(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses
):
    upstream.break_after = 5
    upstream.script(Answer(said(TEXT), **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    assert until(lambda: len(upstream.streams) > 0)
    upstream.failing = 503
    pause(0.5)
    upstream.failing = upstream.break_after = 0
    assert wait_for(client, begun.id).output_text == TEXT and len(settled(gateway)) == 1


def test_a_cancelled_response_is_cancelled_at_its_provider_and_bills_what_ran(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses
):
    upstream.script(Answer(said(TEXT * 20), prompt=100, completion=40, reasoning=30, **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    with client.responses.retrieve(begun.id, stream=True) as events:
        next(event for event in events if event.type == "response.output_text.delta")
    assert client.responses.cancel(begun.id).status == "cancelled"
    (kept,) = upstream.kept.values()
    assert until(lambda: kept.canceled_at is not None)
    (row,) = settled(gateway)
    assert (row.input, row.output) == (100, 40)  # as its provider counted, with reasoning that nobody saw
    assert row.cost_nusd > 0 and client.responses.retrieve(begun.id).status == "cancelled"


def test_a_response_that_is_cancelled_after_its_worker_died_is_billed_and_cancelled(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, monkeypatch: pytest.MonkeyPatch
):
    upstream.script(Answer(said(TEXT * 20), **SLOW))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    jobs = gateway.services.engine.response_jobs
    die(jobs, begun.id, monkeypatch)
    assert client.responses.cancel(begun.id).status == "cancelled"
    monkeypatch.setattr(sent_responses, "LEFT_US", 0)
    jobs.recover()
    (kept,) = upstream.kept.values()
    assert kept.canceled_at is not None
    (row,) = settled(gateway)
    assert row.finish == "interrupted"


def test_a_server_without_the_background_mode_gets_the_request_as_before(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses
):
    upstream.has_background = False
    upstream.script(Answer(said(TEXT), prompt=100, completion=40))
    begun = client.responses.create(model=MODEL, input="Count!", background=True)
    assert wait_for(client, begun.id).output_text == TEXT
    assert [call.problem for call in upstream.calls] == ["Unknown parameter: 'background'.", ""]
    assert [(row.input, row.output) for row in settled(gateway)] == [(100, 40)]


@pytest.mark.parametrize("policy", [{"blockPromptLogging": True}, {"zeroDataRetention": True}])
def test_a_policy_without_retention_uses_no_background_mode(
    client: OpenAI, gateway: Tenant, upstream: FakeBackgroundResponses, policy: dict[str, Any]
):
    stores = gateway.services.store
    set_policy(stores.database, stores.control, gateway.organization_id, policy, actor="test")
    with pytest.raises(openai.APIStatusError):
        begun = client.responses.create(model=MODEL, input="Count!", background=True)
        if wait_for(client, begun.id).status == "failed":
            client.responses.retrieve("resp_none")
    assert not upstream.kept and not upstream.calls


def wait_for(client: OpenAI, ident: str) -> Any:
    deadline = time.monotonic() + 30
    response = client.responses.retrieve(ident)
    while response.status in ("queued", "in_progress") and time.monotonic() < deadline:
        time.sleep(0.02)
        response = client.responses.retrieve(ident)
    return response


def die(jobs: ResponseJobs, ident: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the worker of a response end without a trace once some events are stored, as a killed one does."""

    class Killed(BaseException):
        pass

    def flush(making: Any, now: bool = False) -> bool:
        if making._number > 4:
            making.call._result._ended = True  # a dead worker ends nothing
            making.call._responses = None
            making._is_lost = True
            raise Killed
        return kept(making, now)

    kept = response_jobs._Making._flush
    with monkeypatch.context() as patch:
        patch.setattr(response_jobs._Making, "_flush", flush)
        assert until(lambda: jobs._following(ident) > 4 and ident not in jobs.running)
    job = jobs.rows.find(ident)
    assert job is not None and job.state == "in_progress" and "resp_up" in job.sent
    jobs._database.change_rows("UPDATE response_job SET due_at = 1 WHERE id = ?", (ident,))


def make_due(gateway: Tenant, ident: str) -> None:
    gateway.services.store.database.change_rows("UPDATE response_job SET due_at = 1 WHERE id = ?", (ident,))


def settled(gateway: Tenant) -> list[Any]:
    """Return the usage rows once no response runs and no hold is left."""
    database = gateway.services.store.database
    jobs = gateway.services.engine.response_jobs
    holds = jobs.calls.holds
    assert until(lambda: not jobs.running and usage_of(gateway) and not holds.with_prefix("resp_"))
    assert database.query_rows("SELECT job FROM response_event WHERE first < 0") == []
    assert doctor(database) == []
    return usage_of(gateway)


def shape(value: Any) -> Any:
    """Return the members of a value, and the types and numbers of events in it."""
    if isinstance(value, dict):
        kept = {name: value[name] for name in ("type", "sequence_number", "delta") if name in value}
        return {name: shape(inner) for name, inner in value.items()} | kept
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__
